"""Explaining and judging where memory does not suffice: fewer rows at once, to the same result."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_runs import TINY, data, method, train
from small_tables import assert_one_sentence
from torch import nn

from unmasked import EvalX, InputError, MemoryWarning, RealX, Training
from unmasked.masks.maskers import Token
from unmasked.reproduce.replicates import probabilities, selected
from unmasked.training import Settings
from unmasked.training import device as memory
from unmasked.training.stack import Stack

BRIEF = Training(epochs=2, batch_size=20)
SAID = (
    "the memory of cpu does not suffice for {} rows at once; they go through the networks in "
    "smaller parts, to the same result."
)
LEVELS = (0.0, 0.2, 1.0)


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let a linear layer and a stack run out of memory on more rows; what went through."""
    went: list[int] = []
    linear, forward = nn.Linear.forward, Stack.forward

    def check(rows: int) -> None:
        if rows > most:
            raise torch.OutOfMemoryError("as CUDA would say")
        went.append(rows)

    def layer(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        check(len(x))
        return linear(self, x)

    def stack(self: Stack, weights: Any, x: torch.Tensor, *, training: bool) -> torch.Tensor:
        check(x.shape[1])
        return forward(self, weights, x, training=training)

    monkeypatch.setattr(nn.Linear, "forward", layer)
    monkeypatch.setattr(Stack, "forward", stack)
    return went


@pytest.fixture(scope="module")
def table() -> tuple[NDArray[Any], NDArray[Any]]:
    rows = data(100)
    return rows.x.numpy(), rows.target.argmax(1).numpy()


@pytest.fixture(scope="module")
def fitted(table: tuple[NDArray[Any], NDArray[Any]]) -> tuple[RealX, EvalX]:
    explainer = RealX(
        0.2, selector=TINY, predictor=TINY, training=BRIEF, progress=False, random_state=0
    )
    judge = EvalX(TINY, training=BRIEF, progress=False, random_state=0)
    return explainer.fit(*table), judge.fit(*table)


def test_explaining_and_judging_go_on_with_fewer_rows_at_once(
    fitted: tuple[RealX, EvalX],
    table: tuple[NDArray[Any], NDArray[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 rows go by 50, 25, then 12; that is said once, however often it happens."""
    explainer, judge = fitted
    x, y = table
    whole = explainer.explain(x)
    scores = judge.evaluate(whole, x, y)
    went = limit(monkeypatch, 12)
    with pytest.warns(MemoryWarning) as caught:
        parts = explainer.explain(x)
    again = judge.evaluate(parts, x, y)  # a second warning would be an error
    assert [str(one.message) for one in caught] == [SAID.format(100)]
    assert set(went) == {12, 4}
    np.testing.assert_array_equal(parts.masks, whole.masks)
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)
    for name, figures in scores.rows.items():
        for kind, interval in figures.items():
            assert again.rows[name][kind].value == pytest.approx(interval.value, abs=1e-6)


def test_where_not_even_one_row_fits_the_error_is_one_sentence_for_python_and_the_commands(
    fitted: tuple[RealX, EvalX],
    table: tuple[NDArray[Any], NDArray[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explainer, _ = fitted
    limit(monkeypatch, 0)
    with (
        pytest.warns(MemoryWarning),
        pytest.raises(InputError, match="must hold the networks and one row") as caught,
    ):
        explainer.explain(table[0])
    assert_one_sentence(caught.value)
    assert next(explainer.selector_.parameters()).device.type == "cpu"
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.explain(table[0])


@pytest.mark.parametrize(("device", "advised"), [("cuda:0", True), ("cpu", False)])
def test_the_cpu_is_advised_to_those_who_are_elsewhere(device: str, advised: bool) -> None:
    with pytest.raises(InputError) as caught, memory.enough_for_a_row(torch.device(device)):
        raise torch.OutOfMemoryError
    assert ("device='cpu' (--device cpu)" in str(caught.value)) is advised


def test_a_table_of_the_paper_is_judged_with_fewer_rows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Selections of all worlds and settings at once, and their probabilities."""
    trained = train(method(), Settings(LEVELS, (0, 1)))
    x = torch.stack([data(90, seed=2).x, data(90, seed=3).x])
    sampler: Any = method().selector
    masks = selected(trained, sampler.sampler, LEVELS, x)
    p = probabilities(trained.stacks["predictor"], Token(), x, masks)
    went = limit(monkeypatch, 20)
    with pytest.warns(MemoryWarning) as caught:
        same = selected(trained, sampler.sampler, LEVELS, x)
    again = probabilities(trained.stacks["predictor"], Token(), x, masks)
    np.testing.assert_array_equal(same, masks)
    np.testing.assert_allclose(again, p, rtol=0, atol=1e-12)
    assert [str(one.message) for one in caught] == [SAID.format(90)]
    assert set(went) == {11, 2}
    monkeypatch.undo()
    limit(monkeypatch, 0)
    for run in (
        lambda: selected(trained, sampler.sampler, LEVELS, x),
        lambda: probabilities(trained.stacks["predictor"], Token(), x, masks),
    ):
        with pytest.raises(InputError, match="must hold the networks and one row"):
            run()


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    fitted: tuple[RealX, EvalX],
    table: tuple[NDArray[Any], NDArray[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("something else")

    monkeypatch.setattr(nn.Linear, "forward", broken)
    with pytest.raises(RuntimeError, match="something else"):
        fitted[0].explain(table[0])
