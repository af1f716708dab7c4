"""Checks that several parts of the package make of what users pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmasked.errors import InputError

_MANY_NUMBERS = 50  # more different numbers than this in a target look like a measurement
_SOME_NUMBERS = 20  # as do more than this where each comes in few rows
_MOST_CLASSES = 1000


def is_whole(value: Any) -> bool:
    """Return True for a whole number of Python or numpy, but not for true and false."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if not is_whole(value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least} but is {value!r}.")


def grid_pair(grid: Any) -> tuple[int, int]:
    """(lines, columns) of a grid, given as a pair or as one number for both.

    >>> grid_pair(3), grid_pair([2, 4]), grid_pair(np.int64(5))
    ((3, 3), (2, 4), (5, 5))
    """
    pair = (grid, grid) if isinstance(grid, int | np.integer) else grid
    if (
        not isinstance(pair, tuple | list)
        or len(pair) != 2
        or not all(is_whole(side) and side > 0 for side in pair)
    ):
        raise InputError(
            f"grid must be a whole number above 0 or a pair (lines, columns) but is {grid!r}."
        )
    return int(pair[0]), int(pair[1])


def check_labels(values: Any, what: str) -> None:
    """Refuse labels that are no classes: measurements, identifiers, and too many to tell apart.

    values : (rows,) without missing ones; ``what`` begins the sentence of an error.

    >>> check_labels(range(50), "y")
    Traceback (most recent call last):
    unmasked.errors.InputError: y has 50 different numbers and looks like a measurement; only \
    classes can be explained, so cut it into ranges, or write them as text if they are classes.
    >>> check_labels([*range(50)] * 20, "y")
    """
    import pandas as pd  # takes half a second, which those who only read pictures need not wait

    values = pd.Series(values)
    different, rows = values.nunique(), len(values)
    numeric = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(
        values.dtype
    )
    often = different > _SOME_NUMBERS
    if numeric and (different > _MANY_NUMBERS or (often and different > 0.05 * rows)):
        raise InputError(
            f"{what} has {different:,} different numbers and looks like a measurement; only "
            "classes can be explained, so cut it into ranges, or write them as text if they are "
            "classes."
        )
    if not numeric and often and different > 0.5 * rows:
        raise InputError(
            f"{what} has {different:,} different values in {rows:,} rows and looks like an "
            "identifier; name the column to predict."
        )
    if different > _MOST_CLASSES:
        raise InputError(
            f"{what} has {different:,} classes, but at most {_MOST_CLASSES:,} can be told apart; "
            "merge the rare ones."
        )
