"""The exact posterior of correlated features against its limits, quadrature and Monte Carlo.

Conditional laws come from covariance matrices here, not from a common factor. Monte Carlo
comparisons allow 5 standard errors: one in two million fails by chance.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone

from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import CONTROL_FLOW, synthetic
from unmasked.errors import InputError
from unmasked.evaluation import ExactPosterior

Rows = NDArray[np.float64]
ALONE = {"Syn1": "A", "Syn2": "B", "Syn3": "C"}
LEAVES = {"Syn4": "AB", "Syn5": "AC", "Syn6": "BC", **{k: 2 * v for k, v in ALONE.items()}}
LEAF_FEATURES = {"A": (0, 1), "B": (2, 3, 4, 5), "C": (6, 7, 8, 9)}
STRENGTH = 0.6
ABSOLUTE = 1e-7  # where the module says 2e-8 for ρ ≤ 0.9, 4e-7 for 0.99
each = pytest.mark.parametrize("name", LEAVES)


def paper_log_odds(leaf: str, x: Rows) -> Rows:
    """The log-odds against y = 1 of rows (rows, ≥ 10)."""
    if leaf == "A":
        return x[:, 0] * x[:, 1]
    if leaf == "B":
        return (x[:, 2:6] ** 2).sum(1) - 4
    return -10 * np.sin(0.2 * x[:, 6]) + abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4


def paper_probability(name: str, x: Rows) -> Rows:
    """P(y = 1 | x) of rows (rows, ≥ 11)."""
    low, high = (expit(-paper_log_odds(leaf, x)) for leaf in LEAVES[name])
    return np.where(x[:, CONTROL_FLOW] < 0, low, high)


def draw(random: np.random.Generator, rows: int, columns: int, strength: float) -> Rows:
    covariance = strength + (1 - strength) * np.eye(columns)
    return random.multivariate_normal(np.zeros(columns), covariance, rows)


def hidden_law(x: Rows, shown: NDArray[Any], strength: float) -> tuple[Rows, Rows]:
    """Mean (hidden,) and covariance (hidden, hidden) of a row's hidden features, given the shown.

    x : (features,); shown : (features,) bool.
    """
    covariance = strength + (1 - strength) * np.eye(len(x))
    across = covariance[np.ix_(~shown, shown)]
    factors = np.linalg.solve(covariance[np.ix_(shown, shown)], across.T).T
    return factors @ x[shown], covariance[np.ix_(~shown, ~shown)] - factors @ across.T


def one_row(name: str, x: Rows, shown: NDArray[Any], strength: float = STRENGTH) -> float:
    return float(posterior(name, x[None], shown[None], correlation=strength)[0])


def normal_rule(mean: float, variance: float) -> tuple[Rows, Rows]:
    """Points and weights of ∫ f(z) N(z; mean, variance) dz over ±9 deviations, parted at 0."""
    t, weight = np.polynomial.legendre.leggauss(400)
    edges = mean + 9 * math.sqrt(variance) * np.array([-1.0, 1.0])
    parts = np.sort(np.append(edges, np.clip(0, *edges)))
    half = np.diff(parts)[:, None] / 2
    z = (parts[:-1, None] + half + half * t).ravel()
    weights = (half * weight).ravel() * np.exp(-((z - mean) ** 2) / (2 * variance))
    return z, weights / math.sqrt(2 * math.pi * variance)


# ---- limits -------------------------------------------------------------------------------------


@each
def test_everything_shown_gives_the_true_probability(name: str) -> None:
    """To the rounding of some forty weights that add up to 1."""
    data = synthetic(name, 2_000, seed=1, noise_features=2, correlation=STRENGTH)
    for masks in (np.ones(data.x.shape), data.truth):
        found = posterior(name, data.x, masks, correlation=STRENGTH)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, data.probability, rtol=1e-14)


@pytest.mark.parametrize("name", ["Syn3", "Syn4"])
def test_no_correlation_is_the_way_without_one_and_hardly_any_gives_the_same(name: str) -> None:
    """ρ = 1e-10 moves means by less than 1e-8, and probabilities by less than ABSOLUTE."""
    random = np.random.default_rng(2)
    x, masks = random.standard_normal((500, 13)), random.random((500, 13)) < 0.5
    masks[:, 6:8], masks[:5] = True, False  # few tables of leaf C: each takes a while
    plain = posterior(name, x, masks)
    np.testing.assert_array_equal(posterior(name, x, masks, correlation=0), plain)
    found = posterior(name, x, masks, correlation=1e-10)
    np.testing.assert_allclose(found, plain, rtol=0, atol=2 * ABSOLUTE)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        *product(("Syn4",), [(0,), (0, 1), (0, 10), (4, 10), (2, 3, 4, 5), (0, 11)]),
        *product(("Syn6",), [(9,), (7, 9), (8, 9, 10)]),
    ],
)
def test_perfect_correlation_shows_what_is_hidden(name: str, hidden: tuple[int, ...]) -> None:
    """As ρ → 1 hidden features are the mean of the shown ones.

    At 1 − ρ = 1e-10 their deviation d is about 1e-5, which moves the probability of a smooth
    leaf by some d² times curvature, below 1e-7 where |x| is of the order of 1.
    """
    x = np.random.default_rng(3).standard_normal((40, 12)) + 0.3
    masks = np.ones(x.shape, dtype=bool)
    masks[:, hidden] = False
    filled = np.where(masks, x, x[:, masks[0]].mean(1, keepdims=True))
    found = posterior(name, x, masks, correlation=1 - 1e-10)
    assert abs(filled).min(1)[~masks[:, CONTROL_FLOW]].min(initial=1) > 1e-3  # x11 is decided
    np.testing.assert_allclose(found, paper_probability(name, filled), rtol=0, atol=2 * ABSOLUTE)


# ---- quadrature ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hidden"), [*product(("Syn1",), (0, 1)), ("Syn2", 3)])
@pytest.mark.parametrize("strength", [0.1, 0.95])
def test_one_hidden_feature_is_an_integral(name: str, hidden: int, strength: float) -> None:
    check_one_hidden(name, hidden, strength)


@pytest.mark.parametrize("hidden", range(2, 10))
def test_one_hidden_feature_among_many_is_an_integral(hidden: int) -> None:
    check_one_hidden("Syn6", hidden, STRENGTH)


def check_one_hidden(name: str, hidden: int, strength: float) -> None:
    random = np.random.default_rng(hidden)
    for x in draw(random, 12, 13, strength) * 1.5:
        x[CONTROL_FLOW] = math.copysign(x[CONTROL_FLOW], -1 if hidden < 6 else 1)
        shown = np.arange(13) != hidden
        mean, variance = hidden_law(x, shown, strength)
        z, weights = normal_rule(mean.item(), variance.item())
        rows = np.tile(x, (len(z), 1))
        rows[:, hidden] = z
        exact = weights @ paper_probability(name, rows)
        assert abs(one_row(name, x, shown, strength) - exact) < ABSOLUTE


@each
def test_averaging_over_one_more_shown_feature_gives_the_posterior_without_it(name: str) -> None:
    """The tower law E[P(y | x_R, x_j) | x_R] = P(y | x_R), for random R and each j, noise too."""
    random = np.random.default_rng(5)
    for j, _ in product(range(12), range(3)):
        x, without = draw(random, 1, 12, STRENGTH)[0], random.random(12) < random.random()
        without[j] = False
        mean, covariance = hidden_law(x, without, STRENGTH)
        at = np.flatnonzero(~without).tolist().index(j)
        z, weights = normal_rule(mean[at], covariance[at, at])
        rows = np.tile(x, (len(z), 1))
        rows[:, j] = z
        masks = np.tile(without | (np.arange(12) == j), (len(z), 1))
        average = weights @ posterior(name, rows, masks, correlation=STRENGTH)
        assert abs(average - one_row(name, x, without)) < 2 * ABSOLUTE


# ---- Monte Carlo --------------------------------------------------------------------------------


def check_by_drawing(name: str, strength: float, sizes: range) -> None:
    """E[P(y = 1 | x)] over 20,000 draws of what is hidden, for random sets of these sizes.

    What never comes in that many draws has, but for one time in three million, a probability
    below 15 / draws, and moves the mean by no more: an x11 on the side where it hardly ever is.
    """
    random = np.random.default_rng(6)
    draws, columns = 20_000, 13
    for size in sizes:
        x, shown = draw(random, 1, columns, strength)[0], np.zeros(columns, dtype=bool)
        shown[random.permutation(columns)[:size]] = True
        rows = np.tile(x, (draws, 1))
        rows[:, ~shown] = random.multivariate_normal(*hidden_law(x, shown, strength), draws)
        p = paper_probability(name, rows)
        error = p.std() / math.sqrt(draws)
        assert abs(one_row(name, x, shown, strength) - p.mean()) < 5 * error + 15 / draws


@each
def test_drawing_the_hidden_features_gives_the_same(name: str) -> None:
    check_by_drawing(name, STRENGTH, range(13))


@pytest.mark.parametrize("name", ["Syn1", "Syn2", "Syn4"])
@pytest.mark.parametrize("strength", [0.1, 0.95])
def test_drawing_gives_the_same_for_other_correlations(name: str, strength: float) -> None:
    check_by_drawing(name, strength, range(13))


@each
def test_labels_follow_the_posterior_under_random_masks(name: str) -> None:
    """Masks that do not look at the row: mean of y − p in tenths by p and by number shown."""
    data = synthetic(name, 40_000, seed=7, noise_features=1, correlation=STRENGTH)
    random = np.random.default_rng(8)
    masks = random.random(data.x.shape) < random.random((len(data.y), 1))
    p = posterior(name, data.x, masks, correlation=STRENGTH)
    groups = [*np.array_split(np.argsort(p), 10)]
    groups += [np.flatnonzero(masks.sum(1) == size) for size in range(13)]
    for group in groups:
        q = p[group]
        z = (data.y[group] - q).sum() / np.sqrt((q * (1 - q)).sum())
        assert abs(z) < 5


# ---- what must not matter, and what is refused --------------------------------------------------


@each
def test_hidden_values_never_matter_and_shown_noise_does(name: str) -> None:
    random = np.random.default_rng(9)
    x, masks = random.standard_normal((400, 14)), random.random((400, 14)) < 0.5
    masks[:, :2], masks[:, 2:4] = False, False  # something to tell of
    masks[:, 8], masks[:, 13] = False, True
    expected = posterior(name, x, masks, correlation=STRENGTH)
    other = np.where(masks, x, np.nan)
    np.testing.assert_array_equal(posterior(name, other, masks, correlation=STRENGTH), expected)
    other[:, 13] += 1
    moved = posterior(name, other, masks, correlation=STRENGTH)
    assert (moved != expected).mean() > 0.4  # all where the leaf is not A with x11 shown


@pytest.mark.parametrize("name", ALONE)
def test_x11_means_nothing_to_a_leaf_alone(name: str) -> None:
    """Nothing at all where features are independent; else it tells as much as any noise does."""
    random = np.random.default_rng(10)
    x, masks = random.standard_normal((300, 12)), random.random((300, 12)) < 0.5
    expected = posterior(name, x, masks)
    other, shown = x.copy(), masks.copy()
    other[:, CONTROL_FLOW], shown[:, CONTROL_FLOW] = -x[:, CONTROL_FLOW], ~masks[:, CONTROL_FLOW]
    np.testing.assert_array_equal(posterior(name, other, shown), expected)
    swap = [*range(10), 11, 10]
    np.testing.assert_allclose(
        posterior(name, x[:, swap], masks[:, swap], correlation=STRENGTH),
        posterior(name, x, masks, correlation=STRENGTH),
        rtol=1e-12,
    )


def test_rows_do_not_touch_each_other_and_there_may_be_many() -> None:
    random = np.random.default_rng(11)
    x, masks = random.standard_normal((20_000, 11)), random.random((20_000, 11)) < 0.4
    found = posterior("Syn4", x, masks, correlation=STRENGTH)
    some = np.append(np.arange(0, 20_000, 997), np.flatnonzero(masks.sum(1) == 0)[:2])
    again = posterior("Syn4", x[some], masks[some], correlation=STRENGTH)
    np.testing.assert_allclose(again, found[some], rtol=1e-13)
    assert posterior("Syn4", x[:0], masks[:0], correlation=STRENGTH).shape == (0,)


@each
def test_absurd_values_give_probabilities_without_a_warning(name: str) -> None:
    x = np.random.default_rng(12).choice([-1e3, -60.0, 0.0, 60.0, 1e3, 1e300], (500, 12))
    masks = np.random.default_rng(13).random((500, 12)) < 0.6
    found = posterior(name, x, masks, correlation=STRENGTH)
    assert ((found >= 0) & (found <= 1)).all()


def test_an_infinite_noise_feature_is_refused_where_it_would_be_used() -> None:
    x = np.zeros((2, 12))
    x[1, 11] = np.inf
    assert posterior("S1", x, np.ones((2, 12))).shape == (2,)
    with pytest.raises(InputError, match="finite but one is inf"):
        posterior("S1", x, np.ones((2, 12)), correlation=0.5)


@pytest.mark.parametrize("correlation", [1.0, -0.5, math.nan, False, "high"])
def test_an_impossible_correlation_is_refused_by_value(correlation: Any) -> None:
    x = np.zeros((2, 11))
    for ask in (
        lambda: posterior("S1", x, x, correlation=correlation),
        lambda: ExactPosterior("S1", correlation=correlation).predict(x),
        lambda: ExactPosterior("S1", correlation=correlation).fit(x),
    ):
        with pytest.raises(InputError, match="at least 0 and below 1") as caught:
            ask()
        assert repr(correlation) in str(caught.value)


def test_the_evaluator_asks_with_its_correlation() -> None:
    data = synthetic("Syn4", 300, seed=14, noise_features=1, correlation=STRENGTH)
    masks = np.random.default_rng(15).random(data.x.shape) < 0.5
    judge = clone(ExactPosterior("Syn4", correlation=STRENGTH))
    expected = posterior("Syn4", data.x, masks, correlation=STRENGTH)
    np.testing.assert_array_equal(judge.predict_proba(data.x, masks)[:, 1], expected)
    assert judge.evaluate(masks, data.x, data.y, bootstrap_draws=20)["eloglik"].value < 0
