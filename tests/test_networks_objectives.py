"""Networks are what was asked for; objectives are the formulas, and gradients go where they may."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from unmasked.errors import InputError
from unmasked.masks.binary_samplers import ArmsBernoulli, DisarmBernoulli, LocalExpectation
from unmasked.masks.maskers import Groups, Masker, Token, Zero
from unmasked.masks.samplers import ConcreteTopK, RebarBernoulli, Sampler, ScoreBernoulli
from unmasked.networks.tables import ACTIVATIONS, MLP, NORMALISATIONS, build, check_shapes
from unmasked.training.methods import log_likelihood

COLUMNS, CLASSES, BATCH = 4, 3, 32
MASKERS = {"token": Token(), "zero": Zero(), "groups": Groups((0, 1, 1, 2))}
each_masker = pytest.mark.parametrize("masker", MASKERS.values(), ids=MASKERS.keys())
each_sampler = pytest.mark.parametrize(
    "sampler",
    [
        RebarBernoulli(),
        ScoreBernoulli(),
        ConcreteTopK(2, 0.5),
        DisarmBernoulli(),
        ArmsBernoulli(),
        LocalExpectation(2),
    ],
    ids=repr,
)


def random(*shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=source)


def rows() -> tuple[Tensor, Tensor]:
    """x (batch, columns) and soft targets (batch, classes)."""
    return random(BATCH, COLUMNS, seed=1), torch.softmax(random(BATCH, CLASSES, seed=2), 1)


def network(inputs: int, outputs: int, seed: int = 0) -> nn.Module:
    return build(MLP((8,), "tanh"), inputs, outputs, seed).double()


# Networks


@pytest.mark.parametrize("normalisation", [None, *NORMALISATIONS])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_an_mlp_has_the_layers_asked_for(
    hidden: tuple[int, ...], activation: str, normalisation: str | None
) -> None:
    net = MLP(hidden, activation, normalisation)(4, 2)
    widths = [4, *hidden, 2]
    linear = [(m.in_features, m.out_features) for m in net.modules() if isinstance(m, nn.Linear)]
    assert linear == list(pairwise(widths))
    kinds = [type(m) for m in net.children()]
    between = [] if normalisation is None else [NORMALISATIONS[normalisation]]
    expected = [nn.Linear, *between, ACTIVATIONS[activation]] * len(hidden) + [nn.Linear]
    assert kinds == expected
    assert net(torch.randn(6, 4)).shape == (6, 2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"hidden": (5, 0)}, "(5, 0)"),
        ({"hidden": (5, -2)}, "(5, -2)"),
        ({"hidden": (2.5,)}, "(2.5,)"),
        ({"activation": "relux"}, "'relux'"),
        ({"normalisation": "group"}, "'group'"),
        ({"initialisation": "zeros"}, "'zeros'"),
    ],
)
def test_an_impossible_mlp_is_refused_by_value(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(InputError) as caught:
        MLP(**arguments)  # type: ignore[arg-type]
    assert named in str(caught.value)


def test_glorots_weights_are_uniform_and_biases_zero() -> None:
    """U(−b, b), b = √(6 / (inputs + outputs)): mean 0 and variance b²/3, within 5 standard errors.

    The mean square of n such weights has the relative standard error √(4 / (5 n)).
    """
    net = build(MLP((300, 200), "selu", initialisation="glorot"), 400, 3, seed=0)
    for layer in net:
        if isinstance(layer, nn.Linear):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            weight, count = layer.weight.detach(), layer.weight.numel()
            assert float(weight.abs().max()) <= bound
            assert not layer.bias.any()
            assert abs(float(weight.mean())) < 5 * bound / (3 * count) ** 0.5
            spread = float(weight.square().mean()) / (bound**2 / 3)
            assert abs(spread - 1) < 5 * (0.8 / count) ** 0.5


def test_building_depends_on_the_seed_and_disturbs_nobody() -> None:
    state = torch.get_rng_state()
    first, again, other = (build(MLP((5,)), 3, 2, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_building_copies_a_ready_module() -> None:
    ready = nn.Linear(3, 2)
    copy = build(ready, 3, 2, seed=5)
    assert copy is not ready
    assert isinstance(copy, nn.Linear)
    assert torch.equal(copy.weight, ready.weight)
    assert copy.weight.data_ptr() != ready.weight.data_ptr()


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (nn.Linear(3, 4), ("(5, 2)", "(5, 3)", "(5, 4)")),  # wanted, given, came
        (nn.Linear(6, 2), ("(5, 3)", "(batch, 3)", "(batch, 2)")),
        (nn.LSTM(3, 2), ("tuple", "(5, 2)")),
    ],
    ids=["too wide", "cannot take it", "not a tensor"],
)
def test_wrong_shapes_are_refused_before_training(module: nn.Module, named: tuple[str]) -> None:
    with pytest.raises(InputError, match="the selector") as caught:
        check_shapes(module, "selector", torch.zeros(5, 3), 2)
    assert all(shape in str(caught.value) for shape in named)


@pytest.mark.parametrize("training", [True, False])
def test_checking_shapes_leaves_the_module_as_it_was(training: bool) -> None:
    module = MLP((5,), normalisation="batch")(3, 2).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    check_shapes(module, "predictor", torch.randn(4, 3), 2)
    assert module.training == training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


# Objectives


def test_log_likelihood_is_cross_entropy() -> None:
    logits, target = random(BATCH, CLASSES), rows()[1]
    label = target.argmax(1)
    hard = log_likelihood(logits, F.one_hot(label, CLASSES).double())
    torch.testing.assert_close(hard, -F.cross_entropy(logits, label, reduction="none"))
    soft = log_likelihood(logits, target)
    torch.testing.assert_close(soft, -F.cross_entropy(logits, target, reduction="none"))


def test_log_likelihood_of_many_settings_is_that_of_each() -> None:
    logits, target = random(2, 3, BATCH, CLASSES), rows()[1].expand(2, 3, BATCH, CLASSES)
    together = log_likelihood(logits, target)
    assert together.shape == (2, 3, BATCH)
    torch.testing.assert_close(together[1, 2], log_likelihood(logits[1, 2], target[1, 2]))


@each_masker
def test_a_random_mask_teaches_every_predictor_parameter(masker: Masker) -> None:
    x, target = rows()
    predictor = network(masker.width(COLUMNS), CLASSES)
    mask = (random(BATCH, masker.features(COLUMNS), seed=3) > 0).double()
    loss = -log_likelihood(predictor(masker(x, mask)), target).mean()
    torch.testing.assert_close(loss, F.cross_entropy(predictor(masker(x, mask)), target))
    loss.backward()
    for name, parameter in predictor.named_parameters():
        assert parameter.grad is not None, name
        assert bool((parameter.grad.abs().sum() > 0).all()), name


@each_masker
@each_sampler
def test_a_sampler_teaches_the_selector_and_nobody_else(sampler: Sampler, masker: Masker) -> None:
    """As the engine uses it: the predictor's weights are detached, its input is not."""
    x, target = rows()
    features = masker.features(COLUMNS)
    selector = network(COLUMNS, features, seed=1)
    predictor = network(masker.width(COLUMNS), CLASSES, seed=2)
    frozen = {name: value.detach() for name, value in predictor.named_parameters()}

    def value(masks: Tensor) -> Tensor:
        """log q(y | x_m) for masks (draws, batch, features) -> (draws, batch)."""
        shown = torch.stack([masker(x, mask) for mask in masks])
        logits = functional_call(predictor, frozen, (shown,))
        return log_likelihood(logits, target.expand_as(logits))

    draws, width = sampler.noise_shape(features)
    noise = torch.rand(draws, BATCH, width, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(5))  # fmt: skip
    sampler(selector(x), value, noise, 2.0).mean().backward()
    for name, parameter in selector.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name
    assert all(parameter.grad is None for parameter in predictor.parameters())
