"""Checks that several parts of the package make of what users pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmasked.errors import InputError


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, and not true or false."""
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
