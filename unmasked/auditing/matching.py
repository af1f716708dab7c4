"""Match explanations to rows and columns of the table, and cut attributions into masks.

Rows match by their labels where both sides have them, else by order; columns by name where both
have names, in any order, else by position. What was done is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.explanations import Given
from unmasked.checks import is_whole
from unmasked.errors import InputError


@dataclass(frozen=True)
class Cut:
    """Numbers of top features that attributions are cut to in each row; several make a sweep."""

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
    """Find a class's index on the third axis, by its name or else its number among all classes."""
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


_NAMED = 5  # ids or names told in a sentence


@dataclass(frozen=True)
class Matched:
    """An explanation's numbers in the table's order of rows and columns.

    values : (rows, features) or (rows, features, classes), ranks : (rows, features) or None,
    rows : positions in the table of the rows that it explains, how : how it was matched,
    classes, listed : as in `Given`.
    """

    name: str
    values: NDArray[Any]
    ranks: NDArray[Any] | None
    rows: NDArray[np.int64]
    how: str
    classes: list[str] | list[int] | None = None
    listed: int | None = None

    def take(self, keep: NDArray[np.int64], rows: NDArray[np.int64]) -> Matched:
        """Some of its rows, which are these rows of the table."""
        ranks = None if self.ranks is None else self.ranks[keep]
        return replace(self, values=self.values[keep], ranks=ranks, rows=rows)


def match(
    given: Given,
    features: Sequence[str],
    named: bool,
    ids: pd.Index,
    *,
    some: bool = False,
) -> Matched:
    """Put an explanation into the table's order.

    features : the table's columns, ``named`` where the user named them. ids : its rows' labels.
    some : whether the explanation may lack rows of the table.
    """
    columns, by_column = _columns(given, list(features), named)
    taken, rows, by_row = _rows(given, ids, some)
    values = _taken(given.values, taken, columns)
    ranks = None if given.ranks is None else _taken(given.ranks, taken, columns)
    how = f"rows by {by_row}, columns by {by_column}"
    return Matched(given.name, values, ranks, rows, how, given.classes, given.listed)


def _taken(
    values: NDArray[Any], rows: NDArray[np.int64] | None, columns: list[int] | None
) -> NDArray[Any]:
    """Rows and columns in another order, without a copy where the order stays."""
    values = values if rows is None else values[rows]
    return values if columns is None else values[:, columns]


def _columns(given: Given, features: list[str], named: bool) -> tuple[list[int] | None, str]:
    """For each feature of the table, its column in the explanation; None for the same order."""
    width = given.values.shape[1]
    own = given.features
    if own is None or not named or (width == len(features) and not set(own) & set(features)):
        if width != len(features):
            raise InputError(
                f"explanation {given.name!r} has {width:,} columns but the table has "
                f"{len(features):,} features; give one column for each feature."
            )
        return None, "position"
    missing = [name for name in features if name not in own]
    more = [name for name in own if name not in features]
    if missing or more:
        told = [f"{_some(missing)} missing"] if missing else []
        told += [f"{_some(more)} not in the table"] if more else []
        raise InputError(
            f"explanation {given.name!r} has {width:,} columns for the table's "
            f"{len(features):,} features, with {' and '.join(told)}; give one column for each "
            "feature, under its name."
        )
    where = {name: i for i, name in enumerate(own)}
    return [where[name] for name in features], "name"


def _rows(
    given: Given, ids: pd.Index, some: bool
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], str]:
    """Rows of the explanation in the table's order, their rows in the table, and how.

    None for the rows as they are.
    """
    count = len(given.values)
    everything = np.arange(len(ids))
    own = None if given.ids is None else _alike(pd.Index(given.ids), ids)
    known = own is not None and ids.is_unique and (bool(own.isin(ids).any()) or some)
    counts_only = own is not None and np.array_equal(own, np.arange(count))
    if own is None or not known or (counts_only and not some and not ids.equals(own)):
        if count != len(ids):
            raise InputError(
                f"explanation {given.name!r} has {count:,} rows but the table has {len(ids):,}; "
                "give one row for each, or label the rows on both sides (--id)."
            )
        return None, everything, "order"
    twice = own[own.duplicated()]
    if len(twice):
        raise InputError(
            f"explanation {given.name!r} has the row {_label(twice[0])} twice; keep one."
        )
    place = own.get_indexer(ids)
    missing, more = ids[place < 0], own[~own.isin(ids)]
    if len(more) or (len(missing) and not some):
        told = [f"rows {_some(missing)} missing"] if len(missing) else []
        told += [f"rows {_some(more)} not in the table"] if len(more) else []
        advice = "; rest='train' or rest='drop' (--rest) leaves out rows without masks"
        raise InputError(
            f"explanation {given.name!r} has {count:,} rows but the table has {len(ids):,}, with "
            f"{' and '.join(told)}{advice if not len(more) else ''}."
        )
    rows = np.flatnonzero(place >= 0)
    return place[rows], rows, "label"


def _alike(own: pd.Index, ids: pd.Index) -> pd.Index:
    """Labels of one kind: numbers that were read as text, or text as numbers, are compared so."""
    if own.dtype.kind in "iuf" and ids.dtype.kind in "iuf":
        return own
    if own.dtype == ids.dtype:
        return own
    if ids.dtype.kind in "iuf":
        numbers = pd.to_numeric(pd.Series(own), errors="coerce")
        return own if numbers.isna().any() else pd.Index(numbers)
    return pd.Index([str(label) for label in own])


def _some(labels: Any) -> str:
    told = ", ".join(_label(label) for label in labels[:_NAMED])
    return told + (f" and {len(labels) - _NAMED:,} more" if len(labels) > _NAMED else "")


def _label(label: Any) -> str:
    return repr(label.item() if hasattr(label, "item") else label)
