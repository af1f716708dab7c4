"""Say which sets of features are shown, with the values as their user wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.errors import InputError

_MOST_NAMES = 8  # of a set, where it is written out
_LONG = 8  # bytes of the longest whole number


def count_sets(masks: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each different mask and in how many rows it comes, the commonest first.

    masks : (rows, features). Of sets that come equally often, that of the earlier row is first.

    >>> count_sets(np.array([[1, 0], [0, 1], [0, 1]], dtype=bool))
    (array([1, 0]), array([2, 1]))
    """
    rows, features = masks.shape
    if not rows or not features:
        return np.zeros(min(rows, 1), np.int64), np.full(min(rows, 1), rows, np.int64)
    _, first, counts = np.unique(_keys(masks), return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    return first[order].astype(np.int64), counts[order].astype(np.int64)


def _keys(masks: NDArray[np.bool_]) -> NDArray[Any]:
    """One value for each mask, (rows,); numbers, which sort fast, where they are long enough."""
    packed = np.packbits(masks, axis=1)  # (rows, ⌈features / 8⌉)
    width = packed.shape[1]
    if width <= _LONG:
        packed, width = np.pad(packed, ((0, 0), (0, _LONG - width))), _LONG
    kind = np.dtype(np.uint64) if width == _LONG else np.dtype((np.void, width))
    return np.ascontiguousarray(packed).view(kind)[:, 0]


def same_for_all(masks: NDArray[np.bool_]) -> bool:
    """Return True if there are at least two rows and all of them show the same features."""
    return len(masks) > 1 and bool((masks == masks[0]).all())


def names_text(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names in a sentence, not more than fit there.

    >>> names_text(["age", "dose", "sex"], most=2), names_text([])
    ('age, dose and 1 more', 'nothing')
    """
    text = ", ".join(names[:most])
    return text + (f" and {len(names) - most:,} more" if len(names) > most else "") or "nothing"


def one_set_text(mask: NDArray[np.bool_], names: Sequence[str], rows: str) -> str:
    """Say in words what is shown where every row has this one mask, (features,).

    >>> one_set_text(np.array([True, False, True]), ["age", "dose", "sex"], "row")
    'the same 2 of 3 features for every row (age, sex): a choice for all rows, not for each'
    """
    shown = [name for name, is_shown in zip(names, mask, strict=True) if is_shown]
    if not shown:
        return f"nothing in any {rows}"
    if len(shown) == len(names):
        return f"every feature for every {rows}: nothing was chosen"
    return (
        f"the same {len(shown):,} of {len(names):,} features for every {rows} "
        f"({names_text(shown)}): a choice for all rows, not for each"
    )


MISSING = "missing"
_DIGITS = 6  # of a number that is shortened
_LARGE = 1e6  # from here on so many digits are not all before the decimal point
_WHOLE = 1e15  # larger whole numbers are written with an exponent
_MOST_MEMBERS = 6  # columns of one feature that are written out
_COPIES_LATER = int(pd.__version__.split(".")[0]) >= 3  # pandas copies when somebody writes


@dataclass(frozen=True, eq=False)
class FeatureValues:
    """A table's rows by position, and the feature that each of its columns belongs to.

    Attributes
    ----------
    table : (rows, columns), the user's own values.
    feature_of : for each column, the number of its feature.
    """

    table: pd.DataFrame
    feature_of: tuple[int, ...]

    @classmethod
    def of(cls, table: pd.DataFrame, feature_of: Sequence[int]) -> FeatureValues:
        """A view of the table that stays as it is when the user changes the table later."""
        return cls(table.copy(deep=not _COPIES_LATER), tuple(feature_of))

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: slice | NDArray[Any]) -> FeatureValues:
        """Some of the rows."""
        chosen = rows if isinstance(rows, slice) else np.arange(len(self))[rows]
        return FeatureValues(self.table.iloc[chosen], self.feature_of)

    @property
    def one_column_each(self) -> bool:
        """Return True if each column of the table is a feature of its own, in order."""
        return self.feature_of == tuple(range(self.table.shape[1]))

    def column_texts(self, column: int, rows: NDArray[Any], *, exact: bool) -> list[str]:
        """One column's values in these rows."""
        return value_texts(self.table.iloc[:, column].iloc[rows], exact=exact)

    def texts(self, feature: int, rows: NDArray[Any], *, exact: bool = False) -> list[str]:
        """A feature's values in these rows; of several columns, each behind its name.

        exact : whether numbers keep all digits.
        """
        columns = [i for i, owner in enumerate(self.feature_of) if owner == feature]
        if len(columns) == 1:
            return self.column_texts(columns[0], rows, exact=exact)
        named = [
            [f"{self.table.columns[i]} {text}" for text in self.column_texts(i, rows, exact=exact)]
            for i in columns[:_MOST_MEMBERS]
        ]
        more = len(columns) - len(named)
        rest = f", and {more:,} more" if more else ""
        return [", ".join(parts) + rest for parts in zip(*named, strict=True)]


def check_values(values: FeatureValues, rows: int, features: int) -> FeatureValues:
    """Refuse values of other rows or features than the explanation's."""
    if len(values) != rows or max(values.feature_of, default=-1) != features - 1:
        raise InputError(
            f"values must be of the explanation's {rows:,} rows and {features:,} features but are "
            f"of {len(values):,} rows and {max(values.feature_of, default=-1) + 1:,} features."
        )
    return values


def shown_texts(
    masks: NDArray[np.bool_],
    probabilities: NDArray[Any],
    names: Sequence[str],
    values: FeatureValues | None = None,
    *,
    exact: bool = False,
) -> list[list[str]]:
    """For each row the features that it shows, as "age = 51", the most probable first.

    masks, probabilities : (rows, features). Without values, the names alone.
    """
    order = np.argsort(-np.where(masks, probabilities, -1.0), axis=1, kind="stable")
    texts: dict[tuple[int, int], str] = {}
    for feature in np.flatnonzero(masks.any(0)).tolist():
        rows = np.flatnonzero(masks[:, feature])
        written = [names[feature]] * len(rows)
        if values is not None:
            written = [f"{names[feature]} = {v}" for v in values.texts(feature, rows, exact=exact)]
        texts |= {(row, feature): text for row, text in zip(rows.tolist(), written, strict=True)}
    return [
        [texts[row, feature] for feature in features[:size].tolist()]
        for row, (features, size) in enumerate(zip(order, masks.sum(1), strict=True))
    ]


def value_texts(values: pd.Series[Any], *, exact: bool = False) -> list[str]:
    """Values as their user would write them.

    exact : whether numbers keep all digits; otherwise six, but all before the decimal point.

    >>> value_texts(pd.Series([51.0, None, 0.1, 12345678.25]))
    ['51', 'missing', '0.1', '12345678.25']
    >>> value_texts(pd.Series([1 / 3])), value_texts(pd.Series([1 / 3]), exact=True)
    (['0.333333'], ['0.3333333333333333'])
    >>> value_texts(pd.Series(pd.to_datetime(["2024-12-31 00:00", "2024-12-31 08:30"])))
    ['2024-12-31', '2024-12-31 08:30:00']
    """
    missing = values.isna().to_numpy(dtype=bool)
    if isinstance(values.dtype, np.dtype) and values.dtype.kind == "f":
        items: list[Any] = list(values.to_numpy())  # numpy's own write no digits of rounding
    else:
        items = values.astype(object).tolist()
    return [
        MISSING if lacks else _value_text(value, exact=exact)
        for value, lacks in zip(items, missing, strict=True)
    ]


def _value_text(value: Any, *, exact: bool) -> str:
    if isinstance(value, float | np.floating):
        return _number_text(float(value), str(value), exact=exact)
    if isinstance(value, pd.Timestamp) and value == value.normalize() and value.tzinfo is None:
        return value.strftime("%Y-%m-%d")
    return str(value)


def _number_text(value: float, written: str, *, exact: bool) -> str:
    """A number in full or in short; ``written`` is how its own type writes it."""
    size = abs(value)
    if value.is_integer() and size < _WHOLE:
        return str(int(value))
    if exact:
        return written
    if _LARGE <= size < _WHOLE:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.{_DIGITS}g}"
