"""Options, schedules, noise and devices: the small parts under the engine."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import (
    COLUMNS,
    FAST,
    METHODS,
    SIX,
    TINY,
    data,
    data_for,
    numbers,
    score_by_hand,
    train,
)
from torch.nn.functional import cross_entropy

from unmasked.errors import InputError
from unmasked.masks.maskers import Token
from unmasked.networks.tables import build
from unmasked.training import Settings, Training, loop, methods, noise
from unmasked.training.device import choose_device, flushed_denormals
from unmasked.training.program import Program
from unmasked.training.trained import Keeper

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 1.5),
        ("batch_size", -1),
        ("patience", 0),
        ("learning_rate", 0.0),
        ("learning_rate", math.inf),
        ("selector_learning_rate", -1e-3),
        ("weight_decay", -0.1),
        ("clip", 0.0),
        ("schedule", "cosine"),
        ("precision", "float16"),
        ("selector_delay", 1.0),
        ("price_rise", -0.1),
        ("price_rise", 1.1),
        ("l2", -0.1),
        ("l2", math.inf),
        ("l2", math.nan),
        ("keep", "first"),
        ("validate_every", 0),
        ("validate_every", 2.0),
    ],
)
def test_impossible_options_are_refused_by_name_and_value(name: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Training(**{name: value})  # type: ignore[arg-type]
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("sparsity", [-0.1, math.nan, math.inf])
def test_a_negative_price_is_refused_by_value(sparsity: float) -> None:
    with pytest.raises(InputError, match=f"is {sparsity}"):
        Settings((0.0, sparsity))


def test_settings_need_a_sparsity_and_a_seed() -> None:
    with pytest.raises(InputError, match="at least one"):
        Settings(levels=())
    with pytest.raises(InputError, match="at least one"):
        Settings(seeds=())


@pytest.mark.parametrize("rows", [1, 15, 16, 500, 20_000])
def test_automatic_options_fit_the_rows(rows: int) -> None:
    resolved = Training().resolve(rows)
    assert resolved.batch_size is not None
    assert resolved.epochs is not None
    assert 1 <= resolved.batch_size <= min(rows, 1000)
    assert resolved.epochs >= 3
    assert resolved.epochs * (rows // resolved.batch_size) >= 1500


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_one_cycle_rises_to_its_peak_once_and_falls(steps: int) -> None:
    pace = [Training().pace(step, steps) for step in range(steps)]
    peak = pace.index(max(pace))
    assert max(pace) == 1.0
    assert min(pace) > 0
    assert pace[: peak + 1] == sorted(pace[: peak + 1])
    assert pace[peak:] == sorted(pace[peak:], reverse=True)
    assert peak <= 0.3 * steps
    if steps == 1000:
        assert pace[-1] < 1e-4


def test_a_constant_schedule_is_constant() -> None:
    assert {Training.paper().pace(step, 50) for step in range(50)} == {1.0}


def test_noise_is_a_function_of_its_names() -> None:
    def draw(*names: object) -> torch.Tensor:
        return noise.uniform((100,), torch.float64, CPU, *names)  # type: ignore[arg-type]

    assert torch.equal(draw(1, "law", 2, 3), draw(1, "law", 2, 3))
    assert bool(((draw(1, "law") >= 0) & (draw(1, "law") < 1)).all())
    others = [draw(2, "law", 2, 3), draw(1, "sampler", 2, 3), draw(1, "law", 3, 2)]
    for other in others:
        assert not bool((other == draw(1, "law", 2, 3)).any())


def test_a_keeper_keeps_each_slots_best_and_counts_its_patience() -> None:
    """Three slots: the first improves, the second gets worse, the third is never finite."""
    keeper = Keeper(3, patience=2)
    slots = torch.arange(3)
    for epoch, scores in enumerate([[1.0, 5.0, math.nan], [2.0, 4.0, -math.inf], [3.0, 5.0, 0.0]]):
        weights = {"w": torch.full((3, 2), float(epoch))}
        keeper.update(slots, torch.tensor(scores), epoch, weights)
    assert keeper.active.tolist() == [True, False, False]
    assert keeper.epoch.tolist() == [2, 0, -1]  # a tie is not better; a stopped slot stays so
    assert keeper.kept["w"][:, 0].tolist()[:2] == [2.0, 0.0]
    assert keeper.score.tolist() == [3.0, 5.0, -math.inf]


def test_a_keeper_of_the_last_keeps_the_latest_finite_score_however_bad() -> None:
    keeper = Keeper(2, patience=None, last=True)
    for epoch, scores in enumerate([[3.0, 1.0], [2.0, 5.0], [1.0, math.nan]]):
        weights = {"w": torch.full((2, 2), float(epoch))}
        keeper.update(torch.arange(2), torch.tensor(scores), epoch, weights)
    assert keeper.epoch.tolist() == [2, 1]
    assert keeper.score.tolist() == [1.0, 5.0]
    assert keeper.kept["w"][:, 0].tolist() == [2.0, 1.0]


LAST = replace(FAST, keep="last", schedule="constant", selector_delay=0.0)


@pytest.mark.parametrize("name", METHODS)
def test_the_last_epoch_is_kept_however_good(name: str) -> None:
    """At a constant rate a short run is the beginning of a longer one: the best epoch of a long
    run is the last of one that ends there, weight by weight.
    """
    make, levels = METHODS[name]
    settings = Settings(levels, (0,) if levels[1:] else (0, 1, 2))
    rows = {"learn": data_for(name), "validate": data_for(name, 100, seed=1)}
    last = train(make(TINY), settings, LAST, **rows)
    assert set(last.epochs) == {9}
    assert last.scores == last.history[-1]["score"]
    best = train(make(TINY), settings, replace(LAST, keep="best"), **rows)
    i = best.epochs.index(min(best.epochs))
    assert best.epochs[i] < 9, "the last was the best of all: this test tests nothing"
    assert best.scores[i] > last.scores[i]
    if make(TINY).predictor_first:
        return  # its selector meets another predictor
    assert best.history == last.history
    until = train(make(TINY), settings, replace(LAST, epochs=best.epochs[i] + 1), **rows)
    for kind in ("predictors", "selectors"):
        for this, that in zip(
            numbers(getattr(until, kind)[i : i + 1]),
            numbers(getattr(best, kind)[i : i + 1]),
            strict=True,
        ):
            assert all(torch.equal(this[key], that[key]) for key in this)


@pytest.mark.parametrize("name", ["REAL-X", "REAL-X-STEP"])
def test_the_networks_of_the_last_epoch_give_its_score(name: str) -> None:
    trained = train(METHODS[name][0](TINY), Settings((0.1,)), LAST)
    by_hand = score_by_hand(trained.predictors[0], trained.selectors[0], 0.1, data(400, seed=1))
    assert by_hand == pytest.approx(trained.history[-1]["score"][0], abs=1e-10)


@pytest.mark.parametrize(
    ("every", "epochs"),
    [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (3, [2, 5, 7]), (4, [3, 7]), (7, [6, 7]), (100, [7])],
)
@pytest.mark.parametrize("name", ["REAL-X", "REAL-X-STEP", "L2X", "FULL"])
def test_every_so_many_epochs_are_validated_and_the_last(
    name: str, every: int, epochs: list[int]
) -> None:
    make, levels = METHODS[name]
    often = replace(FAST, epochs=8, selector_delay=0.0)
    trained = train(make(TINY), Settings(levels), replace(often, validate_every=every))
    for phase in range(len(make(TINY).phases)):
        noted = [note["epoch"] for note in trained.history if note["phase"] == phase]
        assert noted == epochs
    assert set(trained.epochs) <= set(epochs)
    if name == "REAL-X-STEP":
        return  # another predictor may have been kept
    seen = train(make(TINY), Settings(levels), often).history
    start = 0
    for note in trained.history:  # validating does not touch the training
        epoch = note["epoch"]
        assert note["score"] == seen[epoch]["score"]
        losses = [one["loss"] for one in seen[start : epoch + 1]]  # since the last validation
        means = [sum(own) / len(own) for own in zip(*losses, strict=True)]
        assert note["loss"] == pytest.approx(means, abs=1e-12)
        start = epoch + 1
    for i, epoch in enumerate(trained.epochs):
        assert trained.scores[i] == max(seen[e]["score"][i] for e in epochs)
        assert trained.scores[i] == seen[epoch]["score"][i]


def test_a_crash_between_two_validations_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history, too: its loss is a mean since the last validation."""
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(loop, "_SAVING_SHARE", 0)
    rarely = replace(FAST, epochs=6, validate_every=3)
    unbroken = train(METHODS["REAL-X"][0](TINY), SIX, rarely)
    losses, steps = Program.losses, 0

    def crashing(self: Program, *arguments: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 8:  # in the second epoch of five steps
            raise KeyError("a crash")
        return losses(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Program, "losses", crashing)
    with pytest.raises(KeyError, match="a crash"):
        train(METHODS["REAL-X"][0](TINY), SIX, rarely, path=tmp_path / "run")
    resumed = train(METHODS["REAL-X"][0](TINY), SIX, rarely, path=tmp_path / "run")
    assert resumed.scores == unbroken.scores
    assert resumed.history == unbroken.history


def test_a_selector_that_waits_is_validated_but_not_kept() -> None:
    waits = replace(FAST, epochs=10, selector_delay=0.5, validate_every=3)
    trained = train(METHODS["REAL-X"][0](TINY), Settings((0.1,)), waits)
    noted = [(note["epoch"], note["waiting"]) for note in trained.history]
    assert noted == [(2, True), (5, False), (8, False), (9, False)]
    assert trained.epochs[0] in (5, 8, 9)


STEPS: dict[str, Training] = {
    "plain": Training(weight_decay=0.0, clip=None, schedule="constant"),
    "l2": Training(weight_decay=0.0, clip=None, schedule="constant", l2=0.3),
    "l2 and a clip": Training(weight_decay=0.0, clip=0.05, schedule="constant", l2=0.3),
    "decay": Training(weight_decay=0.5, clip=None, schedule="constant"),
    "one cycle": Training(clip=None),
}


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS.keys())
def test_steps_are_those_of_an_ordinary_optimiser(options: Training) -> None:
    """FULL in whole batches, by hand: AdamW on −log q + l2 · ‖w‖², clipped as one vector.

    One step is not enough: Adam's first goes by the sign of the gradient alone.
    """
    count, rate, rows = 6, 0.02, data(50)
    training = replace(options, epochs=count, batch_size=50, learning_rate=rate, keep="last")
    trained = train(methods.full(Token(), TINY), Settings(seeds=(3,)), training, rows=50)
    module = build(TINY, 2 * COLUMNS, 2, 3).double()
    weights = list(module.parameters())
    adam = torch.optim.AdamW(weights, lr=rate, weight_decay=options.weight_decay)
    shown = torch.cat([rows.x, torch.ones_like(rows.x)], 1)
    for step in range(count):
        adam.param_groups[0]["lr"] = rate * options.pace(step, count)
        loss = cross_entropy(module(shown), rows.target)
        loss = loss + options.l2 * torch.stack([(w**2).sum() for w in weights]).sum()
        gradients = torch.autograd.grad(loss, weights)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        if options.clip is not None:
            assert norm > options.clip
        for w, g in zip(weights, gradients, strict=True):
            w.grad = g if options.clip is None else g * (options.clip / norm)
        adam.step()
    # rows are summed in another order; at these gradients Adam does not enlarge that
    torch.testing.assert_close(
        dict(trained.predictors[0].state_dict()), dict(module.state_dict()), rtol=0, atol=1e-10
    )


def test_l2_draws_predictors_and_selectors_towards_zero() -> None:
    make, levels = METHODS["INVASE"]
    free = train(make(TINY), Settings(levels, (0, 1)), LAST)
    drawn = train(make(TINY), Settings(levels, (0, 1)), replace(LAST, l2=1.0))
    for name in ("predictor", "selector"):
        sizes = [run.stacks[name].flat.norm(dim=1) for run in (free, drawn)]
        assert bool((sizes[1] < sizes[0]).all()), name


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="'warp drive'"):
        choose_device("warp drive")
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize("before", [False, True])
def test_the_denormal_flag_is_put_back(before: bool) -> None:
    def flushes() -> bool:
        return float(torch.tensor(1e-38) * torch.tensor(1e-3)) == 0.0

    torch.set_flush_denormal(before)
    try:
        with flushed_denormals():
            assert flushes()
        assert flushes() == before
    finally:
        torch.set_flush_denormal(False)
