"""What came out of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unmasked.engine.stack import Stack


@dataclass(frozen=True)
class Trained:
    """The networks and how they came about.

    There is one score, epoch, predictor and selector for each setting; without a selector, one
    for each world where the predictor is shared by its settings.
    """

    stacks: dict[str, Stack]
    scores: list[float]
    epochs: list[int]
    history: list[dict[str, Any]]
    interrupted: bool
    seconds: float

    @cached_property
    def predictors(self) -> list[nn.Module]:
        """As ordinary modules in evaluation mode, on the CPU."""
        return self._modules("predictor")

    @cached_property
    def selectors(self) -> list[nn.Module]:
        """As ordinary modules in evaluation mode, on the CPU; none for an evaluator."""
        return self._modules("selector")

    def best_restarts(self, restarts: int, levels: int) -> NDArray[np.int64]:
        """Which setting to keep of those that differ in their restart alone: (worlds, levels).

        The one with the best score. Settings lie as worlds × restarts × levels.
        """
        scores = np.array(self.scores).reshape(-1, restarts, levels)
        number = np.arange(scores.size).reshape(scores.shape)
        best = scores.argmax(1, keepdims=True)
        return np.take_along_axis(number, best, axis=1)[:, 0]

    def _modules(self, name: str) -> list[nn.Module]:
        stack = self.stacks.get(name)
        return [] if stack is None else [stack.module(i) for i in range(stack.count)]

    def after(self, first: Trained) -> Trained:
        """The same with the history and the time of what was trained before it."""
        history = [*first.history, *self.history]
        return replace(self, history=history, seconds=first.seconds + self.seconds)

    @classmethod
    def join(cls, parts: Sequence[Trained]) -> Trained:
        """Settings that were trained in several programs, in order; history says which ("part")."""
        first = parts[0]
        history: list[dict[str, Any]] = []
        for part in parts:  # one may be joined itself: its parts are counted on
            before = 1 + max((note["part"] for note in history), default=-1)
            history += [{**note, "part": before + note.get("part", 0)} for note in part.history]
        stacks: dict[str, Stack] = {
            name: Stack.join([part.stacks[name] for part in parts]) for name in first.stacks
        }
        return cls(
            stacks,
            [score for part in parts for score in part.scores],
            [epoch for part in parts for epoch in part.epochs],
            history,
            any(part.interrupted for part in parts),
            sum(part.seconds for part in parts),
        )
