"""`fit`: the engine's front door. Where memory does not suffice, the stack is trained in parts."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from unmasked.errors import InputError
from unmasked.training.device import choose_device, let_go, say_once
from unmasked.training.loop import SelectorsInHalves, train
from unmasked.training.method import Data, Method, Settings, takes_given_masks
from unmasked.training.options import Training
from unmasked.training.program import Program
from unmasked.training.progress import Show
from unmasked.training.stack import Stack
from unmasked.training.trained import Trained


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
    whole: bool = False,
) -> Trained:
    """Train a method in all settings as one stacked program.

    ``train`` and ``valid`` are rows for all worlds, or a list with the rows of each.
    ``path`` names a checkpoint file: a run that was killed continues from it, to the same result.
    Ctrl-C ends training after the current step and keeps the best weights so far; before a
    selector has started there is nothing to keep, and KeyboardInterrupt is raised; so it is always
    where only a ``whole`` training is of use.
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
    job = _Job(
        method,
        settings,
        rows,
        held_out,
        options,
        where,
        dtype,
        path,
        show,
        title,
        begin,
        first_phase=_first_phase(begin),
        part=whole,
    )
    practice = method.practice
    return _fit(job) if practice is None else _fit_after(practice, job)


@dataclass(frozen=True)
class _Job:
    """Job of training: what `fit` was told, or a part; ``rows`` to learn from, ``held_out`` rows.

    pieces, first_phase, begin, part : see `train`.
    """

    method: Method
    settings: Settings
    rows: list[Data]
    held_out: list[Data]
    training: Training
    device: torch.device
    dtype: torch.dtype
    path: Path | None
    show: Show
    title: str
    start: Mapping[str, Stack]
    pieces: int = 1
    first_phase: int = 0
    begin: int = 0
    part: bool = False

    def program(self) -> Program:
        precision = torch.bfloat16 if self.training.precision == "bfloat16" else None
        return Program(
            self.method,
            self.settings,
            self.rows,
            self.held_out,
            self.device,
            self.dtype,
            self.pieces,
            precision,
            self.start,
        )

    def worlds(self, part: slice) -> _Job:
        """Return the job of some of the worlds; rows that all worlds share stay shared."""

        def cut(data: list[Data]) -> list[Data]:
            return data if len(data) == 1 else data[part]

        return replace(
            self,
            settings=replace(self.settings, seeds=self.settings.seeds[part]),
            rows=cut(self.rows),
            held_out=cut(self.held_out),
            start={name: _some(stack, part) for name, stack in self.start.items()},
        )

    def levels(self, part: slice) -> _Job:
        """Return the job of some of the levels, with the given masks of these levels."""

        def cut(data: list[Data]) -> list[Data]:
            return [d if d.masks is None else replace(d, masks=d.masks[part]) for d in data]

        return replace(
            self,
            settings=replace(self.settings, levels=self.settings.levels[part]),
            rows=cut(self.rows),
            held_out=cut(self.held_out),
        )

    def halves(self) -> tuple[_Job, _Job]:
        """Half of the worlds each; of a single world, half of the levels each."""
        several = len(self.settings.seeds) > 1
        some = self.worlds if several else self.levels
        middle = len(self.settings.seeds if several else self.settings.levels) // 2
        return some(slice(None, middle)), some(slice(middle, None))

    def one_setting(self) -> _Job:
        """Return the job of the largest level in the first world, on the CPU."""
        one, cpu = self.worlds(slice(1)), torch.device("cpu")
        return replace(
            one,
            settings=replace(one.settings, levels=(max(one.settings.levels),)),
            device=cpu,
            start={name: stack.to(cpu) for name, stack in one.start.items()},
        )

    def predictor(self) -> _Job:
        """The predictor alone, which is finished before any selector starts and serves them all."""
        training, learners = self.training, self.method.learners
        return replace(
            self,
            method=Method(self.method.masker, learners),
            settings=replace(self.settings, levels=(0.0,)),
            training=replace(training, epochs=training.predictor_epochs or training.epochs),
            path=self.path_with("predictor"),
            start={name: stack for name, stack in self.start.items() if name in learners},
            pieces=1,
            title=f"{self.title}, predictor",
            part=True,
        )

    def selectors(self, predictor: Stack) -> _Job:
        """Return the job that is left once the predictor comes trained: all but the first phase."""
        return replace(
            self,
            path=self.path_with("selectors"),
            start={**self.start, "predictor": predictor},
            begin=1,
        )

    @property
    def predictor_alone(self) -> bool:
        """Return True if halves would train one predictor twice, each for its own levels."""
        several = len(self.settings.seeds) == 1 and len(self.settings.levels) > 1
        return several and self.begin + 1 < len(self.method.phases)

    def in_halves(self) -> bool:
        """Return True if checkpoints say that an earlier try, with less memory, went in halves."""
        return self._has_parts("1") and self.path is not None and not self.path.exists()

    def selectors_in_halves(self) -> bool:
        """Return True if an earlier try finished its predictor and trained selectors in halves."""
        return self._has_parts("selectors")

    def _has_parts(self, ending: str) -> bool:
        """Return True if a checkpoint with this ending, or of a part of it, exists."""
        if self.path is None:
            return False
        stem, suffix = glob.escape(f"{self.path.stem}-{ending}"), self.path.suffix
        return any(any(self.path.parent.glob(f"{stem}{more}{suffix}")) for more in ("", "-*"))

    def path_with(self, ending: str | int) -> Path | None:
        """A checkpoint file of its own for a part of this."""
        path = self.path
        return None if path is None else path.with_name(f"{path.stem}-{ending}{path.suffix}")


