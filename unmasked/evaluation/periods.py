"""Rows in the order of time, cut where cross-fitting, shuffles and resampling need it cut.

Rows that lie near each other in time are seldom independent: a season, a ward, a broken device
touches many of them. So everything that must be independent is kept apart in time:

- a *period* is a fold: what judges it has learned from the other periods, before and after it;
- a *stretch* is a run of about n^(1/3) neighbouring rows, the usual length of a block bootstrap:
  intervals resample whole stretches;
- a *season*, a part of a period of 50 rows or more, is where a row may be given another row's mask.

They nest, and rows of one time stay together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError

_SEASONS = 4  # of a period at most
_SEASON_ROWS = 50  # at least, so that a row left out hardly changes what the others' masks are


@dataclass(frozen=True)
class Blocks:
    """Numbers of each row's period, season and stretch, (rows,) each."""

    period: NDArray[np.int64]
    season: NDArray[np.int64]
    stretch: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Blocks:
        """Those of some of the rows."""
        return Blocks(self.period[rows], self.season[rows], self.stretch[rows])


def blocks_of(times: NDArray[np.int64], folds: int) -> Blocks:
    """Cut rows by time (rows,) into so many periods, and each of them further.

    >>> blocks = blocks_of(np.arange(400), 2)
    >>> [len(np.unique(one)) for one in (blocks.period, blocks.season, blocks.stretch)]
    [2, 8, 48]
    """
    different = len(np.unique(times))
    if different < folds:
        raise InputError(
            f"there must be at least {folds} different times, one for each fold, but there are "
            f"{different}; give finer times."
        )
    rows = len(times)
    length = int(np.ceil(rows ** (1 / 3)))
    period = cut_in_time(times, folds)
    season = _within(period, times, lambda count: max(1, min(_SEASONS, count // _SEASON_ROWS)))
    stretch = _within(season, times, lambda count: max(1, count // length))
    return Blocks(period, season, stretch)


def cut_in_time(times: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """The part of each row, 0, 1, … in the order of time, of about as many rows each.

    Rows of one time are in one part; there are as many parts as asked for, or as there are times.

    >>> cut_in_time(np.array([3, 1, 2, 3, 3, 9]), 2).tolist()
    [1, 0, 0, 1, 1, 1]
    """
    _, which, size = np.unique(times, return_inverse=True, return_counts=True)
    parts = min(parts, len(size))
    share = np.cumsum(size) / len(times)  # of the rows up to each time
    ends: list[int] = []  # the last time of each part but the last
    for number in range(1, parts):
        first = ends[-1] + 1 if ends else 0
        last = len(size) - (parts - number)  # leaves a time for each part to come
        ends.append(first + int(np.argmin(np.abs(share[first:last] - number / parts))))
    return np.searchsorted(np.array(ends, dtype=np.int64), which).astype(np.int64)


def _within(
    outer: NDArray[np.int64], times: NDArray[np.int64], parts: Callable[[int], int]
) -> NDArray[np.int64]:
    """Cut each outer part by time into ``parts(its rows)``; numbered through."""
    result = np.zeros(len(times), dtype=np.int64)
    used = 0
    for number in np.unique(outer):
        rows = np.flatnonzero(outer == number)
        inner = cut_in_time(times[rows], parts(len(rows)))
        result[rows] = used + inner
        used += int(inner.max()) + 1
    return result
