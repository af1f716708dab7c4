"""The exact posterior against its limits, quadrature, Monte Carlo and the laws it must obey.

Monte Carlo comparisons allow 5 standard errors: one in two million fails by chance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import dblquad, quad
from scipy.special import expit, xlog1py, xlogy
from scipy.stats import rankdata

from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import CONTROL_FLOW, log_odds_against, synthetic
from unmasked.errors import InputError

NAMES = ("S1", "S2", "S3")
LEAVES = {"S1": "AB", "S2": "AC", "S3": "BC"}
LEAF_FEATURES = {"A": (0, 1), "B": (2, 3, 4, 5), "C": (6, 7, 8, 9)}
ABSOLUTE, RELATIVE = 1e-10, 1e-9  # the accuracy that the module states
each = pytest.mark.parametrize("name", NAMES)
Rows = NDArray[np.float64]

# The terms of each leaf's log-odds against y = 1, as in the paper, and what is taken from them.
TERMS: dict[int, Callable[..., Any]] = {
    **{j: (lambda z: z**2) for j in LEAF_FEATURES["B"]},
    6: lambda z: -10 * np.sin(0.2 * z),
    7: lambda z: np.abs(z),
    8: lambda z: z,
    9: lambda z: np.exp(-z),
}
TAKEN = {"B": 4.0, "C": 2.4}


def paper_log_odds(leaf: str, x: Rows) -> Rows:
    """The log-odds against y = 1 of rows (rows, ≥ 10)."""
    if leaf == "A":
        return x[:, 0] * x[:, 1]
    return sum(TERMS[j](x[:, j]) for j in LEAF_FEATURES[leaf]) - TAKEN[leaf]


def paper_probability(name: str, x: Rows) -> Rows:
    """P(y = 1 | x) of rows (rows, ≥ 11)."""
    low, high = (expit(-paper_log_odds(leaf, x)) for leaf in LEAVES[name])
    return np.where(x[:, CONTROL_FLOW] < 0, low, high)


def one_row(name: str, x: Rows, shown: NDArray[Any]) -> float:
    return float(posterior(name, x[None], shown[None])[0])


def leaf_mask(*hidden: int) -> Rows:
    """Everything shown but these."""
    mask = np.ones(11)
    mask[list(hidden)] = 0
    return mask


def half_line_rule(nodes: int = 400) -> tuple[Rows, Rows]:
    """Points and weights of ∫ f(z) φ(z) dz over ±9, in two parts that meet at 0."""
    t, weight = np.polynomial.legendre.leggauss(nodes)
    z = np.concatenate([4.5 * (t - 1), 4.5 * (t + 1)])
    weights = np.tile(4.5 * weight, 2) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return z, weights


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["B", "C"])
def test_the_log_odds_of_a_leaf_are_a_sum_of_one_term_for_each_feature(leaf: str) -> None:
    """What the posterior rests on: g(x) − g(0) = Σ_j (g(x_j alone) − g(0)), and the paper's g."""
    x = np.random.default_rng(0).standard_normal((300, 11)) * 2
    constant = log_odds_against(leaf, np.zeros((1, 11)))
    alone = [x * (np.arange(11) == j) for j in range(11)]
    total = constant + sum(log_odds_against(leaf, one) - constant for one in alone)
    # some forty roundings, each of at most 1e-16 times the largest number met on the way
    bound = 1e-14 * (1 + sum(np.abs(TERMS[j](x[:, j])) + 2 for j in LEAF_FEATURES[leaf]))
    assert (np.abs(total - log_odds_against(leaf, x)) < bound).all()
    assert (np.abs(paper_log_odds(leaf, x) - log_odds_against(leaf, x)) < bound).all()


@each
def test_everything_shown_gives_the_true_probability(name: str) -> None:
    data = synthetic(name, 5_000, seed=1, noise_features=2)
    for masks in (np.ones(data.x.shape), data.truth):
        found = posterior(name, data.x, masks)
        assert found.dtype == np.float64
        assert found.shape == (5_000,)
        np.testing.assert_array_equal(found, data.probability)


