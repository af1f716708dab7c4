"""Which row and which column of a table each number of an explanation belongs to.

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

from unmasked.auditing.given import Given
from unmasked.errors import InputError

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
