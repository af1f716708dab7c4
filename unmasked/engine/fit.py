"""`fit`: the engine's front door. Where memory does not suffice, the stack is trained in parts."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import torch

from unmasked.engine.device import choose_device
from unmasked.engine.loop import train
from unmasked.engine.method import Data, Method, Settings, takes_given_masks
from unmasked.engine.options import Training
from unmasked.engine.program import Program
from unmasked.engine.progress import Show
from unmasked.engine.stack import Stack
from unmasked.engine.trained import Trained
from unmasked.errors import InputError, MemoryWarning


def fit(
    method: Method,
    settings: Settings,
    train: Data | Sequence[Data],
    valid: Data | Sequence[Data],
    training: Training | None = None,
    *,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    path: Path | None = None,
    show: Show = "auto",
    title: str = "training",
    start: Mapping[str, Stack] | None = None,
) -> Trained:
    """Train a method in all settings as one stacked program.

    ``train`` and ``valid`` are rows for all worlds, or a list with the rows of each.
    ``path`` names a checkpoint file: a run that was killed continues from it, to the same result.
    Ctrl-C ends training after the current step and keeps the best weights so far; before a
    selector has started there is nothing to keep, and KeyboardInterrupt is raised.
    Where the device's memory does not suffice, the settings are trained in several programs, one
    after the other, to the same result.
    ``start`` has, by the name of a learner or "selector", trained networks to start from, one for
    each world; all settings of a world start alike.
    """
    rows = [train] if isinstance(train, Data) else list(train)
    held_out = [valid] if isinstance(valid, Data) else list(valid)
    counts = [sum(data.rows for data in part) for part in (rows, held_out)]
    if not rows or not held_out or not all(data.rows for data in [*rows, *held_out]):
        raise InputError(
            f"training needs rows to learn from and rows to validate on, but got {counts[0]} "
            f"and {counts[1]}; give more rows."
        )
    options = (training or Training()).resolve(rows[0].rows)
    if options.augment is not None and takes_given_masks(method):
        raise InputError(
            "augment changes rows but not the masks that came with them; leave it out here."
        )
    if method.exchanges and options.batch_size == 1:
        raise InputError(
            "masks are exchanged between the rows of a batch, but batch_size is 1; make it larger."
        )
    where = choose_device(device)
    begin = dict(start or {})
    known = [*method.learners, *([] if method.selector is None else ["selector"])]
    for name, stack in begin.items():
        if name not in known or stack.count != len(settings.seeds):
            raise InputError(
                f"start must have networks of {' or '.join(known)}, one for each of the "
                f"{len(settings.seeds)} worlds, but has {stack.count} of {name!r}."
            )
    return _fit(
        method, settings, rows, held_out, options, where, dtype, path, show, title, 1, begin
    )


def _fit(
    method: Method,
    settings: Settings,
    rows: list[Data],
    held_out: list[Data],
    training: Training,
    device: torch.device,
    dtype: torch.dtype,
    path: Path | None,
    show: Show,
    title: str,
    pieces: int,
    start: Mapping[str, Stack],
) -> Trained:
    """Train in one program; else half of the settings at a time; else each batch in pieces."""
    one = len(settings.seeds) * len(settings.levels) == 1
    assert training.batch_size is not None  # resolved by `fit`
    whole = method.exchanges
    try:
        precision = torch.bfloat16 if training.precision == "bfloat16" else None
        program = Program(method, settings, rows, held_out, device, dtype, pieces, precision, start)
        whole = program.needs_whole_batches
        if whole and pieces > 1:  # memory ran out before the networks were there to be asked
            raise torch.OutOfMemoryError
        return train(program, training, path, show, title, pieces)
    except torch.OutOfMemoryError:
        if one and (whole or 2 * pieces > training.batch_size):
            raise InputError(
                f"the memory of {device} does not suffice for one setting at a time"
                + (" (BatchNorm and exchanged masks need whole batches)" if whole else "")
                + f"; lower batch_size ({training.batch_size}) or use smaller networks."
            ) from None
    program = None  # type: ignore[assignment]  # what it holds must go before others start
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if one:
        if pieces == 1:  # said once
            warnings.warn(
                f"the memory of {device} does not suffice for batches of {training.batch_size} "
                "rows; they go through the networks in smaller parts, to the same result.",
                MemoryWarning,
                stacklevel=3,
            )
        return _fit(
            method,
            settings,
            rows,
            held_out,
            training,
            device,
            dtype,
            path,
            show,
            title,
            2 * pieces,
            start,
        )
    halves = _halves(settings, rows, held_out, start)
    warnings.warn(
        f"the memory of {device} does not suffice for {len(settings.seeds)} × "
        f"{len(settings.levels)} settings at once; they are trained in two halves, to the same "
        "result.",
        MemoryWarning,
        stacklevel=3,
    )
    parts = []
    for i, (own, own_rows, own_held_out, own_start) in enumerate(halves):
        own_path = None if path is None else path.with_name(f"{path.stem}-{i + 1}{path.suffix}")
        part = _fit(
            method,
            own,
            own_rows,
            own_held_out,
            training,
            device,
            dtype,
            own_path,
            show,
            title,
            1,
            own_start,
        )
        if part.interrupted and i == 0:
            raise KeyboardInterrupt  # the other half has not started; the checkpoint stays
        parts.append(part)
    return Trained.join(parts)


def _halves(
    settings: Settings, rows: list[Data], held_out: list[Data], start: Mapping[str, Stack]
) -> list[tuple[Settings, list[Data], list[Data], Mapping[str, Stack]]]:
    """Half of the worlds each; of a single world, half of the levels each."""
    if len(settings.seeds) > 1:
        middle = len(settings.seeds) // 2
        return [
            (
                replace(settings, seeds=settings.seeds[part]),
                rows if len(rows) == 1 else rows[part],
                held_out if len(held_out) == 1 else held_out[part],
                {name: _some(stack, part) for name, stack in start.items()},
            )
            for part in (slice(None, middle), slice(middle, None))
        ]
    middle = len(settings.levels) // 2

    def cut(data: list[Data], part: slice) -> list[Data]:
        return [d if d.masks is None else replace(d, masks=d.masks[part]) for d in data]

    return [
        (
            replace(settings, levels=settings.levels[part]),
            cut(rows, part),
            cut(held_out, part),
            start,
        )
        for part in (slice(None, middle), slice(middle, None))
    ]


def _some(stack: Stack, part: slice) -> Stack:
    """Some of the networks of a stack, which stays as it is."""
    own = copy(stack)
    own.take(torch.arange(stack.count, device=stack.flat.device)[part])
    return own
