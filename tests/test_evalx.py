"""EvalX: it becomes p(y | x_r), it cannot be told anything by a mask, and it says what it found."""

from __future__ import annotations

import copy
import itertools
import warnings
from signal import SIGINT, raise_signal
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from small_tables import frame, mixed, quick, quick_evaluator, rows

from unmasked import (
    MLP,
    Bernoulli,
    CoverageWarning,
    EvalX,
    Explanation,
    Scores,
    Training,
    UniformSize,
    Zero,
)
from unmasked.cli.workflows.saved import fitted_whole
from unmasked.evaluation.evalx import same_size_masks
from unmasked.training.step import Stepper

pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------------- a world of eight cells

CELLS = np.array(list(itertools.product([0, 1], repeat=3)))  # every value of three features
P_CELL = np.array([0.2, 0.1, 0.05, 0.15, 0.1, 0.05, 0.2, 0.15])  # dependent features
P_Y = np.array([0.05, 0.6, 0.5, 0.15, 0.3, 0.95, 0.9, 0.4])  # p(y = 1 | cell), not additive
SUBSETS = list(itertools.product([0, 1], repeat=3))
WORLD_ROWS = 8000


def exact(subset: tuple[int, ...], cell: NDArray[Any]) -> tuple[float, float]:
    """p(y = 1 | x_r) by summing the joint, and p(x_r)."""
    shown = np.array(subset, dtype=bool)
    agree = (CELLS[:, shown] == cell[shown]).all(1)
    mass = P_CELL[agree].sum()
    return float((P_CELL * P_Y)[agree].sum() / mass), float(mass)


@pytest.fixture(scope="module")
def world() -> EvalX:
    random = np.random.default_rng(0)
    cell = random.choice(8, WORLD_ROWS, p=P_CELL)
    y = (random.random(WORLD_ROWS) < P_Y[cell]).astype(int)
    training = Training(epochs=50, batch_size=250, learning_rate=0.02, weight_decay=0.0)
    return quick_evaluator(predictor=MLP((64, 64)), training=training).fit(
        CELLS[cell].astype(float), y
    )


def bound(subset: tuple[int, ...], cell: NDArray[Any]) -> float:
    """How far a learned posterior may be off.

    The best that 80% of the rows allow is the frequency in them, whose standard error is known;
    4 of them for the sample, and 0.03 for a network that is not trained for ever.
    """
    truth, mass = exact(subset, cell)
    return float(4 * np.sqrt(truth * (1 - truth) / (0.8 * WORLD_ROWS * mass)) + 0.03)


@pytest.mark.parametrize("subset", SUBSETS)
def test_it_becomes_the_exact_posterior_for_every_subset(
    world: EvalX, subset: tuple[int, ...]
) -> None:
    learned = world.predict_proba(CELLS.astype(float), np.tile(subset, (8, 1)))[:, 1]
    for cell, value in zip(CELLS, learned, strict=True):
        truth, _ = exact(subset, cell)
        assert abs(value - truth) < bound(subset, cell), (subset, cell, truth)


def test_the_bounds_would_catch_imputation_and_a_constant() -> None:
    """Filling hidden features in from their marginals is the usual wrong way to hide them."""
    marginal = [np.array([P_CELL[CELLS[:, i] == v].sum() for v in (0, 1)]) for i in range(3)]
    base = float(P_CELL @ P_Y)
    caught = {"imputed": 0, "constant": 0}
    for subset, cell in itertools.product(SUBSETS, CELLS):
        hidden = [i for i in range(3) if not subset[i]]
        agree = np.array([all(c[i] == cell[i] for i in range(3) if subset[i]) for c in CELLS])
        weight = agree * np.prod([marginal[i][CELLS[:, i]] for i in hidden], axis=0)
        truth, _ = exact(subset, cell)
        imputed = float(weight @ P_Y / weight.sum())
        caught["imputed"] += abs(imputed - truth) > bound(subset, cell)
        caught["constant"] += abs(base - truth) > bound(subset, cell)
    assert caught["imputed"] >= 8
    assert caught["constant"] >= 32


@pytest.mark.parametrize("masker", [None, Zero()])
def test_a_hidden_feature_cannot_change_the_output(masker: Any) -> None:
    table, y = mixed()
    evaluator = quick_evaluator(masker=masker).fit(table, y)
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    before = evaluator.predict_proba(table, masks)
    other = table.iloc[::-1].reset_index(drop=True)
    for feature, name in enumerate(table.columns):
        changed = evaluator.predict_proba(table.assign(**{name: other[name]}), masks)
        hidden = ~masks[:, feature]
        np.testing.assert_array_equal(changed[hidden], before[hidden])
        assert not np.array_equal(changed[~hidden], before[~hidden])


