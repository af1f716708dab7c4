"""Many networks as one are those networks, axes are loops, noise belongs to its world."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from small_runs import COLUMNS, FAST, TINY_BATCH, Dropped, method, numbers, train
from torch import Tensor, nn

from unmasked.networks.tables import MLP, build
from unmasked.training import Settings, Trained, noise
from unmasked.training.stack import Stack, over_leading

CPU = torch.device("cpu")
INPUTS, OUTPUTS, ROWS, COUNT = 5, 3, 7, 4
Factory = Callable[[int, int], nn.Module]


class Residual(nn.Module):
    """A user's module that vmap can run: one layer used twice, a frozen one, a buffer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(inputs, inputs), nn.Linear(inputs, outputs)
        self.frozen = nn.Linear(inputs, inputs).requires_grad_(False)
        self.register_buffer("shift", torch.randn(inputs))

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tanh(self.inner(x)) + self.frozen(x) + self.shift
        result: Tensor = self.last(x + torch.tanh(self.inner(x)))
        return result


class Branching(nn.Module):
    """What vmap refuses: what it computes depends on what it is given."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)
        self.one, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        result: Tensor = self.one(x) if float(x.detach()[0, 0]) > 0 else self.other(x)
        return result


def without_bias(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 6, bias=False), nn.SELU(), nn.Linear(6, 6), nn.Identity(), nn.GELU(),
        nn.Linear(6, outputs, bias=False),
    )  # fmt: skip


NETWORKS: dict[str, tuple[Factory, str]] = {
    "one linear layer": (lambda i, o: nn.Sequential(nn.Linear(i, o)), "layers"),
    "without bias": (without_bias, "layers"),
    **{kind: (MLP((6, 6), kind), "layers") for kind in ("relu", "selu", "silu", "elu", "tanh")},
    "batch norm": (MLP((6,), normalisation="batch"), "layers"),
    "two batch norms of other kinds": (
        lambda i, o: nn.Sequential(
            nn.BatchNorm1d(i, eps=0.1),
            nn.Linear(i, 6),
            nn.BatchNorm1d(6, momentum=0.5),
            nn.Linear(6, o),
        ),
        "layers",
    ),
    "batch norm without weights": (
        lambda i, o: nn.Sequential(nn.BatchNorm1d(i, affine=False), nn.Linear(i, o)),
        "vmap",
    ),
    "batch norm without memory": (
        lambda i, o: nn.Sequential(nn.BatchNorm1d(i, track_running_stats=False), nn.Linear(i, o)),
        "vmap",
    ),
    "a frozen batch norm": (
        lambda i, o: nn.Sequential(nn.BatchNorm1d(i).requires_grad_(False), nn.Linear(i, o)),
        "vmap",
    ),
    "batch norm of all batches": (
        lambda i, o: nn.Sequential(nn.BatchNorm1d(i, momentum=None), nn.Linear(i, o)),
        "random",
    ),
    "layer norm": (MLP((6,), normalisation="layer"), "vmap"),
    "a user's module": (Residual, "vmap"),
    "a frozen layer": (
        lambda i, o: nn.Sequential(nn.Linear(i, 6).requires_grad_(False), nn.Linear(6, o)),
        "vmap",
    ),
    "a branch": (Branching, "random"),
    "dropout": (Dropped, "random"),
}
each_network = pytest.mark.parametrize(("factory", "mode"), NETWORKS.values(), ids=NETWORKS.keys())
each_training = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])


def random(*shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=source)


def modules(factory: Factory, count: int = COUNT) -> list[nn.Module]:
    return [build(factory, INPUTS, OUTPUTS, seed).double() for seed in range(count)]


def stacked(networks: list[nn.Module]) -> Stack:
    return Stack(networks, CPU, torch.float64, random(2, INPUTS, seed=9))


# ---------------------------------------------------------------------- Stack


@each_training
@each_network
def test_a_stack_is_its_networks_one_by_one(factory: Factory, mode: str, training: bool) -> None:
    """Values, gradients and buffers; each network has rows of its own."""
    networks = modules(factory)
    stack = stacked(networks)
    assert stack.mode == mode
    x, weight = random(COUNT, ROWS, INPUTS, seed=1), random(COUNT, ROWS, OUTPUTS, seed=2)
    before = {name: value.clone() for name, value in stack.buffers.items()}
    leaves = stack.weights(learn=True)
    torch.manual_seed(3)
    result = stack.forward(leaves, x, training=training)
    assert result.shape == (COUNT, ROWS, OUTPUTS)
    every = {"allow_unused": True, "materialize_grads": True}  # a branch not taken has slope 0
    found = stack.gather(
        torch.autograd.grad((result * weight).sum(), list(leaves.values()), **every)
    )
    # a few layers of sums of six numbers of about 1, in double precision
    exactly = {"rtol": 0.0, "atol": 1e-12}
    for i, network in enumerate(networks):
        torch.manual_seed(3)  # random layers see the same state in each of them
        alone = network.train(training)(x[i])
        torch.testing.assert_close(result[i], alone, **exactly)
        learned = [p for p in network.parameters() if p.requires_grad]
        gradients = torch.autograd.grad((alone * weight[i]).sum(), learned, **every)
        for own, expected in zip(stack.layout.views(found).values(), gradients, strict=True):
            torch.testing.assert_close(own[i], expected, **exactly)
        for name, value in network.named_buffers():
            torch.testing.assert_close(stack.buffers[name][i], value, **exactly)
    moved = [name for name in before if not torch.equal(before[name], stack.buffers[name])]
    remember = [m for m in networks[0].modules() if getattr(m, "track_running_stats", False)]
    assert len(moved) == (3 * len(remember) if training else 0)  # mean, variance, count


@each_training
@each_network
def test_a_stack_of_one_is_its_network(factory: Factory, mode: str, training: bool) -> None:
    (network,) = modules(factory, 1)
    stack, x = stacked([network]), random(1, ROWS, INPUTS, seed=1)
    torch.manual_seed(3)
    result = stack.forward(stack.weights(), x, training=training)
    torch.manual_seed(3)
    torch.testing.assert_close(result[0], network.train(training)(x[0]), rtol=0, atol=1e-12)
    for name, value in network.named_buffers():
        torch.testing.assert_close(stack.buffers[name][0], value, rtol=0, atol=1e-12)


def test_random_layers_do_not_feel_how_many_neighbours_there_are() -> None:
    networks = modules(Dropped)
    x = random(ROWS, INPUTS, seed=1)
    found = []
    for count in (2, COUNT):
        stack = stacked(networks[:count])
        torch.manual_seed(3)
        stack.forward(stack.weights(), x.expand(count, -1, -1), training=True)
        second = stack.forward(stack.weights(), x.expand(count, -1, -1), training=True)
        found.append((second[:2], torch.rand(1)))  # and what is drawn after it
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@each_network
def test_a_row_of_a_stack_becomes_an_ordinary_module(factory: Factory, mode: str) -> None:
    networks = modules(factory)
    stack = stacked(networks)
    x = random(COUNT, ROWS, INPUTS, seed=1)
    stack.forward(stack.weights(), x, training=True)  # moves what BatchNorm remembers
    evaluated = stack.forward(stack.weights(), x, training=False)
    for i in range(COUNT):
        module = stack.module(i)
        assert type(module) is type(networks[i])
        assert not module.training
        torch.testing.assert_close(module(x[i]), evaluated[i], rtol=0, atol=1e-12)
    assert not torch.equal(stack.module(0)(x[0]), stack.module(1)(x[0]))


def test_weights_are_views_and_learning_ones_are_leaves() -> None:
    stack = stacked(modules(MLP((6,))))
    for own in stack.weights().values():
        assert not own.requires_grad
    for own in stack.weights(learn=True).values():
        assert own.is_leaf
        assert own.requires_grad
    stack.flat.zero_()
    assert all(not own.any() for own in stack.weights().values())


@each_network
def test_a_stack_keeps_repeats_and_reorders_rows(factory: Factory, mode: str) -> None:
    stack, x = stacked(modules(factory)), random(ROWS, INPUTS, seed=1)
    before = stack.forward(stack.weights(), x.expand(COUNT, -1, -1), training=False)
    stack.take(torch.tensor([3, 0, 3]))
    assert stack.count == 3
    after = stack.forward(stack.weights(), x.expand(3, -1, -1), training=False)
    torch.testing.assert_close(after, before[[3, 0, 3]], rtol=0, atol=1e-12)


@each_network
def test_joined_stacks_hold_the_networks_of_all_in_order(factory: Factory, mode: str) -> None:
    networks = modules(factory)
    whole = Stack.join([stacked(networks[:1]), stacked(networks[1:3]), stacked(networks[3:])])
    state = stacked(networks).state()
    assert whole.count == COUNT
    assert whole.state().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in whole.state().items())
    assert whole.mode == mode
    x = random(COUNT, ROWS, INPUTS, seed=1)
    for i, network in enumerate(networks):
        torch.testing.assert_close(whole.module(i)(x[i]), network.eval()(x[i]))


@each_network
def test_a_state_restores_a_stack(factory: Factory, mode: str) -> None:
    stack, x = stacked(modules(factory)), random(COUNT, ROWS, INPUTS, seed=1)
    state = {name: value.clone() for name, value in stack.state().items()}
    stack.flat += 1
    stack.forward(stack.weights(), x, training=True)
    stack.load(state)
    assert all(torch.equal(value, state[name]) for name, value in stack.state().items())


def test_the_users_modules_are_left_as_they_were() -> None:
    networks = modules(MLP((6,), normalisation="batch"))
    before = copy.deepcopy(numbers(networks))
    stack = stacked(networks)
    stack.forward(stack.weights(), random(COUNT, ROWS, INPUTS), training=True)
    stack.flat.zero_()
    for old, new in zip(before, numbers(networks), strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


# ---------------------------------------------------------------------- axes


class Pair(NamedTuple):
    total: Tensor
    none: Tensor


def one_setting(logits: Tensor, pair: Pair, level: Tensor) -> Pair:
    """(rows, features), (rows,), () -> (rows,) and nothing."""
    assert logits.dim() == 2
    assert pair.total.dim() == 1
    assert level.dim() == 0
    total = torch.tanh(level * logits).sum(-1) * pair.total
    return Pair(total, logits.new_zeros(0, *logits.shape))


SHAPES = {
    "all have both axes": ((2, 3), (2, 3), (2, 3)),
    "a level per setting, the same in every world": ((2, 3), (2, 3), (1, 3)),
    "something per world, the same in every setting": ((2, 3), (2, 1), (1, 3)),
    "one world": ((1, 3), (1, 1), (1, 3)),
    "one setting": ((2, 1), (2, 1), (1, 1)),
    "nothing but one": ((1, 1), (1, 1), (1, 1)),
    "each axis from another": ((2, 1), (1, 1), (1, 3)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
def test_leading_axes_are_nested_loops(shapes: Any) -> None:
    (w1, s1), (w2, s2), (w3, s3) = shapes
    logits = random(w1, s1, 5, 4, seed=1)
    pair = Pair(random(w2, s2, 5, seed=2), random(w2, s2, 0, seed=3))
    level = random(w3, s3, seed=4)
    result = over_leading(one_setting, 2, logits, pair, level)
    worlds, settings = max(w1, w2, w3), max(s1, s2, s3)
    assert isinstance(result, Pair)
    assert result.total.shape == (worlds, settings, 5)
    assert result.none.shape == (worlds, settings, 0, 5, 4)
    for w in range(worlds):
        for s in range(settings):
            own = Pair(*(part[w % w2, s % s2] for part in pair))
            alone = one_setting(logits[w % w1, s % s1], own, level[w % w3, s % s3])
            torch.testing.assert_close(result.total[w, s], alone.total, rtol=0, atol=1e-12)


def test_gradients_of_what_is_shared_are_summed() -> None:
    shared = random(1, 5, seed=1).requires_grad_()
    own = random(3, 5, seed=2)
    over_leading(torch.dot, 1, shared, own).sum().backward()
    assert shared.grad is not None
    torch.testing.assert_close(shared.grad[0], own.sum(0), rtol=0, atol=1e-14)


def test_no_axes_are_a_plain_call() -> None:
    assert over_leading(lambda a, b: a + b, 0, torch.tensor(1), torch.tensor(2)) == 3


# ---------------------------------------------------------------------- noise


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps of a tape, or three epochs of an order, are made at once."""
    monkeypatch.setattr(noise, "_BLOCK", 60)


