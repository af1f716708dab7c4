"""S1 … S3 and Syn1 … Syn6 against the papers' formulas, written out again row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from unmasked.datasets.synthetic import CONTROL_FLOW, synthetic
from unmasked.errors import InputError

NAMES = ("S1", "S2", "S3")
LEAVES = {"S1": "AB", "S2": "AC", "S3": "BC"}
LEAF_FEATURES = {"A": {1, 2}, "B": {3, 4, 5, 6}, "C": {7, 8, 9, 10}}  # numbered as in the paper
each = pytest.mark.parametrize("name", NAMES)


def paper_leaf(name: str, x: list[float]) -> str:
    """The leaf of a row whose features are x[1] … x[11], as in the text."""
    return LEAVES[name][0] if x[11] < 0 else LEAVES[name][1]


def paper_probability(name: str, x: list[float]) -> float:
    """P(y = 1 | x) = 1 / (1 + f(x))."""
    leaf = paper_leaf(name, x)
    if leaf == "A":
        f = math.exp(x[1] * x[2])
    elif leaf == "B":
        f = math.exp(sum(x[i] ** 2 for i in range(3, 7)) - 4)
    else:
        f = math.exp(-10 * math.sin(0.2 * x[7]) + abs(x[8]) + x[9] + math.exp(-x[10]) - 2.4)
    return 1 / (1 + f)


@each
def test_probabilities_truth_and_branches_are_the_papers(name: str) -> None:
    data = synthetic(name, 400, seed=3, noise_features=2)
    leaves = set()
    for row, values in enumerate(data.x):
        x = [math.nan, *values.tolist()]
        leaf = paper_leaf(name, x)
        leaves.add(leaf)
        assert data.branch[row] == leaf
        # a dozen roundings, each of at most 1e-16 times an exponent below 40
        assert data.probability[row] == pytest.approx(paper_probability(name, x), rel=1e-12)
        shown = {i + 1 for i in np.flatnonzero(data.truth[row])}
        assert shown == LEAF_FEATURES[leaf] | {11}
    assert leaves == set(LEAVES[name])


@each
def test_the_truth_is_what_the_probability_depends_on(name: str) -> None:
    """Moving a feature outside of the truth leaves P(y = 1 | x) as it is; inside it moves."""
    data = synthetic(name, 50, seed=4)
    for row in range(50):
        for column in range(10):
            x = [math.nan, *data.x[row].tolist()]
            before = paper_probability(name, x)
            x[column + 1] += 0.7
            assert (paper_probability(name, x) != before) == data.truth[row, column]


@each
def test_labels_follow_their_probabilities(name: str) -> None:
    """In each tenth of the rows by probability; |z| < 5 fails for one seed in 50,000."""
    data = synthetic(name, 50_000, seed=5)
    assert set(np.unique(data.y)) == {0, 1}
    for part in np.array_split(np.argsort(data.probability), 10):
        p = data.probability[part]
        z = (data.y[part] - p).sum() / np.sqrt((p * (1 - p)).sum())
        assert abs(z) < 5


@each
def test_features_are_independent_standard_normal(name: str) -> None:
    """Means, variances and correlations within 5 standard errors of 0, 1 and 0."""
    rows = 50_000
    x = synthetic(name, rows, seed=6, noise_features=3).x
    assert x.shape == (rows, 14)
    assert np.abs(x.mean(0)).max() < 5 / np.sqrt(rows)
    assert np.abs(x.var(0) - 1).max() < 5 * np.sqrt(2 / rows)
    correlation = np.corrcoef(x.T) - np.eye(14)
    assert np.abs(correlation).max() < 5 / np.sqrt(rows)


@pytest.mark.parametrize(("name", "population"), [("S1", 0.821), ("S2", 0.823), ("S3", 0.904)])
def test_the_best_possible_auroc_is_the_known_one(name: str, population: float) -> None:
    """Its standard deviation over draws of 10,000 rows is 0.004; four of them."""
    data = synthetic(name, 10_000, seed=7)
    assert roc_auc_score(data.y, data.probability) == pytest.approx(population, abs=4 * 0.004)


@each
def test_a_seed_decides_everything(name: str) -> None:
    first, again, other = (synthetic(name, 30, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.x, other.x)


@pytest.mark.parametrize(("name", "other"), [("Syn4", "S1"), ("Syn5", "S2"), ("Syn6", "S3")])
def test_syn4_to_syn6_are_other_names_of_the_papers_sets(name: str, other: str) -> None:
    data, same = (synthetic(n, 300, seed=9, noise_features=1) for n in (name, other))
    assert (data.name, same.name) == (name, other)
    for field in ("x", "y", "truth", "probability", "branch"):
        np.testing.assert_array_equal(getattr(data, field), getattr(same, field))


@pytest.mark.parametrize(("name", "leaf"), [("Syn1", "A"), ("Syn2", "B"), ("Syn3", "C")])
def test_syn1_to_syn3_are_one_leaf_in_which_x11_means_nothing(name: str, leaf: str) -> None:
    """The rows of S1 … S3 of the same seed, and where these use the leaf, also its probability."""
    data = synthetic(name, 300, seed=10, noise_features=2)
    assert (data.branch == leaf).all()
    assert not data.truth[:, CONTROL_FLOW:].any()
    for truth in data.truth:
        assert {i + 1 for i in np.flatnonzero(truth)} == LEAF_FEATURES[leaf]
    for tree in (t for t in NAMES if leaf in LEAVES[t]):
        other = synthetic(tree, 300, seed=10, noise_features=2)
        here = other.branch == leaf
        np.testing.assert_array_equal(data.x, other.x)
        np.testing.assert_array_equal(data.probability[here], other.probability[here])


def test_the_draws_of_a_seed_stay_as_they_were() -> None:
    """Figures in documents rest on them."""
    data = synthetic("S2", 6, seed=0)
    assert data.x[0, :3].tolist() == [0.1257302210933933, -0.1321048632913019, 0.6404226504432821]
    assert data.x[5, CONTROL_FLOW] == -0.258572545473924
    assert data.y.tolist() == [1, 0, 1, 1, 0, 0]
    known = [0.5041522979571, 0.3050247708362, 0.5581907757222]
    assert data.probability[:3] == pytest.approx(known, rel=1e-12)


@pytest.mark.parametrize("correlation", [0.3, 0.9])
def test_each_two_features_have_the_correlation_asked_for(correlation: float) -> None:
    """Within 5 standard errors: (1 − ρ²) / √rows for a correlation, √(2 / rows) for a variance."""
    rows = 50_000
    data = synthetic("S1", rows, seed=11, noise_features=3, correlation=correlation)
    assert np.abs(data.x.mean(0)).max() < 5 / np.sqrt(rows)
    assert np.abs(data.x.var(0) - 1).max() < 5 * np.sqrt(2 / rows)
    found = np.corrcoef(data.x.T)[~np.eye(14, dtype=bool)]
    assert np.abs(found - correlation).max() < 5 * (1 - correlation**2) / np.sqrt(rows)


@pytest.mark.parametrize("name", ["S3", "Syn3"])
def test_correlation_leaves_probabilities_and_truth_as_they_are_defined(name: str) -> None:
    data = synthetic(name, 300, seed=12, correlation=0.7)
    for row, values in enumerate(data.x):
        x = [math.nan, *values.tolist()]
        x[11] = x[11] if name == "S3" else 1.0  # Syn3 is the leaf C alone
        assert data.probability[row] == pytest.approx(paper_probability("S3", x), rel=1e-12)
        shown = {i + 1 for i in np.flatnonzero(data.truth[row])}
        assert shown == LEAF_FEATURES[data.branch[row]] | ({11} if name == "S3" else set())


@pytest.mark.parametrize("correlation", [1, -0.1, math.nan, math.inf, True, "0.5", None])
def test_an_impossible_correlation_is_refused_by_value(correlation: Any) -> None:
    with pytest.raises(InputError, match="at least 0 and below 1") as caught:
        synthetic("S1", 5, seed=0, correlation=correlation)
    assert repr(correlation) in str(caught.value)


def test_noise_features_mean_nothing_and_are_named() -> None:
    data = synthetic("S2", 200, seed=8, noise_features=4)
    assert data.feature_names == [f"x{i}" for i in range(1, 16)]
    assert data.truth.shape == data.x.shape == (200, 15)
    assert not data.truth[:, 11:].any()
    assert data.truth[:, CONTROL_FLOW].all()
    assert data.feature_names[CONTROL_FLOW] == "x11"


@pytest.mark.parametrize("name", ["S4", "s1", ""])
def test_an_unknown_set_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError) as caught:
        synthetic(name, 10, seed=0)
    assert "S1, S2, S3" in str(caught.value)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(("rows", "noise_features"), [(0, 0), (-3, 0), (5, -1)])
def test_impossible_sizes_are_refused_by_value(rows: int, noise_features: int) -> None:
    with pytest.raises(InputError, match=f"{rows} and {noise_features}"):
        synthetic("S1", rows, seed=0, noise_features=noise_features)
