"""Options, schedules, noise and devices: the small parts under the engine."""

from __future__ import annotations

import math

import pytest
import torch

from unmasked.engine import Settings, Training, noise
from unmasked.engine.device import choose_device, flushed_denormals
from unmasked.engine.keep import Keeper
from unmasked.errors import InputError

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


def test_a_permutation_is_one() -> None:
    order = noise.permutation(50, CPU, 0, "order", 1)
    assert torch.equal(order.sort().values, torch.arange(50))
    assert not torch.equal(order, noise.permutation(50, CPU, 0, "order", 2))


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
