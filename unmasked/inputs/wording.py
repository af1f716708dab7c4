"""Put remarks on columns in words, a sentence a kind, and refuse unread columns in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unmasked.errors import InputError

_TOLD = 20  # columns whose reason is told, of those that one advice is for


class Unread(Exception):
    """A column that cannot be read: its name, what is wrong with it, and what to do."""

    def __init__(self, name: str, what: str, do: str, kind: type[Exception] = InputError) -> None:
        super().__init__(f"column {name!r} {what}; {do}.")
        self.name, self.what, self.do, self.kind = name, what, do, kind


def refuse(wrong: Sequence[Unread]) -> None:
    """Name all columns that cannot be read, with their reasons, in one sentence."""
    if not wrong:
        return
    if len(wrong) == 1:
        raise wrong[0].kind(str(wrong[0]))
    advice: dict[str, list[Unread]] = {}
    for one in wrong:
        advice.setdefault(one.do, []).append(one)
    told = []
    for do, alike in advice.items():
        text = ", ".join(f"{one.name!r} {one.what}" for one in alike[:_TOLD])
        more = [one.name for one in alike[_TOLD:]]
        told.append(text + (f", likewise {some(more, 200)}" if more else "") + f" ({do})")
    raise InputError(f"{len(wrong):,} columns cannot be read: {'; '.join(told)}.")


@dataclass
class Said:
    """Remarks on columns, collected by kind; each kind is told in one sentence."""

    constant: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """All that was said."""
        found = list(self.others)
        for told, text in (
            (self.dates, "read as dates, each one feature: {}."),
            (self.written, "read as numbers: {}."),
            (self.holes, "taken as missing: {}."),
            (self.joined, "rare values share one column: {}."),
        ):
            if told:
                found.append(text.format(listed(told)))
        if self.constant:
            found.append(
                f"{some(self.constant)} {'is' if len(self.constant) == 1 else 'are'} constant in "
                "the training rows: kept, but it can explain nothing."
            )
        return found


def some(names: Sequence[str], most: int = 8) -> str:
    """Names in quotes, but no more than so many.

    >>> some(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    text = ", ".join(repr(name) for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def listed(told: Sequence[str], between: str = "; ", most: int = 8) -> str:
    """Join what was told into one text, ``most`` pieces at most, and count the others."""
    text = between.join(told[:most])
    return text + (f"{between}and {len(told) - most} more" if len(told) > most else "")
