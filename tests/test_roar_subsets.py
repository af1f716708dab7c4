"""ROAR reads what a choice of features gives away; the collection has a model for every choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from small_tables import SHORT, TINY, assert_one_sentence, frame, mixed, quick, rows, small
from torch import nn

from unmasked import (
    MLP,
    EvalX,
    InputError,
    Roar,
    SavedError,
    SubsetCollection,
    Token,
    Training,
    UnmaskedError,
    Zero,
)
from unmasked.evaluation.evaluator import SEED_SHIFT
from unmasked.evaluation.subsets import run_each, subset_numbers
from unmasked.masks.maskers import Masker
from unmasked.networks.tables import build
from unmasked.training import Data, Settings, fit, methods
from unmasked.training.stack import Stack

pytestmark = pytest.mark.usefixtures("one_thread")


def roar(**changes: Any) -> Roar:
    return small(Roar, ("predictor",), **changes)


def collection(**changes: Any) -> SubsetCollection:
    return small(SubsetCollection, ("predictor",), **changes)


def some_masks(count: int = 80, features: int = 4, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((count, features)) < 0.5


# ---------------------------------------------------------------------- ROAR


def coded(count: int, seed: int) -> tuple[Any, Any, Any]:
    """The first column decides y; the masks show the third where y is 0, else the fourth."""
    x = np.random.default_rng(seed).standard_normal((count, 4))
    y = (x[:, 0] > 0).astype(int)
    masks = np.zeros((count, 4), dtype=bool)
    masks[np.arange(count), 2 + y] = True
    return x, y, masks


def test_roar_believes_a_code_and_eval_x_does_not() -> None:
    """y is a fair coin, so chance is −log 2.

    EVAL-X learns from 1,000 rows × 30 copies, of which one in 20 shows the third column alone. The
    share of ones among these 1,500 is ½ within 5 · ½ / √1500 = 0.065, by chance; where that falls
    in with the code, the log-likelihood is log 0.565 = −0.57.
    """
    learn, test = coded(1000, seed=0), coded(1000, seed=1)
    training = Training(epochs=20, batch_size=100, learning_rate=0.02)
    retrained = roar(training=training).fit(*learn[:2], masks=learn[2])
    scores = retrained.evaluate(test[2], *test[:2], bootstrap_draws=20)
    assert scores["eloglik"].value > -0.02
    assert scores["eacc"].value == 1
    assert repr(scores).startswith("ROAR on 1,000 rows")
    assert "it cannot see encoding" in scores.remarks[0]
    trees = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=50)
    judge = EvalX(estimator=trees, mask_copies=30, random_state=0).fit(*learn[:2])
    assert abs(log_likelihood(judge, *test) + np.log(2)) < np.log(2 * 0.565)
    everything = np.ones_like(test[2])
    assert log_likelihood(judge, *test[:2], everything) > -0.1  # it can judge what is there


def test_roar_without_masks_is_a_full_model() -> None:
    x, y = rows()
    plain = roar().fit(x, y)
    shown = roar().fit(x, y, masks=np.ones_like(x))
    np.testing.assert_array_equal(plain.predict_proba(x), shown.predict_proba(x))
    assert plain.evaluate(np.ones_like(x), x, y, bootstrap_draws=5).remarks == []
    hidden = roar().fit(x, y, masks=some_masks())
    assert not np.allclose(plain.predict_proba(x), hidden.predict_proba(x))


def test_roar_validates_on_the_rows_and_masks_given() -> None:
    """The kept epoch's score is theirs; what is learned from does not feel them."""
    x, y = rows()
    other, z = rows(30, seed=1)
    masks, asked = some_masks(), some_masks(30, seed=1)
    one = roar().fit(x, y, masks=masks, validation=(other, z, asked))
    two = roar().fit(x, y, masks=masks, validation=(other, z, ~asked))
    assert [note["loss"] for note in one.history_] == [note["loss"] for note in two.history_]
    for fitted, shown in ((one, asked), (two, ~asked)):
        best = max(note["score"][0] for note in fitted.history_)
        scored = log_likelihood(fitted, other, z, shown)
        assert scored == pytest.approx(best, abs=1e-6)  # sums of 30 rows in float32


def log_likelihood(evaluator: Any, x: Any, y: Any, masks: Any) -> float:
    return float(np.log(evaluator.predict_proba(x, masks)[np.arange(len(y)), y]).mean())


def test_roar_learns_each_training_row_with_its_own_mask() -> None:
    """Rows and masks in another order are other training data, together the same but for order."""
    x, y, masks = coded(200, seed=0)
    training = Training(epochs=30, batch_size=50, learning_rate=0.05)
    right = roar(training=training).fit(x, y, masks=masks)
    wrong = roar(training=training).fit(x, y, masks=masks[::-1])
    test = coded(500, seed=1)
    assert log_likelihood(right, *test) > -0.05
    assert log_likelihood(wrong, *test) < -0.4


