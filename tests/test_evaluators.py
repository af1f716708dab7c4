"""Evaluators beside the network: classifiers that take NaN, post-hoc models, exact posteriors."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from small_tables import TINY, frame, mixed, quick, rows
from torch import Tensor, nn

from unmasked import (
    Bernoulli,
    DataWarning,
    EvalX,
    ExactPosterior,
    InputError,
    MaskLaw,
    MissingExtra,
    PostHoc,
    SavedError,
    Scores,
    Token,
    Training,
    UnmaskedError,
    Zero,
    synthetic,
)
from unmasked.evaluation import copies

pytestmark = pytest.mark.usefixtures("one_thread")


def boosted(**changes: Any) -> EvalX:
    """EvalX with a small tree ensemble."""
    trees = HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5)
    return EvalX(**{"estimator": trees, "mask_copies": 5, "random_state": 0, **changes})


def posthoc(**changes: Any) -> PostHoc:
    """PostHoc with a network that trains in no time."""
    training = Training(epochs=3, batch_size=20, learning_rate=0.05)
    settings: dict[str, Any] = {"training": training, "progress": False, "device": "cpu"}
    return PostHoc(**{"predictor": TINY, "random_state": 0, **settings, **changes})


class Spy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Keeps what it is fitted on, and answers with the frequencies of the classes."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Spy:
        self.seen_ = X, y, sample_weight
        self.classes_, counts = np.unique(y, return_counts=True)
        self.rates_ = counts / len(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.rates_, (len(X), 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class StoppingSpy(Spy):
    """A spy that also takes rows to stop on."""

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> Spy:
        self.stopped_on_ = X_val, y_val
        return super().fit(X, y, sample_weight)


def assert_one_sentence(error: Exception) -> None:
    text = str(error)
    assert "\n" not in text
    assert ". " not in text.replace(" …", "")
    assert len(text) < 300


# ---------------------------------------------------------------------- the right posterior

CELLS = np.array(list(itertools.product([0, 1], repeat=3)))  # every value of three features
P_CELL = np.array([0.2, 0.1, 0.05, 0.15, 0.1, 0.05, 0.2, 0.15])  # dependent features
P_Y = np.array([0.05, 0.6, 0.5, 0.15, 0.3, 0.95, 0.9, 0.4])  # p(y = 1 | cell), not additive


def test_an_estimator_becomes_the_posterior_of_every_subset() -> None:
    random, count = np.random.default_rng(0), 8000
    cell = random.choice(8, count, p=P_CELL)
    y = (random.random(count) < P_Y[cell]).astype(int)
    evaluator = boosted(estimator=HistGradientBoostingClassifier(max_iter=60), mask_copies=30)
    evaluator.fit(CELLS[cell].astype(float), y)
    for subset in itertools.product([False, True], repeat=3):
        learned = evaluator.predict_proba(CELLS.astype(float), np.tile(subset, (8, 1)))[:, 1]
        for values, found in zip(CELLS, learned, strict=True):
            agree = (CELLS[:, subset] == values[list(subset)]).all(1)
            mass = P_CELL[agree].sum()
            truth = (P_CELL * P_Y)[agree].sum() / mass
            # 4 standard errors of a frequency in 80% of the rows, and 0.03 for 60 shrunk steps
            allowed = 4 * np.sqrt(truth * (1 - truth) / (0.8 * count * mass)) + 0.03
            assert abs(found - truth) < allowed, (subset, values)


@pytest.fixture(scope="module")
def signal() -> tuple[EvalX, NDArray[Any], NDArray[Any]]:
    """y follows the first of five features; 70% of the rows are of class 1."""
    random = np.random.default_rng(1)
    x = random.standard_normal((3000, 5))
    y = (x[:, 0] + 0.3 * random.standard_normal(3000) > -0.55).astype(int)
    evaluator = EvalX(estimator=HistGradientBoostingClassifier(), random_state=0)
    return evaluator.fit(x[:2000], y[:2000]), x[2000:], y[2000:]


def test_a_label_encoded_in_the_choice_of_noise_does_not_pay(signal: Any) -> None:
    evaluator, x, y = signal
    cheat = np.zeros(x.shape, dtype=bool)
    cheat[np.arange(len(y)), np.where(y == 1, 1, 2)] = True
    scores = evaluator.evaluate(cheat, x, y, bootstrap_draws=100)
    nothing = scores.rows["nothing"]
    # The code holds all 0.6 nats; the trees may give away a tenth by their own imperfection.
    assert scores["eloglik"].value - nothing["eloglik"].value < 0.06
    assert scores["eacc"].value == pytest.approx(nothing["eacc"].value, abs=0.03)


def test_an_honest_explanation_pays(signal: Any) -> None:
    evaluator, x, y = signal
    honest = np.tile([True, False, False, False, False], (len(y), 1))
    scores = evaluator.evaluate(honest, x, y, bootstrap_draws=100)
    assert scores["eauroc"].low > 0.95
    assert scores["eloglik"].value - scores.rows["nothing"]["eloglik"].value > 0.3
    assert scores.over_random["eloglik"].low > 0.1
    assert repr(scores).startswith("EVAL-X on 1,000 rows")


# ---------------------------------------------------------------------- what is hidden is hidden


def forest(table: Any, y: Any) -> Any:
    """A model of the user's own, from tables of any kind."""
    return make_pipeline(
        FunctionTransformer(lambda t: pd.get_dummies(t).reindex(columns=DUMMIES, fill_value=0)),
        RandomForestClassifier(5, random_state=0),
    ).fit(table, y)


