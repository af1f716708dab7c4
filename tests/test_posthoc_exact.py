"""PostHoc fills in what is hidden, and ExactPosterior knows what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from small_tables import (
    Recorder,
    assert_one_sentence,
    boosted,
    mixed,
    posthoc,
    rows,
)

from unmasked import EvalX, ExactPosterior, InputError, PostHoc, SavedError, Token, Zero, synthetic

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- post-hoc


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
    assert set(vars(exact)) == {"name", "correlation", "n_features_in_"}
    with pytest.raises(ValueError, match="12 features, but ExactPosterior is expecting 11"):
        exact.predict(np.zeros((2, 12)))


# ---------------------------------------------------------------------- on disk


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
