"""Test rankings and measure how far readers agree; blocks are cases.

Shapes: (…, cases, methods); leading axes are independent repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm, rankdata, wilcoxon

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


Floats = NDArray[np.float64]
EXACT = 13
"""Up to so many cases SciPy's signed-rank test is exact with ties, too."""


def shared_ranks(places: NDArray[Any]) -> Floats:
    """Ranks along the last axis; ties share the better place, as in the paper's table.

    >>> shared_ranks(np.array([1, 1, 2, 3]))
    array([1., 1., 3., 4.])
    """
    result: Floats = rankdata(places, method="min", axis=-1).astype(float)
    return result


def mid_ranks(places: NDArray[Any]) -> Floats:
    """Ranks along the last axis; ties share the mean of their places, so that sums stay the same.

    >>> mid_ranks(np.array([1, 1, 2, 3]))
    array([1.5, 1.5, 3. , 4. ])
    """
    result: Floats = rankdata(places, method="average", axis=-1)
    return result


@dataclass(frozen=True)
class Test:
    """A statistic, its p-value, and how many blocks it rests on."""

    __test__ = False  # for pytest: this is none of its tests
    statistic: float
    p: float
    blocks: int


def friedman_statistic(values: NDArray[Any]) -> Floats:
    """Friedman's χ² with its correction for ties, (…, cases, methods) -> (…).

        χ² = (k − 1) Σ_j (R_j − n (k + 1) / 2)² / (Σ_ij r_ij² − n k (k + 1)² / 4)

    where R_j is the sum of method j's mid-ranks r_ij. It is 0 where every case is one tie.
    """
    ranks = mid_ranks(values)
    cases, methods = ranks.shape[-2:]
    sums = ranks.sum(-2)
    between = ((sums - cases * (methods + 1) / 2) ** 2).sum(-1)
    within = (ranks**2).sum((-2, -1)) - cases * methods * (methods + 1) ** 2 / 4
    result: Floats = np.divide(
        (methods - 1) * between, within, out=np.zeros_like(between), where=within > 1e-9
    )
    return result


def friedman(values: Floats) -> Test:
    """Friedman's test of (cases, methods): are all methods ranked alike?"""
    cases, methods = values.shape
    if cases == 0:
        return Test(float("nan"), float("nan"), 0)
    statistic = float(friedman_statistic(values))
    return Test(statistic, float(chi2.sf(statistic, methods - 1)), cases)


def signed_rank(differences: Floats) -> Test:
    """Wilcoxon's signed-rank test of (cases,) differences.

    Cases without a difference are left out; where no other is left, p is 1. Beyond 13 cases it is
    SciPy's; up to 13 it is exact, ties or not, as SciPy's is, which takes seconds for it.
    """
    differences = _without_noise(differences)
    cases = len(differences)
    if not np.any(differences):
        return Test(0.0, 1.0 if cases else float("nan"), cases)
    done = wilcoxon(differences, method="auto" if cases > EXACT else "asymptotic")
    p = done.pvalue if cases > EXACT else signed_rank_p(differences)
    return Test(float(done.statistic), float(p), cases)


def signed_rank_p(differences: Floats) -> Floats:
    """p of the same for many repetitions at once, (…, cases) -> (…): exact up to 13 cases; beyond,
    the normal approximation, which SciPy takes, too, where there are ties,

        z = Σ sign(d_i) r_i / √(Σ r_i²)

    where r_i are the mid-ranks of |d_i| among those that are not 0.
    """
    differences = _without_noise(differences)
    zero = differences == 0
    ranks = rankdata(np.abs(differences), axis=-1) - zero.sum(-1, keepdims=True)
    ranks = np.where(zero, 0.0, ranks)
    if differences.shape[-1] <= EXACT:
        return _signed_rank_exact(ranks, differences > 0)
    spread = np.sqrt((ranks**2).sum(-1))
    signed = (np.sign(differences) * ranks).sum(-1)
    z = np.divide(signed, spread, out=np.zeros_like(signed), where=spread > 0)
    result: Floats = 2 * norm.sf(np.abs(z))
    return result


