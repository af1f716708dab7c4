"""Choose where to compute, and go on in smaller parts where memory is short."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from unmasked.errors import InputError, MemoryWarning


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


Found = TypeVar("Found")

_said: set[str] = set()


def say_once(reason: str, sentence: str) -> None:
    """Warn, but for the same reason only once in a process: a command may fit many times."""
    if reason not in _said:
        _said.add(reason)
        warnings.warn(sentence, MemoryWarning, stacklevel=3)


def let_go(device: torch.device) -> None:
    """Give back what nothing refers to any more; not while an error is handled, which refers."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def in_parts(
    run: Callable[[int, int], Found], rows: int, size: int, device: torch.device
) -> tuple[list[Found], int]:
    """Call ``run(start, stop)`` on ``size`` rows at a time; return the results and the last size.

    Where memory runs out, half as many go at a time, down to one. For what looks at one row at a
    time, so that the result is the same. Without rows it is run once, on none.
    """
    found: list[Found] = []
    start = 0
    while start < rows or not found:
        stop = min(start + size, rows)
        try:
            found.append(run(start, stop))
            start = stop
            continue
        except torch.OutOfMemoryError:
            if stop - start < 2:
                raise
        let_go(device)
        say_once(
            "rows",
            f"the memory of {device} does not suffice for {stop - start} rows at once; they go "
            "through the networks in smaller parts, to the same result.",
        )
        size = (stop - start) // 2
    return found, size


@contextmanager
def enough_for_a_row(device: torch.device) -> Iterator[None]:
    """Around what runs trained networks: what memory cannot hold even so is one sentence."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"the memory of {device} must hold the networks and one row but does not; free some "
            f"of it (other programs, fewer --jobs){_elsewhere(device)}."
        ) from None


def _elsewhere(device: torch.device) -> str:
    """The CPU, in the words of Python and of the commands, where that is another place."""
    return "" if device.type == "cpu" else ", or use device='cpu' (--device cpu)"
