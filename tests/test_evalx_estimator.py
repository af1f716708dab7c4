"""EvalX with a scikit-learn classifier: masked copies, weights, the right posterior, saving."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from small_tables import (
    TINY,
    assert_one_sentence,
    boosted,
    mixed,
    rows,
)
from torch import Tensor

from unmasked import (
    Bernoulli,
    DataWarning,
    EvalX,
    InputError,
    MaskLaw,
    MissingExtra,
    SavedError,
    Training,
    synthetic,
)
from unmasked.evaluation import boosted as copies

pytestmark = pytest.mark.usefixtures("one_thread")
PIPE = make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression())


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
            careless.setattr("unmasked.explainers.saving._known_class", lambda name: True)
            evaluator.save(tmp_path / name)
        with pytest.raises(SavedError, match=f"classes of sklearn, .* but holds .*{name}"):
            EvalX.load(tmp_path / name)
