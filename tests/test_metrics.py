"""Metrics against scikit-learn and known cases, and the rules that choose a setting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.metrics import log_loss, roc_auc_score

from unmasked import metrics
from unmasked.errors import InputError
from unmasked.explainers.path import Candidate, choose

EXACT = 1e-12  # the same sums in another order, in double precision


def predictions(classes: int, seed: int, *, ties: bool) -> tuple[NDArray, NDArray]:
    """Probabilities (rows, classes) that know something about the labels (rows,)."""
    random = np.random.default_rng(seed)
    label = random.integers(classes, size=200)
    scores = random.standard_normal((200, classes)) + 0.8 * np.eye(classes)[label]
    if ties:
        scores = np.round(scores)
    odds = np.exp(scores)
    return odds / odds.sum(1, keepdims=True), label


def sklearn_auroc(p: NDArray, label: NDArray, weights: NDArray | None = None) -> float:
    """scikit-learn's, with micro averaging written out as pooled (row, class) pairs."""
    classes = p.shape[1]
    if classes == 2:
        return float(roc_auc_score(label, p[:, 1], sample_weight=weights))
    pooled = None if weights is None else np.repeat(weights, classes)
    return float(roc_auc_score(np.eye(classes)[label].ravel(), p.ravel(), sample_weight=pooled))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_auroc_is_scikit_learns(classes: int, ties: bool) -> None:
    p, label = predictions(classes, 0, ties=ties)
    if ties:
        p = np.round(p, 2)
        assert len(np.unique(p[:, 1])) < 100  # there are ties indeed
    assert metrics.auroc(p, label) == pytest.approx(sklearn_auroc(p, label), abs=EXACT)
    if classes > 2:
        micro = roc_auc_score(np.eye(classes)[label], p, average="micro")
        assert metrics.auroc(p, label) == pytest.approx(micro, abs=EXACT)


@pytest.mark.parametrize("classes", [2, 4])
def test_weighted_auroc_is_scikit_learns(classes: int) -> None:
    """The bootstrap's statistic with several draws of weights at once."""
    p, label = predictions(classes, 1, ties=True)
    weights = np.random.default_rng(2).integers(4, size=(3, len(label))).astype(float)
    got = metrics.auroc_statistic(p, label)(weights)
    for w, value in zip(weights, got, strict=True):
        keep = w > 0
        expected = sklearn_auroc(p[keep], label[keep], w[keep])
        assert value == pytest.approx(expected, abs=EXACT)


def test_auroc_of_constant_and_reversed_scores() -> None:
    label = np.array([0, 1, 1, 0])
    assert metrics.auroc(np.full((4, 2), 0.5), label) == 0.5
    perfect = np.eye(2)[label]
    assert metrics.auroc(perfect, label) == 1.0
    assert metrics.auroc(perfect[:, ::-1], label) == 0.0


def test_auroc_of_one_class_is_not_a_number() -> None:
    assert math.isnan(metrics.auroc(np.full((3, 2), 0.5), np.zeros(3, dtype=int)))


def test_row_figures_against_scikit_learn_and_by_hand() -> None:
    p, label = predictions(3, 3, ties=False)
    target = np.eye(3)[label]
    mean = -metrics.log_likelihoods(p, target).mean()
    assert mean == pytest.approx(log_loss(label, p), abs=EXACT)
    assert metrics.hits(p, label).mean() == pytest.approx((p.argmax(1) == label).mean())
    soft = np.array([[0.2, 0.8], [1.0, 0.0]])
    other = np.array([[0.5, 0.5], [0.25, 0.75]])
    expected = [0.2 * math.log(0.2 / 0.5) + 0.8 * math.log(0.8 / 0.5), math.log(4)]
    np.testing.assert_allclose(metrics.kl_divergences(other, soft), expected, rtol=EXACT)
    np.testing.assert_allclose(metrics.kl_divergences(soft, soft), 0, atol=EXACT)


