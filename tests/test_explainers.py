"""The explainers from the outside: what they take, what they give, what they never change.

Promises that are the same for all are held by all: RealX in both orders, BaseX, Invase, L2X, Full.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from all_explainers import Maker, each_explainer, each_path, each_selecting, same
from small_tables import (
    EXPLAINERS,
    NAMES,
    frame,
    mixed,
    quick,
    quick_full,
    quick_l2x,
    rows,
)
from torch import Tensor, nn

from unmasked import DataWarning, InputError, Zero
from unmasked.explainers import base
from unmasked.training import restart_seeds

pytestmark = pytest.mark.usefixtures("one_thread")


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
