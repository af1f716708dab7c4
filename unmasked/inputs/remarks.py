"""Warn of remarkable columns in training rows: one decides y alone, or some say the same.

Both are found on a sample of rows, all columns at once, and the few that are left are looked at in
all rows: of 10,000 columns too, in seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from math import lgamma, log

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.errors import DataWarning
from unmasked.inputs.table import Columns
from unmasked.inputs.wording import listed

_NUMBERS = 5_000_000  # of the sample
_LEAST_ROWS, _MOST_ROWS = 256, 5_000
_MOST_VALUES = 100  # of a column that may be another's under other names
_BY_CHANCE = log(1e-3)  # that any column decides y
_ROUNDING = 1e-6  # of a standardised number
_SAME = 1e-4  # between standardised numbers that are the same but for rounding


def tell(columns: Columns, matrix: NDArray[np.float32], label: NDArray[np.int64] | None) -> None:
    """Warn of columns that decide the label, (rows,), alone, and of such as copy each other.

    matrix : (rows, matrix columns) of `Columns.matrix`.
    """
    names = [column.name for column in columns.columns]
    alone = [] if label is None else [names[i] for i in deciding(columns, matrix, label)]
    if alone:
        who = "column" if len(alone) == 1 else "each of the columns"
        warnings.warn(
            f"{who} {listed([repr(name) for name in alone], ', ')} decides y by itself; is it an "
            "outcome in disguise? Drop it (--drop) if so.",
            DataWarning,
            stacklevel=4,
        )
    alike = [
        same for same in copying(columns, matrix) if len({columns.feature_of[i] for i in same}) > 1
    ]
    if alike:
        told = [" = ".join(repr(names[i]) for i in same) for same in alike]
        warnings.warn(
            f"columns say the same in every training row: {listed(told)}; an explanation may show "
            "either, so group them with groups= or drop all but one (--drop).",
            DataWarning,
            stacklevel=4,
        )


def deciding(columns: Columns, matrix: NDArray[np.float32], label: NDArray[np.int64]) -> list[int]:
    """Positions of the columns that alone say every row's label.

    Each value has rows of one label only, or each label's numbers lie apart from the others'; and
    there are so few values for so many rows that it can hardly be chance.

    >>> table = pd.DataFrame({"age": range(60), "paid": [3, 8, 5] * 20, "late": [0, 1, 0] * 20})
    >>> learned = Columns.learn(table)
    >>> deciding(learned, learned.matrix(table), np.array([0, 1, 0] * 20))
    [1, 2]
    """
    rows = _rows_of_each(label, len(columns.columns))
    values = _numbers(columns, matrix[rows])
    found = np.flatnonzero(_decides(values, label[rows], len(columns.columns)))
    return [
        int(i) for i in found if len(rows) == len(label) or _in_all(columns, matrix, label, int(i))
    ]


def _in_all(
    columns: Columns, matrix: NDArray[np.float32], label: NDArray[np.int64], column: int
) -> bool:
    values = _numbers(columns, matrix, [column])
    return bool(_decides(values, label, len(columns.columns))[0])


def _decides(
    values: NDArray[np.float64], label: NDArray[np.int64], tried: int
) -> NDArray[np.bool_]:
    """Find the columns of values, (columns, rows), that decide the label; ``tried`` : of how many.

    Labels put to rows at random would follow m values with a probability of at most k^m / N, where
    N is the number of ways to put them, and lie apart in k intervals with one of k! / N.
    """
    _, label, counts = np.unique(label, return_inverse=True, return_counts=True)
    classes = len(counts)
    ways = lgamma(len(label) + 1) - sum(lgamma(count + 1) for count in counts)
    spare = _BY_CHANCE - log(tried) + ways
    apart = np.zeros(len(values), dtype=bool)
    if lgamma(classes + 1) + log(2) < spare:  # missing values are below all, or above
        apart = np.logical_or(_apart(values, label, -np.inf), _apart(values, label, np.inf))
    order = np.argsort(values, axis=1)
    ranked, named = np.take_along_axis(values, order, axis=1), label[order]
    new = ranked[:, 1:] != ranked[:, :-1]
    new &= ~(np.isnan(ranked[:, 1:]) & np.isnan(ranked[:, :-1]))
    pure = (new | (named[:, 1:] == named[:, :-1])).all(axis=1)
    few = (1 + new.sum(axis=1)) * log(classes) < spare
    return np.logical_or(apart, np.logical_and(pure, few))


def _apart(
    values: NDArray[np.float64], label: NDArray[np.int64], missing: float
) -> NDArray[np.bool_]:
    """Find columns where each label's values lie in an interval of their own, (columns,)."""
    filled = np.where(np.isnan(values), missing, values)
    own = [filled[:, label == number] for number in range(int(label.max()) + 1)]
    low = np.stack([part.min(axis=1) for part in own], axis=1)  # (columns, labels)
    high = np.stack([part.max(axis=1) for part in own], axis=1)
    order = np.argsort(low, axis=1)
    low, high = np.take_along_axis(low, order, 1), np.take_along_axis(high, order, 1)
    return np.asarray((high[:, :-1] < low[:, 1:]).all(axis=1))


