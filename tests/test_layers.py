"""The hand-written passes through plain layers are the ordinary ones, and share memory safely."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unmasked.networks.tables import build
from unmasked.training import layers
from unmasked.training.stack import Networks, Stack

CPU = torch.device("cpu")
INPUTS, OUTPUTS, ROWS = 5, 3, 9
ACTIVATIONS = [nn.ReLU, nn.SELU, nn.SiLU, nn.GELU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Identity]


def one_of_each(kind: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 6), kind(), nn.Linear(6, 4), kind(), nn.Linear(4, 3))


SEQUENCES = {
    **{kind.__name__: (lambda i, o, kind=kind: one_of_each(kind)) for kind in ACTIVATIONS},
    "starts and ends with activations": lambda i, o: nn.Sequential(
        nn.SiLU(), nn.Identity(), nn.Linear(i, 6), nn.ReLU(), nn.Linear(6, o), nn.Tanh()
    ),
    "two activations in a row": lambda i, o: nn.Sequential(
        nn.Linear(i, 6), nn.SiLU(), nn.ReLU(), nn.Tanh(), nn.GELU(), nn.Linear(6, o)
    ),
    "slopes known from results, in a row": lambda i, o: nn.Sequential(
        nn.Linear(i, 6),
        nn.SELU(),
        nn.Tanh(),
        nn.Identity(),
        nn.Sigmoid(),
        nn.ELU(),
        nn.Linear(6, o),
    ),
    "normalised": lambda i, o: nn.Sequential(
        nn.Linear(i, 6),
        nn.BatchNorm1d(6),
        nn.SELU(),
        nn.Linear(6, 4, bias=False),
        nn.BatchNorm1d(4, momentum=0.3),
        nn.ReLU(),
        nn.Linear(4, o),
        nn.BatchNorm1d(o),
    ),
    "normalised first and after activations": lambda i, o: nn.Sequential(
        nn.BatchNorm1d(i), nn.Linear(i, 6), nn.SiLU(), nn.BatchNorm1d(6), nn.Linear(6, o)
    ),
}
each_sequence = pytest.mark.parametrize("factory", SEQUENCES.values(), ids=SEQUENCES.keys())
each_count = pytest.mark.parametrize("count", [1, 3])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stack_of(factory: Any, count: int) -> tuple[Stack, list[nn.Module]]:
    modules = [build(factory, INPUTS, OUTPUTS, seed).double() for seed in range(count)]
    stack = Stack(copy.deepcopy(modules), CPU, torch.float64, random(2, INPUTS))
    assert stack.mode == "layers"
    return stack, modules


def close(found: Tensor, expected: Tensor) -> None:
    # a few layers of sums of at most nine numbers of about 1, in double precision
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@each_count
@each_sequence
def test_training_values_and_all_gradients(factory: Any, count: int) -> None:
    """Of the inputs, of the weights, and of both at once; twice, so that memory is used again."""
    stack, modules = stack_of(factory, count)
    for turn in range(2):
        x, weight = random(count, ROWS, INPUTS, seed=turn), random(count, ROWS, OUTPUTS, seed=5)
        for wanted in (("x", "flat"), ("flat",), ("x",)):
            leaves = stack.weights(learn="flat" in wanted)
            own_x = x.clone().requires_grad_("x" in wanted)
            result = Networks(stack, leaves)(own_x)
            every = {"x": own_x, "flat": leaves["flat"]}
            gradients = torch.autograd.grad((result * weight).sum(), [every[w] for w in wanted])
            found = dict(zip(wanted, gradients, strict=True))
            for i, module in enumerate(modules):
                its_x = x[i].clone().requires_grad_()
                alone = module.train()(its_x)
                close(result[i], alone)
                (alone * weight[i]).sum().backward()
                if "x" in wanted:
                    close(found["x"][i], its_x.grad)
                if "flat" in wanted:
                    views = stack.layout.views(found["flat"])
                    for name, parameter in module.named_parameters():
                        close(views[name][i], parameter.grad)
                module.zero_grad()
                for name, value in module.named_buffers():
                    close(stack.buffers[name][i], value)


@each_count
@each_sequence
def test_evaluation_and_its_input_gradients(factory: Any, count: int) -> None:
    stack, modules = stack_of(factory, count)
    stack.forward(stack.weights(), random(count, ROWS, INPUTS, seed=7), training=True)
    frozen = Networks(stack)
    x, weight = random(count, ROWS, INPUTS, seed=8), random(count, ROWS, OUTPUTS, seed=5)
    for _ in range(2):
        own_x = x.clone().requires_grad_()
        result = frozen(own_x)
        (found,) = torch.autograd.grad((result * weight).sum(), own_x)
        with torch.no_grad():
            close(frozen(x), result)
        for i, module in enumerate(modules):
            module = stack.module(i)
            its_x = x[i].clone().requires_grad_()
            (expected,) = torch.autograd.grad((module(its_x) * weight[i]).sum(), its_x)
            close(result[i], module(x[i]))
            close(found[i], expected)


@each_count
@each_sequence
def test_results_and_inputs_are_nobody_elses_memory(factory: Any, count: int) -> None:
    """What a pass returned, or was given, is not written by later ones."""
    stack, _ = stack_of(factory, count)
    leaves, x = stack.weights(learn=True), random(count, ROWS, INPUTS).requires_grad_()
    results, before = [], x.detach().clone()
    for seed in range(3):
        result = Networks(stack, leaves)(x)
        weight = random(*result.shape, seed=seed)
        gradients = torch.autograd.grad((result * weight).sum(), [x, leaves["flat"]])
        held = [result.detach(), *gradients, Networks(stack)(before)]
        results.append((held, [tensor.clone() for tensor in held]))
    assert torch.equal(x.detach(), before)
    for held, copies in results:
        assert all(torch.equal(*pair) for pair in zip(held, copies, strict=True))


@each_count
def test_ordinary_operations_are_the_same(count: int) -> None:
    """What a compiler sees, with the gradients that autograd finds by itself."""
    for factory in SEQUENCES.values():
        stack, _ = stack_of(factory, count)
        x, weight = random(count, ROWS, INPUTS), random(count, ROWS, OUTPUTS, seed=5)
        found = []
        for by_hand in (True, False):
            own = {name: value.clone() for name, value in stack.buffers.items()}
            flat = stack.flat.clone().requires_grad_()
            values = {"flat": flat, **own}
            if by_hand:
                result = stack.forward_with(values, x, training=True)
            else:
                every = {**values, **stack.layout.views(flat)}
                result = layers.differentiable(stack.template, every, x, training=True)
            (gradient,) = torch.autograd.grad((result * weight).sum(), flat)
            found.append((result.detach(), gradient, *own.values()))
        for one, other in zip(*found, strict=True):
            close(one, other)


def test_a_bias_that_batch_norm_takes_out_again_has_no_gradient() -> None:
    """Not rounding errors, which Adam would blow up to full steps."""
    stack, _ = stack_of(SEQUENCES["normalised"], 2)
    leaves = stack.weights(learn=True)
    result = Networks(stack, leaves)(random(2, ROWS, INPUTS))
    (gradient,) = torch.autograd.grad(result.square().sum(), leaves["flat"])
    assert not stack.layout.views(gradient)["0.bias"].any()


def test_memory_is_used_again() -> None:
    stack, _ = stack_of(SEQUENCES["SiLU"], 1)
    x, counts = random(1, ROWS, INPUTS).requires_grad_(), []
    for _ in range(4):
        leaves = stack.weights(learn=True)
        result = Networks(stack, leaves)(x)
        torch.autograd.grad(result.sum(), [x, leaves["flat"]])
        counts.append(sum(len(free) for free in stack._pool._free.values()))
    assert counts[0] > 0
    assert len(set(counts)) == 1


def test_a_second_backward_pass_is_refused() -> None:
    stack, _ = stack_of(SEQUENCES["ReLU"], 1)
    leaves = stack.weights(learn=True)
    loss = Networks(stack, leaves)(random(1, ROWS, INPUTS)).sum()
    torch.autograd.grad(loss, leaves["flat"], retain_graph=True)
    with pytest.raises(RuntimeError, match="runs once"):
        torch.autograd.grad(loss, leaves["flat"])


def test_a_layer_that_is_used_twice_is_run_twice() -> None:
    """By others: here each layer would run once."""
    relu, tied = nn.ReLU(), nn.Linear(6, 6)
    for middle in ([relu, nn.Linear(6, 6), relu], [tied, nn.Tanh(), tied]):
        module = nn.Sequential(nn.Linear(INPUTS, 6), *middle, nn.Linear(6, OUTPUTS)).double()
        stack = Stack([module, module], CPU, torch.float64, random(2, INPUTS))
        assert stack.mode != "layers"
        x = random(2, ROWS, INPUTS)
        close(stack.forward(stack.weights(), x, training=False)[1], module.eval()(x[1]))


def test_hooks_and_other_parameters_are_left_to_others() -> None:
    hooked = nn.Sequential(nn.Linear(INPUTS, OUTPUTS))
    hooked[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    assert not layers.understood(hooked)
    assert not layers.understood(nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 2))))


def test_nothing_is_kept_of_a_finished_run() -> None:
    stack, _ = stack_of(SEQUENCES["SiLU"], 2)
    for rows in (4, 5):
        stack.forward(stack.weights(), random(2, rows, INPUTS), training=False)
    assert stack._pool._free
    assert not pickle.loads(pickle.dumps(stack))._pool._free
    stack.take(torch.tensor([0]))
    assert not stack._pool._free
    assert Stack.join([stack, stack])._pool is not stack._pool


def test_what_is_not_plain_is_left_to_others() -> None:
    frozen = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    assert not layers.understood(frozen)
    assert not layers.understood(nn.Sequential(nn.Linear(2, 2), nn.GELU("tanh")))
    assert not layers.understood(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    assert not layers.understood(nn.Linear(2, 2))


def test_parameters_start_on_aligned_places() -> None:
    layout = layers.Layout({"a": torch.Size([3, 5]), "b": torch.Size([40]), "c": torch.Size([2])})
    assert [start for start, _, _ in layout.places.values()] == [0, 32, 96]
    assert layout.size == 128
    values = {name: random(2, *shape) for name, (_, _, shape) in layout.places.items()}
    views = layout.views(layout.fill(torch.zeros(2, layout.size, dtype=torch.float64), values))
    assert all(torch.equal(views[name], values[name]) for name in values)
