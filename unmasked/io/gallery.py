"""The HTML gallery: many small pictures on one self-contained page that needs no script."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from unmasked.errors import InputError, OutputError
from unmasked.io.output_folder import all_or_nothing

MOST_BYTES = 30_000_000
"""What a page may weigh: larger ones are slow to open and too large for most mail."""
_SMALL = 64  # pixels: pictures up to this size are always shown enlarged, so pixels stay sharp
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Picture:
    """A picture: the label below it, its PNG bytes, and what it shows in words."""

    label: str
    png: bytes
    alt: str

    def __post_init__(self) -> None:
        if not self.png.startswith(_SIGNATURE) or len(self.png) < 24:
            raise InputError(
                f"the picture {self.label!r} must be the bytes of a PNG file but begins with "
                f"{self.png[:8]!r}; make them with unmasked.plots.overlays.png."
            )
        if not self.alt.strip():
            raise InputError(
                f"the picture {self.label!r} must say in words what it shows but its alt text is "
                "empty; write one for readers who cannot see it."
            )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, as the PNG's header states them."""
        return int.from_bytes(self.png[16:20], "big"), int.from_bytes(self.png[20:24], "big")

    @property
    def small(self) -> bool:
        """Return True if the picture is so small that enlarged pixels should stay sharp squares."""
        return max(self.size) <= _SMALL

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Card:
    """Pictures of one thing side by side, with a title, a caption and facts {name: value}.

    Cards of the same ``group`` come below one heading; "" is a group without one.
    """

    group: str
    title: str
    caption: str
    pictures: list[Picture]
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.pictures:
            raise InputError(
                f"the card {self.title!r} must have pictures but has none; leave the card out."
            )


def write_gallery(
    path: Path,
    title: str,
    cards: Sequence[Card],
    *,
    lead: Sequence[str] = (),
    facts: dict[str, str] | None = None,
    totals: dict[str, int] | None = None,
    columns: int | None = None,
    footer: str = "",
) -> None:
    """Write cards as one page, whole or not at all.

    ``lead`` is what to see, in plain words, a string per paragraph; ``facts`` are about all cards;
    ``totals`` says of groups how many there are, where the cards are only some of them;
    ``columns`` is how many cards may stand side by side (by default, as many as there is room for);
    ``footer`` says where the pictures come from (``page.footer``). Inside ``all_or_nothing``,
    write into the folder that it hands out.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(
            f"the gallery must be a file but {path} is a folder; choose a name in it, such as "
            f"{path / 'gallery.html'}."
        )
    page = render(
        title, cards, lead=lead, facts=facts, totals=totals, columns=columns, footer=footer
    )
    # Names of files may hold what is no text; a question mark stands for it.
    data = page.encode("utf-8", errors="replace")
    with all_or_nothing(path.parent, checked=False) as part:
        (part / path.name).write_bytes(data)


def render(
    title: str,
    cards: Sequence[Card],
    *,
    lead: Sequence[str] = (),
    facts: dict[str, str] | None = None,
    totals: dict[str, int] | None = None,
    columns: int | None = None,
    footer: str = "",
) -> str:
    """The page that ``write_gallery`` writes."""
    if not cards:
        raise InputError("a gallery must have cards but none came; pass at least one.")
    if columns is not None and columns < 1:
        raise InputError(f"columns must be at least 1 but is {columns}; leave it out for the best.")
    _check_size(cards)
    groups: dict[str, list[Card]] = {}  # in the order in which they first come
    for card in cards:
        groups.setdefault(card.group, []).append(card)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("unmasked.io").joinpath("gallery.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=title,
        groups=groups,
        lead=lead,
        facts=facts or {},
        counts={name: _count(len(own), (totals or {}).get(name)) for name, own in groups.items()},
        columns=columns,
        across=max(len(card.pictures) for card in cards),
        rows=3 if any(card.facts for card in cards) else 2,  # words, pictures, facts
        footer=footer,
    )


def _count(shown: int, total: int | None) -> str:
    """Say how many cards a group has, and of how many where more were left out.

    >>> _count(12, 23), _count(12, None), _count(3, 3)
    ('12 of 23', '12', '3')
    """
    return f"{shown:,}" if total is None or total == shown else f"{shown:,} of {total:,}"


def _check_size(cards: Sequence[Card]) -> None:
    """Refuse a page that is too large before it is made; pictures are nearly all of it."""
    pictures = [picture for card in cards for picture in card.pictures]
    size = sum(4 * math.ceil(len(picture.png) / 3) for picture in pictures)  # base64
    if size > MOST_BYTES:
        raise InputError(
            f"a gallery may have {MOST_BYTES / 1e6:.0f} MB but its {len(pictures):,} pictures "
            f"make {size / 1e6:.0f} MB; show fewer images or smaller ones."
        )