DUMMIES = ["age", "smoker", "town_Graz", "town_Ulm", "town_Łódź", "grade_high", "grade_low"]
PIPE = make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression())
EVALUATORS: dict[str, Callable[[Any, Any], Any]] = {
    "trees": lambda table, y: boosted().fit(table, y),
    "pipeline": lambda table, y: boosted(estimator=PIPE).fit(table, y),
    "post-hoc network": lambda table, y: posthoc().fit(table, y),
    "post-hoc network with tokens": lambda table, y: posthoc(masker=Token()).fit(table, y),
    "post-hoc model": lambda table, y: PostHoc(forest(table, y)).fit(table),
}


@pytest.mark.parametrize("kind", EVALUATORS)
def test_a_hidden_feature_cannot_change_the_output(kind: str) -> None:
    table, y = mixed()
    evaluator = EVALUATORS[kind](table, y)
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    before = evaluator.predict_proba(table, masks)
    np.testing.assert_allclose(before.sum(1), 1, atol=1e-6)
    changes = 0
    for feature, name in enumerate(table.columns):
        other = table.assign(**{name: table[name].to_numpy()[::-1]})
        other[name] = other[name].astype(table[name].dtype)
        changed = evaluator.predict_proba(other, masks)
        hidden = ~masks[:, feature]
        np.testing.assert_array_equal(changed[hidden], before[hidden])
        changes += not np.array_equal(changed[~hidden], before[~hidden])
    assert changes
    nothing = evaluator.predict_proba(table, np.zeros_like(masks))
    assert (nothing == nothing[0]).all()
    everything = evaluator.predict_proba(table, np.ones_like(masks))
    np.testing.assert_array_equal(evaluator.predict_proba(table), everything)


@pytest.mark.parametrize("kind", EVALUATORS)
def test_every_evaluator_gives_all_rows_of_scores(kind: str) -> None:
    table, y = mixed()
    labels = np.array(["no", "yes"])[y]
    evaluator = EVALUATORS[kind](table, labels)
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    scores = evaluator.evaluate(masks, table, labels, bootstrap_draws=20)
    assert isinstance(scores, Scores)
    assert list(scores.rows) == ["explanation", "everything", "random", "nothing"]
    predicted = evaluator.predict_proba(table, masks)
    right = predicted[np.arange(80), y]
    assert scores["eloglik"].value == pytest.approx(np.log(np.clip(right, 1e-12, 1)).mean())
    assert scores["eacc"].value == pytest.approx((evaluator.predict(table, masks) == labels).mean())
    assert evaluator.classes_.tolist() == ["no", "yes"]


