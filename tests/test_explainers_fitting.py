"""Explaining and fitting: what repeats, what never changes, what goes on after a crash."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from all_explainers import Maker, each_explainer, same
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from small_tables import (
    EXPLAINERS,
    PATHS,
    SELECTING,
    frame,
    mixed,
    quick,
    quick_full,
    rows,
)
from torch import Tensor

from unmasked import L2X, MLP, BaseX, Bernoulli, Full, Invase, Masker, RealX, Training, UniformSize
from unmasked.explainers.path import AUTO_PRICES
from unmasked.training import loop
from unmasked.training.program import Program

pytestmark = pytest.mark.usefixtures("one_thread")


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
