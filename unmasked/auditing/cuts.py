"""Attributions into masks: the k largest of each row, or a fraction of all features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.matching import Matched
from unmasked.checks import is_whole
from unmasked.errors import InputError


@dataclass(frozen=True)
class Cut:
    """Where attributions are cut: ``top`` features of each row; several make a sweep."""

    tops: tuple[int, ...]

    @classmethod
    def read(cls, top: Any, fraction: Any, features: int) -> Cut | None:
        """From a number of features or a fraction of them, or lists of such."""
        if top is not None and fraction is not None:
            raise InputError("either top or fraction cuts attributions, but both came; give one.")
        if fraction is not None:
            shares = _several(fraction)
            wrong = next((f for f in shares if not _is_number(f) or not 0 < f <= 1), None)
            if wrong is not None:
                raise InputError(f"fraction must lie above 0 and up to 1 but is {wrong!r}.")
            counts = [max(1, round(f * features)) for f in shares]
        elif top is not None:
            counts = _several(top)
            wrong = next((k for k in counts if not is_whole(k) or not 1 <= k <= features), None)
            if wrong is not None:
                raise InputError(
                    f"top must be a whole number from 1 to the {features} features but is "
                    f"{wrong!r}."
                )
        else:
            return None
        if not counts:
            raise InputError("top and fraction must name at least one size but came empty.")
        return cls(tuple(sorted({int(k) for k in counts})))


@dataclass(frozen=True)
class Audited:
    """One explanation to judge.

    masks : (rows, features) bool. source : the explanation that it was cut from. order :
    (rows, features) each row's features from the first to the last, where there is an order.
    cut : {"top": k} of attributions.
    """

    name: str
    source: str
    masks: NDArray[np.bool_]
    order: NDArray[np.int64] | None
    cut: dict[str, int]
    how: str


def cut(
    matched: Matched, where: Cut | None, classes: NDArray[Any], of_class: Any, *, signed: bool
) -> list[Audited]:
    """The masks of one explanation: as they are, or one set for each place of the cut."""
    values = _one_class(matched, classes, of_class, signed=signed)
    if values.dtype != bool and not np.isfinite(values).all():
        raise InputError(
            f"explanation {matched.name!r} must hold finite numbers but holds NaN or inf; fill "
            "them in."
        )
    masks = values.dtype == bool or bool(np.isin(values, (0, 1)).all())
    if masks:
        order = None if matched.ranks is None else _order(matched.ranks, signed=True)
        shown = values.astype(bool)
        return [Audited(matched.name, matched.name, shown, order, {}, matched.how)]
    if where is None:
        wrong = values[~np.isin(values, (0, 1))][0]
        raise InputError(
            f"explanation {matched.name!r} holds {wrong:.4g} but masks hold 0 and 1 only; if these "
            "are attributions, say where to cut them with top (--top) or fraction (--fraction)."
        )
    if matched.listed is not None and where.tops[-1] > matched.listed:
        raise InputError(
            f"explanation {matched.name!r} weighs only {matched.listed} features of some row but "
            f"the {where.tops[-1]} largest are asked for; ask LIME for num_features="
            f"{where.tops[-1]} or more."
        )
    order = _order(values, signed=signed)
    single = len(where.tops) == 1
    return [
        Audited(
            matched.name if single else f"{matched.name}, top {k}",
            matched.name,
            first(order, k),
            order,
            {"top": k},
            matched.how,
        )
        for k in where.tops
    ]


def first(
    order: NDArray[np.int64], k: int | NDArray[np.int64], features: int | None = None
) -> NDArray[np.bool_]:
    """Masks that show the first k of each row's ordered features; k may differ between rows.

    order : (rows, ordered), which may name fewer than all features.
    """
    masks = np.zeros((len(order), order.shape[1] if features is None else features), dtype=bool)
    shown = np.arange(order.shape[1]) < np.broadcast_to(k, len(order))[:, None]
    np.put_along_axis(masks, order, shown, axis=1)
    return masks


def _order(values: NDArray[Any], *, signed: bool) -> NDArray[np.int64]:
    size = values if signed else np.abs(values)
    return np.argsort(-size, axis=1, kind="stable")  # ties: the earlier feature


def _one_class(
    matched: Matched, classes: NDArray[Any], of_class: Any, *, signed: bool
) -> NDArray[Any]:
    """The attributions of the class that is asked for, (rows, features)."""
    values = matched.values
    if values.ndim == 2:
        return values
    own, count = matched.classes, values.shape[2]
    names = [str(label) for label in classes.tolist()]
    # of two classes the attributions differ in sign alone
    if count == 1 and own is not None and of_class is not None and (signed or len(names) > 2):
        _check_same(matched.name, own[0], of_class, names)
    if count == 1:
        return values[:, :, 0]
    told = [_called(one, names) for one in own] if own and count != len(names) else names
    offered = ", ".join(told[:10])
    if of_class is None:
        raise InputError(
            f"explanation {matched.name!r} has attributions for {count} classes; name "
            f"one of {offered} with of_class (--class)."
        )
    place = _place(str(of_class), own, names, count)
    if place is None:
        raise InputError(
            f"explanation {matched.name!r} has attributions for {count} classes but "
            f"{of_class!r} is none of them; name one of {offered}."
        )
    chosen: NDArray[Any] = values[:, :, place]
    if own is not None and chosen.dtype.kind == "f" and (without := np.isnan(chosen).all(1)).any():
        raise InputError(
            f"explanation {matched.name!r} has no weights for the class {of_class!r} in "
            f"{int(without.sum()):,} of its rows; explain that class in every row, with labels."
        )
    return chosen


def _place(
    asked: str, own: list[str] | list[int] | None, names: list[str], count: int
) -> int | None:
    """Where a class lies on the third axis: by its name, else by its number among all classes."""
    held: list[Any] = list(range(count)) if own is None else list(own)
    if asked in held:
        return held.index(asked)
    number = names.index(asked) if asked in names else int(asked) if asked.isdigit() else None
    if own is None and asked in names and count != len(names):
        return None  # whose classes these are is unknown
    if number in held:
        return held.index(number)
    every = own is not None and isinstance(held[0], str) and count == len(names)
    return number if every and number is not None and number < count else None


def _check_same(name: str, own: str | int, of_class: Any, names: list[str]) -> None:
    """Refuse attributions of one class where those of another are asked for."""
    called, asked = _called(own, names), str(of_class)
    if called in names and asked in names and called != asked:
        raise InputError(
            f"explanation {name!r} explains the class {called!r} but of_class is {of_class!r}; "
            "explain that class, or audit this one by itself."
        )


def _called(own: str | int, names: list[str]) -> str:
    """The name of a class that came as a name or as a number."""
    return names[own] if isinstance(own, int) and own < len(names) else str(own)


def _several(value: Any) -> list[Any]:
    if isinstance(value, list | tuple | range | np.ndarray):
        return list(value)
    return [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