def test_an_impossible_prediction_costs_much_but_not_everything() -> None:
    """log 0 would make every mean over rows minus infinity."""
    value = metrics.log_likelihoods(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]))
    assert np.isfinite(value).all()
    assert value[0] < -20


def test_bootstrap_intervals_cover_a_known_mean() -> None:
    """400 samples of 60 normals: covering 0 at least as often as a 93% interval would allow.

    The percentile interval of 60 rows covers a little less than 95% (its width lacks the factor
    √(60/59) and Student's quantile: 94.2% in theory); tolerance is the 1e-4 quantile on each side.
    """
    trials, rows = 400, 60
    random = np.random.default_rng(4)
    covered = 0
    for trial in range(trials):
        statistic = metrics.mean_statistic(random.standard_normal(rows))
        interval = metrics.bootstrap({"mean": statistic}, rows, draws=400, seed=trial)["mean"]
        covered += interval.low <= 0 <= interval.high
    low, high = binom.ppf([1e-4, 1 - 1e-4], trials, 0.942)
    assert low <= covered <= high


def test_bootstrap_width_is_that_of_the_standard_error() -> None:
    """Its ends lie ± 1.96 standard errors from the mean; 2,000 draws place an end within 7%."""
    values = np.random.default_rng(5).standard_normal(400)
    interval = metrics.bootstrap({"m": metrics.mean_statistic(values)}, 400, draws=2000, seed=0)[
        "m"
    ]
    assert interval.value == pytest.approx(values.mean(), abs=EXACT)
    error = values.std() / math.sqrt(400)
    # sd of a 2.5% quantile of n normals is √(0.025 · 0.975 / n) / 0.0584 = 0.06 sds; 4 of them
    for end, sign in ((interval.low, -1), (interval.high, 1)):
        assert (end - values.mean()) / error == pytest.approx(sign * 1.96, abs=4 * 0.06)


def test_bootstrap_takes_whole_groups() -> None:
    """Rows that come in equal copies tell no more than one of each: the same draws, to the bit.

    Taken for independent, five copies of each would narrow the interval by √5.
    """
    values = np.random.default_rng(7).standard_normal(40)
    whose = np.repeat([f"p{i:02d}" for i in range(40)], 5)
    many = {"m": metrics.mean_statistic(np.repeat(values, 5))}
    once = metrics.bootstrap({"m": metrics.mean_statistic(values)}, 40, draws=300, seed=0)["m"]
    grouped = metrics.bootstrap(many, 200, draws=300, seed=0, groups=whose)["m"]
    assert grouped.to_json() == pytest.approx(once.to_json(), abs=EXACT)
    alone = metrics.bootstrap(many, 200, draws=300, seed=0)["m"]
    assert alone.high - alone.low < 0.6 * (once.high - once.low)


def test_one_group_has_no_interval() -> None:
    values = {"m": metrics.mean_statistic(np.arange(5.0))}
    found = metrics.bootstrap(values, 5, draws=10, seed=0, groups=np.zeros(5))["m"]
    assert found.value == 2
    assert np.isnan([found.low, found.high]).all()


