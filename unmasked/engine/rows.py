"""The rows that a program learns from: on the device, or on disk, for all worlds.

Axes: W worlds, S settings, B rows, F features, C columns, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unmasked.engine.method import Data
from unmasked.engine.stored import Stored, reader
from unmasked.errors import InputError


class Batch(NamedTuple):
    """What one step sees: x (W, B, C), target (W, B, K), masks (W, S, B, F) where they are given,
    and noise by the name of the network that it is for."""

    x: Tensor
    target: Tensor
    masks: Tensor | None
    noise: dict[str, Tensor]


class Rows:
    """The rows of all worlds on the device; one copy where the worlds share them.

    Rows that are stored on disk (`Stored` in ``Data.x``) are read batch by batch.
    """

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
        self.device = device
        parts: list[Any] = [part.x for part in data]
        self._stored = [x for x in parts if isinstance(x, Stored)]
        self._readers = [reader(own, device, dtype) for own in self._stored]
        if self._stored and len(self._stored) < len(data):
            raise InputError(
                "data sets trained as one program must all be stored on disk or all be in memory, "
                f"but {len(self._stored)} of {len(data)} are stored."
            )
        if not self._stored:
            self.x = _joined(parts).to(device, dtype)
        self.target = _joined([part.target for part in data]).to(device, dtype)
        given = [part.masks for part in data if part.masks is not None]
        self.masks = torch.stack(given).to(device, torch.bool) if given else None
        self._numbers: dict[tuple[int, ...], Tensor] = {}

    @property
    def explanations(self) -> int:
        """How many explanations came with the rows."""
        return 0 if self.masks is None else self.masks.shape[1]

    def tensors(self) -> list[Tensor]:
        """All there is, for a fingerprint; of stored rows, what tells them from others."""
        x = [own.fingerprint for own in self._stored] or [self.x]
        return [t for t in (*x, self.target, self.masks) if t is not None]

    def take(
        self, worlds: list[int], settings: list[int], rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """x, target and masks of ``rows`` (W, B), or of the same rows (B,) for every world."""
        if self._readers:
            return self._read(worlds, settings, rows)
        if len(worlds) == 1 and self.masks is None:
            own, which_rows = 0 if self.shared else worlds[0], rows.reshape(-1)
            x, target = (t[own].index_select(0, which_rows) for t in (self.x, self.target))
            return x.unsqueeze(0), target.unsqueeze(0), None
        index = rows.expand(len(worlds), rows.shape[-1])
        which = self._tensor([0 if self.shared else world for world in worlds]).unsqueeze(1)
        x, target = self.x[which, index], self.target[which, index]
        return x, target, self._masks(which, settings, index, x.dtype)

    def _read(
        self, worlds: list[int], settings: list[int], rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same of stored rows."""
        index = rows.expand(len(worlds), rows.shape[-1])
        which = self._tensor([0 if self.shared else world for world in worlds]).unsqueeze(1)
        if self.shared and rows.dim() == 1:  # what is the same for all worlds is read once
            x = self._readers[0](rows).expand(len(worlds), -1, -1)
        else:
            readers = [self._readers[0 if self.shared else world] for world in worlds]
            x = torch.stack([read(own) for read, own in zip(readers, index, strict=True)])
        return x, self.target[which, index], self._masks(which, settings, index, x.dtype)

    def _masks(
        self, which: Tensor, settings: list[int], index: Tensor, dtype: torch.dtype
    ) -> Tensor | None:
        """Given masks (W, S, B, F) of worlds ``which`` (W, 1) and rows ``index`` (W, B)."""
        if self.masks is None:
            return None
        explanation = self._tensor(settings).reshape(1, -1, 1)
        masks = self.masks[which.unsqueeze(1), explanation, index.unsqueeze(1)]
        return masks.to(dtype)

    def _tensor(self, numbers: list[int]) -> Tensor:
        """On the device, made once: a captured step cannot copy from the host."""
        key = tuple(numbers)
        if key not in self._numbers:
            self._numbers[key] = torch.tensor(numbers, device=self.device)
        return self._numbers[key]


def _joined(parts: list[Tensor]) -> Tensor:
    """One axis more; a single part is not copied."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)