def _signed_rank_exact(ranks: Floats, positive: NDArray[np.bool_]) -> Floats:
    """p of T⁺ = Σ r_i over positive differences, if each sign were a coin's: (…, cases) -> (…)."""
    cases = ranks.shape[-1]
    twice = np.rint(2 * ranks).astype(int).reshape(-1, cases)  # mid-ranks are halves
    sums = np.arange(cases * (cases + 1) + 1)
    law = np.zeros((len(twice), len(sums)))  # of 2 T⁺, after each case
    law[:, 0] = 1
    for rank in twice.T:
        before = sums - rank[:, None]
        moved = np.take_along_axis(law, np.maximum(before, 0), -1)
        law = (law + np.where(before >= 0, moved, 0)) / 2
    found = (twice * positive.reshape(-1, cases)).sum(-1, keepdims=True)
    below, above = (law * (sums <= found)).sum(-1), (law * (sums >= found)).sum(-1)
    result: Floats = np.minimum(1, 2 * np.minimum(below, above)).reshape(ranks.shape[:-1])
    return result


def _without_noise(differences: Floats) -> Floats:
    """Means over three readers are thirds: differences that are equal but for rounding are ties."""
    result: Floats = np.round(differences, 9)
    return result


def holm(p: NDArray[Any]) -> Floats:
    """Holm's correction along the last axis: p-values that hold for all comparisons together.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    steps = np.maximum.accumulate(factors * np.take_along_axis(p, order, -1), axis=-1)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.minimum(steps, 1.0), -1)
    return result


def resampled(sums: Floats, counts: Floats, draws: int, seed: int) -> Floats:
    """Bootstrap by cases: means of (draws, …) samples of whole cases, drawn with replacement.

    ``sums`` (cases, …) are sums over a case's ratings and ``counts`` (cases, …) how many they are.
    """
    cases = len(sums)
    weights = np.random.default_rng(seed).multinomial(cases, np.full(cases, 1 / cases), draws)
    top, bottom = np.tensordot(weights, sums, 1), np.tensordot(weights, counts, 1)
    result: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return result


def interval(samples: Floats) -> tuple[Floats, Floats]:
    """The middle 95% of bootstrap samples along the first axis."""
    if not len(samples) or np.isnan(samples).all():
        return np.full(samples.shape[1:], np.nan), np.full(samples.shape[1:], np.nan)
    quantile = np.nanquantile if np.isnan(samples).any() else np.quantile  # the first is slow
    low, high = quantile(samples, [0.025, 0.975], axis=0)
    return low, high


def clustered_wilson(yes: Floats, of: Floats) -> tuple[float, float]:
    """Wilson's 95% interval of a rate whose answers come in cases: (cases,) of how many, of what.

    Answers to one case resemble each other, so they are worth fewer independent ones:

        n = p (1 − p) / V,    V = Σ_i (yes_i − p · of_i)² / (Σ of)²

    or as many as there are cases where all answers are the same and nothing tells. The bootstrap,
    which serves elsewhere, is far too sure of rates near 0 and 1: of 50 of 50 it says 100% to 100%.

    >>> low, high = clustered_wilson(np.full(50, 2.0), np.full(50, 2.0))
    >>> f"{low:.3f} {high:.3f}"
    '0.929 1.000'
    """
    total = of.sum()
    if not total:
        return float("nan"), float("nan")
    rate = yes.sum() / total
    variance = float(((yes - rate * of) ** 2).sum() / total**2)
    worth = float((of > 0).sum()) if rate in (0, 1) else float(total)
    if variance > 1e-12:
        worth = min(worth, rate * (1 - rate) / variance)
    return wilson(rate * worth, worth)


def wilson(yes: float, of: float) -> tuple[float, float]:
    """Wilson's 95% interval of a rate.

    >>> low, high = wilson(0, 10)
    >>> f"{low:.3f} {high:.3f}"
    '0.000 0.278'
    """
    if of == 0:
        return float("nan"), float("nan")
    z = float(norm.ppf(0.975))
    rate, share = yes / of, z * z / of
    middle = (rate + share / 2) / (1 + share)
    half = z * np.sqrt(rate * (1 - rate) / of + share / (4 * of)) / (1 + share)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