def _fit_after(practice: Method, job: _Job) -> Trained:
    """Train the predictor by itself, one for all levels of a world; then everything from there."""
    training, start = job.training, job.start
    own = {name: stack for name, stack in start.items() if name in practice.learners}
    phase = _first_phase(own)
    later = replace(
        job,
        method=replace(job.method, predictor_first=False),
        training=replace(training, selector_delay=0.0),  # its predictor will have learned
        first_phase=phase + 1,
    )
    later.one_setting().program()  # what it refuses is refused before the practice
    first = _fit(
        replace(
            job,
            method=practice,
            settings=replace(job.settings, levels=(0.0,)),
            training=replace(training, epochs=training.predictor_epochs or training.epochs),
            path=job.path_with("practice"),
            start=own,
            first_phase=phase,
            title=f"{job.title}, predictor",
            part=True,
        )
    )
    begin = {**start, "predictor": first.stacks["predictor"]}
    return _fit(replace(later, start=begin)).after(first)


def _first_phase(start: Mapping[str, Stack]) -> int:
    """Return 1 where trained networks come, which may have seen the noise of phase 0; else 0."""
    return 1 if start else 0


def _fit(job: _Job) -> Trained:
    """Train in one program; else half of the settings at a time; else each batch in pieces."""
    settings, device, batch = job.settings, job.device, job.training.batch_size
    one = len(settings.seeds) * len(settings.levels) == 1
    assert batch is not None  # resolved by `fit`
    if not one and job.in_halves():
        return _in_halves(job)
    alone = job.path_with("predictor")
    if job.predictor_alone and alone is not None and alone.exists():
        return _in_halves_after(_fit(job.predictor()), job)
    whole, ready, resumed = job.method.exchanges, list[Trained](), False
    try:
        program = job.program()
        whole = program.needs_whole_batches
        if whole and job.pieces > 1:  # memory ran out before the networks were there to be asked
            raise torch.OutOfMemoryError
        return train(
            program,
            job.training,
            job.path,
            job.show,
            job.title,
            job.pieces,
            job.first_phase,
            begin=job.begin,
            part=job.part,
            ready=ready,
            in_halves=not one and job.selectors_in_halves(),
        )
    except SelectorsInHalves:
        resumed = True
    except torch.OutOfMemoryError:
        if one and (whole or 2 * job.pieces > batch):
            raise InputError(
                f"the memory of {device} does not suffice for one setting at a time"
                + (" (BatchNorm and exchanged masks need whole batches)" if whole else "")
                + f"; lower batch_size ({batch}), or use smaller networks or images; in a command "
                "use, of these, the options that it has: a smaller --size, --network small, fewer "
                "--jobs, another --device."
            ) from None
    program = None  # type: ignore[assignment]  # what it holds must go before others start
    let_go(device)
    if resumed:
        return _in_halves_after(ready[0], job)
    if one:
        say_once(
            "batches",
            f"the memory of {device} does not suffice for batches of {batch} rows; they go "
            "through the networks in smaller parts, to the same result.",
        )
        return _fit(replace(job, pieces=2 * job.pieces))
    say_once(
        "settings",
        f"the memory of {device} does not suffice for {len(settings.seeds)} × "
        f"{len(settings.levels)} settings at once; they are trained in two halves, to the same "
        "result.",
    )
    if ready:
        return _in_halves_after(ready[0], job)
    return _in_halves_after(_fit(job.predictor()), job) if job.predictor_alone else _in_halves(job)


def _in_halves_after(first: Trained, job: _Job) -> Trained:
    """One predictor serves the selectors of all levels, so it is not trained again for each."""
    return _in_halves(job.selectors(first.stacks["predictor"])).after(first)


def _in_halves(job: _Job) -> Trained:
    first, second = job.halves()
    return Trained.join(
        [
            _fit(replace(first, path=job.path_with(1), pieces=1, part=True)),
            _fit(replace(second, path=job.path_with(2), pieces=1)),
        ]
    )


def _some(stack: Stack, part: slice) -> Stack:
    """Some of the networks of a stack, which stays as it is."""
    own = copy(stack)
    own.take(torch.arange(stack.count, device=stack.flat.device)[part])
    return own
