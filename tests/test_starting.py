"""Networks that start from trained ones, and prices that rise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import FAST, METHODS, SIX, TINY, TINY_BATCH, data, train

from unmasked.errors import InputError, MemoryWarning, SavedError
from unmasked.networks.tables import MLP
from unmasked.training import Settings, Trained, Training, fit, loop
from unmasked.training.program import Program

SEEDS = (0, 1)
STILL = replace(FAST, epochs=1, learning_rate=1e-12, weight_decay=0.0, selector_delay=0.0)
JOINT = ("L2X", "INVASE", "BASE-X")


def begun(network: Any = TINY, seeds: tuple[int, ...] = SEEDS) -> Trained:
    return train(METHODS["EVAL-X"][0](network), Settings(seeds=seeds), replace(FAST, epochs=2))


def start_from(
    trained: Trained,
    name: str,
    network: Any = TINY,
    training: Training = STILL,
    path: Path | None = None,
) -> Trained:
    make, levels = METHODS[name]
    method = make(network)
    start = dict.fromkeys(method.learners, trained.stacks["predictor"])
    validate = data(80, seed=1)
    return train(method, Settings(levels, SEEDS), training, path, validate=validate, start=start)


@pytest.mark.parametrize("name", JOINT)
def test_every_setting_of_a_world_starts_as_its_world_s_network(name: str) -> None:
    start = begun()
    trained = start_from(start, name)
    settings = len(METHODS[name][1])
    expected = start.stacks["predictor"].flat.repeat_interleave(settings, 0)
    torch.testing.assert_close(trained.stacks["predictor"].flat, expected, rtol=0, atol=1e-9)


def test_statistics_of_a_network_are_taken_over_too() -> None:
    """BatchNorm has seen the steps of both runs."""
    start = begun(TINY_BATCH)
    steps = {int(net.state_dict()["1.num_batches_tracked"]) for net in start.predictors}
    trained = start_from(start, "BASE-X", TINY_BATCH)
    counts = {int(net.state_dict()["1.num_batches_tracked"]) for net in trained.predictors}
    assert counts == {count + 5 for count in steps}  # 100 rows in batches of 20


def test_networks_to_start_from_stay_as_they_were() -> None:
    start = begun()
    before = start.stacks["predictor"].flat.clone()
    start_from(start, "BASE-X", training=FAST)
    torch.testing.assert_close(start.stacks["predictor"].flat, before, rtol=0, atol=0)


def test_halves_start_from_their_own_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    start, losses = begun(), Program.losses
    whole = start_from(start, "BASE-X", training=replace(FAST, epochs=3))

    def limited(self: Program, *arguments: Any) -> Any:
        if len(self.settings.seeds) * len(self.settings.levels) > 2:
            raise torch.OutOfMemoryError("as CUDA would say")
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "losses", limited)
    with pytest.warns(MemoryWarning):
        parts = start_from(start, "BASE-X", training=replace(FAST, epochs=3))
    assert parts.scores == pytest.approx(whole.scores, abs=1e-10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: begun(TINY_BATCH), "networks of its own architecture"),
        (lambda: begun(MLP(hidden=(6,), activation="relu")), "networks of its own architecture"),
        (lambda: begun(seeds=(0, 1, 2)), "each of the 2 worlds, but has 3 of 'predictor'"),
        (lambda: begun(seeds=(0,)), "each of the 2 worlds, but has 1 of 'predictor'"),
    ],
)
def test_networks_that_do_not_fit_are_refused(make: Callable[[], Trained], words: str) -> None:
    with pytest.raises(InputError, match=words):
        start_from(make(), "BASE-X")


def test_a_name_that_no_learner_has_is_refused() -> None:
    with pytest.raises(InputError, match="networks of predictor or selector, one for each"):
        fit(
            METHODS["BASE-X"][0](TINY),
            Settings((0.1,), SEEDS),
            data(100),
            data(80, seed=1),
            STILL,
            device="cpu",
            show=False,
            start={"predictr": begun().stacks["predictor"]},
        )


def test_a_killed_run_that_had_a_start_ends_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a start with other statistics of the same weights is another run."""
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    start, losses, path = begun(TINY_BATCH), Program.losses, tmp_path / "run"
    rises = replace(FAST, epochs=4, price_rise=0.7)
    unbroken = start_from(start, "BASE-X", TINY_BATCH, rises)
    count = 0

    def crashing(self: Program, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 13:
            raise KeyError("a crash")
        return losses(self, *arguments)

    monkeypatch.setattr(Program, "losses", crashing)
    with pytest.raises(KeyError, match="a crash"):
        start_from(start, "BASE-X", TINY_BATCH, rises, path)
    resumed = start_from(start, "BASE-X", TINY_BATCH, rises, path)
    assert resumed.scores == unbroken.scores
    assert resumed.history == unbroken.history
    other = start.stacks["predictor"]
    other.buffers = {name: value + 1 for name, value in other.buffers.items()}
    with pytest.raises(SavedError):
        start_from(start, "BASE-X", TINY_BATCH, rises, path)


# ---------------------------------------------------------------------- prices that rise


def test_a_price_rises_evenly_and_stays() -> None:
    training = Training(price_rise=0.5)
    shares = [training.price_share(step, 20) for step in range(20)]
    assert shares[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert shares[10:] == [1.0] * 10
    assert Training().price_share(0, 20) == 1.0


@pytest.mark.parametrize("name", ["REAL-X", "BASE-X", "INVASE"])
def test_a_share_of_the_price_is_charged_and_no_other_part_of_the_loss(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """loss(share) = loss(0) + share · λ · E[fraction]: linear, and whole at 1."""
    losses, seen = Program.losses, []

    def watched(self: Program, trains: frozenset[str], leaves: Any, batch: Any) -> Any:
        assert self.price_share is not None
        share = float(self.price_share)
        found = []
        for own in (0.0, 1.0, share):
            self.price_share.fill_(own)
            found.append(losses(self, trains, leaves, batch)["selector"].detach())
        self.price_share, kept = None, self.price_share
        whole = losses(self, trains, leaves, batch)
        self.price_share = kept
        seen.append(share)
        torch.testing.assert_close(found[1], whole["selector"].detach(), rtol=0, atol=1e-14)
        expected = found[0] + share * (found[1] - found[0])
        torch.testing.assert_close(found[2], expected, rtol=0, atol=1e-14)
        assert bool((found[1] > found[0])[:, 1:].all())  # the first λ is 0
        return whole

    monkeypatch.setattr(Program, "losses", watched)
    rises = replace(FAST, epochs=2, price_rise=0.5, selector_delay=0.2)
    train(METHODS[name][0](TINY), SIX, rises)
    # ten steps, of which the selector waits two; the price rises over half of its eight
    assert seen == pytest.approx([0.25, 0.25, 0.25, 0.5, 0.75, 1, 1, 1, 1, 1])


def test_a_predictor_alone_knows_no_price() -> None:
    plain = train(METHODS["EVAL-X"][0](TINY), Settings(), FAST)
    rises = train(METHODS["EVAL-X"][0](TINY), Settings(), replace(FAST, price_rise=1.0))
    assert plain.scores == rises.scores
