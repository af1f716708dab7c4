"""Noise as a pure function of (seed, stream, numbers).

No generator state is ever kept: a resumed run draws what the unbroken one would have drawn, all
λ of a seed share their luck, and a setting cannot feel its neighbours.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

_BLOCK = 2**21  # numbers of one draw made at once


def generator(device: torch.device, seed: int, stream: str, *numbers: int) -> torch.Generator:
    """A fresh generator whose state depends on the arguments alone."""
    words = [seed, zlib.crc32(stream.encode()), *numbers]
    state = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)


def uniform(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
    stream: str,
    *numbers: int,
) -> Tensor:
    """Uniform numbers on [0, 1)."""
    source = generator(device, seed, stream, *numbers)
    return torch.rand(shape, dtype=dtype, device=device, generator=source)


class Tape:
    """Uniform noise for the steps of a phase, (worlds, draws, rows, width) for each step.

    Made for many steps at once (``most`` of them at most), since making a generator costs more than
    a small draw. The first draws do not depend on how many there are, nor on which other worlds
    there are.
    """

    def __init__(
        self,
        draws: int,
        rows: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
        most: int = _BLOCK,
    ) -> None:
        self.shape = (draws, rows, width)
        self.steps = max(1, min(most, _BLOCK // max(1, rows * width)))
        self.dtype, self.device = dtype, device
        self._at: tuple[object, ...] = ()
        self._block = torch.empty(0)

    def __call__(self, seeds: list[int], stream: str, phase: int, step: int) -> Tensor:
        """The noise of one step of a phase, each world's from its own seed."""
        draws, rows, width = self.shape
        block, inside = divmod(step, self.steps)
        at = (tuple(seeds), stream, phase, block)
        if at != self._at:
            shape = (draws, self.steps, rows, width)
            self._block = torch.stack(
                [
                    uniform(shape, self.dtype, self.device, seed, stream, phase, block)
                    for seed in seeds
                ]
            )
            self._at = at
        return self._block[:, :, inside]


class Orders:
    """The order of the rows in each epoch of a phase, (worlds, rows), made for many at once."""

    def __init__(self, rows: int, device: torch.device, most: int = _BLOCK) -> None:
        self.rows, self.device = rows, device
        self.epochs = max(1, min(most, _BLOCK // max(1, rows)))
        self._at: tuple[object, ...] = ()
        self._block = torch.empty(0)

    def __call__(self, seeds: list[int], phase: int, epoch: int) -> Tensor:
        """Each world's from its own seed."""
        block, inside = divmod(epoch, self.epochs)
        at = (tuple(seeds), phase, block)
        if at != self._at:
            shape = (self.epochs, self.rows)
            # in double precision, so that no two rows are ever equal
            keys = [
                uniform(shape, torch.float64, self.device, seed, "order", phase, block)
                for seed in seeds
            ]
            self._block = torch.stack([key.argsort(dim=-1) for key in keys])
            self._at = at
        return self._block[:, inside]
