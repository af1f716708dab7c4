"""What `benchmarks/tables.py` computes from masks and log-likelihoods: no table is needed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

OneMore = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Masks (rows, features) -> probabilities (rows, features, classes): each with one more feature."""

SINGLY = 20  # features that are added one by one; then a tenth more at a time
WORTH = 0.01  # nats that choosing for each row must be worth before a share of it means anything
LEAST = 1e-7  # a probability


def sizes(features: int) -> list[int]:
    """The numbers of features that are shown: one, a tenth and a quarter of all."""
    return sorted({1, int(np.ceil(0.1 * features)), int(np.ceil(0.25 * features))})


def schedule(stops: Sequence[int]) -> list[int]:
    """Sizes that a greedy search goes through: singly at first, later by tenths, all stops.

    >>> schedule([2, 4])
    [1, 2, 3, 4]
    """
    found, last = [], max(stops)
    size = 0
    while size < last:
        step = size + (1 if size < SINGLY else max(1, size // 10))
        size = min([step, *(stop for stop in stops if stop > size)])
        found.append(size)
    return found


def fixed_sets(
    one_more: OneMore, target: NDArray[np.float64], features: int, stops: Sequence[int]
) -> dict[int, NDArray[np.bool_]]:
    """For each size the set that is best for all rows alike, by greedy forward search.

    target : (rows, classes). Returns masks (features,).
    """
    mask = np.zeros(features, dtype=bool)
    found = {0: mask.copy()}
    for size in schedule(stops):
        answers = one_more(np.tile(mask, (len(target), 1)))
        worth = (target[:, None] * np.log(np.clip(answers, LEAST, 1))).sum(2).mean(0)
        mask[_best(worth[None], mask[None], size - int(mask.sum()))[0]] = True
        found[size] = mask.copy()
    return {stop: found[stop] for stop in stops}


def row_sets(
    one_more: OneMore, everything: NDArray[np.float64], features: int, stops: Sequence[int]
) -> dict[int, NDArray[np.bool_]]:
    """For each size and row the set nearest to the prediction from everything, greedy, no labels.

    everything : that prediction, (rows, classes). Returns masks (rows, features).
    """
    full = np.clip(everything, LEAST, 1)[:, None]
    masks = np.zeros((len(everything), features), dtype=bool)
    found = {0: masks.copy()}
    for size in schedule(stops):
        answers = np.clip(one_more(masks), LEAST, 1)
        worth = (full * (np.log(answers) - np.log(full))).sum(2)
        shown = int(masks[0].sum())
        np.put_along_axis(masks, _best(worth, masks, size - shown), True, axis=1)
        found[size] = masks.copy()
    return {stop: found[stop] for stop in stops}


def _best(worth: NDArray[np.float64], masks: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """For each row the features not yet shown that are worth most, (rows, count)."""
    order: NDArray[np.int64] = np.argsort(-np.where(masks, -np.inf, worth), axis=1, kind="stable")
    return order[:, :count]


def top(values: NDArray[np.float64], k: int) -> NDArray[np.bool_]:
    """For each row the k features of the largest values."""
    masks = np.zeros(values.shape, dtype=bool)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    np.put_along_axis(masks, order, True, axis=1)
    return masks


def paired_interval(
    difference: NDArray[np.float64],
    groups: NDArray[Any] | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, float]:
    """The mean of a difference, with a 95% bootstrap interval over rows (or groups of rows)."""
    places = np.arange(len(difference))
    if groups is not None:
        places = np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(places, difference), np.bincount(places)
    random = np.random.default_rng(seed)
    means = []
    for _ in range(draws):
        drawn = random.integers(0, len(sums), len(sums))
        means.append(sums[drawn].sum() / counts[drawn].sum())
    low, high = np.quantile(means, [0.025, 0.975])
    return {"value": float(difference.mean()), "low": float(low), "high": float(high)}


def between(found: Mapping[int, NDArray[np.float64]], size: float) -> NDArray[np.float64]:
    """Log-likelihoods at a size that is no whole number, from those at the sizes around it."""
    low, share = int(np.floor(size)), size - np.floor(size)
    if not share:
        return found[low]
    mixed: NDArray[np.float64] = (1 - share) * found[low] + share * found[low + 1]
    return mixed


def captured(own: float, fixed: float, row: float) -> float | None:
    """The share of what choosing for each row is worth that is had; None where that is little."""
    return (own - fixed) / (row - fixed) if row - fixed >= WORTH else None


def jaccard(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """The mean over rows of what two masks share of what either shows; 1 where both are empty."""
    both, either = (one & other).sum(1), (one | other).sum(1)
    return float(np.where(either == 0, 1.0, both / np.maximum(either, 1)).mean())


def different(masks: NDArray[np.bool_]) -> int:
    """How many different sets there are."""
    return len(np.unique(masks, axis=0))