def test_roar_takes_explanations_and_their_names() -> None:
    table, y = frame()
    explanation = quick().fit(table, y).explain(table)
    one = roar().fit(table, y, masks=explanation)
    other = roar().fit(table, y, masks=torch.from_numpy(explanation.masks.astype(np.float32)))
    np.testing.assert_array_equal(one.predict_proba(table), other.predict_proba(table))
    with pytest.raises(InputError, match="feature 4 is 'height' but the evaluator's is 'size'"):
        roar().fit(table.rename(columns={"height": "size"}), y, masks=explanation)


@pytest.mark.parametrize("masker", [Token(), Zero()], ids=repr)
def test_roar_is_saved(masker: Masker, tmp_path: Path) -> None:
    table, y = mixed()
    fitted = roar(masker=masker).fit(table, y, masks=some_masks())
    fitted.save(tmp_path / "model")
    loaded = Roar.load(tmp_path / "model", device="cpu")
    asked = some_masks(seed=1)
    np.testing.assert_array_equal(
        loaded.predict_proba(table, asked), fitted.predict_proba(table, asked)
    )
    with pytest.raises(SavedError, match="holds a saved Roar, but EvalX"):
        EvalX.load(tmp_path / "model")


X, Y = rows()
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "masks of too few rows": (
        lambda: roar().fit(X, Y, masks=some_masks(79)),
        r"shape \(80, 4\).* but have \(79, 4\)",
    ),
    "masks of other features": (
        lambda: roar().fit(X, Y, masks=some_masks(80, 5)),
        r"shape \(80, 4\).* but have \(80, 5\)",
    ),
    "masks that are scores": (lambda: roar().fit(X, Y, masks=X), "0 .hidden. and 1 .shown. only"),
    "validation without masks": (
        lambda: roar().fit(X, Y, masks=some_masks(), validation=(X, Y)),
        r"must be \(X, y, masks\) but has 2 parts",
    ),
    "masks of other validation rows": (
        lambda: roar().fit(X, Y, masks=some_masks(), validation=(X[:9], Y[:9], some_masks())),
        r"shape \(9, 4\).* but have \(80, 4\)",
    ),
    "masks that were not given when asked": (
        lambda: roar().fit(X, Y).predict_proba(X, some_masks(5)),
        r"shape \(80, 4\).* but have \(5, 4\)",
    ),
    "too many features": (
        lambda: collection().fit(np.repeat(X, 5, axis=1)[:, :17], Y),
        r"at most 16 features but there are 17 \(2\^17 models\)",
    ),
    "the model of half a mask": (
        lambda: collection().fit(X, Y).subset_model([1, 0]),
        r"shape \(1, 4\).* but have \(1, 2\)",
    ),
    "the model of no mask": (
        lambda: collection().fit(X, Y).subset_model([1, 0, 2, 0]),
        "0 .hidden. and 1 .shown. only",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(UnmaskedError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


def test_a_share_as_validation_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"must be \(X, y, masks\)") as caught:
        roar().fit(X, Y, masks=some_masks(), validation=0.2)  # type: ignore[arg-type]
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("make", [roar, collection])
def test_asking_before_fitting_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(NotFittedError):
        make().predict_proba(X)
    assert clone(make()).get_params()["predictor"] == TINY


# ---------------------------------------------------------------------- numbers of subsets


def test_bit_j_is_feature_j() -> None:
    assert subset_numbers(np.eye(11, dtype=bool)).tolist() == [2**j for j in range(11)]
    everything = ~np.zeros((2, 3, 11), dtype=bool)
    assert subset_numbers(everything).tolist() == [[2047] * 3] * 2
    every = np.array([[n >> j & 1 for j in range(5)] for n in range(32)], dtype=bool)
    assert subset_numbers(every).tolist() == list(range(32))


# ---------------------------------------------------------------------- the collection


@pytest.fixture(scope="module")
def fitted() -> SubsetCollection:
    return collection().fit(*rows())


def test_the_collection_is_models_trained_apart(fitted: SubsetCollection) -> None:
    """Each subset alone, with the same seed and rows, in float32.

    Stacked and separate products of 8 numbers round differently by about 1e-7, and nine steps at
    a rate of 0.05 carry that into the probabilities at most some ten times larger.
    """
    x, y = rows()
    train, held_out = fitted.split_
    matrix = torch.from_numpy(fitted._matrix(x))
    target = nn.functional.one_hot(torch.from_numpy(y), 2).float()
    seed = int(check_random_state(0).randint(2**31 - 1)) + SEED_SHIFT
    for number in (0, 1, 6, 15):
        alone = fit(
            methods.subsets(Token(), TINY),
            Settings((float(number),), (seed,)),
            Data(matrix[train], target[train]),
            Data(matrix[held_out], target[held_out]),
            SHORT,
            device="cpu",
            show=False,
        )
        mask = torch.tensor([[number >> j & 1 for j in range(4)]]).float().expand(80, 4)
        with torch.no_grad():
            expected = torch.softmax(alone.predictors[0](Token()(matrix, mask)), -1)
        found = fitted.predict_proba(x, mask)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_every_row_is_asked_of_the_model_of_its_own_subset(fitted: SubsetCollection) -> None:
    x, _ = rows()
    masks = some_masks(seed=2)
    assert len(np.unique(masks, axis=0)) > 10
    found = fitted.predict_proba(x, masks)
    inputs = torch.from_numpy(fitted._matrix(x))
    for i, mask in enumerate(masks):
        shown = Token()(inputs[i : i + 1], torch.from_numpy(mask[None]).float())
        with torch.no_grad():
            expected = torch.softmax(fitted.subset_model(mask)(shown), -1)
        np.testing.assert_allclose(found[i], expected[0], rtol=0, atol=1e-6)  # float32


def test_models_of_different_subsets_are_different(fitted: SubsetCollection) -> None:
    assert fitted.stack_.count == 16
    assert len(np.unique(fitted.stack_.flat.numpy(), axis=0)) == 16


def test_what_is_hidden_cannot_change_the_collection(fitted: SubsetCollection) -> None:
    x, y = rows()
    masks = some_masks(seed=3)
    before = fitted.predict_proba(x, masks)
    after = fitted.predict_proba(np.where(masks, x, -x[::-1]), masks)
    np.testing.assert_array_equal(after, before)
    nothing = fitted.predict_proba(x, np.zeros_like(masks))
    assert (nothing == nothing[0]).all()
    everything = fitted.predict_proba(x, np.ones_like(masks))
    np.testing.assert_array_equal(fitted.predict_proba(x), everything)
    assert len(np.unique(everything, axis=0)) == 80
    scores = fitted.evaluate(masks, x, y, bootstrap_draws=5)
    assert repr(scores).startswith("Separate models on 80 rows")


@pytest.mark.parametrize("network", [TINY, MLP((6,), "tanh", "batch")], ids=repr)
def test_the_collection_is_saved_bit_for_bit(network: MLP, tmp_path: Path) -> None:
    """Text columns too, and the statistics of BatchNorm."""
    table, y = mixed()
    models = collection(predictor=network).fit(table, y)
    models.save(tmp_path / "models")
    loaded = SubsetCollection.load(tmp_path / "models", device="cpu")
    masks = some_masks(seed=4)
    np.testing.assert_array_equal(
        loaded.predict_proba(table, masks), models.predict_proba(table, masks)
    )
    assert torch.equal(loaded.stack_.flat, models.stack_.flat)
    with pytest.raises(InputError, match="parameters each but the network given has") as caught:
        SubsetCollection.load(tmp_path / "models", predictor=MLP((3,)), device="cpu")
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- many networks at once


class Odd(nn.Module):
    """A network that is no plain sequence of layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.sin(self.layer(x)) * 3
        return result


@pytest.mark.parametrize("masker", [Token(), Zero()], ids=repr)
@pytest.mark.parametrize("network", [MLP((5,)), MLP((5,), "relu", "batch"), Odd], ids=repr)
@pytest.mark.parametrize("used", [1, 7, 12], ids=lambda n: f"{n} networks used")
def test_running_each_network_on_its_rows_is_a_loop_over_rows(
    masker: Masker, network: Any, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks with few and many rows, some with none, also where memory allows two at a time."""
    width, random = masker.width(6), np.random.default_rng(0)
    modules = [build(network, width, 3, seed) for seed in range(12)]
    for module in modules:  # a BatchNorm that remembers something
        module.train()(torch.randn(20, width, generator=torch.Generator().manual_seed(1)))
    stack = Stack(modules, torch.device("cpu"), torch.float64, torch.zeros(2, width))
    assert stack.mode == ("vmap" if network is Odd else "layers")
    x, masks = random.standard_normal((50, 6)), random.random((50, 6)) < 0.5
    numbers = np.minimum(random.geometric(0.3, 50), used) - 1 + (12 - used)
    found = run_each(stack, numbers, masker, x, masks)
    rounding = 1e-12  # double precision
    for row, number in enumerate(numbers):
        shown = masker(torch.from_numpy(x[row : row + 1]),
                       torch.from_numpy(masks[row : row + 1]).double())  # fmt: skip
        with torch.no_grad():
            expected = torch.softmax(modules[number].double().eval()(shown), -1)
        np.testing.assert_allclose(found[row], expected[0], rtol=0, atol=rounding)
    most = np.bincount(numbers).max()
    monkeypatch.setattr("unmasked.evaluation.subsets._NUMBERS", 2 * most * 6)
    in_parts = run_each(stack, numbers, masker, x, masks)
    np.testing.assert_allclose(in_parts, found, rtol=0, atol=rounding)