def tape(draws: int = 2, rows: int = 5, width: int = 3) -> noise.Tape:
    return noise.Tape(draws, rows, width, torch.float64, CPU)


def orders(rows: int = 20) -> noise.Orders:
    return noise.Orders(rows, CPU)


@pytest.mark.usefixtures("small_blocks")
def test_a_tape_holds_a_step_for_each_world() -> None:
    found = tape()([0, 1], "selector", 0, 0)
    assert found.shape == (2, 2, 5, 3)  # worlds, draws, rows, width
    assert bool(((found >= 0) & (found < 1)).all())
    assert found.unique().numel() == found.numel()


@pytest.mark.usefixtures("small_blocks")
def test_a_worlds_noise_does_not_depend_on_the_other_worlds() -> None:
    alone, order = tape()([7], "selector", 1, 6), orders()([7], 1, 5)
    for seeds in ([7, 8], [8, 7], [1, 2, 7]):
        own = seeds.index(7)
        assert torch.equal(tape()(seeds, "selector", 1, 6)[own], alone[0])
        assert torch.equal(orders()(seeds, 1, 5)[own], order[0])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("step", [0, 1, 3, 4, 10])
def test_the_first_draws_do_not_depend_on_how_many_there_are(step: int) -> None:
    many = tape(draws=6)([7, 8], "selector", 2, step)
    for draws in (1, 2, 5):
        assert torch.equal(tape(draws=draws)([7, 8], "selector", 2, step), many[:, :draws])


