"""Rows larger than memory, behind what the engine asks of a tensor of rows.

On the CPU a batch is read from the file when it is taken. Elsewhere the whole numbers of the file
lie on the device, 8 or 16 bits each in place of 32, and a batch is made of them there: reading
from the host is nothing that a captured step can do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from unmasked.data.stored import StoredRows, Which
from unmasked.errors import InputError

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
        """What ``Tensor.numpy`` is to a tensor: the rows, still on disk."""
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
    """How batches come to a device."""
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