def test_no_masks_means_everything() -> None:
    x, y = rows()
    evaluator = quick_evaluator().fit(x, y)
    np.testing.assert_array_equal(
        evaluator.predict_proba(x), evaluator.predict_proba(x, np.ones_like(x))
    )
    nothing = evaluator.predict_proba(x, np.zeros_like(x))
    assert (nothing == nothing[0]).all()


# ---------------------------------------------------------------------- a planted cheater


@pytest.fixture(scope="module")
def signal() -> tuple[EvalX, NDArray[Any], NDArray[Any]]:
    """y follows the first of five features; 70% of the rows are of class 1."""
    random = np.random.default_rng(1)
    x = random.standard_normal((3000, 5))
    y = (x[:, 0] + 0.3 * random.standard_normal(3000) > -0.55).astype(int)
    training = Training(epochs=30, batch_size=250, learning_rate=0.01)
    evaluator = quick_evaluator(predictor=MLP((32,)), training=training)
    return evaluator.fit(x[:2000], y[:2000]), x[2000:], y[2000:]


def code(y: NDArray[Any], one: int, zero: int) -> NDArray[np.bool_]:
    """Masks that show noise feature ``one`` where y is 1 and ``zero`` where it is 0."""
    masks = np.zeros((len(y), 5), dtype=bool)
    masks[np.arange(len(y)), np.where(y == 1, one, zero)] = True
    return masks


def test_a_label_encoded_in_the_choice_of_noise_does_not_pay(signal: Any) -> None:
    evaluator, x, y = signal
    cheat = code(y, 1, 2)
    assert DecisionTreeClassifier().fit(cheat[:500], y[:500]).score(cheat[500:], y[500:]) == 1
    scores = evaluator.evaluate(cheat, x, y, bootstrap_draws=200)
    nothing = scores.rows["nothing"]
    assert scores["eacc"].value == pytest.approx(nothing["eacc"].value, abs=0.03)
    # The code holds all 0.6 nats; the network may give away a tenth by its own imperfection.
    assert scores["eloglik"].value - nothing["eloglik"].value < 0.06


def test_an_honest_explanation_pays(signal: Any) -> None:
    evaluator, x, y = signal
    honest = np.tile([True, False, False, False, False], (len(y), 1))
    scores = evaluator.evaluate(honest, x, y, bootstrap_draws=200)
    assert scores["eauroc"].low > 0.95
    assert scores["eacc"].low > 0.85
    assert scores["eloglik"].value - scores.rows["nothing"]["eloglik"].value > 0.3
    assert scores.over_random["eloglik"].low > 0.1


def test_no_code_is_better_than_its_opposite(signal: Any) -> None:
    """AUROC sees order only, so one code may be lucky; then the swapped one is as unlucky."""
    evaluator, x, y = signal
    for one, zero in itertools.combinations(range(1, 5), 2):
        pair = [
            evaluator.evaluate(code(y, *order), x, y, bootstrap_draws=1)["eauroc"].value
            for order in ((one, zero), (zero, one))
        ]
        # Each AUROC of 1,000 rows (700 and 300) has a standard error of at most 0.02.
        assert np.mean(pair) == pytest.approx(0.5, abs=0.08)


# ---------------------------------------------------------------------- evaluate


def evaluated(**changes: Any) -> tuple[Scores, EvalX, NDArray[Any]]:
    x, y = rows(150)
    evaluator = quick_evaluator(**changes).fit(x, y)
    masks = np.random.default_rng(3).random(x.shape) < 0.5
    return evaluator.evaluate(masks, x, y, bootstrap_draws=300), evaluator, masks


def test_all_comparisons_are_there_with_intervals_around_the_values() -> None:
    scores, _, masks = evaluated()
    assert list(scores.rows) == ["explanation", "everything", "random", "nothing"]
    for figures in scores.rows.values():
        assert list(figures) == ["eauroc", "eacc", "eloglik"]
        for interval in figures.values():
            assert interval.low <= interval.value <= interval.high
    assert scores["eacc"].low < scores["eacc"].high
    assert scores["eauroc"] == scores.rows["explanation"]["eauroc"]
    assert (scores.count, scores.fraction) == (150, masks.mean())
    assert not scores.micro
    assert scores.remarks == []


