"""The training loop: one program for one setting or many.

Each epoch: shuffle, step through the batches, validate, keep what is best per setting, write a
checkpoint now and then. Nothing here depends on the wall clock but *when* a checkpoint is
written, and a resumed run gives the result of an unbroken one whatever checkpoint it starts from.
"""

from __future__ import annotations

import time
import warnings
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmasked.errors import InputError, InterruptedWarning
from unmasked.training import checkpoint
from unmasked.training.device import fast_products, flushed_denormals
from unmasked.training.options import Training
from unmasked.training.program import Program
from unmasked.training.progress import Bar, Interrupt, Show
from unmasked.training.step import Optimiser, Stepper
from unmasked.training.trained import Keeper, Trained

_SECONDS_BETWEEN_CHECKPOINTS = 5.0
# Rows × steps × what is trained apart (settings, or worlds). On one H200 a REAL-X step of 21
# settings took 1.47 ms captured, and 1.22 ms compiled and captured; compiling took 11 to 27 s.
_WORK_WORTH_COMPILING = 2e9
# The same of convolutions, which are compiled network by network: CNN((16, 32, 64, 128, 128),
# fold=2) took 2.05 ms for a step of 64 films of 128 × 128, compiled 0.98; compiling took 14 to
# 25 s for each shape of rows, and REAL-X has three: with 7e5 nothing was gained.
_CONVOLUTIONS_WORTH_COMPILING = 1.5e6
_SAVING_SHARE = 20  # a checkpoint that takes t seconds is written every 20 t at most