@each
def test_nothing_shown_gives_the_share_of_ones(name: str) -> None:
    p = synthetic(name, 400_000, seed=2).probability
    found = posterior(name, np.zeros((3, 11)), np.zeros((3, 11)))
    assert (found == found[0]).all()
    assert abs(found[0] - p.mean()) < 5 * p.std() / math.sqrt(len(p))


def test_tiny_probabilities_keep_their_relative_accuracy() -> None:
    """exp(−x10) = e^6 in leaf C: P is about e^−400, and hidden features scale it as they should.

    For large s, σ(−s − g) is exp(−s − g), so that hiding x9 multiplies by E exp(−x9) = e^½.
    """
    x = np.zeros(11)
    x[9], x[CONTROL_FLOW] = -6, 1
    shown = one_row("S3", x, leaf_mask())
    assert shown == pytest.approx(math.exp(2.4 - math.exp(6)), rel=1e-12)
    assert one_row("S3", x, leaf_mask(8)) == pytest.approx(shown * math.exp(0.5), rel=RELATIVE)


def test_absurd_values_give_probabilities_without_a_warning() -> None:
    x = np.random.default_rng(3).choice([-1e3, -60.0, 0.0, 60.0, 1e3, 1e300], (500, 11))
    masks = np.random.default_rng(4).random((500, 11)) < 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES:
            found = posterior(name, x, masks)
            assert ((found >= 0) & (found <= 1)).all()
            assert posterior(name, x[:0], masks[:0]).shape == (0,)


# ---- quadrature ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", range(2, 10))
def test_one_hidden_feature_is_an_integral(hidden: int) -> None:
    """To the accuracy that the module states, P and 1 − P, with scipy's quad to 1e-12."""
    leaf, side = ("B", -1) if hidden < 6 else ("C", 1)
    x = np.random.default_rng(hidden).standard_normal((12, 11)) * 1.7
    x[0, 6:9] = 7.5, 0.1, -8  # s is about −20, the least that |x| ≤ 8 allows
    x[:, CONTROL_FLOW] = side
    found = posterior("S3", x, np.tile(leaf_mask(hidden), (12, 1)))
    for row, p in zip(x, found, strict=True):
        s = sum(TERMS[j](row[j]) for j in LEAF_FEATURES[leaf] if j != hidden) - TAKEN[leaf]
        for sign, mine in ((-1, p), (1, 1 - p)):

            def inner(z: float, s: float = s, sign: int = sign) -> float:
                return expit(sign * (s + TERMS[hidden](z))) * math.exp(-z * z / 2)

            parts = [
                quad(inner, a, a + 3, epsabs=0, epsrel=1e-12)[0] for a in (-9, -6, -3, 0, 3, 6)
            ]
            exact = sum(parts) / math.sqrt(2 * math.pi)
            assert abs(mine - exact) < ABSOLUTE
            assert mine == pytest.approx(exact, rel=RELATIVE, abs=1e-15)  # 1 − p is rounded


@pytest.mark.parametrize("pair", [(2, 5), *combinations((6, 7, 8, 9), 2)])
def test_two_hidden_features_are_a_double_integral(pair: tuple[int, int]) -> None:
    """scipy's dblquad over the four quadrants, each to an absolute 1e-12."""
    leaf, side = ("B", -1) if pair[0] < 6 else ("C", 1)
    x = np.random.default_rng(pair[1]).standard_normal(11)
    x[CONTROL_FLOW] = side
    s = sum(TERMS[j](x[j]) for j in LEAF_FEATURES[leaf] if j not in pair) - TAKEN[leaf]
    first, second = (TERMS[j] for j in pair)

    def inner(w: float, z: float) -> float:
        odds = s + float(first(z)) + float(second(w))
        return math.exp(-(z * z + w * w) / 2) / (1 + math.exp(min(odds, 700.0)))

    exact = sum(
        dblquad(inner, a, a + 8, b, b + 8, epsabs=1e-12, epsrel=1e-12)[0]
        for a in (-8, 0)
        for b in (-8, 0)
    ) / (2 * math.pi)
    assert abs(one_row("S3", x, leaf_mask(*pair)) - exact) < ABSOLUTE