def copying(columns: Columns, matrix: NDArray[np.float32]) -> list[list[int]]:
    """Groups of columns that say the same: numbers in other units, categories under other names.

    >>> table = pd.DataFrame({"c": [10.0, 15, 30] * 20, "town": ["a", "b", "c"] * 20})
    >>> table = table.assign(f=32 + 1.8 * table["c"], n=np.arange(60.0), code=[7, 1, 3] * 20)
    >>> learned = Columns.learn(table)
    >>> copying(learned, learned.matrix(table))
    [[0, 1, 2, 4]]
    """
    rows = np.unique(np.linspace(0, len(matrix) - 1, _count(len(columns.columns))).astype(int))
    values = _numbers(columns, matrix[rows])
    groups: list[list[int]] = []
    place: dict[int, int] = {}  # of a column's group
    for one, other in _pairs(values, columns):
        if place.get(one, -1) == place.get(other, -2) or not _same(columns, matrix, one, other):
            continue
        if one not in place and other not in place:
            place[one] = len(groups)
            groups.append([one])
        home, guest = (one, other) if one in place else (other, one)
        if guest in place:  # two groups meet
            moved = groups[place[guest]]
            groups[place[guest]] = []
        else:
            moved = [guest]
        groups[place[home]] += moved
        place |= dict.fromkeys(moved, place[home])
    return sorted(sorted(group) for group in groups if group)


def _pairs(values: NDArray[np.float64], columns: Columns) -> list[tuple[int, int]]:
    """Columns that may say the same, by a sample of their values, (columns, rows)."""
    constant = np.array([len(np.unique(line[~np.isnan(line)])) < 2 for line in values])
    codes = [None if same else _codes(line) for same, line in zip(constant, values, strict=True)]
    ordered = [
        i
        for i, (column, own) in enumerate(zip(columns.columns, codes, strict=True))
        if not constant[i] and (column.categories is None or (own is not None and own.max() == 1))
    ]
    return [*_by_sum(values, ordered), *_by_code(codes)]


def _by_sum(values: NDArray[np.float64], ordered: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in other units: standardised, a weighted sum of them is the same, or minus it."""
    scaled = values[list(ordered)]
    scaled -= np.nanmean(scaled, axis=1, keepdims=True)
    scaled /= np.nanstd(scaled, axis=1, keepdims=True)
    weights = np.random.default_rng(0).standard_normal(values.shape[1])  # a hash, not a draw
    sums = np.abs(np.nan_to_num(scaled) @ weights)
    near = _ROUNDING * np.sqrt(values.shape[1])
    places = pairwise(np.argsort(sums, kind="stable"))
    return [(ordered[a], ordered[b]) for a, b in places if sums[b] - sums[a] < near]


def _by_code(codes: Sequence[NDArray[np.int64] | None]) -> list[tuple[int, int]]:
    """Categories under other names: numbered as they appear, they are the same."""
    found: list[tuple[int, int]] = []
    first: dict[bytes, int] = {}
    for i, own in enumerate(codes):
        if own is not None and first.setdefault(own.tobytes(), i) != i:
            found.append((first[own.tobytes()], i))
    return found


def _codes(line: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The number of each value, as they appear; None for too many."""
    codes, different = pd.factorize(line)
    return codes.astype(np.int64) if len(different) <= _MOST_VALUES else None


def _same(columns: Columns, matrix: NDArray[np.float32], one: int, other: int) -> bool:
    """Return True if two columns say the same in all rows, but for units or names of values."""
    a, b = _numbers(columns, matrix, [one, other])
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    if a.std() == 0 or b.std() == 0:
        return False
    x, z = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    if min(np.abs(x - z).max(), np.abs(x + z).max()) < _SAME:
        return True
    first, second = pd.factorize(a), pd.factorize(b)
    few = len(first[1]) <= _MOST_VALUES and 2 * len(first[1]) <= len(a)
    return few and bool(np.array_equal(first[0], second[0]))


def _numbers(
    columns: Columns, matrix: NDArray[np.float32], only: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """One number for each row and column of the table, (columns, rows); NaN for missing.

    A number itself, the number of a category, the time of a date.
    """
    starts = np.cumsum([0, *(column.width for column in columns.columns)])
    chosen = range(len(columns.columns)) if only is None else only
    found = np.empty((len(chosen), len(matrix)))
    for line, i in zip(found, chosen, strict=True):
        column, part = columns.columns[i], matrix[:, starts[i] : starts[i + 1]]
        own = part[:, : column.width - column.missing]
        line[:] = own[:, 0] if column.categories is None else own.argmax(axis=1)
        if column.missing:
            line[part[:, -1] > 0] = np.nan
    return found


def _count(columns: int) -> int:
    return int(np.clip(_NUMBERS // max(1, columns), _LEAST_ROWS, _MOST_ROWS))


def _rows_of_each(label: NDArray[np.int64], columns: int) -> NDArray[np.int64]:
    """Rows of each label, as many of each as there are or as the sample has room for."""
    own = [np.flatnonzero(label == number) for number in np.unique(label)]
    room = max(2, _count(columns) // len(own))
    rows = [part[np.unique(np.linspace(0, len(part) - 1, room).astype(int))] for part in own]
    return np.sort(np.concatenate(rows))
