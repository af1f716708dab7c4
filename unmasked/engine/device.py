"""Where to compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from unmasked.errors import InputError


def choose_device(name: str) -> torch.device:
    """ "auto" is the first CUDA device, or else the CPU; any other name must be usable.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device must be 'auto', 'cpu' or a device that this machine has, but is {name!r} "
            f"({str(error).splitlines()[0]}); use 'auto'."
        ) from error
    return device


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat numbers below 1e-38 as zero: saturated selectors are full of them, and they are slow.

    The processor's flag is put back as it was found.
    """
    before = float(torch.tensor(1e-38) * torch.tensor(1e-3)) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """On CUDA, matrix products with TF32 inputs (10 bits of mantissa) and float32 sums."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