@each
def test_averaging_over_one_more_shown_feature_gives_the_posterior_without_it(name: str) -> None:
    """The tower law E[P(y | x_R, x_j) | x_R] = P(y | x_R), for random R and each j."""
    random = np.random.default_rng(5)
    z, weights = half_line_rule()
    for j in range(11):
        for _ in range(4):
            x, without = random.standard_normal(11), random.random(11) < 0.5
            without[j] = False
            rows = np.tile(x, (len(z), 1))
            rows[:, j] = z
            masks = np.tile(without | (np.arange(11) == j), (len(z), 1))
            average = weights @ posterior(name, rows, masks)
            assert abs(average - one_row(name, x, without)) < 2 * ABSOLUTE


@each
def test_a_hidden_x11_mixes_the_leaves_half_and_half(name: str) -> None:
    random = np.random.default_rng(6)
    x, masks = random.standard_normal((500, 11)), random.random((500, 11)) < 0.5
    sides = []
    for value in (-1.0, 1.0):
        x[:, CONTROL_FLOW], masks[:, CONTROL_FLOW] = value, True
        sides.append(posterior(name, x, masks))
    masks[:, CONTROL_FLOW] = False
    np.testing.assert_allclose(posterior(name, x, masks), (sides[0] + sides[1]) / 2, rtol=1e-15)


def test_leaf_a_is_a_coin_unless_both_factors_are_shown() -> None:
    x = np.random.default_rng(7).standard_normal((50, 11))
    x[:, CONTROL_FLOW] = -1
    for hidden in [(0,), (1,), (0, 1), (0, 5, 9)]:
        assert (posterior("S1", x, np.tile(leaf_mask(*hidden), (50, 1))) == 0.5).all()


# ---- Monte Carlo --------------------------------------------------------------------------------


@each
def test_drawing_the_hidden_features_gives_the_same(name: str) -> None:
    """For subsets of all sizes: E[P(y = 1 | x)] over 20,000 draws of what is hidden."""
    random = np.random.default_rng(8)
    draws = 20_000
    for size in range(11):
        for _ in range(4):
            x, shown = random.standard_normal(11), np.zeros(11, dtype=bool)
            shown[random.permutation(11)[:size]] = True
            p = paper_probability(name, np.where(shown, x, random.standard_normal((draws, 11))))
            error = p.std() / math.sqrt(draws)
            assert abs(one_row(name, x, shown) - p.mean()) < 5 * error + ABSOLUTE


@each
def test_labels_follow_the_posterior_under_random_masks(name: str) -> None:
    """Masks that do not look at the row: mean of y − p in tenths by p and by number shown."""
    data = synthetic(name, 100_000, seed=9)
    random = np.random.default_rng(10)
    masks = random.random(data.x.shape) < random.random((len(data.y), 1))
    p = posterior(name, data.x, masks)
    groups = [*np.array_split(np.argsort(p), 10)]
    groups += [np.flatnonzero(masks.sum(1) == size) for size in range(12)]
    for group in groups:
        q = p[group]
        z = (data.y[group] - q).sum() / np.sqrt((q * (1 - q)).sum())
        assert abs(z) < 5


