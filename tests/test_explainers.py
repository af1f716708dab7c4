"""RealX from the outside: what it takes, what it gives, and what it never changes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from small_tables import NAMES, frame, mixed, quick, rows
from torch import Tensor, nn

from unmasked import MLP, DataWarning, InputError, RealX, Training, UniformSize, Zero
from unmasked.choosing import Candidate, choose
from unmasked.explanation import Explanation
from unmasked.sparsity import AUTO_PRICES

pytestmark = pytest.mark.usefixtures("one_thread")

PATH = [0.01, 0.3, 3.0]


def same(one: Explanation, other: Explanation) -> bool:
    return np.array_equal(one.masks, other.masks) and np.array_equal(
        one.probabilities, other.probabilities
    )


# ---------------------------------------------------------------------- kinds of tables


def test_arrays_frames_tensors_and_lists_give_the_same_result() -> None:
    table, y = frame()
    x = table.to_numpy(copy=True)
    expected = quick().fit(x, y)
    kinds = [
        (table, pd.Series(y, index=table.index)),
        (torch.from_numpy(x), torch.from_numpy(y)),
        (x.tolist(), y.tolist()),
    ]
    for other_x, other_y in kinds:
        other = quick().fit(other_x, other_y)
        assert same(other.explain(other_x), expected.explain(x))
        np.testing.assert_array_equal(other.predict_proba(other_x), expected.predict_proba(x))


def test_names_and_index_are_carried_into_the_explanation() -> None:
    table, y = frame()
    shown = quick().fit(table, y).explain(table.iloc[10:13])
    assert shown.feature_names == NAMES
    assert shown.to_frame().index.tolist() == ["patient 10", "patient 11", "patient 12"]
    assert shown.to_frame().columns.tolist() == NAMES
    assert shown.about == {"method": "REAL-X", "sparsity": 0.1}


def test_an_array_gets_names_and_positions() -> None:
    x, y = rows()
    shown = quick().fit(x, y).explain(x[5:7])
    assert shown.feature_names == ["x1", "x2", "x3", "x4"]
    assert shown.index.tolist() == [0, 1]


def test_text_categories_and_truth_values_are_one_feature_each() -> None:
    table, y = mixed()
    explainer = quick().fit(table, y)
    assert explainer.explain(table).feature_names == ["age", "town", "grade", "smoker"]
    assert explainer.explain(table).masks.shape == (len(table), 4)
    # one number, three towns, two grades, two truth values
    assert explainer.columns_.index == (0, 1, 1, 1, 2, 2, 3, 3)


def test_a_hidden_text_column_cannot_change_the_prediction() -> None:
    table, y = mixed()
    explainer = quick(sparsity=2.0, training=Training(epochs=8, learning_rate=0.05)).fit(table, y)
    before = explainer.predict_proba(table)
    hidden = ~explainer.explain(table).masks[:, 1]
    other = table.assign(town=np.roll(table["town"].to_numpy(), 1))
    kept = (explainer.explain(other).masks == explainer.explain(table).masks).all(1)
    still = hidden & kept
    assert still.sum() > 10
    np.testing.assert_array_equal(explainer.predict_proba(other)[still], before[still])
    assert not np.array_equal(explainer.predict_proba(other)[~still], before[~still])


def test_an_unseen_category_warns_and_is_none_of_the_known() -> None:
    table, y = mixed()
    explainer = quick().fit(table, y)
    with pytest.warns(DataWarning, match="'town' holds 'Bonn', not seen in training"):
        matrix = explainer._matrix(table.head(2).assign(town="Bonn"))
    assert not matrix[:, 1:4].any()


def test_a_constant_column_warns_and_stays() -> None:
    table, y = frame()
    with pytest.warns(DataWarning, match="'site' is constant"):
        explainer = quick().fit(table.assign(site=7), y)
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


def test_a_group_by_name_equals_the_group_by_position() -> None:
    table, y = frame()
    by_name = quick(groups={"g": ["age", "weight"]}).fit(table, y).explain(table)
    by_position = quick(groups=[[0, 2]]).fit(table, y).explain(table)
    assert same(by_name, by_position)


# ---------------------------------------------------------------------- networks of one's own


class Own(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 6), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.tanh(self.first(x)))
        return result


def test_a_module_is_copied_and_never_changed() -> None:
    x, y = rows()
    selector, predictor = Own(4, 4), Own(8, 2)
    before = [copy.deepcopy(m.state_dict()) for m in (selector, predictor)]
    explainer = quick(selector=selector, predictor=predictor).fit(x, y)
    for own, old in zip((selector, predictor), before, strict=True):
        assert own.training
        assert all(torch.equal(old[k], v) for k, v in own.state_dict().items())
    for learned, old in zip((explainer.selector_, explainer.predictor_), before, strict=True):
        assert isinstance(learned, Own)
        assert not all(torch.equal(old[k], v) for k, v in learned.state_dict().items())


def test_a_factory_is_called_with_inputs_and_outputs() -> None:
    table, y = mixed()
    asked = []

    def factory(inputs: int, outputs: int) -> nn.Module:
        asked.append((inputs, outputs))
        return Own(inputs, outputs)

    quick(selector=factory, predictor=factory).fit(table, y)
    # 8 columns of the matrix make 4 features; the predictor sees values and mask, 16 in all
    assert set(asked) == {(8, 4), (16, 2)}


def test_the_masker_decides_the_width() -> None:
    x, y = rows()
    explainer = quick(masker=Zero(), predictor=Own(4, 2)).fit(x, y)
    assert explainer.predictor_.first.in_features == 4
    assert quick().fit(x, y).predictor_[0].in_features == 8


# ---------------------------------------------------------------------- sparsity and choosing


def test_a_path_has_one_row_per_sparsity_and_explains_with_each() -> None:
    x, y = rows()
    slow = Training(epochs=20, batch_size=20, learning_rate=0.05, selector_learning_rate=0.02)
    explainer = quick(sparsity=PATH, training=slow).fit(x, y)
    assert explainer.path_["sparsity"].tolist() == PATH
    assert explainer.path_["chosen"].sum() == 1
    assert explainer.sparsity_ == explainer.path_.loc[explainer.path_["chosen"], "sparsity"].item()
    fractions = [explainer.explain(x, sparsity=value).fraction for value in PATH]
    assert fractions[0] > fractions[-1]  # a high price shows less
    assert same(explainer.explain(x), explainer.explain(x, sparsity=explainer.sparsity_))


def test_each_setting_keeps_the_networks_it_was_judged_with() -> None:
    x, y = rows(150)
    training = Training(epochs=12, batch_size=20, learning_rate=0.1, selector_learning_rate=0.05)
    explainer = quick(sparsity=PATH, training=training).fit(x, y)
    path = explainer.path_
    assert path["epoch"].nunique() > 1  # so the predictors differ too
    for i, epoch in enumerate(path["epoch"]):
        assert path["loglik"][i] == pytest.approx(explainer.history_[epoch]["loglik"][i], abs=1e-5)
        scores = [entry["score"][i] for entry in explainer.history_]
        assert scores[epoch] == max(scores)


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


@pytest.mark.parametrize("rule", ["one-standard-error", "accuracy", "tolerance"])
def test_each_rule_chooses_what_it_says(rule: str) -> None:
    x, y = rows(150)
    training = Training(epochs=12, batch_size=20, learning_rate=0.05, selector_learning_rate=0.02)
    explainer = quick(sparsity=PATH, choose=rule, training=training).fit(x, y)
    path = explainer.path_
    chosen = path[path["chosen"]].iloc[0]
    if rule == "accuracy":
        assert chosen["accuracy"] == path["accuracy"].max()
    elif rule == "tolerance":
        assert 0.5 < explainer.full_accuracy_ <= 1
        enough = path[path["accuracy"] >= explainer.full_accuracy_ - 0.05]
        best = enough["fraction"].min() if len(enough) else chosen["fraction"]
        assert chosen["fraction"] == best
        assert f"{explainer.full_accuracy_:.3f}" in explainer.reason_
    else:
        best = path.loc[path["loglik"].idxmax()]
        assert chosen["fraction"] <= best["fraction"]
        assert "one standard error" in explainer.reason_
    assert (explainer.full_accuracy_ is None) == (rule != "tolerance")


def candidate(sparsity: float, fraction: float, accuracy: float, loglik: float) -> Candidate:
    spread = np.tile([-0.1, 0.1], 50)  # over rows, so that differences between settings vary
    return Candidate(sparsity, fraction, accuracy, loglik + sparsity * spread)


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


@pytest.mark.parametrize("batch_size", [1, 7, 80, 10_000])
def test_the_batch_size_changes_no_mask(batch_size: int) -> None:
    x, y = rows()
    explainer = quick(selector=MLP((32, 32))).fit(x, y)
    expected = explainer.explain(x)
    other = explainer.set_params(batch_size=batch_size).explain(x)
    np.testing.assert_array_equal(other.masks, expected.masks)
    np.testing.assert_allclose(other.probabilities, expected.probabilities, rtol=0, atol=1e-6)


def test_explaining_changes_nothing() -> None:
    x, y = rows()
    explainer = quick(selector=MLP((8,), normalisation="batch")).fit(x, y)
    before = copy.deepcopy([explainer.selector_.state_dict(), explainer.predictor_.state_dict()])
    first = explainer.explain(x)
    explainer.predict_proba(x), explainer.transform(x)
    assert same(explainer.explain(x), first)
    after = [explainer.selector_.state_dict(), explainer.predictor_.state_dict()]
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)
    assert not explainer.selector_.training


def test_masks_are_the_probabilities_above_one_half() -> None:
    x, y = rows()
    explanation = quick().fit(x, y).explain(x)
    np.testing.assert_array_equal(explanation.masks, explanation.probabilities > 0.5)
    assert 0 < explanation.fraction < 1


def test_the_predictor_is_asked_with_the_masks_of_the_explanation() -> None:
    x, y = rows()
    explainer = quick().fit(x, y)
    mask = explainer.explain(x).masks
    scaled = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    shown = torch.cat([scaled * torch.from_numpy(mask), torch.from_numpy(mask).float()], 1)
    with torch.no_grad():
        expected = torch.softmax(explainer.predictor_(shown), -1).numpy()
    np.testing.assert_allclose(explainer.predict_proba(x), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(explainer.predict_proba(x).sum(1), 1, atol=1e-9)


@pytest.mark.parametrize("make", [lambda: rows(), lambda: frame(), lambda: mixed()])
def test_transform_is_missing_exactly_where_hidden(make: Any) -> None:
    x, y = make()
    explainer = quick().fit(x, y)
    shown, masks = explainer.transform(x), explainer.explain(x).masks
    assert type(shown) is type(x)
    np.testing.assert_array_equal(pd.isna(shown), ~masks)
    assert not masks.all()
    values: NDArray[Any] = np.asarray(shown, dtype=object)
    assert (values[masks] == np.asarray(x, dtype=object)[masks]).all()


# ---------------------------------------------------------------------- fitting


def test_random_state_repeats_and_differs() -> None:
    x, y = rows()
    first, again, other = (quick(random_state=s).fit(x, y).explain(x) for s in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_rows_of_ones_own_to_validate_on() -> None:
    x, y = rows(60)
    x_valid, y_valid = rows(50, seed=1)
    explainer = quick().fit(x, y, validation=(x_valid, y_valid))
    hits = (explainer.predict(x_valid) == y_valid).mean()
    assert explainer.path_["accuracy"].item() == pytest.approx(hits)
    assert explainer.columns_.columns[0].mean == pytest.approx(x[:, 0].mean())  # nothing held out


def test_fewer_rows_than_a_batch() -> None:
    x, y = rows(9)
    explainer = quick(training=Training(epochs=2, batch_size=500)).fit(x, y)
    assert explainer.explain(x).masks.shape == (9, 4)


def test_the_defaults_fit_out_of_the_box() -> None:
    x, y = rows(40)
    explainer = RealX(training=Training(epochs=1), random_state=0, mask_law=UniformSize())
    assert explainer.fit(x, y).explain(x).masks.shape == (40, 4)
    assert len(explainer.path_) == len(AUTO_PRICES)