@dataclass
class _State:
    """Phase, epoch, history and seconds that a run has come to, as a checkpoint keeps them."""

    phase: int = 0
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        program: Program,
        training: Training,
        path: Path | None,
        pieces: int = 1,
        first_phase: int = 0,
        *,
        begin: int = 0,
        part: bool = False,
    ) -> None:
        self.program, self.training, self.path = program, training, path
        self.pieces, self.first_phase, self.part = pieces, first_phase, part
        self.phases, self.begin = program.method.phases, begin
        self.state = _State(phase=begin)
        self.started = self.saved_at = time.monotonic()
        self.saving = 0.0
        self.total: Tensor | None = None
        self.summed = 0
        self.finished = False  # before this began
        self.name = ""
        if path is not None:
            m, stacks = program.method, program.stacks
            data = [t for rows in (program.train, program.valid) for t in rows.tensors()]
            parts = [m.masker, *((name, own.source) for name, own in m.learners.items())]
            parts += [] if m.selector is None else [m.selector.sampler, m.selector.baseline]
            networks = {name: str(stack.template) for name, stack in stacks.items()}
            self.name = checkpoint.fingerprint(
                f"{parts} {[sorted(p) for p in m.phases]} {training} {program.settings} "
                f"{first_phase} {program.judged_by}"
                f"{program.dtype} {program.device.type} {networks}",
                [*data, *(t for stack in stacks.values() for t in stack.state().values())],
            )
        self._enter_phase()

    def _enter_phase(self) -> None:
        program, trains = self.program, self.phases[self.state.phase]
        program.reset()
        self.keeper = Keeper(
            len(program.slots(trains)), self.training.patience, last=self.training.keep == "last"
        )
        self.optimisers = {
            name: Optimiser(
                program.stacks[name],
                self.training,
                selector=name == "selector",
                delayed=name == "selector" and len(trains) > 1,
            )
            for name in sorted(trains)
        }
        if self.training.price_rise and "selector" in trains:
            program.price_share = torch.ones((), dtype=program.dtype, device=program.device)
            self._share = 1.0
        self.stepper = self._stepper()

    def _stepper(self) -> Stepper:
        return Stepper(
            self.program,
            self.trains,
            self.optimisers,
            compiles=self._compiles(),
            augment=self.training.augment,
            pieces=self.pieces,
        )

    def _compiles(self) -> bool:
        """Return True where compiling the losses pays: on CUDA, in a run with enough work."""
        program = self.program
        work = self._epochs() * self._steps * self._batch * len(program.slots(self.trains))
        convolves = any(stack.mode == "each" for stack in program.stacks.values())
        least = _CONVOLUTIONS_WORTH_COMPILING if convolves else _WORK_WORTH_COMPILING
        return program.device.type == "cuda" and work >= least

    @property
    def _phase(self) -> int:
        """The phase that runs, counted from the first of all runs that follow each other."""
        return self.first_phase + self.state.phase

    @property
    def trains(self) -> frozenset[str]:
        return self.phases[self.state.phase]

    @property
    def _judged(self) -> list[str]:
        """Name what a score judges: also a frozen predictor, which leaves the stack row by row."""
        return sorted({"predictor", *self.trains} & {"predictor", "selector"})

    def run(
        self,
        bar: Bar,
        interrupt: Interrupt,
        ready: list[Trained] | None = None,
        *,
        in_halves: bool = False,
    ) -> bool:
        """Train all phases; whether the user cut it short. ``ready`` and ``in_halves``: `train`."""
        bar.update(self.passes if self.finished else self._passed)
        while True:
            if ready is not None and self.state.phase > self.begin and not self.finished:
                ready += self._predictors()
                if ready and in_halves:
                    raise SelectorsInHalves
            while self.state.epoch < self._epochs() and bool(self.keeper.active.any()):
                complete = self._epoch(interrupt)
                self._judge(bar, interrupt)
                if not complete or interrupt.asked:
                    return self._cut_short()
                self.state.epoch += 1
                self._compact()
                self._save_sometimes()
            self._restore_best()
            if self.state.phase + 1 == len(self.phases):
                self.save_now(finished=True)
                return False
            self.state.phase, self.state.epoch = self.state.phase + 1, 0
            self._enter_phase()
            self.save_now()

    def _predictors(self) -> list[Trained]:
        """The predictors, which stay as they are from now on; none where worlds have left."""
        stack = copy(self.program.stacks["predictor"])
        if stack.count != len(self.program.settings.seeds):
            return []
        history = [note for note in self.state.history if note["phase"] < self._phase]
        return [Trained({"predictor": stack}, [], [], history, False, self.seconds)]

    def _cut_short(self) -> bool:
        if self.part or self.state.phase + 1 < len(self.phases) or self._waiting:
            raise KeyboardInterrupt  # nothing to explain with yet; the checkpoint stays
        self._restore_best()
        return True

    def _epochs(self, phase: int | None = None) -> int:
        """Passes of a phase, by default the one that runs."""
        training, now = self.training, self.state.phase if phase is None else phase
        assert training.epochs is not None  # resolved by `fit`
        first = now + 1 < len(self.phases)  # of a predictor; its selector is trained last
        return training.predictor_epochs or training.epochs if first else training.epochs

    @property
    def passes(self) -> int:
        """Passes of all phases."""
        return sum(map(self._epochs, range(len(self.phases))))

    @property
    def _passed(self) -> int:
        """Passes that were made, of all phases; where all settings stopped early, of this one."""
        return sum(map(self._epochs, range(self.state.phase))) + self.state.epoch

    @property
    def _batch(self) -> int:
        assert self.training.batch_size is not None  # resolved by `fit`
        return self.training.batch_size

    @property
    def _steps(self) -> int:
        """Steps of an epoch."""
        return self.program.train.rows // self._batch

    def _epoch(self, interrupt: Interrupt) -> bool:
        """One pass over the rows; False if the user asked to stop on the way."""
        program, state = self.program, self.state
        batch, steps = self._batch, self._steps
        order = program.orders(program.seeds, self._phase, state.epoch)  # (W, rows)
        slots = program.slots(self.trains)
        active = self._active(slots)
        if self.total is None or len(self.total) != len(slots):
            self.total = torch.zeros(len(slots), dtype=torch.float64, device=program.device)
            self.summed = 0
        for step in range(steps):
            if interrupt.asked:
                return False
            rows = order[:, step * batch : (step + 1) * batch]
            now = state.epoch * steps + step
            for optimiser in self.optimisers.values():
                optimiser.set_pace(now, self._epochs() * steps)
            self._set_price(now)
            self.total += self.stepper(rows, self._phase, now, active)
            self.summed += 1
        return True

    def _set_price(self, step: int) -> None:
        """Charge the share of the price that this step has come to."""
        if self.program.price_share is not None:
            steps = self._epochs() * self._steps
            late = self.optimisers["selector"].late(steps)
            share = self.training.price_share(max(0, step - late), steps - late)
            if share != self._share:  # a launch on the GPU
                self._share = share
                self.program.price_share.fill_(share)

    def _mean_loss(self) -> list[float]:
        """Mean training loss of each slot since the last validation."""
        assert self.total is not None
        mean: list[float] = (self.total / max(1, self.summed)).tolist()
        self.total = None
        return mean

    def _active(self, slots: Tensor) -> dict[str, Tensor | None]:
        """Mark the networks of each stack in training that still move; None where none can stop."""
        if self.training.patience is None:
            return dict.fromkeys(self.optimisers)
        active = self.keeper.active[slots]
        worlds = active.reshape(len(self.program.worlds), -1).any(1)
        return {
            name: (worlds if self.program.method.shared(name) else active).to(self.program.device)
            for name in self.optimisers
        }

    def _validates(self, interrupt: Interrupt) -> bool:
        """Return True if this epoch is due for validation, is the last, or was told to stop."""
        epoch, every = self.state.epoch + 1, self.training.validate_every
        return interrupt.asked or epoch % every == 0 or epoch == self._epochs()

    def _judge(self, bar: Bar, interrupt: Interrupt) -> None:
        """Validate, keep what is best (or last), note it down."""
        program, state = self.program, self.state
        done = self._passed + 1
        if not self._validates(interrupt):
            bar.update(done)
            return
        loss = self._mean_loss()
        slots = program.slots(self.trains)
        scores = program.validate(self.trains)
        if self._waiting:  # a selector that has not moved yet cannot be the best, nor lose patience
            self.keeper.epoch.fill_(state.epoch)
        else:
            self.keeper.update(slots, scores["score"], state.epoch, self._current())
        state.history.append(
            {
                "phase": self._phase,
                "trains": sorted(self.trains),
                "epoch": state.epoch,
                "waiting": self._waiting,
                "slots": slots.tolist(),
                "loss": loss,
                **{name: value.tolist() for name, value in scores.items()},
            }
        )
        fraction = scores["fraction"].mean().item() if "fraction" in scores else None
        bar.update(done, sum(loss) / len(loss), fraction)

    @property
    def _waiting(self) -> bool:
        """Return True if the selector still waits for its predictor at the end of this epoch."""
        selector = self.optimisers.get("selector")
        late = 0 if selector is None else selector.late(self._epochs() * self._steps)
        return (self.state.epoch + 1) * self._steps <= late

    def _current(self) -> dict[str, Tensor]:
        """The weights that were just judged, one row for each slot."""
        program = self.program
        current: dict[str, Tensor] = {}
        for name in self._judged:
            state = program.stacks[name].state()
            if program.method.shared(name) and program.per_setting(self.trains):
                repeat = len(program.columns)  # keep the predictor each setting was judged with
                state = {k: v.repeat_interleave(repeat, 0) for k, v in state.items()}
            current |= {f"{name}/{key}": value for key, value in state.items()}
        return current

    def _restore_best(self) -> None:
        """Put the kept weights back into the stacks, for all slots."""
        if not bool(torch.isfinite(self.keeper.score).all()):
            raise InputError(
                "training did not reach a finite validation score; "
                f"lower learning_rate ({self.training.learning_rate}) or selector_learning_rate "
                f"({self.training.selector_learning_rate}), or check the data for extreme values."
            )
        self.program.reset()
        for name in self._judged:
            prefix = f"{name}/"
            self.program.stacks[name].load(
                {
                    key.removeprefix(prefix): value
                    for key, value in self.keeper.kept.items()
                    if key.startswith(prefix)
                }
            )

    def _compact(self) -> None:
        """Stop computing what has stopped; when all has, the run ends anyway."""
        if not bool(self.keeper.active.any()):
            return
        kept = self.program.compact(self.trains, self.keeper.active)
        for name, rows in kept.items():
            if name in self.optimisers:
                self.optimisers[name].take(rows)
        if kept:
            self.stepper = self._stepper()

    def _save_sometimes(self) -> None:
        wait = max(_SECONDS_BETWEEN_CHECKPOINTS, _SAVING_SHARE * self.saving)
        if time.monotonic() - self.saved_at >= wait:
            self.save_now()

    def save_now(self, *, finished: bool = False) -> None:
        """Write the checkpoint, if one is wanted; of a finished run, only what was kept."""
        if self.path is None:
            return
        started = time.monotonic()
        program, state = self.program, self.state
        tensors = {f"keeper/{k}": v for k, v in self.keeper.state().items()}
        if not finished:
            for name, stack in program.stacks.items():
                tensors |= {f"stack/{name}/{k}": v for k, v in stack.state().items()}
            for name, optimiser in self.optimisers.items():
                tensors |= {f"optimiser/{name}/{k}": v for k, v in optimiser.state().items()}
            if self.total is not None:
                tensors["loss"] = self.total
        values = {
            "finished": finished,
            "phase": state.phase,
            "epoch": state.epoch,
            "history": state.history,
            "seconds": self.seconds,
            "summed": self.summed,
            "worlds": program.worlds,
            "columns": program.columns,
        }
        checkpoint.write(self.path, self.name, values, tensors)
        self.saved_at = time.monotonic()
        self.saving = self.saved_at - started

    @property
    def seconds(self) -> float:
        return self.state.seconds + time.monotonic() - self.started

    def resume(self) -> bool:
        """Continue from the checkpoint; whether there was one."""
        found = None if self.path is None else checkpoint.read(self.path, self.name)
        if found is None:
            return False
        values, tensors = found
        self.state = _State(values["phase"], values["epoch"], values["history"], values["seconds"])
        self._enter_phase()
        program = self.program
        program.worlds, program.columns = values["worlds"], values["columns"]

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.keeper.load(part("keeper/"), program.device)
        if values["finished"]:
            self.finished = True
            return True
        if "loss" in tensors:
            self.total, self.summed = tensors["loss"].to(program.device), values["summed"]
        for name, stack in program.stacks.items():
            stack.load(part(f"stack/{name}/"))
        for name, optimiser in self.optimisers.items():
            optimiser.load(part(f"optimiser/{name}/"))
        return True


