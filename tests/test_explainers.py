"""The explainers from the outside: what they take, what they give, what they never change.

Promises that are the same for all are held by all: RealX in both orders, BaseX, Invase, L2X, Full.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from small_tables import (
    EXPLAINERS,
    NAMES,
    PATHS,
    SELECTING,
    frame,
    mixed,
    quick,
    quick_full,
    quick_l2x,
    rows,
)
from torch import Tensor, nn

from unmasked import (
    L2X,
    MLP,
    BaseX,
    Bernoulli,
    DataWarning,
    Full,
    InputError,
    Invase,
    Masker,
    RealX,
    Training,
    UniformSize,
    Zero,
)
from unmasked.choosing import Candidate, choose
from unmasked.engine import Trained, fit, loop, restart_seeds
from unmasked.engine.program import Program
from unmasked.explainers import base
from unmasked.explanation import Explanation
from unmasked.sparsity import AUTO_PRICES

pytestmark = pytest.mark.usefixtures("one_thread")

PATH = [0.01, 0.3, 3.0]
Maker = Callable[..., Any]
each_explainer = pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())
each_selecting = pytest.mark.parametrize("make", SELECTING.values(), ids=SELECTING.keys())
each_path = pytest.mark.parametrize(
    ("make", "path"), [(make, PATHS[name]) for name, make in SELECTING.items()], ids=SELECTING
)


def same(one: Explanation, other: Explanation) -> bool:
    return np.array_equal(one.masks, other.masks) and np.array_equal(
        one.probabilities, other.probabilities
    )


# ---------------------------------------------------------------------- kinds of tables


@each_explainer
def test_arrays_frames_tensors_and_lists_give_the_same_result(make: Maker) -> None:
    table, y = frame()
    x = table.to_numpy(copy=True)
    expected = make().fit(x, y)
    kinds = [
        (table, pd.Series(y, index=table.index)),
        (torch.from_numpy(x), torch.from_numpy(y)),
        (x.tolist(), y.tolist()),
    ]
    for other_x, other_y in kinds:
        other = make().fit(other_x, other_y)
        assert same(other.explain(other_x), expected.explain(x))
        np.testing.assert_array_equal(other.predict_proba(other_x), expected.predict_proba(x))


@each_explainer
def test_names_and_index_are_carried_into_the_explanation(make: Maker) -> None:
    table, y = frame()
    shown = make().fit(table, y).explain(table.iloc[10:13])
    assert shown.feature_names == NAMES
    assert shown.to_frame().index.tolist() == ["patient 10", "patient 11", "patient 12"]
    assert shown.to_frame().columns.tolist() == NAMES


ABOUT: dict[str, dict[str, Any]] = {
    "RealX": {"method": "REAL-X", "sparsity": 0.1},
    "RealX, predictor first": {"method": "REAL-X", "sparsity": 0.1},
    "BaseX": {"method": "BASE-X", "sparsity": 0.1},
    "Invase": {"method": "INVASE", "sparsity": 0.1},
    "L2X": {"method": "L2X", "k": 2},
    "Full": {"method": "FULL"},
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_an_explanation_says_where_it_comes_from(name: str) -> None:
    x, y = rows()
    about = EXPLAINERS[name]().fit(x, y).explain(x).about
    assert about == ABOUT[name]
    assert [type(value) for value in about.values()] == [type(v) for v in ABOUT[name].values()]


@each_explainer
def test_an_array_gets_names_and_positions(make: Maker) -> None:
    x, y = rows()
    shown = make().fit(x, y).explain(x[5:7])
    assert shown.feature_names == ["x1", "x2", "x3", "x4"]
    assert shown.index.tolist() == [0, 1]


@each_explainer
def test_text_categories_and_truth_values_are_one_feature_each(make: Maker) -> None:
    table, y = mixed()
    explainer = make().fit(table, y)
    assert explainer.explain(table).feature_names == ["age", "town", "grade", "smoker"]
    assert explainer.explain(table).masks.shape == (len(table), 4)
    # one number, three towns, two grades, two truth values
    assert explainer.columns_.index == (0, 1, 1, 1, 2, 2, 3, 3)


@each_path
def test_of_several_restarts_the_best_on_validation_rows_is_kept(
    make: Maker, path: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart trained alone from its own seed, and the best of each level found by hand."""
    x, y = rows()
    found = make(**path, restarts=3, random_state=1).fit(x, y)
    alone = []
    for i in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(
                base, "restart_seeds", lambda seed, n, i=i: restart_seeds(seed, 3)[i:][:1]
            )
            alone.append(make(**path, random_state=1).fit(x, y))
    (name,) = path
    levels = [s.level for s in found.settings_]
    price = np.zeros(len(levels)) if name == "k" else np.array(levels)
    objectives = np.array([one.path_["loglik"] - price * one.path_["fraction"] for one in alone])
    best = objectives.argmax(0)
    assert len(np.unique(objectives.round(6))) > len(levels)  # restarts differ
    for level, i in zip(levels, best, strict=True):
        value = int(level) if name == "k" else level
        ours, theirs = (e.explain(x, **{name: value}) for e in (found, alone[i]))
        np.testing.assert_array_equal(ours.masks, theirs.masks)
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, atol=1e-5)
    columns = ["fraction", "epoch"]
    kept = [alone[i].path_.loc[n, columns].tolist() for n, i in enumerate(best)]
    assert found.path_[columns].to_numpy().tolist() == kept