def test_bootstrap_pairs_statistics_and_forgets_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All statistics see the same rows, and how many draws are held at once does not matter."""
    values = np.random.default_rng(6).standard_normal(50)
    statistics = {"a": metrics.mean_statistic(values), "b": metrics.mean_statistic(values + 1)}
    once = metrics.bootstrap(statistics, 50, draws=100, seed=1)
    assert once["b"].low - once["a"].low == pytest.approx(1, abs=EXACT)
    assert metrics.bootstrap(statistics, 50, draws=100, seed=1) == once
    assert metrics.bootstrap(statistics, 50, draws=100, seed=2) != once
    monkeypatch.setattr(metrics, "_CHUNK_NUMBERS", 7 * 50)
    chunked = metrics.bootstrap(statistics, 50, draws=100, seed=1)
    assert chunked["a"].high == pytest.approx(once["a"].high, abs=EXACT)


def test_bootstrap_leaves_out_draws_without_both_classes() -> None:
    """With three rows of one class absent now and then, the interval stays finite."""
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    statistic = metrics.auroc_statistic(p, np.array([0, 1, 1]))
    interval = metrics.bootstrap({"auroc": statistic}, 3, draws=200, seed=0)["auroc"]
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_average_statistic_averages() -> None:
    a, b = np.array([1.0, 2.0]), np.array([5.0, 0.0])
    both = metrics.average_statistic([metrics.mean_statistic(a), metrics.mean_statistic(b)])
    np.testing.assert_allclose(both(np.array([[1.0, 1.0], [2.0, 0.0]])), [2.0, 3.0])


def test_selection_quality_by_hand() -> None:
    """An empty selection has found nothing and made no false discovery."""
    truth = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 0]])
    masks = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
    quality = metrics.selection_quality(masks, truth, control_flow=0)
    assert quality.tpr == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert quality.fdr == pytest.approx((2 / 3 + 0 + 0) / 3)
    assert quality.cfsr == pytest.approx(2 / 3)
    nothing = metrics.selection_quality(np.zeros((2, 4)), truth[:2])
    assert (nothing.tpr, nothing.fdr, nothing.cfsr) == (0.0, 0.0, None)
    assert metrics.selection_quality(truth, truth).fdr == 0.0


def candidate(fraction: float, accuracy: float = 0.5, logliks: object = (-1.0, -1.0)) -> Candidate:
    return Candidate(0.1, fraction, accuracy, accuracy, np.asarray(logliks, dtype=float))


def test_one_standard_error_takes_the_sparsest_that_is_close() -> None:
    """Differences from the best: a constant 0.01 is significant however small, ±0.5 is noise."""
    best = np.array([-1.0, -0.8, -1.2, -0.9])
    noisy = best + np.array([0.5, -0.5, 0.5, -0.6])  # mean −0.025, standard error 0.30
    candidates = [
        candidate(0.9, logliks=best),
        candidate(0.1, logliks=best - 0.01),  # worse in every row: standard error 0
        candidate(0.4, logliks=noisy),
        candidate(0.6, logliks=noisy),
    ]
    position, reason = choose(candidates, "one-standard-error")
    assert position == 2
    assert "one standard error" in reason
    assert choose(candidates[:2], "one-standard-error")[0] == 0


def test_accuracy_takes_the_largest_and_of_equals_the_sparser() -> None:
    candidates = [candidate(0.2, 0.7), candidate(0.9, 0.8), candidate(0.5, 0.8)]
    assert choose(candidates, "accuracy")[0] == 2
    assert choose(candidates[:2], "accuracy")[0] == 1


def test_tolerance_takes_the_sparsest_that_is_near_the_full_model() -> None:
    candidates = [candidate(0.9, 0.85), candidate(0.5, 0.82), candidate(0.1, 0.70)]
    position, reason = choose(candidates, "tolerance", full_accuracy=0.86)
    assert position == 1
    assert "0.860" in reason
    assert choose(candidates, "tolerance", full_accuracy=0.86, tolerance=0.2)[0] == 2


@pytest.mark.parametrize("rule", ["tolerance", "balanced"])
@pytest.mark.parametrize("rows", [300, 500, 5000])
def test_exactly_five_points_are_within_five_points(rule: str, rows: int) -> None:
    """Whatever floating point makes of hits / rows."""
    fewer = rows // 20
    for hits in range(rows // 2, rows + 1):
        near, far = ((hits - fewer - i) / rows for i in (0, 1))
        candidates = [candidate(0.9, hits / rows), candidate(0.5, near), candidate(0.1, far)]
        assert choose(candidates, rule, full_accuracy=hits / rows)[0] == 1


def test_tolerance_falls_back_on_accuracy_and_says_so() -> None:
    candidates = [candidate(0.9, 0.6), candidate(0.5, 0.6), candidate(0.1, 0.4)]
    position, reason = choose(candidates, "tolerance", full_accuracy=0.99)
    assert position == 1
    assert "none is within" in reason


def test_balanced_is_not_fooled_by_a_rare_class() -> None:
    """19 of 20 rows are of one class: who always names it is right in 0.95, and tells nothing."""
    target = np.eye(2)[np.arange(200) % 20 // 19]
    sure = np.abs(target - 0.1)  # 0.9 for the right class
    common = np.tile([0.9, 0.1], (200, 1))

    def judged(share: float, rare: int) -> Candidate:
        """Names the first so many rare rows, and all common ones; shows ``share`` of 20."""
        found = common.copy()
        found[19::20][:rare] = sure[19::20][:rare]
        masks = np.arange(20) < np.full((200, 1), round(20 * share))
        return Candidate.judged(0.1, masks, found, target)

    rich, lean, blind = judged(0.6, 9), judged(0.2, 8), judged(0.0, 0)
    assert [c.accuracy for c in (rich, lean, blind)] == pytest.approx([0.995, 0.99, 0.95])
    assert [c.balanced_accuracy for c in (rich, lean, blind)] == pytest.approx([0.95, 0.9, 0.5])
    assert choose([rich, lean, blind], "tolerance", full_accuracy=0.995)[0] == 2
    position, reason = choose([rich, lean, blind], "balanced", full_accuracy=0.95, tolerance=0.051)
    assert position == 1
    assert "validation balanced accuracy within 0.051 of the full model's 0.950" in reason
    # a full model that knows nothing: still something is shown, unless nothing ever is
    assert choose([rich, lean, blind], "balanced", full_accuracy=0.5)[0] == 1
    assert choose([blind, blind], "balanced", full_accuracy=0.5)[0] == 0
    # none is good enough: the best that shows anything, not an equal that shows nothing
    poor = judged(0.4, 0)
    position, reason = choose([poor, blind], "balanced", full_accuracy=0.9)
    assert position == 0
    assert "the largest validation balanced accuracy, as none is within" in reason


def test_one_cell_in_one_row_is_hardly_shown() -> None:
    """Six rows of which one shows one of 64 cells: on other rows it may well show nothing."""
    target = np.eye(2)[np.arange(6) % 2]
    predicted = np.tile([0.6, 0.4], (6, 1))
    barely, fair = np.zeros((6, 64), bool), np.zeros((6, 64), bool)
    barely[0, 0] = True
    fair[:, :12] = True
    found = [Candidate.judged(0.1, masks, predicted, target) for masks in (barely, fair)]
    assert choose(found, "balanced", full_accuracy=0.5)[0] == 1
    assert choose(found[:1], "balanced", full_accuracy=0.5)[0] == 0
    blank = Candidate.judged(1.0, np.zeros((6, 64), bool), predicted, target)
    assert choose([blank, found[0]], "balanced", full_accuracy=0.5)[0] == 1


def test_balanced_accuracy_is_the_mean_of_the_classes_that_are_there() -> None:
    predicted = np.eye(3)[[0, 0, 1, 2, 2]]
    label = np.array([0, 0, 0, 2, 2])  # nobody is of class 1
    assert metrics.balanced_accuracy(predicted, label) == pytest.approx((2 / 3 + 1) / 2)
    assert metrics.balanced_accuracy(predicted, predicted.argmax(1)) == 1.0


def test_rules_without_what_they_need_are_refused() -> None:
    with pytest.raises(InputError, match="accuracy of the full model"):
        choose([candidate(0.5)], "tolerance")
    with pytest.raises(InputError, match="'balanced' needs the accuracy of the full model"):
        choose([candidate(0.5)], "balanced")
    with pytest.raises(InputError, match=r"one-standard-error, accuracy, tolerance.*'best'"):
        choose([candidate(0.5)], "best")