class SelectorsInHalves(Exception):  # no error: an earlier try went on so
    """The predictors are ready, and their selectors were trained in halves before."""


def train(
    program: Program,
    training: Training,
    path: Path | None,
    show: Show,
    title: str,
    pieces: int = 1,
    first_phase: int = 0,
    *,
    begin: int = 0,
    part: bool = False,
    ready: list[Trained] | None = None,
    in_halves: bool = False,
) -> Trained:
    """Train one program from its start, or from its checkpoint, to the end.

    ``pieces``: each batch goes through the networks in so many parts, to the same result.
    ``first_phase``: how many phases went before in other programs; their noise does not come back.
    ``begin``: the first phase to train; what those before it train comes trained.
    ``part``: alone the result is of no use, so Ctrl-C keeps the checkpoint only.
    ``ready``: takes predictors that are finished before their selectors start, for those who go
    on otherwise if memory ends there; at once (`SelectorsInHalves`) if selectors are ``in_halves``.
    """
    run = _Run(program, training, path, pieces, first_phase, begin=begin, part=part)
    if path is not None and not run.resume():
        checkpoint.check_writable(path)  # noticed before the work, not after
    with (
        flushed_denormals(),
        fast_products(program.device),
        Interrupt() as interrupt,
        Bar(title, run.passes, show) as bar,
    ):
        interrupted = run.run(bar, interrupt, ready, in_halves=in_halves)
    if interrupted:
        warnings.warn(
            f"training was interrupted in epoch {run.state.epoch + 1} of {training.epochs}; "
            "the best networks so far are kept.",
            InterruptedWarning,
            stacklevel=3,
        )
    for stack in program.stacks.values():
        stack.forget()
    return Trained(
        stacks={n: s for n, s in program.stacks.items() if n in ("predictor", "selector")},
        scores=run.keeper.score.tolist(),
        epochs=run.keeper.epoch.tolist(),
        history=run.state.history,
        interrupted=interrupted,
        seconds=run.seconds,
    )
