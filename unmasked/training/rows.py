"""Hold the rows that a program learns from: on the device, or on disk.

On the CPU a batch is read from the file when it is taken. Elsewhere the whole numbers of the file
lie on the device, 8 or 16 bits each in place of 32, and a batch is made of them there: reading
from the host is nothing that a captured step can do.

Axes: W worlds, S settings, B rows, F features, C columns, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from unmasked.errors import InputError
from unmasked.inputs.stored import StoredRows, Which
from unmasked.training.method import Data

_SHARE = 0.5  # of the device's free memory that rows may take: networks need the rest


class Stored:
    """Stands where ``Data.x`` is a tensor (rows, columns); has what programs ask of one."""

    def __init__(self, rows: StoredRows) -> None:
        self.rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Which) -> Tensor:
        """Some of the rows as a tensor, in memory."""
        return torch.from_numpy(self.rows[rows])

    def numpy(self) -> StoredRows:
        """Return the rows, still on disk, where ``Tensor.numpy`` returns an array."""
        return self.rows

    @property
    def fingerprint(self) -> Tensor:
        """A few numbers that say which rows these are."""
        return torch.from_numpy(np.frombuffer(self.rows.digest, np.uint8).copy())


def as_tensor(rows: StoredRows) -> Tensor:
    """Stored rows in the place of a tensor. The type says what it stands in for."""
    return cast(Tensor, Stored(rows))


Reader = Callable[[Tensor], Tensor]
"""Batches of stored rows on a device: rows (B,) -> (B, columns)."""


def reader(stored: Stored, device: torch.device, dtype: torch.dtype) -> Reader:
    """Return the reader of batches: from the disk for the CPU, else from the device's memory."""
    if device.type == "cpu":
        return FromDisk(stored.rows, dtype)
    _check_room(stored.rows, device)
    return OnDevice(stored.rows, device, dtype)


class FromDisk:
    """Reads each batch from the file; nothing else is ever in memory."""

    def __init__(self, rows: StoredRows, dtype: torch.dtype) -> None:
        self.rows, self.dtype = rows, dtype

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.rows[rows.numpy()]).to(self.dtype)


class OnDevice:
    """Keeps the file's whole numbers on the device and makes batches of them there."""

    def __init__(self, rows: StoredRows, device: torch.device, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.numbers = _on(rows, device)
        self.white = float(rows.images.white)
        _, _, height, width = rows.images.shape
        self.mean, self.scale = (
            torch.from_numpy(np.repeat(values, height * width)).to(device)  # (columns,)
            for values in (rows.mean, rows.scale)
        )

    def __call__(self, rows: Tensor) -> Tensor:
        values = self.numbers.index_select(0, rows)
        if values.dtype == torch.int16:
            values = values.int() & 0xFFFF  # torch gathers no uint16, so their bits came as int16
        return ((values.float() / self.white - self.mean) / self.scale).to(self.dtype)


def _on(rows: StoredRows, device: torch.device) -> Tensor:
    """All whole numbers of the file on a device, (rows, columns), copied block by block."""
    images = rows.images
    kind = torch.uint8 if images.pixels.dtype == np.uint8 else torch.int16
    numbers = torch.empty(rows.shape, dtype=kind, device=device)
    for block in images.blocks():
        part = np.ascontiguousarray(images.whole_numbers(block)).reshape(-1, rows.shape[1])
        numbers[block] = torch.from_numpy(part.view(np.int16) if part.itemsize == 2 else part).to(
            device
        )
    return numbers


def _check_room(rows: StoredRows, device: torch.device) -> None:
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    needed = rows.shape[0] * rows.shape[1] * rows.images.pixels.dtype.itemsize
    if needed > _SHARE * free:
        raise InputError(
            f"{len(rows):,} images must leave half of the free memory of {device} to the networks, "
            f"{free * _SHARE / 1e9:.1f} GB, but take {needed / 1e9:.1f} GB; make them smaller "
            "(--size), or use device='cpu' (--device cpu), which reads them from the disk."
        )


class Batch(NamedTuple):
    """Inputs of one step: x (W, B, C), target (W, B, K), masks (W, S, B, F) where they are given,
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
        """Count the explanations, sets of given masks, that came with the rows."""
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
        """Read x of ``rows``, (W, B) or (B,), from stored rows; return it with target and masks."""
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
