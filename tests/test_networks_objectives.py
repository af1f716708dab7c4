"""Networks are what was asked for; objectives are the formulas, and gradients go where they may."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from unmasked import objectives
from unmasked.errors import InputError
from unmasked.masking import Groups, Masker, Token, Zero
from unmasked.networks import ACTIVATIONS, MLP, NORMALISATIONS, build, check_shapes
from unmasked.samplers import RebarBernoulli

COLUMNS, CLASSES, BATCH = 4, 3, 32
MASKERS = {"token": Token(), "zero": Zero(), "groups": Groups((0, 1, 1, 2))}
each_masker = pytest.mark.parametrize("masker", MASKERS.values(), ids=MASKERS.keys())


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
    ],
)
def test_an_impossible_mlp_is_refused_by_value(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(InputError) as caught:
        MLP(**arguments)  # type: ignore[arg-type]
    assert named in str(caught.value)


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
    hard = objectives.log_likelihood(logits, F.one_hot(label, CLASSES).double())
    torch.testing.assert_close(hard, -F.cross_entropy(logits, label, reduction="none"))
    soft = objectives.log_likelihood(logits, target)
    torch.testing.assert_close(soft, -F.cross_entropy(logits, target, reduction="none"))


@each_masker
def test_random_mask_loss_teaches_every_predictor_parameter(masker: Masker) -> None:
    x, target = rows()
    predictor = network(masker.width(COLUMNS), CLASSES)
    mask = (random(BATCH, masker.features(COLUMNS), seed=3) > 0).double()
    loss = objectives.random_mask_loss(predictor, masker, x, target, mask)
    by_hand = F.cross_entropy(predictor(masker(x, mask)), target)
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    for name, parameter in predictor.named_parameters():
        assert parameter.grad is not None, name
        assert bool((parameter.grad.abs().sum() > 0).all()), name


@each_masker
def test_all_draws_in_one_pass_equal_separate_passes(masker: Masker) -> None:
    x, target = rows()
    predictor = network(masker.width(COLUMNS), CLASSES)
    masks = torch.sigmoid(random(3, BATCH, masker.features(COLUMNS), seed=4))
    together = objectives.shown_value(predictor, masker, x, target)(masks)
    assert together.shape == (3, BATCH)
    for draw, mask in enumerate(masks):
        for row in range(BATCH):
            one = slice(row, row + 1)
            alone = objectives.log_likelihood(predictor(masker(x[one], mask[one])), target[one])
            torch.testing.assert_close(together[draw, one], alone)


@each_masker
def test_selector_loss_teaches_the_selector_and_nobody_else(masker: Masker) -> None:
    """As the engine calls it: the predictor's weights are detached, its input is not."""
    x, target = rows()
    features = masker.features(COLUMNS)
    selector = network(COLUMNS, features, seed=1)
    predictor = network(masker.width(COLUMNS), CLASSES, seed=2)
    frozen = {name: value.detach() for name, value in predictor.named_parameters()}
    value = objectives.shown_value(
        lambda shown: functional_call(predictor, frozen, (shown,)), masker, x, target
    )
    sampler = RebarBernoulli()
    noise = torch.rand(BATCH, sampler.noise_width(features), dtype=torch.float64,
                       generator=torch.Generator().manual_seed(5))  # fmt: skip
    without_price = objectives.selector_loss(selector(x), value, sampler, noise, 0.0)
    without_price.backward()  # with λ = 0 the gradient can only come through the value
    for name, parameter in selector.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0, name
    assert all(parameter.grad is None for parameter in predictor.parameters())


def price(logits: Tensor, sparsity: float) -> Tensor:
    """What λ adds to the selector's loss."""
    sampler = RebarBernoulli()
    noise = torch.full((len(logits), sampler.noise_width(logits.shape[1])), 0.5).double()

    def nothing(masks: Tensor) -> Tensor:
        return 0.0 * masks.sum(-1)

    return objectives.selector_loss(logits, nothing, sampler, noise, sparsity)


def test_sparsity_is_the_price_of_the_fraction_shown() -> None:
    """λ times the mean probability: twice the features at the same rates cost the same."""
    logits = random(BATCH, COLUMNS, seed=6)
    expected = 0.7 * torch.sigmoid(logits).mean()
    torch.testing.assert_close(price(logits, 0.7), expected)
    torch.testing.assert_close(price(torch.cat([logits, logits], 1), 0.7), expected)
    torch.testing.assert_close(price(logits, 1.4), 2 * expected)
    assert float(price(torch.full((2, 3), 60.0).double(), 0.7)) == pytest.approx(0.7)


def test_selector_loss_is_minus_the_value_of_the_drawn_mask_plus_the_price() -> None:
    logits, sampler = random(BATCH, COLUMNS, seed=7), RebarBernoulli()
    noise = torch.rand(BATCH, 2 * COLUMNS, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(8))  # fmt: skip

    def value(masks: Tensor) -> Tensor:
        return (masks * torch.arange(1.0, 5.0)).sum(-1) ** 2

    mask, _, _ = sampler.draw(logits, noise)
    expected = -value(mask[None]).mean() + 0.3 * torch.sigmoid(logits).mean()
    loss = objectives.selector_loss(logits, value, sampler, noise, 0.3)
    torch.testing.assert_close(loss, expected)


def test_a_feature_is_selected_when_its_probability_exceeds_a_half() -> None:
    logits = torch.tensor([[-3.0, -1e-30, 0.0, 1e-30, 3.0]])
    expected = torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]])
    assert torch.equal(objectives.selection(logits), expected)