def test_over_random_is_the_paired_difference() -> None:
    scores, _, _ = evaluated()
    for metric, interval in scores.over_random.items():
        one, other = scores[metric], scores.rows["random"][metric]
        assert interval.value == pytest.approx(one.value - other.value, abs=1e-12)
        # Both come from the same resampled rows, so the interval is narrower than unpaired ones.
        assert interval.high - interval.low < (one.high - one.low) + (other.high - other.low)


def test_figures_are_those_of_the_predicted_probabilities() -> None:
    scores, evaluator, masks = evaluated()
    x, y = rows(150)
    predicted = evaluator.predict_proba(x, masks)
    assert scores["eacc"].value == pytest.approx((predicted.argmax(1) == y).mean())
    assert scores["eloglik"].value == pytest.approx(np.log(predicted[np.arange(150), y]).mean())
    ranks = predicted[:, 1]
    pairs = ranks[y == 1][:, None] - ranks[y == 0]
    assert scores["eauroc"].value == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_masks_that_show_all_or_nothing_score_as_these_rows_do() -> None:
    x, y = rows(150)
    evaluator = quick_evaluator().fit(x, y)
    all_shown = evaluator.evaluate(np.ones_like(x), x, y, bootstrap_draws=100)
    assert all_shown.rows["explanation"] == all_shown.rows["everything"]
    assert all_shown.rows["random"]["eacc"] == all_shown.rows["everything"]["eacc"]
    none_shown = evaluator.evaluate(np.zeros_like(x), x, y, bootstrap_draws=100)
    assert none_shown.rows["explanation"] == none_shown.rows["nothing"]
    assert none_shown["eauroc"].value == 0.5
    assert all_shown["eloglik"].value > none_shown["eloglik"].value


def test_random_masks_have_each_rows_own_size() -> None:
    random = np.random.default_rng(0)
    masks = random.random((4000, 6)) < np.linspace(0, 1, 4000)[:, None]
    drawn = same_size_masks(masks, random)
    np.testing.assert_array_equal(drawn.sum(1), masks.sum(1))
    # every feature equally often: a rate over 4,000 rows has a standard error below 0.008
    np.testing.assert_allclose(drawn.mean(0), masks.mean(), atol=0.032)


def test_the_result_depends_on_the_seed_only_through_resampling() -> None:
    x, y = rows(100)
    evaluator = quick_evaluator().fit(x, y)
    masks = x > 0
    one, again, other = (
        evaluator.evaluate(masks, x, y, seed=s, bootstrap_draws=50) for s in (0, 0, 1)
    )
    assert one.to_json() == again.to_json()
    assert one["eloglik"].value == other["eloglik"].value
    assert one["eloglik"].low != other["eloglik"].low
    assert one.rows["random"] != other.rows["random"]


def test_an_explanation_and_its_masks_score_the_same() -> None:
    table, y = frame()
    explanation = quick().fit(table, y).explain(table)
    evaluator = quick_evaluator().fit(table, y)
    forms = [explanation, explanation.masks, torch.from_numpy(explanation.masks)]
    results = [evaluator.evaluate(m, table, y, bootstrap_draws=20).to_json() for m in forms]
    assert results[0] == results[1] == results[2]


def test_evaluating_changes_nothing() -> None:
    x, y = rows()
    evaluator = quick_evaluator(predictor=MLP((8,), normalisation="batch")).fit(x, y)
    before = copy.deepcopy(evaluator.predictor_.state_dict())
    masks = x > 0
    kept = masks.copy()
    evaluator.evaluate(masks, x, y, bootstrap_draws=10)
    after = evaluator.predictor_.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not evaluator.predictor_.training
    np.testing.assert_array_equal(masks, kept)


@pytest.mark.parametrize("predictor_first", [True, False])  # first: trained just as we are
def test_the_evaluator_is_never_the_explainers_predictor(predictor_first: bool) -> None:
    x, y = rows()
    explainer = quick(random_state=0, predictor_first=predictor_first).fit(x, y)
    ours, theirs = quick_evaluator(random_state=0).fit(x, y).predictor_, explainer.predictor_
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.shape == other.shape
        assert not torch.isclose(one, other).any()


# ---------------------------------------------------------------------- masks it never saw