@pytest.mark.parametrize("with_x11", [True, False])
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("S1", {True: (0.821, -0.505), False: (0.820, -0.569)}),
        ("S2", {True: (0.823, -0.502), False: (0.8226, -0.567)}),
        ("S3", {True: (0.904, -0.388), False: (0.903, -0.493)}),
    ],
)
def test_the_population_figures_are_the_known_ones(
    name: str, known: dict[bool, tuple[float, float]], with_x11: bool
) -> None:
    """AUROC and mean log-likelihood of a leaf's features, with and without x11.

    5 standard errors, and one unit of the last of the three digits that the figures have.
    """
    data = synthetic(name, 100_000, seed=11)
    masks = data.truth.copy()
    masks[:, CONTROL_FLOW] = with_x11
    p, truth = posterior(name, data.x, masks), data.probability
    # E[log-likelihood | x], which spreads less than that of the labels
    likelihood = xlogy(truth, p) + xlog1py(1 - truth, -p)
    error = likelihood.std() / math.sqrt(len(p))
    assert likelihood.mean() == pytest.approx(known[with_x11][1], abs=5 * error + 0.001)
    # AUROC = the mean over ones of the share of zeros below; its variance after DeLong (1988)
    ones, zeros = p[data.y == 1], p[data.y == 0]
    ranks = rankdata(np.concatenate([ones, zeros]))
    below = (ranks[: len(ones)] - rankdata(ones)) / len(zeros)
    above = 1 - (ranks[len(ones) :] - rankdata(zeros)) / len(ones)
    error = math.sqrt(below.var() / len(ones) + above.var() / len(zeros))
    assert error < 0.002
    assert below.mean() == pytest.approx(known[with_x11][0], abs=5 * error + 0.001)


# ---- what must not matter, and what is refused --------------------------------------------------


@each
def test_noise_features_and_hidden_values_never_matter(name: str) -> None:
    random = np.random.default_rng(12)
    x, masks = random.standard_normal((400, 14)), random.random((400, 14)) < 0.5
    expected = posterior(name, x[:, :11], masks[:, :11])
    np.testing.assert_array_equal(posterior(name, x, masks), expected)
    x[:, 11:], masks[:, 11:] = random.standard_normal((400, 3)), random.random((400, 3)) < 0.5
    x[~masks] = np.nan
    np.testing.assert_array_equal(posterior(name, x, masks), expected)


@each
def test_rows_do_not_touch_each_other_and_masks_may_be_numbers(name: str) -> None:
    random = np.random.default_rng(13)
    x, masks = random.standard_normal((60, 11)), random.random((60, 11)) < 0.5
    expected = posterior(name, x, masks)
    alone = [one_row(name, row, mask) for row, mask in zip(x, masks, strict=True)]
    np.testing.assert_allclose(alone, expected, rtol=1e-14)
    for dtype in (np.int64, np.float32):
        np.testing.assert_array_equal(posterior(name, x, masks.astype(dtype)), expected)


@pytest.mark.parametrize("name", ["S4", "s1", ""])
def test_an_unknown_set_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError) as caught:
        posterior(name, np.zeros((2, 11)), np.zeros((2, 11)))
    assert "S1, S2, S3" in str(caught.value)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("x", "masks", "message"),
    [
        (np.zeros((2, 10)), np.zeros((2, 10)), r"11 or more features\) but is \(2, 10\)"),
        (np.zeros(11), np.zeros(11), r"11 or more features\) but is \(11,\)"),
        (np.zeros((2, 12)), np.zeros((2, 11)), r"\(2, 12\), but have \(2, 11\)"),
        (np.zeros((2, 11)), np.zeros((1, 11)), r"\(2, 11\), but have \(1, 11\)"),
        (np.zeros((2, 11)), np.full((2, 11), 0.5), r"only 0 \(hidden\) and 1 \(shown\).* 0\.5"),
        (np.zeros((2, 11)), np.full((2, 11), np.nan), r"only 0 \(hidden\) and 1 \(shown\).* nan"),
        (np.full((2, 11), np.inf), np.ones((2, 11)), "finite but one is inf"),
    ],
)
def test_what_cannot_be_used_is_refused(x: Rows, masks: Rows, message: str) -> None:
    with pytest.raises(InputError, match=message):
        posterior("S1", x, masks)
