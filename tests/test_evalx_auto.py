"""EvalX as it comes: networks, boosted trees or both, as validation rows decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from small_tables import TINY, assert_one_sentence, mixed, rows

from unmasked import (
    MLP,
    Bernoulli,
    EvalX,
    InputError,
    InterruptedWarning,
    Training,
    UniformSize,
    Zero,
)
from unmasked.cli.workflows.saved import fitted_whole
from unmasked.evaluation import boosted
from unmasked.evaluation.boosted import Asked, Choice
from unmasked.explainers import defaults
from unmasked.networks.tables import SetMLP
from unmasked.training import Data

pytestmark = pytest.mark.usefixtures("one_thread")
BRIEF = Training(epochs=2, batch_size=40)
SMALL = SetMLP((8,), inner=2, embedding=4, activation="gelu", bins=True)


@pytest.fixture(autouse=True)
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe with a network that learns in no time."""
    monkeypatch.setattr(defaults, "NETWORK", SMALL)


def auto(**changes: Any) -> EvalX:
    options = {"training": BRIEF, "progress": False, "device": "cpu", "random_state": 0}
    return EvalX(**{**options, **changes})


# ---------------------------------------------------------------------- the rules


def test_trees_have_a_share_only_where_they_surely_help() -> None:
    """Gains of ±1 around a mean of m over 100 rows have a standard error of 0.1005."""
    spread = np.repeat([1.0, -1.0], 50)
    assert defaults.share({0.5: spread + 0.100}) == 0.0
    assert defaults.share({0.5: spread + 0.101}) == 0.5
    assert defaults.share({0.5: np.full(100, defaults.LEAST_GAIN - 1e-6)}) == 0.0
    assert defaults.share({0.5: np.full(100, defaults.LEAST_GAIN + 1e-6)}) == 0.5
    assert defaults.share({0.25: np.full(9, 0.1), 1.0: np.full(9, 0.2)}) == 1.0
    assert defaults.share({0.5: np.array([5.0])}) == 0.0  # one row tells nothing


def test_the_work_of_trees_is_bounded() -> None:
    assert defaults.copies(43, 7_129, 2) > 0  # few rows of many genes
    assert defaults.copies(300_000, 108, 2) == 1
    assert defaults.copies(300_000, 108, 3) == 0
    assert defaults.copies(1_000, 10, 2_000) == 0
    for rows_, columns, classes in ((10_000, 11, 2), (2_400, 1_776, 2), (288, 285, 13)):
        count = defaults.copies(rows_, columns, classes)
        assert 5 <= count <= defaults.COPIES


def test_wide_tables_have_fewer_and_smaller_networks() -> None:
    assert defaults.networks(1_000) == (defaults.NETWORK, 4)
    assert defaults.networks(1_001) == (defaults.NETWORK, 2)
    assert defaults.networks(3_001) == (MLP(), 2)


# ---------------------------------------------------------------------- what was asked for


def test_by_default_the_recipe_learns_and_the_choice_is_said() -> None:
    table, y = mixed(200)
    evaluator = auto().fit(table, y)
    assert evaluator.picked_ in ("network", "boosting", "both")
    assert "on 40 validation rows" in evaluator.reason_
    assert evaluator._training(160) == defaults.training(BRIEF, 160)
    evaluator.training = None
    assert evaluator._training(10_000).weight_decay == defaults.DECAY


def test_what_was_asked_for_is_done() -> None:
    x, y = rows()
    alone = auto(estimator="network").fit(x, y)
    assert (len(alone.predictors_), alone.picked_) == (4, "network")
    assert alone.reason_ == "the mean of 4 networks"
    assert len(auto(members=3, estimator="network").fit(x, y).predictors_) == 3
    for changes in ({"predictor": TINY}, {"masker": Zero()}):
        plain = auto(**changes).fit(x, y)
        assert (len(plain.predictors_), plain.picked_) == (1, "network")
        assert plain._training(160) == BRIEF
    assert auto(mask_law=Bernoulli(0.5)).fit(x, y).reason_ == "the mean of 4 networks"
    trees = HistGradientBoostingClassifier(max_iter=3)
    assert EvalX(estimator=trees, mask_copies=3).fit(x, y).picked_ == "boosting"
    images = np.random.default_rng(0).random((40, 1, 3, 3))
    assert auto().fit(images, np.tile([0, 1], 20)).reason_ == "a network"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match='estimator must be "auto", "network" or a') as caught:
        auto(estimator="trees").fit(*rows())
    assert_one_sentence(caught.value)


def test_a_wide_table_gets_another_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "_MOST_INPUTS", 10)
    evaluator = auto(estimator="network").fit(*rows())
    assert len(evaluator.predictors_) == 2
    assert type(evaluator.predictor_).__name__ == "Sequential"


# ---------------------------------------------------------------------- the three outcomes


