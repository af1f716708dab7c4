"""EVAL-X as a mean of several networks, networks that read sets, Glorot's initialisation."""

from __future__ import annotations

import math
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from small_runs import FAST, train
from small_tables import TINY, assert_one_sentence, mixed, quick, quick_evaluator, rows
from torch import Tensor, nn

from unmasked import MLP, EvalX, InputError, SetMLP, Token, Zero
from unmasked.masks.distributions import Bernoulli
from unmasked.networks.tables import build
from unmasked.training import Settings, methods
from unmasked.training.stack import Stack

pytestmark = pytest.mark.usefixtures("one_thread")
MASKS = np.random.default_rng(0).random((80, 4)) < 0.5
SMALL = SetMLP((6,), inner=3, embedding=5, activation="tanh")


# ---------------------------------------------------------------------- several members


@pytest.fixture(scope="module")
def three() -> EvalX:
    return quick_evaluator(members=3).fit(*rows())


def test_an_ensemble_is_the_mean_of_its_members(three: EvalX) -> None:
    x, _ = rows()
    assert len(three.predictors_) == 3
    assert three.predictor_ is three.predictors_[0]
    inputs, masks = torch.from_numpy(three._matrix(x)), torch.from_numpy(MASKS).float()
    with torch.no_grad():
        each = [
            torch.softmax(own(Token()(inputs, masks)).double(), -1) for own in three.predictors_
        ]
    found = three.predict_proba(x, MASKS)
    np.testing.assert_allclose(found, torch.stack(each).mean(0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1, rtol=0, atol=1e-12)
    for i in range(3):
        assert not np.allclose(each[i], each[i - 1], atol=1e-3)


def test_the_first_member_is_the_plain_evaluator(three: EvalX) -> None:
    """In float32; beside others the same products round otherwise, and training carries it on."""
    plain, one = (quick_evaluator(**more).fit(*rows()) for more in ({}, {"members": 1}))
    np.testing.assert_array_equal(
        plain.predict_proba(rows()[0], MASKS), one.predict_proba(rows()[0], MASKS)
    )
    for name, value in plain.predictor_.state_dict().items():
        torch.testing.assert_close(three.predictor_.state_dict()[name], value, rtol=0, atol=1e-5)


def test_a_mean_is_no_worse_than_its_members_are_on_average(three: EvalX) -> None:
    """log is concave, so this holds for every row and label, not only on average."""
    x, y = rows()
    together = np.log(three.predict_proba(x, MASKS)[np.arange(80), y])
    alone = []
    for own in three.predictors_:
        single = copy(three)
        single.predictors_ = [own]
        alone.append(np.log(single.predict_proba(x, MASKS)[np.arange(80), y]))
    assert (together >= np.mean(alone, axis=0) - 1e-12).all()


def test_an_ensemble_is_saved(tmp_path: Path) -> None:
    table, y = mixed()
    fitted = quick_evaluator(members=2).fit(table, y)
    fitted.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    assert loaded.members == len(loaded.predictors_) == 2
    np.testing.assert_array_equal(
        loaded.predict_proba(table, MASKS), fitted.predict_proba(table, MASKS)
    )


def test_a_second_fit_forgets_the_members_of_the_first() -> None:
    evaluator = quick_evaluator(members=2).fit(*rows())
    assert len(evaluator.set_params(members=1).fit(*rows()).predictors_) == 1


def test_a_network_of_ones_own_gives_members_that_differ() -> None:
    """They start alike, being copies, and see other masks and orders."""
    evaluator = quick_evaluator(predictor=nn.Linear(8, 2), members=2).fit(*rows())
    one, two = (own.weight for own in evaluator.predictors_)
    assert not torch.allclose(one, two, atol=1e-4)


@pytest.mark.parametrize("members", [0, -1, 1.5, True, "3"])
def test_a_wrong_number_of_members_is_refused(members: Any) -> None:
    with pytest.raises(InputError, match="members must be a whole number above 0") as caught:
        quick_evaluator(members=members).fit(*rows())
    assert repr(members) in str(caught.value)
    assert_one_sentence(caught.value)


def test_members_may_be_a_number_of_numpys() -> None:
    assert len(quick_evaluator(members=np.int64(2)).fit(*rows()).predictors_) == 2


def test_several_members_of_an_estimator_are_refused() -> None:
    trees = HistGradientBoostingClassifier(max_iter=2)
    with pytest.raises(InputError, match="either estimator or members"):
        EvalX(estimator=trees, members=3, mask_copies=2).fit(*rows())


# ---------------------------------------------------------------------- sets


def set_network(columns: int = 4, outputs: int = 3, seed: int = 0) -> Any:
    return build(SMALL, 2 * columns, outputs, seed).double()


def random(*shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=source)


def test_a_set_network_is_its_formula() -> None:
    """h = Σ_j m_j V_j φ(a_j x_j + b_j) + the joint's bias, then an MLP."""
    net = set_network()
    x, mask = random(20, 4, seed=1), (random(20, 4, seed=2) > 0).double()
    joint = net.join.weight.reshape(5, 4, 3)  # (embedding, columns, inner)
    h = net.join.bias.expand(20, 5)
    for j in range(4):
        own = torch.tanh(x[:, j : j + 1] * net.slope[j] + net.offset[j]) @ joint[:, j].T
        h = h + mask[:, j : j + 1] * own
    torch.testing.assert_close(net(Token()(x, mask)), net.head(h), rtol=0, atol=1e-12)


def test_a_hidden_column_cannot_change_a_set_network() -> None:
    """Not even when its value is passed on, as no masker does: the mask alone takes it out."""
    net = set_network()
    x, mask = random(20, 4, seed=1), (random(20, 4, seed=2) > 0).double()
    before = net(torch.cat([x, mask], 1))
    assert torch.equal(net(Token()(x, mask)), before)
    other = torch.where(mask.bool(), x, random(20, 4, seed=3))
    assert torch.equal(net(torch.cat([other, mask], 1)), before)
    shown = torch.where(mask.bool(), random(20, 4, seed=3), x)
    changed = (net(torch.cat([shown, mask], 1)) != before).any(1)
    assert torch.equal(changed, mask.bool().any(1))


def test_what_columns_add_to_the_sum_does_not_depend_on_the_others() -> None:
    net = set_network()
    found = []
    net.join.register_forward_hook(lambda module, inputs, output: found.append(output.detach()))
    x, some = random(20, 4, seed=1), torch.tensor([1.0, 0, 1, 0]).double().expand(20, 4)
    for mask in (some, 1 - some, torch.ones(20, 4).double(), torch.zeros(20, 4).double()):
        net(Token()(x, mask))
    one, other, together, nothing = found
    torch.testing.assert_close(one + other, together + nothing, rtol=0, atol=1e-12)
    assert torch.equal(nothing, net.join.bias.expand(20, 5))


def test_columns_may_change_places_together_with_their_embeddings() -> None:
    """There is no order of columns but the one of the parameters."""
    net, moved = set_network(), set_network()
    order = [2, 0, 3, 1]
    with torch.no_grad():
        moved.slope.copy_(net.slope[order])
        moved.offset.copy_(net.offset[order])
        moved.join.weight.copy_(net.join.weight.reshape(5, 4, 3)[:, order].reshape(5, 12))
    x, mask = random(20, 4, seed=1), (random(20, 4, seed=2) > 0).double()
    there = moved(Token()(x[:, order], mask[:, order]))
    torch.testing.assert_close(there, net(Token()(x, mask)), rtol=0, atol=1e-12)
    assert not torch.allclose(net(Token()(x[:, order], mask[:, order])), there)  # others do matter


@pytest.mark.parametrize("inputs", [1, 7])
def test_a_set_network_of_an_odd_width_is_refused(inputs: int) -> None:
    with pytest.raises(InputError, match=f"but got {inputs}; use it with masker=Token") as caught:
        SMALL(inputs, 2)
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="use it with masker=Token"):
        quick_evaluator(predictor=SMALL, masker=Zero()).fit(*rows(columns=3))


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"activation": "relux"}, "'relux'"), ({"hidden": (5, 0)}, "(5, 0)"), ({"hidden": 8}, "8")],
)
def test_an_impossible_set_network_is_refused_by_value(changes: Any, named: str) -> None:
    with pytest.raises(InputError) as caught:
        SetMLP(**changes)(8, 2)
    assert named in str(caught.value)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("changes", [{"inner": -1}, {"embedding": 2.5}, {"embedding": -4}])