@pytest.mark.parametrize("restarts", [0, -1, 1.5, True, "3", None])
def test_an_impossible_number_of_restarts_is_refused(restarts: Any) -> None:
    x, y = rows()
    with pytest.raises(InputError, match="restarts must be a whole number above 0") as caught:
        quick(restarts=restarts).fit(x, y)
    assert repr(restarts) in str(caught.value)


@each_selecting
def test_a_hidden_text_column_cannot_change_the_prediction(make: Maker) -> None:
    table, y = mixed()
    seed = 1 if make is quick_l2x else 0  # where the town is shown to some and hidden from some
    explainer = make(random_state=seed).fit(table, y)
    before = explainer.predict_proba(table)
    hidden = ~explainer.explain(table).masks[:, 1]
    other = table.assign(town=np.roll(table["town"].to_numpy(), 1))
    kept = (explainer.explain(other).masks == explainer.explain(table).masks).all(1)
    still = hidden & kept
    assert 10 < still.sum() < len(table)
    np.testing.assert_array_equal(explainer.predict_proba(other)[still], before[still])
    assert not np.array_equal(explainer.predict_proba(other)[~still], before[~still])


def test_an_unseen_category_warns_and_is_none_of_the_known() -> None:
    table, y = mixed()
    explainer = quick().fit(table, y)
    with pytest.warns(DataWarning, match="'town' holds 'Bonn', not seen in training"):
        matrix = explainer._matrix(table.head(2).assign(town="Bonn"))
    assert not matrix[:, 1:4].any()


@each_explainer
def test_a_constant_column_warns_and_stays(make: Maker) -> None:
    table, y = frame()
    with pytest.warns(DataWarning, match="'site' is constant"):
        explainer = make().fit(table.assign(site=7), y)
    assert explainer.explain(table.assign(site=7)).feature_names == [*NAMES, "site"]


# ---------------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ({"body": ["weight", "height"]}, ["age", "dose", "body"]),
        ({"body": [2, -1]}, ["age", "dose", "body"]),
        ([["weight", "height"]], ["age", "dose", "weight+height"]),
        ([[2, 3]], ["age", "dose", "weight+height"]),
        ({"ends": ["age", "height"], "middle": ["weight", "dose"]}, ["ends", "middle"]),
    ],
)
def test_groups_by_name_and_position(groups: Any, names: list[str]) -> None:
    table, y = frame()
    explainer = quick(groups=groups).fit(table, y)
    explanation = explainer.explain(table)
    assert explanation.feature_names == names
    assert explanation.masks.shape == (len(table), len(names))
    shown = explainer.transform(table).notna()
    for name, members in groups.items() if isinstance(groups, dict) else []:
        where = [NAMES.index(m) if isinstance(m, str) else m for m in members]
        expected = explanation.masks[:, names.index(name)]
        assert (shown.iloc[:, where].to_numpy() == expected[:, None]).all()


