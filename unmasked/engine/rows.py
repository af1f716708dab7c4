"""The rows that a program learns from: on the device, for all worlds.

Axes: W worlds, S settings, B rows, F features, C columns, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmasked.engine.method import Data
from unmasked.errors import InputError


class Batch(NamedTuple):
    """What one step sees: x (W, B, C), target (W, B, K), masks (W, S, B, F) where they are given,
    and noise by the name of the network that it is for."""

    x: Tensor
    target: Tensor
    masks: Tensor | None
    noise: dict[str, Tensor]


class Rows:
    """The rows of all worlds on the device; one copy where the worlds share them."""

    def __init__(self, data: Sequence[Data], device: torch.device, dtype: torch.dtype) -> None:
        self.shared = len(data) == 1
        self.rows = data[0].rows
        for what, sizes in (
            ("rows", [part.rows for part in data]),
            ("columns", [part.x.shape[1] for part in data]),
            ("classes", [part.target.shape[1] for part in data]),
            ("explanations", [0 if part.masks is None else len(part.masks) for part in data]),
        ):
            if len(set(sizes)) > 1:
                raise InputError(
                    f"data sets trained as one program must have equally many {what} but have "
                    f"{sizes}."
                )
        self.x = _joined([part.x for part in data]).to(device, dtype)
        self.target = _joined([part.target for part in data]).to(device, dtype)
        given = [part.masks for part in data if part.masks is not None]
        self.masks = torch.stack(given).to(device, torch.bool) if given else None
        self._numbers: dict[tuple[int, ...], Tensor] = {}

    @property
    def explanations(self) -> int:
        """How many explanations came with the rows."""
        return 0 if self.masks is None else self.masks.shape[1]

    def tensors(self) -> list[Tensor]:
        """All there is, for a fingerprint."""
        return [t for t in (self.x, self.target, self.masks) if t is not None]

    def take(
        self, worlds: list[int], settings: list[int], rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """x, target and masks of ``rows`` (W, B), or of the same rows (B,) for every world."""
        if len(worlds) == 1 and self.masks is None:
            own, which_rows = 0 if self.shared else worlds[0], rows.reshape(-1)
            x, target = (t[own].index_select(0, which_rows) for t in (self.x, self.target))
            return x.unsqueeze(0), target.unsqueeze(0), None
        index = rows.expand(len(worlds), rows.shape[-1])
        which = self._tensor([0 if self.shared else world for world in worlds]).unsqueeze(1)
        x, target = self.x[which, index], self.target[which, index]
        if self.masks is None:
            return x, target, None
        explanation = self._tensor(settings).reshape(1, -1, 1)
        masks = self.masks[which.unsqueeze(1), explanation, index.unsqueeze(1)]  # (W, S, B, F)
        return x, target, masks.to(x.dtype)

    def _tensor(self, numbers: list[int]) -> Tensor:
        """On the device, made once: a captured step cannot copy from the host."""
        key = tuple(numbers)
        if key not in self._numbers:
            self._numbers[key] = torch.tensor(numbers, device=self.x.device)
        return self._numbers[key]


def _joined(parts: list[Tensor]) -> Tensor:
    """One axis more; a single part is not copied."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)
