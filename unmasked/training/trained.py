"""Keep each setting's best epoch, and hand out what came of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unmasked.training.stack import Stack, Weights


class Keeper:
    """Remembers, for every slot, the best validation score so far and the weights it came with.

    A score is a number where larger is better. A score that is not finite is never best.
    With ``last`` the latest weights with a finite score are remembered, however good.
    """

    def __init__(self, slots: int, patience: int | None, *, last: bool = False) -> None:
        self.patience, self.last = patience, last
        self.score = torch.full((slots,), -torch.inf, dtype=torch.float64)
        self.epoch = torch.full((slots,), -1, dtype=torch.int64)
        self.active = torch.ones(slots, dtype=torch.bool)
        self.kept: Weights = {}

    def update(self, slots: Tensor, scores: Tensor, epoch: int, weights: Weights) -> None:
        """Take the scores of ``slots`` (indices) after ``epoch`` with their current weights.

        ``weights`` maps names to (len(slots), …) tensors in the order of ``slots``.
        """
        scores = scores.to("cpu", torch.float64)
        better = self.active[slots] & (
            torch.isfinite(scores) if self.last else scores > self.score[slots]
        )
        if not bool(better.any()) and self.kept:
            weights = {}
        for name, value in weights.items():
            if name not in self.kept:
                shape = (len(self.score), *value.shape[1:])
                self.kept[name] = torch.zeros(shape, dtype=value.dtype, device=value.device)
            where = better.to(value.device)
            self.kept[name][slots.to(value.device)[where]] = value[where]
        self.score[slots[better]] = scores[better]
        self.epoch[slots[better]] = epoch
        if self.patience is not None:
            self.active &= (epoch - self.epoch) < self.patience

    def state(self) -> Weights:
        """Tensors to restore from."""
        tensors = {"score": self.score, "epoch": self.epoch, "active": self.active.to(torch.uint8)}
        return {**tensors, **{f"kept.{k}": v for k, v in self.kept.items()}}

    def load(self, tensors: Weights, device: torch.device) -> None:
        """Restore what `state` returned."""
        self.score = tensors["score"].cpu()
        self.epoch = tensors["epoch"].cpu()
        self.active = tensors["active"].cpu().to(torch.bool)
        prefix = "kept."
        self.kept = {
            name.removeprefix(prefix): value.to(device)
            for name, value in tensors.items()
            if name.startswith(prefix)
        }


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
        """Choose the best-scored of settings that differ in their restart alone: (worlds, levels).

        Settings lie as worlds × restarts × levels.
        """
        scores = np.array(self.scores).reshape(-1, restarts, levels)
        number = np.arange(scores.size).reshape(scores.shape)
        best = scores.argmax(1, keepdims=True)
        return np.take_along_axis(number, best, axis=1)[:, 0]

    def _modules(self, name: str) -> list[nn.Module]:
        stack = self.stacks.get(name)
        return [] if stack is None else [stack.module(i) for i in range(stack.count)]

    def after(self, first: Trained) -> Trained:
        """Return this result with the history and the seconds of ``first`` put before its own."""
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