@each_explainer
def test_a_group_by_name_equals_the_group_by_position(make: Maker) -> None:
    table, y = frame()
    by_name = make(groups={"g": ["age", "weight"]}).fit(table, y)
    by_position = make(groups=[[0, 2]]).fit(table, y)
    assert same(by_name.explain(table), by_position.explain(table))
    assert by_name.explain(table).feature_names == ["g", "dose", "height"]
    shown = by_name.transform(table).notna().to_numpy()
    np.testing.assert_array_equal(shown[:, [0, 2]], by_name.explain(table).masks[:, [0, 0]])


# ---------------------------------------------------------------------- networks of one's own


class Own(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 6), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.tanh(self.first(x)))
        return result


@each_explainer
def test_a_module_is_copied_and_never_changed(make: Maker) -> None:
    x, y = rows()
    own = {"predictor": Own(8, 2)} | ({} if make is quick_full else {"selector": Own(4, 4)})
    before = {name: copy.deepcopy(module.state_dict()) for name, module in own.items()}
    explainer = make(**own).fit(x, y)
    for name, module in own.items():
        assert module.training
        assert all(torch.equal(before[name][k], v) for k, v in module.state_dict().items())
        learned = getattr(explainer, f"{name}_")
        assert isinstance(learned, Own)
        assert learned is not module
        assert not all(torch.equal(before[name][k], v) for k, v in learned.state_dict().items())


@each_selecting
def test_a_factory_is_called_with_inputs_and_outputs(make: Maker) -> None:
    table, y = mixed()
    asked = []

    def factory(inputs: int, outputs: int) -> nn.Module:
        asked.append((inputs, outputs))
        return Own(inputs, outputs)

    make(selector=factory, predictor=factory).fit(table, y)
    # 8 columns of the matrix make 4 features; the predictor sees values and mask, 16 in all
    assert set(asked) == {(8, 4), (16, 2)}


@each_explainer
def test_the_masker_decides_the_width(make: Maker) -> None:
    x, y = rows()
    explainer = make(masker=Zero(), predictor=Own(4, 2)).fit(x, y)
    assert explainer.predictor_.first.in_features == 4
    assert make().fit(x, y).predictor_[0].in_features == 8


# ---------------------------------------------------------------------- sparsity and choosing


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
    def broken_off(*args: Any, **options: Any) -> Trained:
        trained = fit(*args, **options)
        return replace(trained, interrupted=options["title"] == "FULL")

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


# ---------------------------------------------------------------------- explaining


@each_explainer
def test_the_batch_size_changes_no_mask(make: Maker) -> None:
    x, y = rows()
    explainer = make().fit(x, y)
    expected, predicted = explainer.explain(x), explainer.predict_proba(x)
    for batch_size in (1, 7, 80, 10_000):
        other = explainer.set_params(batch_size=batch_size).explain(x)
        np.testing.assert_array_equal(other.masks, expected.masks)
        np.testing.assert_allclose(other.probabilities, expected.probabilities, rtol=0, atol=1e-6)
        np.testing.assert_allclose(explainer.predict_proba(x), predicted, rtol=0, atol=1e-6)


@each_explainer
def test_explaining_changes_nothing(make: Maker) -> None:
    x, y = rows()
    names = ["predictor"] if make is quick_full else ["selector", "predictor"]
    explainer = make(**dict.fromkeys(names, MLP((8,), normalisation="batch"))).fit(x, y)
    networks = [getattr(explainer, f"{name}_") for name in names]
    before = copy.deepcopy([network.state_dict() for network in networks])
    first, predicted = explainer.explain(x), explainer.predict_proba(x)
    explainer.transform(x), explainer.predict(x), explainer.score(x, y)
    assert same(explainer.explain(x), first)
    np.testing.assert_array_equal(explainer.predict_proba(x), predicted)
    for network, old in zip(networks, before, strict=True):
        assert all(torch.equal(old[name], value) for name, value in network.state_dict().items())
        assert not network.training


@pytest.mark.parametrize("name", [name for name in SELECTING if name != "L2X"])
def test_masks_are_the_probabilities_above_one_half(name: str) -> None:
    x, y = rows()
    explanation = SELECTING[name]().fit(x, y).explain(x)
    np.testing.assert_array_equal(explanation.masks, explanation.probabilities > 0.5)
    assert 0 < explanation.fraction < 1


