"""Noise as a pure function of (seed, stream, numbers).

No generator state is ever kept: a resumed run draws what the unbroken one would have drawn, all
λ of a seed share their luck, and a setting cannot feel its neighbours.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor


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


def permutation(count: int, device: torch.device, seed: int, stream: str, *numbers: int) -> Tensor:
    """A random order of ``count`` things."""
    return torch.randperm(count, device=device, generator=generator(device, seed, stream, *numbers))