def test_impossible_widths_of_a_set_network_are_refused(changes: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number above 0"):
        SetMLP(**changes)(8, 2)


def test_set_networks_run_stacked_as_they_run_alone() -> None:
    modules = [set_network(seed=seed) for seed in range(3)]
    stack = Stack(modules, torch.device("cpu"), torch.float64, torch.zeros(2, 8))
    assert stack.mode == "vmap"
    x = random(3, 20, 8)
    together = stack.forward(stack.weights(), x, training=False)
    for i, module in enumerate(modules):
        torch.testing.assert_close(together[i], module(x[i]), rtol=0, atol=1e-12)


def test_set_networks_trained_together_equal_each_trained_alone() -> None:
    what = methods.eval_x(Token(), Bernoulli(), SMALL)
    together = train(what, Settings(seeds=(0, 1)), FAST)
    assert together.stacks["predictor"].mode == "vmap"
    for i, seed in enumerate((0, 1)):
        alone = train(what, Settings(seeds=(seed,)), FAST)
        assert together.epochs[i] == alone.epochs[0]
        torch.testing.assert_close(
            together.stacks["predictor"].flat[i], alone.stacks["predictor"].flat[0],
            rtol=0, atol=1e-10,
        )  # fmt: skip


def test_every_parameter_of_a_set_network_learns() -> None:
    net = set_network()
    net(Token()(random(20, 4, seed=1), torch.ones(20, 4).double())).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert float(parameter.grad.abs().sum()) > 0, name


@pytest.mark.parametrize(
    "network", [SMALL, MLP((6,), "selu", "batch", "glorot")], ids=["SetMLP", "MLP"]
)
def test_networks_are_found_again_in_a_saved_evaluator(network: Any, tmp_path: Path) -> None:
    """Text columns are groups of columns that are shown together."""
    table, y = mixed()
    fitted = quick_evaluator(predictor=network).fit(table, y)
    fitted.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    assert loaded.predictor == network
    np.testing.assert_array_equal(
        loaded.predict_proba(table, MASKS), fitted.predict_proba(table, MASKS)
    )


# ---------------------------------------------------------------------- Glorot


@pytest.mark.parametrize("normalisation", [None, "batch", "layer"])
def test_glorots_weights_keep_their_bound_in_every_layer(normalisation: str | None) -> None:
    """|w| ≤ √(6 / (inputs + outputs)); the largest of n uniform ones is above 0.9 of it.

    But for a chance of 0.9^n, and the smallest layer has 60 weights: 0.2%.
    """
    net = build(MLP((30, 20), "relu", normalisation, "glorot"), 11, 3, seed=0)
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    for layer in layers:
        bound = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert 0.9 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert not layer.bias.any()
    plain = build(MLP((30, 20), "relu", normalisation), 11, 3, seed=0)
    usual = [layer for layer in plain.modules() if isinstance(layer, nn.Linear)]
    for layer, other in zip(layers, usual, strict=True):
        assert not torch.equal(layer.weight, other.weight)
        assert bool(other.bias.any())
        # torch's own bound is √(1 / inputs), of another form
        assert float(other.weight.detach().abs().max()) <= math.sqrt(1 / other.in_features)


def test_initialisations_are_told_apart() -> None:
    assert MLP(initialisation="glorot") != MLP()
    assert TINY.initialisation == "torch"
    with pytest.raises(InputError, match="initialisation must be one of torch, glorot") as caught:
        MLP(initialisation="Glorot")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("wrong", [{"masker": Zero()}, {"selector": SetMLP((8,), 4, 6)}])
def test_a_set_network_is_refused_where_no_mask_stands_beside_the_values(wrong: Any) -> None:
    x, y = rows()
    predictor = {"predictor": SetMLP((8,), 4, 6)} if "masker" in wrong else {}
    with pytest.raises(InputError, match=r"masker=Token\(\)"):
        quick(**predictor, **wrong).fit(x, y)