def test_sizes_outside_the_training_masks_are_warned_about_in_words() -> None:
    x, y = rows(100, columns=60)
    evaluator = quick_evaluator(mask_law=Bernoulli(0.5)).fit(x, y)
    two = np.zeros(x.shape, dtype=bool)
    two[:, :2] = True
    with pytest.warns(CoverageWarning, match="100% of the masks show 2 to 2 of 60 features") as got:
        scores = evaluator.evaluate(two, x, y, bootstrap_draws=5)
    text = str(got[0].message)
    low, high = evaluator.sizes_
    assert 10 < low < 30 < high < 50
    assert f"trained on masks that show {low} to {high}" in text
    assert "UniformSize()" in text
    assert scores.remarks == [text]
    assert text in repr(scores)
    thirty = np.arange(60) < 30
    assert evaluator.evaluate(np.tile(thirty, (100, 1)), x, y, bootstrap_draws=5).remarks == []


@pytest.mark.parametrize("law", [None, UniformSize()])
def test_masks_of_every_size_need_no_warning(law: Any) -> None:
    x, y = rows(100, columns=60)
    evaluator = quick_evaluator(mask_law=law).fit(x, y)
    two = np.zeros(x.shape, dtype=bool)
    two[:, :2] = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluator.evaluate(two, x, y, bootstrap_draws=5).remarks == []


# ---------------------------------------------------------------------- models, several classes


def test_a_model_is_judged_by_divergence_and_agreement() -> None:
    x, y = rows(150)
    model = LogisticRegression().fit(x, y)
    evaluator = quick_evaluator(model=model).fit(x)
    masks = x > 0
    scores = evaluator.evaluate(masks, x, bootstrap_draws=50)
    asked, target = evaluator.predict_proba(x, masks), model.predict_proba(x)
    assert list(scores.rows["explanation"]) == ["eauroc", "eacc", "eloglik", "kl"]
    divergence = (target * np.log(target / asked)).sum(1).mean()
    assert scores["kl"].value == pytest.approx(divergence, abs=1e-5)
    agreement = (asked.argmax(1) == model.predict(x)).mean()  # with the model, not with y
    assert scores["eacc"].value == pytest.approx(agreement)
    given = evaluator.evaluate(masks, x, target, bootstrap_draws=50)
    assert given["kl"].value == pytest.approx(scores["kl"].value, abs=1e-6)
    assert "KL from the model" in repr(scores)


def test_the_auroc_of_several_classes_is_stated_as_micro() -> None:
    x, _ = rows(150)
    y = np.array(["low", "middle", "high"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    evaluator = quick_evaluator().fit(x, y)
    scores = evaluator.evaluate(x > 0, x, y, bootstrap_draws=20)
    assert scores.micro
    assert "AUROC (micro)" in repr(scores)
    assert scores.to_json()["auroc"] == "micro"
    predicted = evaluator.predict_proba(x, x > 0)
    hit = y[:, None] == evaluator.classes_
    pairs = predicted[hit][:, None] - predicted[~hit]
    assert scores["eauroc"].value == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    two, _, _ = evaluated()
    assert "micro" not in repr(two)
    assert two.to_json()["auroc"] == "binary"


def test_the_table_of_scores() -> None:
    scores, _, _ = evaluated()
    table = scores.to_frame()
    assert table.shape == (4, 3)
    assert table.loc["everything shown", "eacc"] == scores.rows["everything"]["eacc"].value


def test_groups_are_masked_together() -> None:
    table, y = frame()
    evaluator = quick_evaluator(groups={"body": ["weight", "height"]}).fit(table, y)
    masks = np.tile([True, True, False], (80, 1))
    explanation = Explanation(masks, feature_names=["age", "dose", "body"])
    scores = evaluator.evaluate(explanation, table, y, bootstrap_draws=5)
    noise = table.assign(weight=0.0, height=9.0)
    same = evaluator.evaluate(explanation, noise, y, bootstrap_draws=5)
    assert same.rows["explanation"] == scores.rows["explanation"]
    assert same.rows["everything"] != scores.rows["everything"]


def test_ctrl_c_in_training_a_judge_ends_the_job_and_promises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Warnings are errors here: none says that what was learned is kept."""
    step = Stepper.__call__

    def pressed(*args: Any) -> Any:
        raise_signal(SIGINT)
        return step(*args)

    x, y = rows()
    monkeypatch.setattr(Stepper, "__call__", pressed)
    with pytest.raises(KeyboardInterrupt):
        fitted_whole(quick_evaluator(), x, y)
    monkeypatch.undo()
    assert fitted_whole(quick_evaluator(), x, y).predict(x).shape == y.shape
