"""A run that was killed, crashed or interrupted ends with the numbers of an unbroken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from small_runs import (
    FAST,
    SIX,
    TINY_BATCH,
    Dropped,
    data,
    exchanged,
    method,
    numbers,
    score_by_hand,
    train,
)

from unmasked.errors import InterruptedWarning
from unmasked.training import Method, Settings, Trained, Training, loop
from unmasked.training.program import Program

STEPS = 5  # of an epoch: 100 rows in batches of 20
SHORT = replace(FAST, epochs=5)
EARLY = replace(FAST, patience=2)
TWO = Settings((0.1, 0.5), (0,))
PATIENCE = 120  # seconds to wait for another process on a busy machine

RUNS: dict[str, tuple[Method, Training]] = {
    "joint": (method(), SHORT),
    "predictor first": (method(predictor_first=True), SHORT),
    "predictor first, with more passes": (
        method(predictor_first=True),
        replace(SHORT, epochs=2, predictor_epochs=4),
    ),
    "exchanged masks after a practice": (exchanged(predictor_first=True), SHORT),
    "evaluator": (method(explains=False), SHORT),
    "batch norm": (method(TINY_BATCH), SHORT),
    "a price that rises": (method(), replace(SHORT, price_rise=0.8)),
    "dropout": (method(Dropped), SHORT),
    "joint, some stop early": (method(), EARLY),
    "predictor first, some stop early": (method(predictor_first=True), EARLY),
}


class Crash(Exception):
    """What no training code catches."""


@pytest.fixture(autouse=True)
def _checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Do something just before a step of training, counted from now on."""
    losses = Program.losses

    def install(step: int, action: Callable[[], None]) -> None:
        count = 0

        def counted(self: Program, *arguments: Any) -> Any:
            nonlocal count
            if count == step:
                action()
            count += 1
            return losses(self, *arguments)

        monkeypatch.setattr(Program, "losses", counted)

    return install


def crash() -> None:
    raise Crash


def assert_same_result(this: Trained, that: Trained) -> None:
    """Bit for bit, with the whole history."""
    assert this.epochs == that.epochs
    assert this.scores == that.scores
    assert this.history == that.history
    for kind in ("predictors", "selectors"):
        pairs = zip(numbers(getattr(this, kind)), numbers(getattr(that, kind)), strict=True)
        for a, b in pairs:
            assert a.keys() == b.keys()
            assert all(torch.equal(a[name], b[name]) for name in a), kind


@pytest.mark.parametrize(("what", "training"), RUNS.values(), ids=RUNS.keys())
def test_crashing_in_every_epoch_changes_nothing(
    what: Method, training: Training, tmp_path: Path, at_step: Any
) -> None:
    """Each attempt finishes one epoch and dies in the middle of the next, in every phase."""
    unbroken = train(what, SIX, training)
    crashes = 0
    for _ in range(3 * len(unbroken.history)):
        at_step(STEPS + 2, crash)
        try:
            resumed = train(what, SIX, training, path=tmp_path / "checkpoint")
            break
        except Crash:
            crashes += 1
    assert crashes >= len(unbroken.history) - len(what.phases)
    assert_same_result(resumed, unbroken)


def test_a_finished_run_is_read_not_trained(tmp_path: Path, at_step: Any) -> None:
    path = tmp_path / "new" / "folder" / "checkpoint"
    first = train(method(), TWO, SHORT, path=path)
    at_step(0, crash)
    assert_same_result(train(method(), TWO, SHORT, path=path), first)


def test_a_write_that_was_cut_off_does_no_harm(tmp_path: Path, at_step: Any) -> None:
    """The file is replaced as a whole: half a new one beside it is never read."""
    path = tmp_path / "checkpoint"
    at_step(STEPS + 2, crash)
    with pytest.raises(Crash):
        train(method(), TWO, SHORT, path=path)
    path.with_name("checkpoint.part").write_bytes(path.read_bytes()[:100])
    at_step(-1, crash)
    assert_same_result(train(method(), TWO, SHORT, path=path), train(method(), TWO, SHORT))


# Other processes