@each_explainer
def test_the_predictor_is_asked_with_the_masks_of_the_explanation(make: Maker) -> None:
    x, y = rows()
    explainer = make().fit(x, y)
    mask = explainer.explain(x).masks
    scaled = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    shown = torch.cat([scaled * torch.from_numpy(mask), torch.from_numpy(mask).float()], 1)
    with torch.no_grad():
        expected = torch.softmax(explainer.predictor_(shown), -1).numpy()
    np.testing.assert_allclose(explainer.predict_proba(x), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(explainer.predict_proba(x).sum(1), 1, atol=1e-9)


@each_explainer
@pytest.mark.parametrize("table", [rows, frame, mixed])
def test_transform_is_missing_exactly_where_hidden(table: Callable[[], Any], make: Maker) -> None:
    x, y = table()
    explainer = make().fit(x, y)
    shown, masks = explainer.transform(x), explainer.explain(x).masks
    assert type(shown) is type(x)
    np.testing.assert_array_equal(pd.isna(shown), ~masks)
    assert masks.all() == (make is quick_full)
    values: NDArray[Any] = np.asarray(shown, dtype=object)
    assert (values[masks] == np.asarray(x, dtype=object)[masks]).all()


# ---------------------------------------------------------------------- fitting


@each_explainer
def test_fit_returns_the_explainer_and_a_second_fit_forgets_the_first(make: Maker) -> None:
    x, y = rows()
    explainer = make()
    assert explainer.fit(x[:60, :3] * 9 + 4, 1 - y[:60]) is explainer
    assert explainer.n_features_in_ == 3
    again, fresh = explainer.fit(x, y), make().fit(x, y)
    assert same(again.explain(x), fresh.explain(x))
    np.testing.assert_array_equal(again.predict_proba(x), fresh.predict_proba(x))


@each_explainer
def test_random_state_repeats_and_differs(make: Maker) -> None:
    x, y = rows()
    first, again, other = (make(random_state=s).fit(x, y) for s in (3, 3, 4))
    assert same(first.explain(x), again.explain(x))
    np.testing.assert_array_equal(first.predict_proba(x), again.predict_proba(x))
    assert not np.array_equal(first.predict_proba(x), other.predict_proba(x))
    if make is not quick_full:
        assert not same(first.explain(x), other.explain(x))


@each_explainer
def test_rows_of_ones_own_to_validate_on(make: Maker) -> None:
    x, y = rows(60)
    x_valid, y_valid = rows(50, seed=1)
    explainer = make().fit(x, y, validation=(x_valid, y_valid))
    assert explainer.columns_.columns[0].mean == pytest.approx(x[:, 0].mean())  # nothing held out
    loglik = np.log(explainer.predict_proba(x_valid)[np.arange(50), y_valid]).mean()
    if make is quick_full:
        noted = max(note["loglik"][0] for note in explainer.history_)
    else:
        noted = explainer.path_["loglik"].item()
        hits = (explainer.predict(x_valid) == y_valid).mean()
        assert explainer.path_["accuracy"].item() == pytest.approx(hits)
    assert loglik == pytest.approx(noted, abs=1e-5)  # single precision


@each_explainer
def test_fewer_rows_than_a_batch(make: Maker) -> None:
    x, y = rows(9)
    explainer = make(training=Training(epochs=2, batch_size=500)).fit(x, y)
    assert explainer.explain(x).masks.shape == (9, 4)


@pytest.mark.parametrize("kind", [RealX, BaseX, Invase, L2X, Full])
def test_the_defaults_fit_out_of_the_box(kind: Callable[..., Any]) -> None:
    x, y = rows(40)
    explainer = kind(training=Training(epochs=1), random_state=0).fit(x, y)
    assert explainer.explain(x).masks.shape == (40, 4)
    if kind in (RealX, BaseX, Invase):
        assert len(explainer.path_) == len(AUTO_PRICES)
    if kind is L2X:
        assert explainer.k_ == 1


def test_a_law_of_ones_own_is_used() -> None:
    x, y = rows()
    own, default = (quick(mask_law=law).fit(x, y) for law in (Bernoulli(0.9), UniformSize()))
    assert not np.array_equal(own.predict_proba(x), default.predict_proba(x))
    np.testing.assert_array_equal(default.predict_proba(x), quick().fit(x, y).predict_proba(x))


@each_explainer
def test_probabilities_are_learned_from_and_labels_are_one_hot_rows(make: Maker) -> None:
    x, y = rows()
    chance = 1 / (1 + np.exp(-x[:, 0]))
    soft = np.stack([1 - chance, chance], 1)
    hard, one_hot = make().fit(x, y), make().fit(x, np.eye(2)[y])
    assert (hard.soft_, one_hot.soft_) == (False, True)
    np.testing.assert_array_equal(hard.predict_proba(x), one_hot.predict_proba(x))
    likeliest = make().fit(x, np.eye(2)[soft.argmax(1)]).predict_proba(x)
    assert not np.allclose(make().fit(x, soft).predict_proba(x), likeliest, atol=1e-3)


@each_explainer
def test_a_model_is_its_probabilities(make: Maker) -> None:
    x, y = rows()
    model = LogisticRegression().fit(x, np.array(["ill", "well"])[y])
    explainer, expected = make(model=model).fit(x), make().fit(x, model.predict_proba(x))
    assert same(explainer.explain(x), expected.explain(x))
    np.testing.assert_array_equal(explainer.predict_proba(x), expected.predict_proba(x))
    assert explainer.classes_.tolist() == ["ill", "well"]
    assert set(explainer.predict(x)) <= {"ill", "well"}


@each_explainer
def test_several_classes_sum_to_one(make: Maker) -> None:
    x, _ = rows()
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    predicted = make().fit(x, y).predict_proba(x)
    assert predicted.shape == (80, 3)
    assert predicted.dtype == np.float64
    assert (predicted > 0).all()
    np.testing.assert_allclose(predicted.sum(1), 1, rtol=0, atol=1e-12)


class Shifted(Masker):
    """A user's masker, which says nothing about itself: hidden values look like minus one."""

    def features(self, columns: int) -> int:
        return columns

    def width(self, columns: int) -> int:
        return columns

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * mask - (1 - mask)


@pytest.mark.parametrize("table", [rows, mixed])  # mixed: the masker sits inside groups
def test_a_masker_of_ones_own_is_no_obstacle_to_continuing(
    table: Callable[[], Any], tmp_path: Path
) -> None:
    """It is another object in the next process; the run is the same."""
    x, y = table()
    first = quick(masker=Shifted(), checkpoint=tmp_path).fit(x, y)
    again = quick(masker=Shifted(), checkpoint=tmp_path).fit(x, y)
    np.testing.assert_array_equal(first.predict_proba(x), again.predict_proba(x))


class Crash(Exception):
    """What no training code catches."""


@pytest.mark.parametrize("name", EXPLAINERS)
def test_a_fit_that_crashed_is_continued_to_the_same_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt dies later than the last; no step is done from the start again."""
    x, y = rows()
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(loop, "_SAVING_SHARE", 0)
    make, path = EXPLAINERS[name], PATHS.get(name, {})
    if path:
        path = {**path, "choose": "tolerance"}  # a second run, of FULL, in the same folder
    unbroken = make(**path).fit(x, y)
    losses, steps = Program.losses, 0

    def crashing(self: Program, *arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps % 5 == 0:  # an epoch has three steps
            raise Crash
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "losses", crashing)
    crashes = 0
    for _ in range(20):
        try:
            resumed = make(**path, checkpoint=tmp_path / "folder").fit(x, y)
            break
        except Crash:
            crashes += 1
    assert crashes >= 2
    assert same(resumed.explain(x), unbroken.explain(x))
    np.testing.assert_array_equal(resumed.predict_proba(x), unbroken.predict_proba(x))
    assert resumed.history_ == unbroken.history_
    kind = type(unbroken).__name__.lower()
    expected = {f"{kind}.safetensors", *(["full.safetensors"] if path else [])}
    assert {file.name for file in (tmp_path / "folder").iterdir()} == expected