# ---------------------------------------------------------------------- the copies


def test_the_estimator_sees_every_row_under_random_masks_of_whole_features() -> None:
    table, y = mixed()
    evaluator = boosted(estimator=Spy(), mask_copies=50).fit(table, y, validation=(table, y))
    seen, label, weight = evaluator.estimator_.seen_
    matrix = evaluator.columns_.matrix(table)
    assert weight is None
    np.testing.assert_array_equal(label, np.tile(y, 50))
    x = seen.reshape(50, *matrix.shape)  # (copies, rows, columns)
    hidden = np.isnan(x)
    np.testing.assert_array_equal(x[~hidden], np.broadcast_to(matrix, x.shape)[~hidden])
    index = np.array(evaluator.columns_.index)
    shown = np.stack([~hidden[..., index == f].any(-1) for f in range(4)], axis=-1)
    np.testing.assert_array_equal(shown[..., index], ~hidden)  # whole features, all or none
    # Sizes 0 … 4 equally often: a rate of 1/5 over 4,000 masks has a standard error of 0.0063.
    sizes = np.bincount(shown.sum(-1).ravel(), minlength=5) / 4000
    np.testing.assert_allclose(sizes, 0.2, atol=4 * 0.0063)
    assert not (shown == shown[0]).all()  # each copy has masks of its own
    assert (evaluator.copies_, evaluator.sizes_) == (50, (0, 4))


def test_validation_rows_are_stopped_on_or_else_learned_from() -> None:
    x, y = rows(100)
    alone = boosted(estimator=Spy(), mask_copies=2).fit(x, y)
    assert len(alone.estimator_.seen_[0]) == 2 * 100  # there is no use in holding rows out
    stopping = boosted(estimator=StoppingSpy(), mask_copies=2).fit(x, y)
    assert len(stopping.estimator_.seen_[0]) == 2 * 80
    assert len(stopping.estimator_.stopped_on_[0]) == 2 * 20
    given = boosted(estimator=StoppingSpy(), mask_copies=2).fit(x, y, validation=(x[:30], y[:30]))
    assert len(given.estimator_.seen_[0]) == 2 * 100
    np.testing.assert_array_equal(given.estimator_.stopped_on_[1], np.tile(y[:30], 2))


def test_trees_stop_on_rows_and_not_on_copies_of_rows_they_know() -> None:
    """300 rows overfit: their own hold-out would be masked copies of the rows they learn."""
    train, test = synthetic("S3", 300, seed=0), synthetic("S3", 2000, seed=1)
    scores = {}
    for stop in ("auto", False):
        trees = HistGradientBoostingClassifier(early_stopping=stop)
        evaluator = EvalX(estimator=trees, random_state=0).fit(train.x, train.y)
        scores[stop] = evaluator.evaluate(test.truth, test.x, test.y, bootstrap_draws=20)
    assert scores["auto"].rows["everything"]["eloglik"].low > -np.log(2)
    assert scores[False].rows["everything"]["eloglik"].high < -np.log(2)  # worse than nothing


