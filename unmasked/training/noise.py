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
_SINGLE, _TOGETHER = 16, 64  # draws with a generator each, and then so many with one


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


def _block(number: int, largest: int) -> tuple[int, int, int]:
    """The block that a step (or epoch) is in, how long it is, and the place inside.

    Blocks double from 16 to ``largest``: a short run makes little, a long one makes much at once.

    >>> [_block(n, 40) for n in (0, 15, 16, 47, 48, 87, 88)]
    [(0, 16, 0), (0, 16, 15), (1, 32, 0), (1, 32, 31), (2, 40, 0), (2, 40, 39), (3, 40, 0)]
    """
    block, length = 0, min(16, largest)
    while number >= length and length < largest:
        number -= length
        block, length = block + 1, min(2 * length, largest)
    return block + number // length, length, number % length


def _together(draws: int) -> list[tuple[int, int]]:
    """Group the draws that share a generator, whose making costs more than a small draw.

    >>> _together(3), _together(100)[14:]
    ([(0, 1), (1, 2), (2, 3)], [(14, 15), (15, 16), (16, 80), (80, 100)])
    """
    singles = [(i, i + 1) for i in range(min(draws, _SINGLE))]
    more = range(_SINGLE, draws, _TOGETHER)
    return singles + [(first, min(first + _TOGETHER, draws)) for first in more]


class Tape:
    """Uniform noise for the steps of a phase, (worlds, draws, rows, width) for each step.

    Made for many steps at once, since making a generator costs more than a small draw. A draw does
    not depend on which other worlds there are, nor on how many draws there are (on CUDA, those
    beyond the first 16 do).
    """

    def __init__(
        self, draws: int, rows: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = (draws, rows, width)
        self.steps = max(1, _BLOCK // max(1, rows * width))
        self.dtype, self.device = dtype, device
        self._at: tuple[object, ...] = ()
        self._block = torch.empty(0)

    def __call__(self, seeds: list[int], stream: str, phase: int, step: int) -> Tensor:
        """The noise of one step of a phase, each world's from its own seed."""
        draws, rows, width = self.shape
        block, length, inside = _block(step, self.steps)
        at = (tuple(seeds), stream, phase, block)
        if at != self._at:
            self._block = torch.empty(
                (len(seeds), draws, length, rows, width), dtype=self.dtype, device=self.device
            )
            for own, seed in zip(self._block, seeds, strict=True):
                for first, last in _together(draws):
                    source = generator(self.device, seed, stream, phase, block, first)
                    torch.rand(own[first:last].shape, generator=source, out=own[first:last])
            self._at = at
        return self._block[:, :, inside]


class Orders:
    """The order of the rows in each epoch of a phase, (worlds, rows), made for many at once."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows, self.device = rows, device
        self.epochs = max(1, _BLOCK // max(1, rows))
        self._at: tuple[object, ...] = ()
        self._block = torch.empty(0)

    def __call__(self, seeds: list[int], phase: int, epoch: int) -> Tensor:
        """Each world's from its own seed."""
        block, length, inside = _block(epoch, self.epochs)
        at = (tuple(seeds), phase, block)
        if at != self._at:
            shape = (length, self.rows)
            # in double precision, so that no two rows are ever equal
            keys = [
                uniform(shape, torch.float64, self.device, seed, "order", phase, block)
                for seed in seeds
            ]
            self._block = torch.stack([key.argsort(dim=-1) for key in keys])
            self._at = at
        return self._block[:, inside]
