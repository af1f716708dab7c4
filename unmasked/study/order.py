"""In which order options are shown: random, and balanced.

Rows come from Williams squares. In each block of as many cases as there are methods, every method
stands once in every place; over a square (two, for an odd number of methods) every method follows
every other one equally often. Which method takes which role is drawn anew for each block, and
blocks are scattered over the cases, so that what was seen tells nothing about what comes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def williams(methods: int) -> NDArray[np.int64]:
    """A Williams design, (rows, methods): rows are orders; one square, or two if odd.

    >>> williams(4)
    array([[0, 3, 1, 2],
           [1, 0, 2, 3],
           [2, 1, 3, 0],
           [3, 2, 0, 1]])
    """
    first = [0]
    for step in range(1, methods):  # 0, −1, 1, −2, 2, …
        first.append(-(step // 2 + 1) % methods if step % 2 else step // 2)
    square = (np.array(first) + np.arange(methods)[:, None]) % methods
    return square if methods % 2 == 0 else np.concatenate([square, square[:, ::-1]])


def balanced_orders(cases: int, methods: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(cases, methods): which method stands in each place.

    Every method stands in every place equally often, to within one case where ``cases`` is not a
    multiple of ``methods``.
    """
    squares = williams(methods).reshape(-1, methods, methods)
    rows: list[NDArray[np.int64]] = []
    while len(rows) < cases:
        roles = rng.permutation(methods)
        for square in rng.permutation(squares):
            rows.extend(roles[square[line]] for line in rng.permutation(methods))
    # A part of the last square is still a part of a Latin square: counts differ by one at most.
    return np.array(rows[:cases])[rng.permutation(cases)]
