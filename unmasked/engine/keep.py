"""Best-epoch keeping and stopping, each slot (setting) for itself."""

from __future__ import annotations

import torch
from torch import Tensor

from unmasked.engine.stack import Weights


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