def steps(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """y is a chequerboard: trees see it, a network of two epochs does not."""
    x = np.random.default_rng(0).random((count, 3)) * 4
    return x, (x[:, 0].astype(int) % 2).astype(int)


def test_trees_are_taken_where_they_predict_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SHARES", (1.0,))
    x, y = steps()
    evaluator = auto().fit(x, y)
    assert (evaluator.picked_, evaluator.share_) == ("boosting", 1.0)
    assert evaluator.reason_.startswith("boosted trees; boosted trees predict better")
    assert not hasattr(evaluator, "predictors_")
    assert evaluator.score(x, y) > 0.9


def test_both_are_their_weighted_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SHARES", (0.25,))
    x, y = steps()
    evaluator = auto(members=2).fit(x, y)
    assert evaluator.picked_ == "both"
    assert "(weights 0.75 and 0.25)" in evaluator.reason_
    masks = np.random.default_rng(0).random(x.shape) < 0.5
    inputs = evaluator._matrix(x)
    one, other = evaluator._by_networks(inputs, masks), evaluator._by_estimator(inputs, masks)
    found = evaluator.predict_proba(x, masks)
    np.testing.assert_allclose(found, 0.75 * one + 0.25 * other, rtol=0, atol=1e-12)
    hidden = x.copy()
    hidden[~masks] = 0
    np.testing.assert_array_equal(evaluator.predict_proba(hidden, masks), found)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_what_was_picked_is_saved(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skops")
    monkeypatch.setattr(defaults, "SHARES", (share,))
    x, y = steps()
    evaluator = auto().fit(x, y)
    evaluator.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    masks = np.random.default_rng(0).random(x.shape) < 0.5
    np.testing.assert_array_equal(loaded.predict_proba(x, masks), evaluator.predict_proba(x, masks))
    assert (loaded.picked_, loaded.reason_) == (evaluator.picked_, evaluator.reason_)


def test_probabilities_and_groups_work_too() -> None:
    x, y = steps()
    model = HistGradientBoostingClassifier(max_iter=30).fit(x, y)
    evaluator = auto(model=model, groups={"two": [1, 2]}).fit(x)
    assert evaluator.picked_ != "network"
    masks = np.tile([True, False], (len(x), 1))
    assert evaluator.evaluate(masks, x, bootstrap_draws=5)["kl"].value < 0.3


def test_too_much_work_leaves_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "copies", lambda *sizes: 0)
    evaluator = auto().fit(*rows())
    assert evaluator.picked_ == "network"
    assert "too long" in evaluator.reason_


def test_a_refit_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SHARES", (0.5,))
    x, y = steps()
    evaluator = auto().fit(x, y)
    again = evaluator.set_params(estimator="network").fit(x, y)
    assert not hasattr(again, "estimator_")
    assert again.share_ == 0


def test_ctrl_c_while_trees_grow_keeps_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*parts: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(boosted, "grow", pressed)
    x, y = rows()
    with pytest.warns(InterruptedWarning, match="networks are kept"):
        evaluator = auto().fit(x, y)
    assert evaluator.interrupted_
    assert evaluator.predict(x).shape == y.shape
    with pytest.raises(KeyboardInterrupt):
        fitted_whole(auto(), x, y)


def test_validation_rows_decide_and_not_the_rows_learned_from() -> None:
    """Whoever is right there has all the share."""
    right, wrong = np.tile([0.1, 0.9], (50, 1)), np.tile([0.9, 0.1], (50, 1))
    x, target = np.zeros((50, 2), np.float32), np.tile([0.0, 1.0], (50, 1))
    valid = Data(torch.from_numpy(x), torch.from_numpy(target))

    def ask(networks: np.ndarray, trees: np.ndarray) -> Choice:
        asked = Asked.of(valid, 2, UniformSize(), seed=0)
        return asked.trees(lambda *_: networks, lambda *_: trees)

    assert ask(right, wrong).share == 0.0
    assert ask(wrong, right).share == 1.0


def test_who_is_too_sure_doubts() -> None:
    """Sure of 0.99 and right in 0.8: the best of the shares is 0.4; right in 0.99, none."""
    prior = np.array([0.5, 0.5])
    x, sure = np.zeros((500, 2), np.float32), np.tile([0.01, 0.99], (500, 1))
    doubts = {}
    for right in (400, 495):
        target = np.zeros((500, 2))
        target[:right, 1] = target[right:, 0] = 1.0
        valid = Data(torch.from_numpy(x), torch.from_numpy(target))
        doubts[right] = Asked.of(valid, 2, UniformSize(), seed=0).doubt(lambda *_: sure, prior)
    assert doubts == {400: 0.4, 495: 0.0}


def test_doubts_are_mixed_in_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asked, "doubt", lambda *_: 0.2)
    x, y = rows()
    y = np.where(np.arange(len(y)) < 20, 0, y)
    evaluator = auto().fit(x, y)
    assert evaluator.reason_.endswith("; too sure by itself, so 20% are the class shares")
    masks = np.random.default_rng(0).random(x.shape) < 0.5
    own = evaluator._learned_answer(evaluator._matrix(x), masks)
    found = evaluator.predict_proba(x, masks)
    np.testing.assert_allclose(found, 0.8 * own + 0.2 * evaluator.prior_, rtol=0, atol=1e-12)
    evaluator.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x, masks), found)
    assert loaded.reason_ == evaluator.reason_
    assert evaluator.set_params(estimator="network").fit(x, y).doubt_ == 0.0
