"""All estimators keep scikit-learn's promises: its own suite, clones, pipelines, cross-validation.

There is no list of expected failures: every check of scikit-learn passes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from small_tables import (
    EXPLAINERS,
    PATHS,
    SELECTING,
    frame,
    quick_evaluator,
    rows,
)

from unmasked import L2X, MLP, BaseX, Bernoulli, EvalX, Full, Invase, PostHoc, RealX, Training, Zero
from unmasked.training import program

# Large steps, few of them: the suite fits hundreds of times and wants 83% accuracy on easy blobs.
SHORT = Training(epochs=5, batch_size=32, learning_rate=0.1, selector_learning_rate=0.1)
MAKERS: dict[str, Callable[..., Any]] = {**EXPLAINERS, "EvalX": quick_evaluator}
TREES = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=8, min_samples_leaf=5)
Maker = Callable[..., Any]
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
each_explainer = pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def short_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 validation masks an epoch are most of the time of a fit on 20 rows."""
    monkeypatch.setattr(program, "_VALIDATION_MASKS", 100, raising=False)


def contract() -> list[Any]:
    """All checks of scikit-learn but the one that it skips itself: other array libraries."""
    small = {"training": SHORT, "progress": False}
    both = {"selector": MLP((16,)), "predictor": MLP((16,)), **small}
    estimators = {
        "RealX": RealX(0.01, **both),
        "RealX-first": RealX(0.01, predictor_first=True, **both),
        "BaseX": BaseX(0.01, **both),
        "Invase": Invase(0.01, **both),
        "L2X": L2X(1, **both),
        "Full": Full(MLP((16,)), **small),
        "EvalX": EvalX(MLP((16,)), **small),
        "EvalX of trees": EvalX(estimator=TREES, mask_copies=5),
        "PostHoc": PostHoc(predictor=MLP((16,)), **small),
    }
    cases = []
    for kind, estimator in estimators.items():
        for case, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if name != "check_array_api_input":  # we do not claim to take other array libraries
                cases.append(pytest.param(case, check, id=f"{kind}-{name}"))
    return cases


@pytest.mark.parametrize(("estimator", "check"), contract())
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator.set_params(device="cpu"))


@each_maker
def test_a_clone_has_equal_parameters_and_nothing_learned(make: Maker) -> None:
    x, y = rows()
    law = {"mask_law": Bernoulli(0.3)} if "mask_law" in make().get_params() else {}
    fitted = make(masker=Zero(), groups=[[0, 1]], **law).fit(x, y)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(x)
    np.testing.assert_array_equal(copy.fit(x, y).predict_proba(x), fitted.predict_proba(x))


@each_maker
def test_parameters_are_stored_untouched(make: Maker) -> None:
    estimator = make()
    for name, value in estimator.get_params().items():
        assert getattr(estimator, name) is value
    training = Training(epochs=1)
    assert estimator.set_params(training=training, validation=0.4) is estimator
    assert estimator.training is training
    assert estimator.get_params()["validation"] == 0.4
    with pytest.raises(ValueError, match="sparsness"):
        estimator.set_params(sparsness=1)


@each_maker
def test_every_constructor_argument_is_a_parameter(make: Maker) -> None:
    kind = type(make())
    assert is_classifier(kind())
    assert set(kind().get_params()) == set(kind._get_param_names())
    assert {"masker", "groups", "training", "random_state", "model"} <= set(kind().get_params())
    assert ("mask_law" in kind().get_params()) == (kind in (RealX, EvalX))
    for name in ("predictor_first", "exchange"):
        assert (name in kind().get_params()) == (kind is RealX)


@each_maker
def test_in_a_pipeline_after_scaling(make: Maker) -> None:
    x, y = rows(120)
    # Scaling twice is scaling once, so the pipeline agrees with the estimator alone.
    pipe = make_pipeline(StandardScaler(), make()).fit(5 + 100 * x, y)
    alone = make().fit(x, y)
    np.testing.assert_allclose(
        pipe.predict_proba(5 + 100 * x), alone.predict_proba(x), rtol=0, atol=1e-3
    )


@each_explainer
def test_a_pipeline_ends_in_an_explanation_of_named_columns(make: Maker) -> None:
    table, y = frame()
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), make()).fit(table, y)
    explanation = pipe[-1].explain(pipe[:-1].transform(table))
    assert explanation.feature_names == list(table.columns)
    assert list(explanation.index) == list(table.index)


@each_maker
def test_cross_validation_beats_chance(make: Maker) -> None:
    x, y = rows(150)
    longer = Training(epochs=12, batch_size=20, learning_rate=0.05, selector_learning_rate=0.01)
    estimator = make(training=longer)
    if "sparsity" in estimator.get_params():
        estimator.set_params(sparsity=0.01)
    scores = cross_val_score(estimator, x, y, cv=3)
    assert scores.shape == (3,)
    # 50 rows a fold: guessing has a standard error of 0.07, so 0.7 is nearly 3 above it.
    assert scores.mean() > 0.7


@pytest.mark.parametrize("name", SELECTING)
def test_grid_search_over_levels_keeps_a_fitted_explainer(name: str) -> None:
    x, y = rows()
    grid = {level: values[::2] for level, values in PATHS[name].items()}
    search = GridSearchCV(SELECTING[name](), grid, cv=2).fit(x, y)
    (level,) = grid
    assert getattr(search.best_estimator_, f"{level}_") == search.best_params_[level]
    assert search.best_estimator_.explain(x).masks.shape == x.shape


@each_explainer
def test_a_model_to_be_explained_survives_cloning_when_frozen(make: Maker) -> None:
    x, y = rows()
    model = RandomForestClassifier(5, random_state=0).fit(x, y)
    copy = clone(make(model=FrozenEstimator(model))).fit(x)
    direct = make(model=model).fit(x)
    np.testing.assert_array_equal(copy.explain(x).masks, direct.explain(x).masks)
    np.testing.assert_array_equal(copy.predict_proba(x), direct.predict_proba(x))


@each_maker
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_unfitted_is_said(make: Maker, method: str) -> None:
    x, _ = rows()
    with pytest.raises(NotFittedError, match=type(make()).__name__):
        getattr(make(), method)(x)


@each_explainer
@pytest.mark.parametrize("method", ["explain", "transform", "save"])
def test_an_unfitted_explainer_says_so(make: Maker, method: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=type(make()).__name__):
        getattr(make(), method)(tmp_path / "model" if method == "save" else rows()[0])
