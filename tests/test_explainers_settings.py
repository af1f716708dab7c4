"""Prices, numbers of features, and how one of several is chosen, for all explainers."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from all_explainers import PATH, Maker, each_path, same
from small_tables import (
    SELECTING,
    mixed,
    quick,
    quick_full,
    quick_l2x,
    rows,
)

from unmasked import InputError, Training
from unmasked.explainers.path import AUTO_PRICES, Candidate, choose
from unmasked.training import Trained, fit
from unmasked.training.step import Stepper

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", [name for name in SELECTING if name != "L2X"])
def test_a_high_price_shows_less(name: str) -> None:
    x, y = rows()
    slow = Training(epochs=20, batch_size=20, learning_rate=0.05, selector_learning_rate=0.02)
    explainer = SELECTING[name](sparsity=PATH, training=slow).fit(x, y)
    fractions = [explainer.explain(x, sparsity=value).fraction for value in PATH]
    assert fractions[0] > fractions[-1]


@each_path
def test_a_path_keeps_one_of_its_settings_and_can_explain_with_each(
    make: Maker, path: dict[str, Any]
) -> None:
    ((name, levels),) = path.items()
    x, y = rows()
    explainer = make(**path).fit(x, y)
    assert explainer.path_[name].tolist() == levels
    assert explainer.path_["chosen"].sum() == 1
    chosen = explainer.path_.loc[explainer.path_["chosen"], name].item()
    assert getattr(explainer, f"{name}_") == chosen
    assert same(explainer.explain(x), explainer.explain(x, **{name: chosen}))
    np.testing.assert_array_equal(
        explainer.predict_proba(x), explainer.predict_proba(x, **{name: chosen})
    )
    for level in levels:
        assert explainer.explain(x, **{name: level}).about[name] == level
    with pytest.raises(InputError, match=f"{name} must be one of the trained .* but is 7"):
        explainer.explain(x, **{name: 7})


@each_path
def test_each_setting_keeps_the_networks_it_was_judged_with(
    make: Maker, path: dict[str, Any]
) -> None:
    x, y = rows(150)
    training = Training(epochs=12, batch_size=20, learning_rate=0.1, selector_learning_rate=0.05)
    for seed in range(5):  # until the best epochs differ, and with them the predictors
        explainer = make(**path, training=training, random_state=seed).fit(x, y)
        if explainer.path_["epoch"].nunique() > 1:
            break
    table = explainer.path_
    assert table["epoch"].nunique() > 1
    judged = [entry for entry in explainer.history_ if "selector" in entry["trains"]]
    for i, epoch in enumerate(table["epoch"]):
        # single precision, in batches of other sizes
        assert table["loglik"][i] == pytest.approx(judged[epoch]["loglik"][i], abs=1e-5)
        assert table["fraction"][i] == pytest.approx(judged[epoch]["fraction"][i], abs=1e-6)
        scores = [entry["score"][i] for entry in judged if not entry["waiting"]]
        assert judged[epoch]["score"][i] == max(scores)


@each_path
def test_each_setting_has_a_predictor_of_its_own_unless_one_was_finished_first(
    make: Maker, path: dict[str, Any]
) -> None:
    x, y = rows()
    explainer = make(**path).fit(x, y)
    first = explainer.get_params().get("predictor_first", False)
    assert len({id(setting.predictor) for setting in explainer.settings_}) == (1 if first else 3)
    assert len({id(setting.selector) for setting in explainer.settings_}) == 3


@each_path
def test_a_path_is_its_settings_one_by_one(make: Maker, path: dict[str, Any]) -> None:
    ((name, levels),) = path.items()
    x, y = rows()
    together = make(**path).fit(x, y)
    for level in levels:
        alone = make(**{name: level}).fit(x, y)
        # single precision: a stack's products are summed in another order
        np.testing.assert_allclose(
            together.explain(x, **{name: level}).probabilities,
            alone.explain(x).probabilities,
            rtol=0,
            atol=1e-5,
        )


def test_l2x_shows_exactly_k_for_every_k_of_its_path() -> None:
    x, y = rows()
    explainer = quick_l2x(k=[1, 2, 3, 4]).fit(x, y)
    for k in (1, 2, 3, 4):
        explanation = explainer.explain(x, k=k)
        assert set(explanation.sizes.tolist()) == {k}
        np.testing.assert_array_equal(explanation.masks, explanation.top(k).masks)
    assert explainer.path_["k"].tolist() == [1, 2, 3, 4]
    assert explainer.path_["fraction"].tolist() == [0.25, 0.5, 0.75, 1.0]


def test_l2x_counts_groups_as_one_feature() -> None:
    table, y = mixed()
    explainer = quick_l2x(k=2, groups={"person": ["age", "smoker"]}).fit(table, y)
    assert set(explainer.explain(table).sizes.tolist()) == {2}
    with pytest.raises(InputError, match="at most the number of features, 3, but is 4"):
        quick_l2x(k=4, groups={"person": ["age", "smoker"]}).fit(table, y)


def test_l2x_of_all_features_predicts_as_with_everything() -> None:
    x, y = rows()
    explainer = quick_l2x(k=4).fit(x, y)
    assert explainer.explain(x).masks.all()


@pytest.mark.parametrize("k", [2, [2], np.int64(2), np.array([2]), (2,), range(2, 3)])
def test_k_is_a_whole_number_in_any_dress(k: Any) -> None:
    x, y = rows()
    explainer = quick_l2x(k=k).fit(x, y)
    assert explainer.k_ == 2
    assert type(explainer.k_) is int
    assert same(explainer.explain(x), quick_l2x(k=2).fit(x, y).explain(x))


def test_full_shows_everything_and_predicts_from_it() -> None:
    table, y = mixed()
    full = quick_full().fit(table, y)
    explanation = full.explain(table)
    assert explanation.masks.all()
    assert (explanation.probabilities == 1).all()
    pd.testing.assert_frame_equal(full.transform(table), table)


def test_full_is_the_model_that_the_tolerance_rule_compares_with() -> None:
    x, y = rows(150)
    explainer = quick(sparsity=PATH, choose="tolerance", random_state=3).fit(x, y)
    x_valid, y_valid = rows(60, seed=1)
    own = quick(sparsity=PATH, choose="tolerance", random_state=3)
    own.fit(x, y, validation=(x_valid, y_valid))
    full = quick_full(random_state=3).fit(x, y, validation=(x_valid, y_valid))
    assert own.full_accuracy_ == pytest.approx(full.score(x_valid, y_valid))
    assert explainer.full_accuracy_ is not None


def test_auto_prices_each_feature_the_same() -> None:
    x, y = rows()
    explainer = quick(sparsity="auto").fit(x, y)
    np.testing.assert_allclose(explainer.path_["sparsity"], np.array(AUTO_PRICES) * 4)
    grouped = quick(sparsity="auto", groups=[[0, 1], [2, 3]]).fit(x, y)
    np.testing.assert_allclose(grouped.path_["sparsity"], np.array(AUTO_PRICES) * 2)


def test_a_number_a_list_of_one_and_numpy_agree() -> None:
    x, y = rows()
    results = [quick(sparsity=s).fit(x, y).explain(x) for s in (0.3, [0.3], np.array([0.3]))]
    assert same(results[0], results[1])
    assert same(results[0], results[2])


@pytest.mark.parametrize("rule", ["one-standard-error", "accuracy", "tolerance", "balanced"])
def test_each_rule_chooses_what_it_says(rule: str) -> None:
    x, y = rows(150)
    training = Training(epochs=12, batch_size=20, learning_rate=0.05, selector_learning_rate=0.02)
    explainer = quick(sparsity=PATH, choose=rule, training=training).fit(x, y)
    path = explainer.path_
    chosen = path[path["chosen"]].iloc[0]
    if rule == "accuracy":
        assert chosen["accuracy"] == path["accuracy"].max()
    elif rule in ("tolerance", "balanced"):
        assert 0.5 < explainer.full_accuracy_ <= 1
        measure = "accuracy" if rule == "tolerance" else "balanced_accuracy"
        enough = path[(path[measure] >= explainer.full_accuracy_ - 0.05) & (path["fraction"] > 0)]
        best = enough["fraction"].min() if len(enough) else chosen["fraction"]
        assert chosen["fraction"] == best
        assert f"{explainer.full_accuracy_:.3f}" in explainer.reason_
    else:
        best = path.loc[path["loglik"].idxmax()]
        assert chosen["fraction"] <= best["fraction"]
        assert "one standard error" in explainer.reason_
    assert (explainer.full_accuracy_ is None) == (rule not in ("tolerance", "balanced"))


@pytest.mark.parametrize("rule", ["tolerance", "balanced"])
def test_a_full_model_that_was_broken_off_is_no_measure(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing says that it is kept: warnings are errors here."""
    step = Stepper.__call__

    def pressed(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return step(*args)

    def broken_off(*args: Any, **options: Any) -> Trained:
        if options["title"] == "FULL":
            monkeypatch.setattr(Stepper, "__call__", pressed)
        return fit(*args, **options)

    monkeypatch.setattr("unmasked.explainers.base.fit", broken_off)
    with pytest.raises(KeyboardInterrupt):
        quick(sparsity=PATH, choose=rule).fit(*rows())
    monkeypatch.undo()
    assert not quick(sparsity=PATH, choose=rule).fit(*rows()).interrupted_


def test_a_price_as_it_is_printed_names_the_trained_one() -> None:
    x, y = rows()
    explainer = quick(sparsity=[1 / 6, 1.2345649]).fit(x, y)
    for price in (1 / 6, 1.2345649):
        printed = float(f"{price:g}")
        assert printed != price
        assert explainer.trained_sparsity(printed) == price
        assert same(explainer.explain(x, sparsity=printed), explainer.explain(x, sparsity=price))
    assert explainer.trained_sparsity() == explainer.sparsity_
    for foreign in (0.1667, 1.2346, True, "0.5"):
        with pytest.raises(InputError, match="one of the trained"):
            explainer.trained_sparsity(foreign)  # type: ignore[arg-type]


def candidate(sparsity: float, fraction: float, accuracy: float, loglik: float) -> Candidate:
    spread = np.tile([-0.1, 0.1], 50)  # over rows, so that differences between settings vary
    return Candidate(sparsity, fraction, accuracy, accuracy, loglik + sparsity * spread)


def test_the_rules_on_figures_made_by_hand() -> None:
    dense, middle, sparse = (
        candidate(0.0, 0.9, 0.90, -0.300),
        candidate(1.0, 0.5, 0.90, -0.305),  # paired standard error 0.1 / √99 ≈ 0.010
        candidate(2.0, 0.1, 0.86, -0.400),  # paired standard error ≈ 0.020
    )
    path = [dense, middle, sparse]
    assert choose(path, "one-standard-error")[0] == 1
    assert choose([dense, sparse], "one-standard-error")[0] == 0
    assert choose(path, "accuracy")[0] == 1  # the sparser of equals
    assert choose(path, "tolerance", full_accuracy=0.91, tolerance=0.05)[0] == 2
    assert choose(path, "tolerance", full_accuracy=0.92, tolerance=0.05)[0] == 1
    number, reason = choose(path, "tolerance", full_accuracy=0.99, tolerance=0.05)
    assert number == 1
    assert "none is within 0.05 of the full model's 0.990" in reason
    with pytest.raises(InputError, match="but is 'best'"):
        choose(path, "best")
    with pytest.raises(InputError, match="needs the accuracy of the full model"):
        choose(path, "tolerance")


def test_predictor_first_shares_one_finished_predictor() -> None:
    x, y = rows(200)
    stepwise = quick(sparsity=PATH, predictor_first=True).fit(x, y)
    together = quick(sparsity=PATH).fit(x, y)
    assert {entry["phase"] for entry in stepwise.history_} == {0, 1}
    assert {entry["phase"] for entry in together.history_} == {0}
    assert len({id(setting.predictor) for setting in stepwise.settings_}) == 1
    assert not same(stepwise.explain(x), together.explain(x))
