"""Where a device's memory is short: rows go in smaller parts, and it is said once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from unmasked.errors import InputError, MemoryWarning

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
    """What ``run(start, stop)`` makes of ``size`` rows at a time, and how many went at last.

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
