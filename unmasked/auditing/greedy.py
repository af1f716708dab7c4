"""How much better could it be? Masks that the evaluator itself finds, feature by feature.

For each row the greedy search starts with nothing shown and adds the feature that most raises

    Σ_c p(c | x) log p(c | x_shown),

the log-likelihood that the evaluator expects given the *whole* row. The label takes no part, so
the masks found cannot give it away beyond what the row itself says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Predict = Callable[[NDArray[np.bool_], NDArray[np.int64]], NDArray[np.float64]]
"""(masks (asked, features), row of each (asked,)) -> probabilities (asked, classes)."""

_LEAST = 1e-12
_AT_ONCE = 65_536  # masks asked for at once


def greedy_orders(
    predict: Predict, rows: NDArray[np.int64], features: int, most: int
) -> NDArray[np.int64]:
    """Each row's features in the order in which the search shows them, (rows, most).

    The first k of a row are its mask of size k. Ties go to the earlier feature.
    """
    count = len(rows)
    whole = predict(np.ones((count, features), dtype=bool), rows)  # (rows, classes)
    masks = np.zeros((count, features), dtype=bool)
    order = np.zeros((count, most), dtype=np.int64)
    for step in range(most):
        left = features - step
        hidden = np.nonzero(~masks)[1].reshape(count, left)  # (rows, left)
        chunk = max(1, _AT_ONCE // left)
        for start in range(0, count, chunk):
            part = np.arange(start, min(start + chunk, count))
            tried = np.repeat(masks[part], left, axis=0)  # (part · left, features)
            tried[np.arange(len(tried)), hidden[part].ravel()] = True
            found = predict(tried, np.repeat(rows[part], left))
            logs = np.log(np.maximum(found, _LEAST)).reshape(len(part), left, -1)
            expected = (whole[part][:, None, :] * logs).sum(-1)  # (part, left)
            order[part, step] = hidden[part, expected.argmax(1)]
        masks[np.arange(count), order[:, step]] = True
    return order


def predictions(rows: int, features: int, most: int) -> int:
    """How many predictions the search asks for: Σ (features − step) for each row."""
    return rows * (most * features - most * (most - 1) // 2)


def rows_within(budget: int, asked: int, features: int, most: int) -> int:
    """As many rows as asked, or as ``budget`` predictions allow (at least 20)."""
    each = max(1, predictions(1, features, most))
    return min(asked, max(20, budget // each))
