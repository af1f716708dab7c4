"""Every composition: one step is its formula, stacked is separate, and each world has its data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_runs import COLUMNS, FAST, METHODS, TINY, cut, data, data_for, numbers, train
from torch import Tensor, nn

from unmasked.errors import InputError
from unmasked.masks.distributions import Bernoulli
from unmasked.masks.maskers import Token
from unmasked.masks.samplers import RebarBernoulli, ScoreBernoulli
from unmasked.networks.tables import build
from unmasked.training import Data, Method, Settings, Trained, Training, methods
from unmasked.training import program as engine_program
from unmasked.training.loop import train as run
from unmasked.training.method import (
    Everything,
    Given,
    Learner,
    Random,
    Selected,
    Selector,
    Source,
    Subset,
)
from unmasked.training.methods import log_likelihood
from unmasked.training.program import Batch, Program
from unmasked.training.stack import Stack

SEEDS = (0, 1)
BRIEF = replace(FAST, epochs=4)
EARLY = replace(FAST, patience=1, selector_delay=0.0)
EXCHANGED = "REAL-X, exchanged"
WITH_SELECTOR = ["REAL-X", "REAL-X-STEP", EXCHANGED, "BASE-X", "INVASE", "L2X"]
JOINT = ["BASE-X", "INVASE", "L2X"]
OWN_NETWORKS = [*JOINT, EXCHANGED, "ROAR", "subsets"]  # the predictor depends on the level
each_method = pytest.mark.parametrize("name", METHODS)


def made(name: str) -> tuple[Method, tuple[float, ...]]:
    make, levels = METHODS[name]
    return make(TINY), levels


def prepared(
    name: str, seeds: tuple[int, ...] = (0,), levels: tuple[float, ...] | None = None
) -> Program:
    what, own = made(name)
    rows = data_for(name, 40)
    settings = Settings(own if levels is None else levels, seeds)
    return Program(what, settings, [rows], [rows], torch.device("cpu"), torch.float64)


# ---------------------------------------------------------------------- one step by hand


def shown_to(predictor: nn.Module, x: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """log q(y | x_m) for each row, with an ordinary module."""
    logits = predictor(torch.cat([x * mask, mask], -1))
    return log_likelihood(logits, target.expand_as(logits))


def selected(name: str, logits: Tensor, u: Tensor, level: float) -> Tensor:
    """The mask that each method draws, from its formula; u is (draws, batch, features)."""
    if name == "INVASE":
        return (u[0] < torch.sigmoid(logits)).double()
    if name == "L2X":
        draws = [torch.softmax((logits - (-own.log()).log()) / 0.5, -1) for own in u]
        return torch.stack(draws[: int(level)]).amax(0)
    return (logits + torch.logit(u[0]) > 0).double()


def by_hand(name: str, networks: dict[str, nn.Module], rows: Data, noise: Any, level: float) -> Any:
    """The losses of one setting from ordinary modules."""
    x, target = rows.x, rows.target
    if name in ("REAL-X", "REAL-X-STEP", "EVAL-X"):
        mask = (noise["predictor"][0, 0] < 0.5).double()
    elif name == EXCHANGED:
        mask = (noise["predictor"][0, 0] < 0.5).double()
        drawn = selected(name, networks["selector"](x), noise["selector"][0], level).detach()
        for row in range(1, len(x), 2):
            mask[row] = drawn[row - 1]
    elif name == "ROAR":
        assert rows.masks is not None
        mask = rows.masks[int(level)].double()
    elif name == "subsets":
        mask = torch.tensor([int(level) >> j & 1 for j in range(COLUMNS)]).double().expand_as(x)
    else:
        mask = torch.ones_like(x)
    losses = {}
    if name not in JOINT:
        losses["predictor"] = -shown_to(networks["predictor"], x, mask, target).mean()
    if name == "INVASE":
        seen = shown_to(networks["baseline"], x, mask, target)
        losses["baseline"] = -seen.mean()
    if name not in WITH_SELECTOR:
        return losses
    logits, u = networks["selector"](x), noise["selector"][0]
    own = shown_to(networks["predictor"], x, selected(name, logits, u, level), target)
    if name in JOINT:
        losses["predictor"] = -own.mean()
    sampler = METHODS[name][0](TINY).selector.sampler  # type: ignore[union-attr]
    climbed = sampler(
        logits,
        lambda masks: shown_to(networks["predictor"], x, masks, target),
        u,
        torch.tensor(level, dtype=torch.float64),
        seen.detach() if name == "INVASE" else 0.0,
    )
    price = 0.0 if name == "L2X" else level
    losses["selector"] = price * torch.sigmoid(logits).mean() - climbed.mean()
    return losses


@each_method
def test_one_step_of_every_method_is_its_formula(name: str) -> None:
    """Loss and gradient of each network, with ordinary modules and the same noise.

    A joint predictor's gradient is that of −mean log q(y | x_s) alone, a selector's comes through
    its sampler alone; in the engine both flow through one number.
    """
    program = prepared(name)
    trains = frozenset(program.stacks)
    rows = data_for(name, 40)
    x, target, masks = program.train.take([0], program.columns, torch.arange(40))
    noise = program.noise(trains, 40, 0, 0)
    leaves = {one: stack.weights(learn=True) for one, stack in program.stacks.items()}
    losses = program.losses(trains, leaves, Batch(x, target, masks, noise))
    total = torch.stack([loss.sum() for loss in losses.values()]).sum()
    every = iter(torch.autograd.grad(total, [w for own in leaves.values() for w in own.values()]))
    engine = {
        one: program.stacks[one].gather([next(every) for _ in own]) for one, own in leaves.items()
    }
    expected = {one: torch.zeros_like(value) for one, value in engine.items()}
    for i, level in enumerate(program.settings.levels):
        place = {one: i if stack.count > 1 else 0 for one, stack in program.stacks.items()}
        networks = {one: stack.module(place[one]) for one, stack in program.stacks.items()}
        for one, loss in by_hand(name, networks, rows, noise, level).items():
            gradients = torch.autograd.grad(
                loss, list(networks[one].parameters()), retain_graph=True
            )
            views = program.stacks[one].layout.views(expected[one])
            for view, gradient in zip(views.values(), gradients, strict=True):
                view[place[one]] = gradient
            if one in losses:
                torch.testing.assert_close(
                    losses[one].flatten()[place[one]], loss, rtol=0, atol=1e-12
                )
    for one in engine:
        assert float(expected[one].abs().sum(1).min()) > 0, one
        # sums over 40 rows of numbers of about 1, slopes of about 10, in double precision
        torch.testing.assert_close(engine[one], expected[one], rtol=0, atol=1e-12, msg=one)


def test_invases_baseline_gets_no_gradient_from_the_selector() -> None:
    program = prepared("INVASE")
    trains = frozenset(program.stacks)
    x, target, masks = program.train.take([0], program.columns, torch.arange(40))
    leaves = {one: stack.weights(learn=True) for one, stack in program.stacks.items()}
    batch = Batch(x, target, masks, program.noise(trains, 40, 0, 0))
    loss = program.losses(trains, leaves, batch)["selector"].sum()
    found = torch.autograd.grad(loss, list(leaves["baseline"].values()), allow_unused=True)
    assert found == (None,) * len(leaves["baseline"])


def test_invases_baseline_is_full_trained_alone() -> None:
    """All through training, in both worlds; it starts from weights of its own."""
    program, keeps_last = prepared("INVASE", SEEDS), replace(BRIEF, keep="last")
    run(program, keeps_last.resolve(40), None, False, "")
    for world, seed in enumerate(SEEDS):
        start = build(TINY, 2 * COLUMNS, 2, seed + engine_program._SEEDS["baseline"])
        alone = train(methods.full(Token(), start), Settings(seeds=(seed,)), keeps_last, rows=40)
        baseline, full = program.stacks["baseline"].flat, alone.stacks["predictor"].flat
        torch.testing.assert_close(baseline[world], full[0], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- stacked is separate


def assert_same(this: list[nn.Module], that: list[nn.Module], rounding: float = 1e-10) -> None:
    assert len(this) == len(that)
    for one, other in zip(numbers(this), numbers(that), strict=True):
        torch.testing.assert_close(dict(one), dict(other), rtol=0, atol=rounding)


def assert_stacked_equals_separate(
    name: str, learn: list[Data], validate: list[Data], training: Training
) -> Trained:
    """``learn`` and ``validate`` are rows for all worlds, or for each."""
    what, levels = made(name)
    together = train(what, Settings(levels, SEEDS), training, learn=learn, validate=validate)
    alone = [
        train(
            what,
            Settings((level,), (seed,)),
            training,
            learn=cut(learn[world % len(learn)], i),
            validate=cut(validate[world % len(validate)], i),
        )
        for world, seed in enumerate(SEEDS)
        for i, level in enumerate(levels)
    ]
    assert together.epochs == [one.epochs[0] for one in alone]
    assert together.scores == pytest.approx([one.scores[0] for one in alone], abs=1e-10)
    assert_same(together.predictors, [one.predictors[0] for one in alone])
    assert_same(together.selectors, [net for one in alone for net in one.selectors])
    assert bool(together.selectors) == (name in WITH_SELECTOR)
    return together


@each_method
def test_stacked_equals_separate(name: str) -> None:
    learn, validate = data_for(name), data_for(name, 200, seed=1)
    assert_stacked_equals_separate(name, [learn], [validate], BRIEF)


@each_method
def test_worlds_with_data_of_their_own_equal_each_trained_alone(name: str) -> None:
    learn = [data_for(name, seed=5), data_for(name, seed=6)]
    validate = [data_for(name, 200, seed=7), data_for(name, 200, seed=8)]
    own = assert_stacked_equals_separate(name, learn, validate, BRIEF)
    what, levels = made(name)
    same = train(
        what, Settings(levels, SEEDS), BRIEF, learn=learn[:1] * 2, validate=validate[:1] * 2
    )
    half = len(own.scores) // 2  # the first world had these very rows, the second had others
    assert own.scores[:half] == same.scores[:half]
    assert not set(own.scores[half:]) & set(same.scores[half:])


@pytest.mark.parametrize("name", OWN_NETWORKS)
def test_worlds_with_data_of_their_own_may_stop_in_different_epochs(name: str) -> None:
    """What has stopped everywhere leaves the stack, and the rest goes on with its own rows."""
    learn = [data_for(name, seed=5), data_for(name, seed=6)]
    validate = [data_for(name, 200, seed=7), data_for(name, 200, seed=8)]
    together = assert_stacked_equals_separate(name, learn, validate, EARLY)
    sizes = [len(note["slots"]) for note in together.history]
    assert sizes[0] == 6
    assert sizes[-1] < 6, "the stack was never made smaller: this test tests nothing"


def losses_of(program: Program, trains: frozenset[str]) -> dict[str, Tensor]:
    """Of what still computes, in the first step."""
    x, target, masks = program.train.take(program.worlds, program.columns, torch.arange(40))
    leaves = {one: stack.weights(learn=True) for one, stack in program.stacks.items()}
    batch = Batch(x, target, masks, program.noise(trains, 40, 0, 0))
    return {one: loss.detach() for one, loss in program.losses(trains, leaves, batch).items()}


@each_method
def test_what_has_left_a_program_is_not_felt_by_what_stays(name: str) -> None:
    """The first world and the middle setting stop; the others keep data, masks, level, noise."""
    what, levels = made(name)
    rows = [data_for(name, 40, seed=5), data_for(name, 40, seed=6)]
    settings = Settings(levels, SEEDS)
    program = Program(what, settings, rows, rows[:1], torch.device("cpu"), torch.float64)
    trains = what.phases[-1]
    if name == EXCHANGED:  # selectors start alike; its predictors' losses differ by masks alone
        flat = program.stacks["selector"].flat
        flat *= 2 ** torch.arange(len(flat), dtype=flat.dtype).unsqueeze(1)
    whole = losses_of(program, trains)
    active = torch.ones(2, len(program.slots(trains)) // 2, dtype=torch.bool)
    active[0] = False
    active[:, 1:2] = False
    program.compact(trains, active.flatten())
    assert program.worlds == [1]
    assert program.columns == ([0, 2] if len(levels) > 1 else [0])
    after = losses_of(program, trains)
    for one, loss in whole.items():
        stays = loss[1:] if loss.dim() == 1 else loss[1:, program.columns]
        torch.testing.assert_close(after[one], stays, rtol=0, atol=1e-12)
        assert len(set(loss.flatten().tolist())) == loss.numel(), "equal losses tell nothing"


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_path_of_k_equals_each_k_with_no_more_draws_than_it_needs(k: int) -> None:
    """Alone, k makes k draws; in the path, 3 of which the first k are used."""
    path = train(made("L2X")[0], Settings((1, 2, 3)), BRIEF)
    alone = train(methods.l2x(Token(), TINY, TINY, k, 0.5), Settings((float(k),)), BRIEF)
    assert path.scores[k - 1] == pytest.approx(alone.scores[0], abs=1e-10)
    assert_same([path.predictors[k - 1], path.selectors[k - 1]], alone.predictors + alone.selectors)


@pytest.mark.parametrize("subset", [0, 5, 15])
def test_roar_on_constant_masks_is_the_predictor_of_that_subset(subset: int) -> None:
    mask = torch.tensor([bool(subset >> j & 1) for j in range(COLUMNS)])

    def given(rows: Data) -> Data:
        return replace(rows, masks=mask.expand(1, rows.rows, COLUMNS))

    roar = train(
        made("ROAR")[0],
        Settings((0.0,), (3,)),
        BRIEF,
        learn=given(data()),
        validate=given(data(200, seed=1)),
    )
    fixed = train(
        made("subsets")[0], Settings((float(subset),), (3,)), BRIEF, validate=data(200, seed=1)
    )
    assert roar.scores == fixed.scores
    assert_same(roar.predictors, fixed.predictors, rounding=0.0)


def test_full_is_the_predictor_of_the_whole_subset() -> None:
    full = train(made("FULL")[0], Settings(seeds=(3,)), BRIEF)
    whole = train(made("subsets")[0], Settings((2.0**COLUMNS - 1,), (3,)), BRIEF)
    assert full.scores == whole.scores
    assert_same(full.predictors, whole.predictors, rounding=0.0)


# ---------------------------------------------------------------------- who shares what


@each_method
def test_a_predictor_is_shared_where_it_does_not_depend_on_the_level(name: str) -> None:
    program = prepared(name, SEEDS)
    settings = len(SEEDS) * len(program.settings.levels)
    expected = settings if name in OWN_NETWORKS else len(SEEDS)
    assert program.stacks["predictor"].count == expected
    assert program.method.shared("predictor") == (name not in OWN_NETWORKS)
    assert program.method.joint == (name in JOINT)
    if name in WITH_SELECTOR:
        assert program.stacks["selector"].count == settings
        assert not program.method.shared("selector")
    if name == "INVASE":
        assert program.stacks["baseline"].count == len(SEEDS)


def learned(stack: Stack) -> Tensor:
    """All that is learned, (count, numbers); the flat tensor has gaps."""
    return torch.cat([v.flatten(1) for v in stack.layout.views(stack.flat).values()], dim=1)


@each_method
def test_settings_of_a_seed_start_alike_and_networks_of_a_setting_do_not(name: str) -> None:
    program = prepared(name, SEEDS)
    for stack in program.stacks.values():
        rows = learned(stack).reshape(len(SEEDS), stack.count // len(SEEDS), -1)
        assert bool((rows == rows[:, :1]).all())
        assert not bool((rows[0, 0] == rows[1, 0]).any())
    if name == "INVASE":
        predictor, baseline = (learned(program.stacks[one])[0] for one in ("predictor", "baseline"))
        assert not bool((predictor == baseline).any())


@pytest.mark.parametrize("name", JOINT)
def test_joint_predictors_grow_apart(name: str) -> None:
    trained = train(made(name)[0], Settings(made(name)[1]), replace(BRIEF, keep="last"))
    flat = learned(trained.stacks["predictor"])
    assert not bool((flat[0] == flat[1]).any())
    assert not bool((flat[1] == flat[2]).any())


@pytest.mark.parametrize("name", METHODS)
def test_the_phases_name_every_network_once(name: str) -> None:
    what, _ = made(name)
    networks = sorted(one for phase in what.phases for one in phase)
    assert networks == sorted([*what.learners, *(["selector"] if what.selector else [])])
    assert len(what.phases) == (2 if name == "REAL-X-STEP" else 1)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("source", [Selected(), Given(), Subset()], ids=repr)
def test_a_predictor_that_learns_from_masks_cannot_be_finished_first(source: Source) -> None:
    with pytest.raises(InputError, match="leave out predictor_first"):
        Method(
            Token(),
            {"predictor": Learner(TINY, source)},
            Selector(TINY, RebarBernoulli()),
            predictor_first=True,
        )


@pytest.mark.parametrize("source", [Everything(), Random(Bernoulli())], ids=repr)
def test_a_predictor_of_other_masks_can_be_finished_first(source: Source) -> None:
    what = Method(
        Token(),
        {"predictor": Learner(TINY, source)},
        Selector(TINY, ScoreBernoulli()),
        predictor_first=True,
    )
    trained = train(what, Settings((0.1,)), BRIEF)
    assert [note["trains"] for note in trained.history] == [["predictor"]] * 4 + [["selector"]] * 4


@each_method
def test_worlds_with_unequal_rows_are_refused_by_number(name: str) -> None:
    what, levels = made(name)
    unequal = [data_for(name, 100), data_for(name, 99)]
    with pytest.raises(InputError, match=r"equally many rows but have \[100, 99\]"):
        train(what, Settings(levels, SEEDS), BRIEF, learn=unequal)
    with pytest.raises(InputError, match=r"equally many rows but have \[100, 99\]"):
        train(what, Settings(levels, SEEDS), BRIEF, learn=unequal[0], validate=unequal)


@pytest.mark.parametrize("count", [2, 4])
def test_data_for_another_number_of_worlds_are_refused_by_number(count: int) -> None:
    with pytest.raises(InputError, match=f"the 3 worlds, is needed, but {count} came"):
        train(made("FULL")[0], Settings(seeds=(0, 1, 2)), BRIEF, learn=[data()] * count)


def test_one_data_set_for_all_and_others_to_validate_on() -> None:
    what, levels = made("BASE-X")
    validate = [data(200, seed=7), data(200, seed=8)]
    together = train(what, Settings(levels, SEEDS), BRIEF, validate=validate)
    for world, seed in enumerate(SEEDS):
        alone = train(what, Settings(levels, (seed,)), BRIEF, validate=validate[world])
        assert together.scores[3 * world :][:3] == pytest.approx(alone.scores, abs=1e-10)


def test_a_learner_on_given_masks_needs_them() -> None:
    with pytest.raises(InputError, match=r"needs Data\(masks=…\), but none came"):
        train(made("ROAR")[0], Settings((0, 1, 2)), BRIEF)