SCRIPT = """
import json, sys, time, warnings
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from small_runs import *
from unmasked.training import loop
from unmasked.training.program import Program

loop._SECONDS_BETWEEN_CHECKPOINTS = 0.0
losses = Program.losses

def slow(self, *arguments):  # so that the signal comes long before the end
    time.sleep(0.2)
    return losses(self, *arguments)

Program.losses = slow
two = Settings((0.1, 0.5), (0,))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    trained = train(
        method(), two, replace(FAST, epochs=20, selector_delay=0.0), path=Path(sys.argv[2])
    )
by_hand = [
    score_by_hand(p, s, sparsity, data(400, seed=1))
    for p, s, sparsity in zip(trained.predictors, trained.selectors, two.levels)
]
print(json.dumps({
    "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
    "interrupted": trained.interrupted,
    "scores": trained.scores,
    "by_hand": by_hand,
    "epochs": len(trained.history),
}))
"""
LONG = replace(FAST, epochs=20, selector_delay=0.0)  # something to keep from the first epoch


def unlike_here() -> dict[str, str]:
    """An environment in which Python orders sets otherwise: nothing saved may depend on that."""
    names = '{"predictor", "selector"}'
    for seed in range(100):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", f"print({names})"]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        if shown.stdout.strip() != str({"predictor", "selector"}):
            return environment
    raise AssertionError("no seed orders sets otherwise")


def under_way(path: Path) -> bool:
    """Whether a checkpoint is there that holds at least one epoch."""
    if not path.exists():
        return False
    with safe_open(path, framework="pt") as file:
        epoch: int = json.loads(file.metadata()["unmasked-checkpoint"])["epoch"]
    return epoch > 0


def start_and_signal(path: Path, number: signal.Signals) -> tuple[int, str, str]:
    """Run the script, signal it once an epoch is in its checkpoint, wait for its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(path)],
        env=unlike_here(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not under_way(path) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


def test_a_killed_process_is_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    code, out, err = start_and_signal(path, signal.SIGKILL)
    assert code == -signal.SIGKILL, err
    assert out == ""
    with safe_open(path, framework="pt") as file:
        saved = json.loads(file.metadata()["unmasked-checkpoint"])
    assert 0 < saved["epoch"] < 20
    resumed = train(method(), TWO, LONG, path=path)
    assert_same_result(resumed, train(method(), TWO, LONG))


def test_control_c_ends_a_process_with_what_it_has_learned(tmp_path: Path) -> None:
    code, out, err = start_and_signal(tmp_path / "checkpoint", signal.SIGINT)
    assert code == 0, err
    result = json.loads(out)
    assert result["interrupted"]
    assert result["epochs"] < 20
    (warning,) = result["warnings"]
    assert warning.startswith("InterruptedWarning: ")
    assert "kept" in warning
    assert result["by_hand"] == pytest.approx(result["scores"], abs=1e-10)


# Ctrl-C inside this process


def control_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_control_c_keeps_the_best_and_can_be_resumed(tmp_path: Path, at_step: Any) -> None:
    path, handler = tmp_path / "checkpoint", signal.getsignal(signal.SIGINT)
    at_step(2 * STEPS + 1, control_c)
    with pytest.warns(InterruptedWarning, match="epoch 3 of 5"):
        cut = train(method(), TWO, SHORT, path=path)
    assert cut.interrupted
    assert signal.getsignal(signal.SIGINT) is handler
    for i, sparsity in enumerate(TWO.levels):
        by_hand = score_by_hand(cut.predictors[i], cut.selectors[i], sparsity, data(400, seed=1))
        assert by_hand == pytest.approx(cut.scores[i], abs=1e-10)
    at_step(-1, crash)
    assert_same_result(train(method(), TWO, SHORT, path=path), train(method(), TWO, SHORT))


def test_a_second_control_c_stops_at_once(at_step: Any) -> None:
    def twice() -> None:
        control_c()
        control_c()

    at_step(3, twice)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(method(), TWO, SHORT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_control_c_before_there_is_a_selector_stops_and_can_be_resumed(
    tmp_path: Path, at_step: Any
) -> None:
    """In the first of two phases there is nothing to explain with yet."""
    path, what = tmp_path / "checkpoint", method(predictor_first=True)
    at_step(2 * STEPS + 1, control_c)
    with pytest.raises(KeyboardInterrupt):
        train(what, TWO, SHORT, path=path)
    at_step(-1, crash)
    assert_same_result(train(what, TWO, SHORT, path=path), train(what, TWO, SHORT))
