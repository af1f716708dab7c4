"""How far readers agree: Kendall's W and Krippendorff's α."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unmasked.study.ranking import Floats, interval, mid_ranks

Level = Literal["ordinal", "nominal"]
_AT_ONCE = 5_000_000  # numbers


@dataclass(frozen=True)
class Agreement:
    """A coefficient with its bootstrap interval by cases, and what chance alone would give."""

    value: float
    low: float
    high: float
    cases: int
    null: float
    null_high: float
    """95% of rankings at random give less."""
    p: float


def kendall_w(places: Floats) -> Floats:
    """Kendall's W of rankings (…, readers, methods) -> (…), corrected for ties.

        W = 12 Σ_j (R_j − m (k + 1) / 2)² / (m² (k³ − k) − m Σ_i T_i),   T_i = Σ (t³ − t)

    over groups of t tied options. 1: all readers agree. NaN where every reader ties everything.

    >>> kendall_w(np.array([[1, 2, 3, 4.0], [1, 2, 3, 4]]))
    array(1.)
    """
    ranks = mid_ranks(places)
    readers, methods = ranks.shape[-2:]
    sums = ranks.sum(-2)
    spread = ((sums - readers * (methods + 1) / 2) ** 2).sum(-1)
    # Without ties Σ r² is k (k + 1) (2k + 1) / 6; each group of t takes (t³ − t) / 12 off.
    ties = 2 * methods * (methods + 1) * (2 * methods + 1) - 12 * (ranks**2).sum(-1)
    whole = readers**2 * (methods**3 - methods) - readers * ties.sum(-1)
    result: Floats = np.asarray(
        np.divide(12 * spread, whole, out=np.full(spread.shape, np.nan), where=whole > 1e-9)
    )
    return result


def mean_w(places: Floats, *, draws: int, seed: int) -> Agreement:
    """W of each case, averaged over cases; ``places`` is (readers, cases, methods), NaN = missing.

    Two readers at random already have W = ½ on average (1/m in general), so the null comes with
    it: options permuted at random within every ranking, ties kept.
    """
    rng = np.random.default_rng(seed)
    values, null, weights = [], np.zeros(draws), 0
    complete = np.asarray(~np.isnan(places).any(-1))  # (readers, cases)
    for count in range(2, len(places) + 1):
        chosen = np.flatnonzero(complete.sum(0) == count)
        if not len(chosen):
            continue
        # (cases, readers, methods) of the readers who ranked each case
        ranked = np.stack([places[complete[:, case], case] for case in chosen])
        here = kendall_w(ranked)
        usable = ~np.isnan(here)
        values.append(here[usable])
        ranked = ranked[usable]
        for some in np.array_split(np.arange(draws), 1 + draws * ranked.size // _AT_ONCE):
            shuffled = rng.permuted(np.broadcast_to(ranked, (len(some), *ranked.shape)), axis=-1)
            null[some] += kendall_w(shuffled).sum(-1)
        weights += int(usable.sum())
    if not weights:
        nan = float("nan")
        return Agreement(nan, nan, nan, 0, nan, nan, nan)
    each = np.concatenate(values)
    null /= weights
    picks = rng.integers(0, len(each), (draws, len(each)))
    low, high = interval(each[picks].mean(1))
    value = float(each.mean())
    p = (1 + int((null >= value - 1e-12).sum())) / (draws + 1)
    above = float(np.quantile(null, 0.95))
    return Agreement(value, float(low), float(high), len(each), float(null.mean()), above, p)


def krippendorff(values: Floats, level: Level = "ordinal") -> float:
    """Krippendorff's α of (raters, units), NaN = missing.

        α = 1 − D_observed / D_expected

    over pairs of values of the same unit. NaN where there is nothing to disagree about.
    """
    levels, coincidences = _coincidences(values)
    return float(_alpha(coincidences.sum(0), len(levels), level))


def clustered_alpha(
    values: Floats, level: Level, *, draws: int, seed: int
) -> tuple[float, float, float]:
    """α of (raters, cases, methods), with its bootstrap interval by cases."""
    raters, cases, methods = values.shape
    levels, each = _coincidences(values.reshape(raters, -1))
    by_case = each.reshape(cases, methods, len(levels), len(levels)).sum(1)
    weights = np.random.default_rng(seed).multinomial(cases, np.full(cases, 1 / cases), draws)
    samples = _alpha(np.tensordot(weights, by_case, 1), len(levels), level)
    low, high = interval(samples)
    return float(_alpha(by_case.sum(0), len(levels), level)), float(low), float(high)


def _coincidences(values: Floats) -> tuple[NDArray[np.float64], Floats]:
    """The values that occur, and (units, values, values): pairs within each unit, / (raters − 1).

    A unit that only one rater valued has no pairs and does not count.
    """
    levels = np.unique(values[~np.isnan(values)])
    which = values[..., None] == levels  # (raters, units, values)
    counts = which.sum(0).astype(float)  # (units, values)
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs -= counts[:, :, None] * np.eye(len(levels))  # a value is no pair with itself
    others = counts.sum(-1) - 1
    scale = np.divide(1.0, others, out=np.zeros_like(others), where=others > 0)
    return levels, pairs * scale[:, None, None]


def _alpha(coincidences: Floats, levels: int, level: Level) -> Floats:
    """α of coincidence matrices (…, values, values)."""
    marginals = coincidences.sum(-1)  # (…, values)
    total = marginals.sum(-1)
    if level == "nominal":
        distance = np.broadcast_to(1 - np.eye(levels), coincidences.shape)
    else:  # how many values lie between two, counting each end half
        below = np.cumsum(marginals, -1) - marginals / 2
        distance = (below[..., :, None] - below[..., None, :]) ** 2
    observed = (coincidences * distance).sum((-2, -1))
    expected = (marginals[..., :, None] * marginals[..., None, :] * distance).sum((-2, -1))
    ratio = np.divide(
        (total - 1) * observed, expected, out=np.full(total.shape, np.nan), where=expected > 1e-12
    )
    result: Floats = np.asarray(1 - ratio)
    return result
