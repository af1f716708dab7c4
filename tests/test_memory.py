"""Where memory does not suffice the settings are trained in halves, to the same result."""

from __future__ import annotations

import importlib
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import (
    FAST,
    METHODS,
    TINY,
    TINY_BATCH,
    data,
    data_for,
    exchanged,
    numbers,
    train,
)
from small_tables import assert_one_sentence
from typer.main import get_command

from unmasked.cli import app
from unmasked.errors import InputError, InterruptedWarning, MemoryWarning
from unmasked.training import Data, Settings, Trained
from unmasked.training.program import Program
from unmasked.training.stack import Networks

fit = importlib.import_module("unmasked.training.fit")  # the module; the package names its function
SEEDS = (0, 1)
BRIEF = replace(FAST, epochs=3, selector_delay=0.0)
CUT = [name for name in METHODS if "exchanged" not in name]  # whose batches may be cut up
with_levels = pytest.mark.parametrize("name", [n for n, (_, own) in METHODS.items() if own[1:]])
halved = pytest.mark.filterwarnings("ignore::unmasked.MemoryWarning")


class Memory:
    """So many settings fit. What was started: sizes of programs; what was done: seeds of steps."""

    def __init__(self) -> None:
        self.fits = 1000
        self.rows = 1000  # of a batch
        self.parts: list[int] = []
        self.started: list[int] = []
        self.steps: list[tuple[int, ...]] = []


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Let a step run out of memory when there are more settings than fit."""
    losses, start = Program.losses, Program.__init__
    own = Memory()

    def started(self: Program, method: Any, settings: Settings, *arguments: Any) -> None:
        start(self, method, settings, *arguments)
        own.started.append(len(settings.seeds) * len(settings.levels))

    def limited(self: Program, *arguments: Any) -> Any:
        if len(self.settings.seeds) * len(self.settings.levels) > own.fits:
            raise torch.OutOfMemoryError("as CUDA would say")
        rows = arguments[2].x.shape[1]
        if rows > own.rows:
            raise torch.OutOfMemoryError("as CUDA would say")
        own.parts.append(rows)
        own.steps.append(self.settings.seeds)
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "__init__", started)
    monkeypatch.setattr(Program, "losses", limited)
    monkeypatch.setattr("gc.collect", lambda: 0)  # most of the time of a run this small
    return own


def run(
    name: str, seeds: tuple[int, ...] = SEEDS, path: Path | None = None, network: Any = TINY
) -> Trained:
    make, levels = METHODS[name]
    learn: Any = [data_for(name, 60, seed=10 + seed) for seed in seeds]
    validate: Any = [data_for(name, 80, seed=20 + seed) for seed in seeds]
    return train(
        make(network), Settings(levels, seeds), BRIEF, path, learn=learn, validate=validate
    )


def assert_same_result(this: Trained, that: Trained, rounding: float = 1e-10) -> None:
    """The halves of a stack round as smaller stacks do; nothing else may differ."""
    assert this.epochs == that.epochs
    assert this.scores == pytest.approx(that.scores, abs=rounding)
    for kind in ("predictors", "selectors"):
        one, other = numbers(getattr(this, kind)), numbers(getattr(that, kind))
        assert len(one) == len(other), kind
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(dict(a), dict(b), rtol=0, atol=rounding)


@with_levels
@halved
def test_halves_give_the_result_of_the_whole(name: str, memory: Memory) -> None:
    """Each world has its own rows; ROAR's explanations are cut along with the levels."""
    whole = run(name)
    alone = [1] if name == "REAL-X-STEP" else []  # a predictor for the levels of a world
    for fits, expected in (
        (5, [6, 3, 3]),  # world by world
        (2, [6, *2 * [3, *alone, 1, 2]]),  # the levels of a world are halved too
        (1, [6, *2 * [3, *alone, 1, 2, 1, 1]]),  # one setting at a time
    ):
        memory.fits, memory.started = fits, []
        assert_same_result(run(name), whole)
        assert memory.started == expected