@pytest.mark.usefixtures("small_blocks")
def test_a_step_does_not_depend_on_what_was_asked_before() -> None:
    """A resumed run asks for the middle of a phase first; worlds leave on the way."""
    one, other = tape(), orders()
    for phase, step in [(0, 0), (0, 3), (0, 1), (1, 2), (0, 5), (1, 2), (0, 0)]:
        one([1, 2, 3], "selector", phase, step)
        found = one([2, 3], "selector", phase, step)
        assert torch.equal(found, tape()([2, 3], "selector", phase, step))
        other([1, 2, 3], phase, step)
        assert torch.equal(other([2, 3], phase, step), orders()([2, 3], phase, step))


@pytest.mark.usefixtures("small_blocks")
def test_steps_phases_and_streams_do_not_repeat_each_other() -> None:
    """Seven steps are two blocks of four, which must not be the same block twice."""
    found = [
        tape()([0], stream, phase, step)
        for stream in ("predictor", "selector")
        for phase in (0, 1)
        for step in range(7)
    ]
    every = torch.stack(found).flatten()
    assert every.unique().numel() == every.numel()


@pytest.mark.usefixtures("small_blocks")
def test_each_epoch_has_an_order_of_its_own() -> None:
    """Of 20 rows: two equal orders among 14 are as good as impossible (20! is 2e18)."""
    found = torch.cat([orders()([0, 1], phase, epoch) for phase in (0, 1) for epoch in range(7)])
    assert found.shape == (28, 20)
    assert torch.equal(found.sort(1).values, torch.arange(20).expand(28, 20))
    assert found.unique(dim=0).shape[0] == 28