def test_a_run_is_repeated_by_its_random_state_and_touches_no_other() -> None:
    x, y = rows()
    masks = np.random.default_rng(3).random(x.shape) < 0.5
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    mine = RandomForestClassifier(3)
    one, again, other = (
        boosted(estimator=mine, random_state=seed).fit(x, y).predict_proba(x, masks)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002
    assert mine.random_state is None  # a clone is fitted, never the user's own
    assert not hasattr(mine, "classes_")


def test_every_unset_random_state_is_set_and_no_other() -> None:
    x, y = rows()
    pipe = make_pipeline(SimpleImputer(), RandomForestClassifier(3), memory=None)
    pipe.steps.insert(1, ("trees", FunctionTransformer()))
    fitted = boosted(estimator=pipe).fit(x, y).estimator_
    assert isinstance(fitted[-1].random_state, int)
    fitted = boosted(estimator=RandomForestClassifier(3, random_state=5)).fit(x, y).estimator_
    assert fitted.random_state == 5


def test_too_many_copies_are_fewer_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows(100)
    monkeypatch.setattr(copies, "_MOST_ROWS", 350)
    with pytest.warns(DataWarning, match="5 masked copies of 100 rows .* 3 of each") as got:
        evaluator = boosted(estimator=Spy()).fit(x, y)
    assert got[0].filename == __file__
    assert evaluator.copies_ == 3
    monkeypatch.setattr(copies, "_MOST_ROWS", 10**6)
    monkeypatch.setattr(copies, "_MOST_NUMBERS", 100)  # not even one copy: one it is
    with pytest.warns(DataWarning, match="1 of each"):
        assert boosted(estimator=Spy()).fit(x, y).copies_ == 1


class NeverFirst(MaskLaw):
    """Hides the first feature, and each other with probability ½."""

    def noise_width(self, features: int) -> int:
        return features

    def __call__(self, noise: Tensor, features: int) -> Tensor:
        return ((noise < 0.5) & (torch.arange(features) > 0)).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
        return 0, features - 1


def test_a_feature_that_is_never_shown_is_never_used() -> None:
    x, y = rows()
    evaluator = boosted(mask_law=NeverFirst()).fit(x, y)
    assert evaluator.used_.tolist() == [False, True, True, True]
    assert evaluator.estimator_.n_features_in_ == 3
    other = x.copy()
    other[:, 0] = 7
    np.testing.assert_array_equal(evaluator.predict_proba(x), evaluator.predict_proba(other))


def test_rows_are_predicted_in_batches_alike() -> None:
    x, y = rows()
    evaluator = boosted().fit(x, y)
    whole = evaluator.predict_proba(x)
    np.testing.assert_array_equal(evaluator.set_params(batch_size=7).predict_proba(x), whole)


def test_a_refit_with_the_other_kind_forgets_the_first() -> None:
    x, y = rows()
    evaluator = boosted().fit(x, y)
    trees = evaluator.predict_proba(x)
    training = Training(epochs=1, batch_size=20)
    network = {"predictor": TINY, "training": training, "device": "cpu", "progress": False}
    evaluator.set_params(estimator=None, **network).fit(x, y)
    assert not hasattr(evaluator, "estimator_")
    evaluator.set_params(estimator=boosted().estimator, predictor=None).fit(x, y)
    assert not hasattr(evaluator, "predictor_")
    np.testing.assert_array_equal(evaluator.predict_proba(x), trees)


# ---------------------------------------------------------------------- probabilities as targets


def test_a_models_probabilities_are_weights() -> None:
    x, y = rows()
    model = LogisticRegression().fit(x, y)
    evaluator = boosted(estimator=Spy(), model=model, mask_copies=3)
    evaluator.fit(x, validation=(x, None))
    seen, label, weight = evaluator.estimator_.seen_
    target = model.predict_proba(x)
    assert len(seen) == 3 * 80 * 2
    np.testing.assert_allclose(weight[label == 1], np.tile(target[:, 1], 3), rtol=1e-6)
    np.testing.assert_allclose(weight[label == 0], np.tile(target[:, 0], 3), rtol=1e-6)
    np.testing.assert_array_equal(seen[label == 0], seen[label == 1])  # the same masks


def test_explanations_of_a_model_are_judged_by_divergence() -> None:
    x, y = rows(400)
    model = LogisticRegression().fit(x, y)
    trees = HistGradientBoostingClassifier(max_iter=50)
    evaluator = boosted(estimator=trees, model=model, mask_copies=20).fit(x)
    honest = np.tile([True, True, False, False], (400, 1))
    scores = evaluator.evaluate(honest, x, bootstrap_draws=20)
    assert scores["kl"].value < 0.1 < scores.rows["nothing"]["kl"].value
    assert (evaluator.predict(x) == model.predict(x)).mean() > 0.9


def test_classes_without_any_probability_get_none() -> None:
    x, y = rows()
    target = np.zeros((80, 3))
    target[np.arange(80), 2 * y] = 1  # never the second class
    evaluator = boosted().fit(x, target)
    predicted = evaluator.predict_proba(x)
    assert predicted.shape == (80, 3)
    assert (predicted[:, 1] == 0).all()
    assert (predicted.argmax(1) == 2 * y).mean() > 0.8
    with pytest.raises(InputError, match=r"two classes .* one class has all") as caught:
        boosted().fit(x, np.tile([1.0, 0.0], (80, 1)))
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- post-hoc


class Recorder:
    """A model of numbers that keeps what it was asked."""

    def __call__(self, X: Any) -> Any:
        self.asked = X
        first = np.asarray(X[:, 0] if not isinstance(X, pd.DataFrame) else X.iloc[:, 0])
        return 1 / (1 + np.exp(-first.astype(float)))


@pytest.mark.parametrize("form", ["array", "tensor", "frame", "list"])
def test_hidden_values_are_filled_in_the_form_they_came(form: str) -> None:
    x, _ = rows()
    X = {
        "array": x,
        "tensor": torch.from_numpy(x.astype(np.float32)),
        "frame": pd.DataFrame(x, columns=list("abcd"), index=range(5, 85)),
        "list": x.tolist(),
    }[form]
    model = Recorder()
    evaluator = PostHoc(model).fit(X)
    masks = np.random.default_rng(0).random(x.shape) < 0.5
    evaluator.predict_proba(X, masks)
    assert type(model.asked) is (np.ndarray if form == "list" else type(X))
    if form == "frame":
        assert list(model.asked.columns) == list("abcd")
        assert list(model.asked.index) == list(X.index)
    asked = np.asarray(model.asked)
    np.testing.assert_allclose(asked, np.where(masks, x, x.mean(0)), rtol=1e-5, atol=1e-7)


def test_columns_keep_their_kind_when_filled() -> None:
    table, _ = mixed()
    table = table.assign(visits=np.arange(80) % 4)
    asked = []

    def model(X: pd.DataFrame) -> Any:
        asked.append(X)
        return np.full(len(X), 0.5)

    evaluator = PostHoc(model, groups={"person": ["age", "smoker"]}).fit(table)
    masks = np.zeros((80, 4), dtype=bool)
    masks[:, evaluator.columns_.features.index("town")] = True
    evaluator.predict_proba(table, masks)
    filled = asked[-1]
    assert (filled["town"] == table["town"]).all()
    assert (filled["grade"] == table["grade"].mode()[0]).all()
    assert filled["grade"].dtype == table["grade"].dtype
    assert (filled["smoker"] == table["smoker"].mode()[0]).all()
    assert filled["smoker"].dtype == bool
    assert (filled["age"] == table["age"].mean()).all()
    assert (filled["visits"] == 1.5).all()


def test_everything_shown_is_the_model_itself() -> None:
    x, y = rows()
    model = RandomForestClassifier(5, random_state=0).fit(x, y)
    evaluator = PostHoc(model).fit(x, y)
    np.testing.assert_allclose(evaluator.predict_proba(x), model.predict_proba(x), atol=1e-7)
    scores = evaluator.evaluate(np.ones_like(x), x, bootstrap_draws=5)  # agreement with the model
    assert scores["kl"].value == pytest.approx(0, abs=1e-6)
    assert scores["eacc"].value == 1


def test_y_names_the_classes_of_a_callable() -> None:
    x, y = rows()
    labels = np.array(["ill", "well"])[y]
    evaluator = PostHoc(Recorder()).fit(x, labels)
    assert evaluator.classes_.tolist() == ["ill", "well"]
    assert (evaluator.predict(x) == np.where(x[:, 0] > 0, "well", "ill")).all()
    with pytest.raises(InputError, match="each of the model's 2 probabilities but has 3") as caught:
        PostHoc(Recorder()).fit(x, np.arange(80) % 3)
    assert_one_sentence(caught.value)


def test_post_hoc_figures_mix_in_how_the_model_extrapolates() -> None:
    """y is 1 away from 0. With nothing shown the model sees 0 and is sure, and wrong in half."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 3))
    y = (np.abs(x[:, 0]) > 0.6745).astype(int)

    def model(X: Any) -> Any:
        return np.where(np.abs(X[:, 0]) > 0.6745, 0.99, 0.01)

    nothing = np.zeros_like(x)
    scores = PostHoc(model).fit(x, y).evaluate(nothing, x, y, bootstrap_draws=20)
    assert scores["eloglik"].value < -2  # half of log 0.01 = −4.6
    assert repr(scores).startswith("Post-hoc on 1,000 rows")
    assert "never trained on masked inputs" in scores.remarks[0]
    honest = boosted().fit(x, y).evaluate(nothing, x, y, bootstrap_draws=20)
    assert honest["eloglik"].value == pytest.approx(-np.log(2), abs=0.01)
    everything = PostHoc(model).fit(x, y).evaluate(np.ones_like(x), x, y, bootstrap_draws=20)
    assert everything.remarks == []


def test_a_post_hoc_network_hides_by_its_masker() -> None:
    x, y = rows()
    none = np.zeros_like(x)
    evaluator = posthoc(masker=Zero()).fit(x, y)
    at_the_mean = np.tile(x.mean(0), (80, 1))
    np.testing.assert_allclose(
        evaluator.predict_proba(x, none), evaluator.predict_proba(at_the_mean), atol=1e-6
    )
    np.testing.assert_array_equal(
        posthoc().fit(x, y).predict_proba(x, none), evaluator.predict_proba(x, none)
    )
    tokens = posthoc(masker=Token()).fit(x, y)
    assert not np.allclose(tokens.predict_proba(x, none), tokens.predict_proba(at_the_mean))


# ---------------------------------------------------------------------- the exact posterior


def test_the_truth_is_all_that_the_exact_posterior_needs() -> None:
    data = synthetic("S2", 500, seed=0, noise_features=3)
    exact = ExactPosterior("S2")
    shown = exact.predict_proba(data.x, data.truth)
    np.testing.assert_allclose(shown[:, 1], data.probability, atol=1e-9)
    np.testing.assert_allclose(shown.sum(1), 1, atol=1e-12)
    np.testing.assert_array_equal(exact.predict(data.x), (data.probability > 0.5).astype(int))
    scores = exact.evaluate(data.truth, torch.from_numpy(data.x), data.y, bootstrap_draws=20)
    assert scores["eloglik"].value == pytest.approx(scores.rows["everything"]["eloglik"].value)
    assert scores.over_random["eloglik"].low > 0
    assert repr(scores).startswith("The exact posterior on 500 rows")


def test_it_is_the_best_of_all_evaluators() -> None:
    train, test = synthetic("S3", 2000, seed=0), synthetic("S3", 3000, seed=1)
    masks = np.random.default_rng(0).random(test.x.shape) < 0.5
    trees = boosted(estimator=HistGradientBoostingClassifier(), mask_copies=10)
    others = [trees.fit(train.x, train.y), PostHoc(lambda x: trees.predict_proba(x)).fit(train.x)]
    for shown in (test.truth, masks):
        best = ExactPosterior("S3").evaluate(shown, test.x, test.y, bootstrap_draws=20)
        for other in others:
            theirs = other.evaluate(shown, test.x, test.y, bootstrap_draws=20)
            assert best["eloglik"].value > theirs["eloglik"].value


def test_it_needs_no_fit_and_remembers_only_a_width() -> None:
    data = synthetic("S1", 50, seed=0)
    table = pd.DataFrame(data.x, columns=data.feature_names)
    exact = clone(ExactPosterior("S1"))
    np.testing.assert_array_equal(exact.predict_proba(table), exact.predict_proba(data.x))
    assert exact.fit(data.x, data.y) is exact
    assert exact.n_features_in_ == 11
    assert set(vars(exact)) == {"name", "n_features_in_"}
    with pytest.raises(ValueError, match="12 features, but ExactPosterior is expecting 11"):
        exact.predict(np.zeros((2, 12)))


# ---------------------------------------------------------------------- on disk


def test_saving_an_estimator_without_skops_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "skops.io", None)
    x, y = rows()
    with pytest.raises(MissingExtra, match=r"'skops'.* \"unmasked\[sklearn-saving\]\"") as caught:
        boosted().fit(x, y).save(tmp_path / "model")
    assert_one_sentence(caught.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(3), PIPE])
def test_a_saved_estimator_gives_the_same_numbers(estimator: Any, tmp_path: Path) -> None:
    pytest.importorskip("skops")
    table, y = mixed()
    labels = np.array(["no", "yes"])[y]
    kind = {} if estimator is None else {"estimator": estimator}
    evaluator = boosted(**kind, mask_law=Bernoulli(0.4)).fit(table, labels)
    evaluator.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    np.testing.assert_array_equal(
        loaded.predict_proba(table, masks), evaluator.predict_proba(table, masks)
    )
    one, other = (
        e.evaluate(masks, table, labels, bootstrap_draws=5).to_json() for e in (evaluator, loaded)
    )
    assert one == other
    assert (loaded.mask_copies, loaded.copies_, loaded.mask_law) == (5, 5, Bernoulli(0.4))
    loaded.set_params(random_state=0).fit(table, labels)  # the estimator came back too
    np.testing.assert_array_equal(loaded.predict_proba(table), evaluator.predict_proba(table))
    content = bytearray((tmp_path / "model" / "estimator.skops").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model" / "estimator.skops").write_bytes(bytes(content))
    with pytest.raises(SavedError, match=r"estimator\.skops is damaged: its digest"):
        EvalX.load(tmp_path / "model")


def test_only_scikit_learns_own_classes_are_saved_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skops")
    x, y = rows()
    spy = boosted(estimator=Spy()).fit(x, y)
    # numpy's, but a function: some of those run any text they are given
    step = FunctionTransformer(np.lib.format.descr_to_dtype, validate=False)
    nested = boosted().fit(x, y)
    nested.estimator_ = make_pipeline(step, nested.estimator_)
    for evaluator, name in ((spy, "Spy"), (nested, "descr_to_dtype")):
        with pytest.raises(InputError, match=f"scikit-learn's parts only but has .*{name}") as got:
            evaluator.save(tmp_path / "model")
        assert_one_sentence(got.value)
        with monkeypatch.context() as careless:
            careless.setattr("unmasked.storage._known_class", lambda name: True)
            evaluator.save(tmp_path / name)
        with pytest.raises(SavedError, match=f"classes of sklearn, .* but holds .*{name}"):
            EvalX.load(tmp_path / name)


def test_a_post_hoc_network_is_saved_and_a_model_of_ones_own_refused(tmp_path: Path) -> None:
    table, y = mixed()
    evaluator = posthoc().fit(table, y)
    evaluator.save(tmp_path / "model")
    loaded = PostHoc.load(tmp_path / "model", device="cpu")
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    np.testing.assert_array_equal(
        loaded.predict_proba(table, masks), evaluator.predict_proba(table, masks)
    )
    with pytest.raises(SavedError, match="holds a saved PostHoc, but EvalX"):
        EvalX.load(tmp_path / "model")
    x, y = rows()
    with pytest.raises(InputError, match="has a model of yours; save the model yourself") as got:
        PostHoc(Recorder()).fit(x).save(tmp_path / "other")
    assert_one_sentence(got.value)


# ---------------------------------------------------------------------- bad input

X, Y = rows(60)
ALL = np.ones((60, 4), dtype=bool)
RAW = synthetic("S1", 10, seed=0)
SCALED = make_pipeline(StandardScaler(), LogisticRegression())
SEARCH = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "estimator and predictor": (
        lambda: boosted(predictor=TINY).fit(X, Y),
        "either estimator or predictor can be given but both came",
    ),
    "estimator and masker": (
        lambda: boosted(masker=Zero()).fit(X, Y),
        "either estimator or masker can be given",
    ),
    "estimator's class": (
        lambda: boosted(estimator=GaussianNB).fit(X, Y),
        "but is the class GaussianNB",
    ),
    "estimator by name": (lambda: boosted(estimator="trees").fit(X, Y), "classifier .* is str"),
    "estimator without probabilities": (
        lambda: boosted(estimator=SVC()).fit(X, Y),
        "classifier with predict_proba, .* but is SVC",
    ),
    "a network as estimator": (lambda: boosted(estimator=nn.Linear(4, 2)).fit(X, Y), "is Linear"),
    "estimator that refuses NaN": (
        lambda: boosted(estimator=LogisticRegression()).fit(X, Y),
        "take NaN for hidden values but LogisticRegression does not; use Hist",
    ),
    "estimator that refuses NaN where none is hidden": (
        lambda: boosted(estimator=GaussianNB(), mask_law=Bernoulli(1.0)).fit(X, Y),
        "but GaussianNB does not",
    ),
    "pipeline that refuses NaN": (
        lambda: boosted(estimator=SCALED).fit(X, Y),
        "but Pipeline does not",
    ),
    "search that refuses NaN": (
        lambda: boosted(estimator=SEARCH).fit(X, Y),
        "but GridSearchCV does not",
    ),
    "probabilities without weights": (
        lambda: boosted(estimator=PIPE).fit(X, np.full((60, 2), 0.5)),
        "fit must take sample_weight but Pipeline's does not",
    ),
    "no copies": (lambda: boosted(mask_copies=0).fit(X, Y), "mask_copies .* but is 0"),
    "half a copy": (lambda: boosted(mask_copies=0.5).fit(X, Y), "mask_copies .* but is 0.5"),
    "a law that hides all": (
        lambda: boosted(mask_law=Bernoulli(0.0)).fit(X, Y),
        "needs shown features .* but the mask law hides everything",
    ),
    "estimator asked with other masks": (
        lambda: boosted().fit(X, Y).predict_proba(X, ALL[:, :3]),
        r"shape \(60, 4\).* but have \(60, 3\)",
    ),
    "estimator asked in no batches": (
        lambda: boosted().fit(X, Y).set_params(batch_size=0).predict(X),
        "batch_size .* but is 0",
    ),
    "post-hoc without anything": (lambda: posthoc().fit(X), "y is None; give labels"),
    "post-hoc model and predictor": (
        lambda: PostHoc(Recorder(), predictor=TINY).fit(X),
        "either model or predictor can be given but both came",
    ),
    "post-hoc model and masker": (
        lambda: PostHoc(Recorder(), masker=Zero()).fit(X),
        "either model or masker",
    ),
    "post-hoc model that cannot predict": (
        lambda: PostHoc("model").fit(X),
        "model must have predict_proba or be callable, but is str",
    ),
    "post-hoc labels of other classes": (
        lambda: PostHoc(GaussianNB().fit(X, Y)).fit(X, Y + 5),
        r"classes seen in fit, \[0, 1\], but holds",
    ),
    "post-hoc masks": (
        lambda: PostHoc(Recorder()).fit(X).evaluate(ALL[:5], X, Y),
        r"shape \(60, 4\).* but have \(5, 4\)",
    ),
    "exact of another set": (
        lambda: ExactPosterior("S9").predict(RAW.x),
        "S1, S2, S3 but 'S9'",
    ),
    "exact of few columns": (lambda: ExactPosterior("S1").predict(X), r"11 .* is \(60, 4\)"),
    "exact of missing values": (
        lambda: ExactPosterior("S1").predict(np.where(RAW.x > 1, np.nan, RAW.x)),
        r"finite features of S1 but row \d has nan in column \d",
    ),
    "exact without y": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth, RAW.x),
        "requires y but it is None",
    ),
    "exact with other classes": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth, RAW.x, ["ill"] * 10),
        r"classes seen in fit, \[0, 1\], but holds 'ill'",
    ),
    "exact with other masks": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth[:, :10], RAW.x, RAW.y),
        r"shape \(10, 11\).* but have \(10, 10\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(UnmaskedError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


def test_an_explanation_of_other_features_is_refused() -> None:
    table, y = frame()
    explanation = quick().fit(table, y).explain(table)
    evaluator = boosted().fit(table.rename(columns={"height": "size"}), y)
    with pytest.raises(InputError, match="feature 4 is 'height' but the evaluator's is 'size'"):
        evaluator.evaluate(explanation, table.rename(columns={"height": "size"}), y)