def limit_selectors(
    monkeypatch: pytest.MonkeyPatch, fits: int, *, predictors: bool
) -> list[tuple[str, tuple[int, ...]]]:
    """So many settings fit while selectors move, or ``predictors`` too; what moved, and whose."""
    losses, steps = Program.losses, []

    def limited(self: Program, trains: frozenset[str], *arguments: Any) -> Any:
        count = len(self.settings.seeds) * len(self.settings.levels)
        if count > fits and (predictors or "selector" in trains):
            raise torch.OutOfMemoryError("as CUDA would say")
        steps.append(("+".join(sorted(trains)), self.settings.seeds))
        return losses(self, trains, *arguments)

    monkeypatch.setattr(Program, "losses", limited)
    return steps


@pytest.mark.parametrize(
    ("predictors", "trained"),
    [(False, {SEEDS: 9}), (True, {(0,): 9, (1,): 9})],
    ids=["memory ends with the selectors", "memory ends before"],
)
@halved
def test_a_predictor_that_is_finished_first_is_trained_once_for_all_levels(
    predictors: bool,
    trained: dict[tuple[int, ...], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 epochs of 3 steps, however many programs the selectors need; also when read back."""
    whole = run("REAL-X-STEP")
    steps = limit_selectors(monkeypatch, 1, predictors=predictors)
    for path in (None, tmp_path / "run"):
        steps.clear()
        parts = run("REAL-X-STEP", path=path)
        assert_same_result(parts, whole)
        assert Counter(seeds for what, seeds in steps if what == "predictor") == trained
        assert Counter(what for what, _ in steps)["selector"] == 9 * 6
    for fits in (1, 1000):  # read back; also where memory suffices again
        monkeypatch.undo()
        steps = limit_selectors(monkeypatch, fits, predictors=predictors)
        again = run("REAL-X-STEP", path=tmp_path / "run")
        assert steps == []
        assert again.history == parts.history
        assert_same_result(again, parts, rounding=0)


@halved
def test_selectors_that_share_a_predictor_go_on_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predictor and the half that was finished are read; where memory suffices again, too."""
    whole = run("REAL-X-STEP", (0,))
    steps = limit_selectors(monkeypatch, 2, predictors=True)
    losses = Program.losses

    def crashing(self: Program, *arguments: Any) -> Any:
        if len(steps) == 9 + 9 + 4:
            raise KeyError("a crash")
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "losses", crashing)
    with pytest.raises(KeyError, match="a crash"):
        run("REAL-X-STEP", (0,), tmp_path / "run")
    monkeypatch.undo()
    steps = limit_selectors(monkeypatch, 1000, predictors=True)
    assert_same_result(run("REAL-X-STEP", (0,), tmp_path / "run"), whole)
    assert set(steps) == {("selector", (0,))}
    assert len(steps) == 9


@halved
def test_halves_are_read_back_where_memory_suffices_again(tmp_path: Path, memory: Memory) -> None:
    """Nothing that was trained in halves is trained again."""
    memory.fits = 5
    once = run("BASE-X", path=tmp_path / "run")
    memory.fits, memory.steps = 1000, []
    assert_same_result(run("BASE-X", path=tmp_path / "run"), once, rounding=0)
    assert memory.steps == []


@pytest.mark.parametrize(
    ("fits", "expected"),
    [(2, [1, 2, 6, 3, 1, 2, 3, 1, 2]), (1, [1, 2, 1, 1, 6, 3, 1, 2, 1, 1, 3, 1, 2, 1, 1])],
    ids=["two fit", "one fits"],
)
@halved
def test_halves_start_from_what_their_own_worlds_have_practised(
    fits: int, expected: list[int], memory: Memory
) -> None:
    """A predictor for each world is trained first, then their settings; the first is looked at."""
    what, settings = exchanged(predictor_first=True), Settings((0.0, 0.2, 1.0), SEEDS)
    rows: Any = [data(60, seed=10 + seed) for seed in SEEDS]
    whole, memory.started, memory.fits = train(what, settings, BRIEF, learn=rows), [], fits
    assert_same_result(train(what, settings, BRIEF, learn=rows), whole)
    assert memory.started == expected


@pytest.mark.parametrize("name", ["REAL-X", "L2X"])
@halved
def test_halves_of_networks_with_buffers_are_joined_whole(name: str, memory: Memory) -> None:
    """BatchNorm's statistics go with their networks.

    A bias before a BatchNorm has a true gradient of zero, and Adam moves it by about 1e-9 from
    rounding alone; the running mean follows late, so outputs may differ by as much.
    """
    whole = run(name, network=TINY_BATCH)
    memory.fits = 2
    parts = run(name, network=TINY_BATCH)
    assert_same_result(parts, whole, rounding=1e-8)
    counts = [int(net.state_dict()["1.num_batches_tracked"]) for net in parts.selectors]
    assert counts == [3 * (epoch + 1) for epoch in parts.epochs]


@halved
def test_worlds_of_an_evaluator_are_halved(memory: Memory) -> None:
    seeds = (0, 1, 2)
    whole = run("EVAL-X", seeds)
    memory.fits, memory.started = 1, []
    assert_same_result(run("EVAL-X", seeds), whole)
    assert memory.started == [3, 1, 2, 1, 1]


@halved
def test_rows_that_all_worlds_share_stay_shared(memory: Memory) -> None:
    what, settings = METHODS["ROAR"][0](TINY), Settings((0, 1, 2), SEEDS)
    rows: dict[str, Data] = {"learn": data_for("ROAR", 60), "validate": data_for("ROAR", 80, 1)}
    whole = train(what, settings, BRIEF, **rows)
    memory.fits = 1
    assert_same_result(train(what, settings, BRIEF, **rows), whole)


def test_a_warning_says_what_is_done(memory: Memory) -> None:
    memory.fits = 3
    with pytest.warns(MemoryWarning) as caught:
        run("BASE-X")
    (only,) = caught
    assert str(only.message) == (
        "the memory of cpu does not suffice for 2 × 3 settings at once; they are trained in two "
        "halves, to the same result."
    )
    memory.fits = 6
    said_no_more(lambda: run("BASE-X"))


def said_no_more(work: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        work()


def test_the_same_reason_is_said_once_however_many_fits_a_command_makes(memory: Memory) -> None:
    """Also of halves of halves; another reason is said, once, too."""
    memory.fits = 1
    with pytest.warns(MemoryWarning, match="2 × 3 settings") as caught:
        run("BASE-X")
    assert len(caught) == 1
    said_no_more(lambda: run("L2X"))
    memory.rows = 10
    with pytest.warns(MemoryWarning, match="batches of 20 rows") as caught:
        run("REAL-X")
    assert len(caught) == 1
    said_no_more(lambda: run("FULL"))


@pytest.mark.parametrize("name", CUT)
@halved
def test_one_setting_that_does_not_fit_is_an_error_that_names_the_batch(
    name: str, memory: Memory
) -> None:
    memory.fits = 0
    with pytest.raises(InputError, match=r"one setting at a time; lower batch_size \(20\)"):
        run(name)


@pytest.mark.parametrize("name", CUT)
@halved
def test_batches_in_parts_give_the_result_of_whole_ones(name: str, memory: Memory) -> None:
    """Sums in another order: nothing but rounding differs. 20 rows go in parts of 5, or of 3."""
    whole = run(name)
    for rows, parts in ((5, {5}), (4, {3, 2})):
        memory.rows, memory.parts = rows, []
        assert_same_result(run(name), whole)
        assert set(memory.parts) == parts


@pytest.mark.parametrize("name", ["FULL", "REAL-X, exchanged"])
@halved
def test_batches_that_must_stay_whole_are_not_cut(name: str, memory: Memory) -> None:
    """BatchNorm looks at all rows of a batch; exchanged masks go from one row to the next."""
    memory.rows = 10
    with pytest.raises(InputError, match=r"need whole batches\); lower batch_size \(20"):
        run(name, network=TINY_BATCH if name == "FULL" else TINY)


@halved
def test_advice_is_for_python_and_for_the_commands_that_train_images(memory: Memory) -> None:
    """Of the options, each command has some, and one of them has each."""
    memory.rows = 10
    with pytest.raises(InputError) as caught:
        run("FULL", network=TINY_BATCH)
    assert_one_sentence(caught.value)
    commands: Any = get_command(app)
    images = [commands.commands["explain-images"], commands.commands["reproduce"].commands["cxr"]]
    known = [{name for part in command.params for name in part.opts} for command in images]
    advised = set(re.findall(r"--[a-z]+", str(caught.value)))
    assert advised == {"--size", "--network", "--jobs", "--device"}
    assert advised <= known[0] | known[1]
    assert all(len(advised & own) >= 3 for own in known)


def test_parts_of_batches_are_said_once(memory: Memory) -> None:
    memory.rows = 3
    with pytest.warns(MemoryWarning) as caught:
        train(METHODS["FULL"][0](TINY), Settings(), BRIEF)
    (only,) = caught
    assert str(only.message) == (
        "the memory of cpu does not suffice for batches of 20 rows; they go through the networks "
        "in smaller parts, to the same result."
    )


@pytest.mark.parametrize("name", ["FULL", "REAL-X, exchanged"])
@halved
def test_what_must_stay_whole_is_not_cut_when_memory_ends_before_there_are_networks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a network has BatchNorm cannot be asked then; it is in the next, smaller try."""
    make, levels = METHODS[name]
    program = fit.Program

    def limited(method: Any, settings: Settings, *arguments: Any) -> Program:
        if arguments[4] == 1:  # pieces of a batch
            raise torch.OutOfMemoryError("as CUDA would say")
        return program(method, settings, *arguments)

    monkeypatch.setattr(fit, "Program", limited)
    what = make(TINY_BATCH if name == "FULL" else TINY)
    with pytest.raises(InputError, match=r"need whole batches\); lower batch_size \(20"):
        train(what, Settings(levels[:1]), BRIEF)


@halved
def test_running_out_while_the_networks_are_made_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first step: the rows or the stacks themselves may be too large."""
    whole = run("BASE-X")
    make = fit.Program

    def limited(method: Any, settings: Settings, *arguments: Any) -> Program:
        if len(settings.seeds) > 1:
            raise torch.OutOfMemoryError("as CUDA would say")
        program: Program = make(method, settings, *arguments)
        return program

    monkeypatch.setattr(fit, "Program", limited)
    assert_same_result(run("BASE-X"), whole)


# ---------------------------------------------------------------------- validation


def limit_validation(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let networks in evaluation mode run out of memory on more rows; what went through."""
    call, went = Networks.__call__, []

    def limited(self: Networks, x: torch.Tensor) -> torch.Tensor:
        if not self.training and not torch.is_grad_enabled():
            if x.shape[1] > most:
                raise torch.OutOfMemoryError("as CUDA would say")
            went.append(x.shape[1])
        return call(self, x)

    monkeypatch.setattr(Networks, "__call__", limited)
    return went


@pytest.mark.parametrize("name", METHODS)
@halved
def test_validation_goes_in_smaller_chunks_to_the_same_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where BatchNorm keeps batches whole; 80 rows go by 40, 20, then 10, and stay so."""
    network = TINY if "exchanged" in name else TINY_BATCH
    whole = run(name, network=network)
    went = limit_validation(monkeypatch, 10)
    parts = run(name, network=network)
    assert_same_result(parts, whole)
    assert set(went) <= set(range(1, 11))
    assert [note["loglik"] for note in parts.history] == [
        pytest.approx(note["loglik"], abs=1e-10) for note in whole.history
    ]


def test_smaller_chunks_of_validation_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_validation(monkeypatch, 30)
    with pytest.warns(MemoryWarning) as caught:
        run("BASE-X")
    (only,) = caught
    assert str(only.message) == (
        "the memory of cpu does not suffice for 80 rows at once; they go through the networks in "
        "smaller parts, to the same result."
    )


def test_chunks_that_did_not_fit_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, each try would clear its memory."""
    cleared: list[Any] = []
    monkeypatch.setattr("unmasked.training.device.let_go", cleared.append)
    limit_validation(monkeypatch, 30)
    with pytest.warns(MemoryWarning):
        run("BASE-X")
    assert len(cleared) == 2  # 80 and 40; in the first of three epochs


@halved
def test_validation_that_does_not_fit_row_by_row_halves_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run("BASE-X")
    call = Networks.__call__

    def limited(self: Networks, x: torch.Tensor) -> torch.Tensor:
        if not self.training and not torch.is_grad_enabled() and x.shape[0] > 2:
            raise torch.OutOfMemoryError("as CUDA would say")
        return call(self, x)

    monkeypatch.setattr(Networks, "__call__", limited)
    assert_same_result(run("BASE-X"), whole)


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Program, *_: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(Program, "losses", broken)
    with pytest.raises(RuntimeError, match="something else"):
        run("BASE-X")


# ---------------------------------------------------------------------- checkpoints, Ctrl-C


@halved
def test_each_half_has_a_checkpoint_of_its_own(tmp_path: Path, memory: Memory) -> None:
    """A second run reads them all and trains nothing."""
    memory.fits = 2
    first = run("BASE-X", path=tmp_path / "run.safetensors")
    names = {file.name for file in tmp_path.iterdir()}
    assert {f"run-{i}-{j}.safetensors" for i in (1, 2) for j in (1, 2)} <= names
    memory.steps.clear()
    again = run("BASE-X", path=tmp_path / "run.safetensors")
    assert memory.steps == []
    assert again.history == first.history
    assert_same_result(again, first, rounding=0.0)


@halved
def test_a_half_that_was_finished_is_read_not_trained(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("BASE-X")
    memory.fits, memory.steps = 3, []
    losses = Program.losses

    def crashing(self: Program, *arguments: Any) -> Any:
        result = losses(self, *arguments)
        if len(memory.steps) == 12:  # 3 epochs of 3 steps of the first half, 3 steps of the second
            raise KeyError("a crash")
        return result

    monkeypatch.setattr(Program, "losses", crashing)
    with pytest.raises(KeyError, match="a crash"):
        run("BASE-X", path=tmp_path / "run")
    assert memory.steps == [(0,)] * 9 + [(1,)] * 3
    assert_same_result(run("BASE-X", path=tmp_path / "run"), whole)
    assert set(memory.steps[12:]) == {(1,)}


def interrupting(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Press Ctrl-C in the first step of the world with this seed."""
    losses = Program.losses

    def pressed(self: Program, *arguments: Any) -> Any:
        if self.settings.seeds == (seed,):
            signal.raise_signal(signal.SIGINT)
            monkeypatch.setattr(Program, "losses", losses)
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "losses", pressed)


@halved
def test_control_c_in_the_first_half_has_nothing_to_keep_of_the_other(
    tmp_path: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("BASE-X")
    memory.fits = 3
    interrupting(monkeypatch, seed=0)
    with pytest.raises(KeyboardInterrupt):
        run("BASE-X", path=tmp_path / "run")
    assert_same_result(run("BASE-X", path=tmp_path / "run"), whole)


@halved
def test_control_c_in_the_second_half_keeps_both(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("BASE-X")
    memory.fits = 3
    interrupting(monkeypatch, seed=1)
    with pytest.warns(InterruptedWarning, match="epoch 1 of 3"):
        cut = run("BASE-X")
    assert cut.interrupted
    assert len(cut.scores) == len(cut.predictors) == len(cut.selectors) == 6
    assert cut.scores[:3] == pytest.approx(whole.scores[:3], abs=1e-10)