def test_a_first_row_is_any_row_equally_often() -> None:
    """χ² of the first of 5 rows over 4,000 epochs: above 33 in one of a million seeds (4 d.f.)."""
    order = orders(5)
    first = torch.stack([order([3], 0, epoch)[0, 0] for epoch in range(4000)])
    counts = torch.bincount(first, minlength=5).double()
    assert float(((counts - 800) ** 2 / 800).sum()) < 33


def test_what_is_made_at_once_is_bounded() -> None:
    """So many numbers of a draw, but one step at least."""
    assert tape(rows=5000, width=5000).steps == 1
    assert tape(rows=1000, width=100).steps * 1000 * 100 <= noise._BLOCK
    assert orders(10**8).epochs == 1


# ---------------------------------------------------------------------- what came out


def test_joined_results_are_those_of_their_parts_in_order() -> None:
    what = method(TINY_BATCH)
    parts = [
        train(what, Settings((0.1, 0.5), (0,)), FAST),
        train(what, Settings((0.1, 0.5), (1,)), FAST),
    ]
    whole = Trained.join(parts)
    assert whole.scores == parts[0].scores + parts[1].scores
    assert whole.epochs == parts[0].epochs + parts[1].epochs
    assert [note["part"] for note in whole.history] == [0] * 10 + [1] * 10
    assert [{**note, "part": 0} for note in parts[0].history] == whole.history[:10]
    more = Trained.join([whole, parts[0]])
    assert [note["part"] for note in more.history] == [0] * 10 + [1] * 10 + [2] * 10
    assert whole.seconds == pytest.approx(parts[0].seconds + parts[1].seconds)
    assert not whole.interrupted
    for kind in ("predictors", "selectors"):
        expected = numbers(getattr(parts[0], kind) + getattr(parts[1], kind))
        for one, other in zip(numbers(getattr(whole, kind)), expected, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_joined_evaluator_has_no_selectors() -> None:
    part = train(method(explains=False), Settings(seeds=(0,)), FAST)
    whole = Trained.join([part, part])
    assert (len(whole.predictors), whole.selectors) == (2, [])
    with torch.no_grad():
        assert whole.predictors[1](torch.zeros(1, 2 * COLUMNS, dtype=torch.float64)).shape == (1, 2)
