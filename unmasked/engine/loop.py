"""The training loop: one program for one setting or many.

Each epoch: shuffle, step through the batches, validate, keep what is best per setting, write a
checkpoint now and then. Nothing here depends on the wall clock but *when* a checkpoint is
written, and a resumed run gives the result of an unbroken one whatever checkpoint it starts from.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmasked.engine import checkpoint, noise
from unmasked.engine.device import choose_device, flushed_denormals
from unmasked.engine.keep import Keeper
from unmasked.engine.method import Data, Method, Settings
from unmasked.engine.options import Training
from unmasked.engine.program import Program
from unmasked.engine.progress import Bar, Interrupt, Show
from unmasked.errors import InputError, InterruptedWarning

_SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class Trained:
    """What came out, one entry for each setting (for each world where there is no selector)."""

    predictors: list[nn.Module]
    selectors: list[nn.Module]
    scores: list[float]
    epochs: list[int]
    history: list[dict[str, Any]]
    interrupted: bool
    seconds: float


@dataclass
class _State:
    """How far a run is; together with the stacks, all that a checkpoint holds."""

    phase: int = 0
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class _Optimiser:
    """AdamW on a stack's flat parameters, with clipping and stopping for each row."""

    def __init__(self, program: Program, name: str, training: Training, *, delayed: bool) -> None:
        self.stack, self.training = program.stack(name), training
        self.peak = (
            training.selector_learning_rate if name == "selector" else training.learning_rate
        )
        self.delay = training.selector_delay if delayed else 0.0
        self._make()

    def _make(self) -> None:
        self.adam = torch.optim.AdamW(
            [self.stack.flat], lr=1.0, weight_decay=self.training.weight_decay
        )

    def late(self, steps: int) -> int:
        """How many of the steps this stack waits."""
        return int(self.delay * steps)

    def pace(self, step: int, steps: int) -> float:
        """Share of the peak rate in this step; a selector beside a predictor starts later."""
        late = self.late(steps)
        return 0.0 if step < late else self.training.pace(step - late, steps - late)

    def step(self, gradient: Tensor, pace: float, active: Tensor) -> None:
        """Move the active rows along −gradient (count, parameters)."""
        flat = self.stack.flat
        if self.training.clip is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self.training.clip / norm.clamp_min(self.training.clip))
        flat.grad = gradient
        before = None if bool(active.all()) else flat.clone()
        for group in self.adam.param_groups:
            group["lr"] = self.peak * pace
        self.adam.step()
        if before is not None:
            flat.copy_(torch.where(active.to(flat.device)[:, None], flat, before))

    def state(self) -> dict[str, Tensor]:
        (flat,) = self.adam.param_groups[0]["params"]  # not the stack's, which may be new by now
        values = self.adam.state.get(flat, {})
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Attach to the stack's present parameters with these moments."""
        self._make()
        if state:
            flat = self.stack.flat
            self.adam.state[flat] = {
                name: value if name == "step" else value.to(flat) for name, value in state.items()
            }

    def take(self, rows: Tensor) -> None:
        """Follow the stack after it kept ``rows`` only."""
        state = {k: v if k == "step" else v[rows.to(v.device)] for k, v in self.state().items()}
        self.load(state)


class _Run:
    """One call of `fit`."""

    def __init__(self, program: Program, training: Training, path: Path | None) -> None:
        self.program, self.training, self.path = program, training, path
        self.phases = program.method.phases
        self.state = _State()
        self.started = self.saved_at = time.monotonic()
        self.name = ""
        if path is not None:
            data = [program.train.x, program.train.target, program.valid.x, program.valid.target]
            stacks = [program.predictor.flat]
            if program.selector is not None:
                stacks.append(program.selector.flat)
            m = program.method
            networks = [str(s.template) for s in (program.predictor, program.selector) if s]
            self.name = checkpoint.fingerprint(
                f"{m.masker} {m.law} {m.sampler} {[sorted(p) for p in m.phases]} {training} "
                f"{program.settings} {program.dtype} {program.device.type} {networks}",
                [*data, *stacks],
            )
        self._enter_phase()

    def _enter_phase(self) -> None:
        program, trains = self.program, self.phases[self.state.phase]
        program.reset()
        self.keeper = Keeper(len(program.slots(trains)), self.training.patience)
        self.optimisers = {
            name: _Optimiser(
                program, name, self.training, delayed=name == "selector" and len(trains) > 1
            )
            for name in trains
        }

    @property
    def trains(self) -> frozenset[str]:
        return self.phases[self.state.phase]

    @property
    def _judged(self) -> list[str]:
        """What a score belongs to: also a frozen predictor, which leaves the stack row by row."""
        return sorted({"predictor", *self.trains})

    def run(self, bar: Bar, interrupt: Interrupt) -> bool:
        """Train all phases; whether the user cut it short."""
        epochs = self._epochs()
        while True:
            while self.state.epoch < epochs and bool(self.keeper.active.any()):
                complete = self._epoch(interrupt)
                self._judge(bar)
                if not complete or interrupt.asked:
                    return self._cut_short()
                self.state.epoch += 1
                self._compact()
                self._save_sometimes()
            self._restore_best()
            if self.state.phase + 1 == len(self.phases):
                self.save_now()
                return False
            self.state.phase, self.state.epoch = self.state.phase + 1, 0
            self._enter_phase()
            self.save_now()

    def _cut_short(self) -> bool:
        if self.state.phase + 1 < len(self.phases) or self._waiting:
            raise KeyboardInterrupt  # nothing to explain with yet; the checkpoint stays
        self._restore_best()
        return True

    def _epochs(self) -> int:
        assert self.training.epochs is not None  # resolved by `fit`
        return self.training.epochs

    def _epoch(self, interrupt: Interrupt) -> bool:
        """One pass over the rows; False if the user asked to stop on the way."""
        program, state = self.program, self.state
        assert self.training.batch_size is not None
        batch = self.training.batch_size
        steps = program.train.rows // batch
        order = torch.stack(
            [
                noise.permutation(
                    program.train.rows, program.device, seed, f"order {state.phase}", state.epoch
                )
                for seed in program.seeds
            ]
        )  # (worlds, rows)
        slots = program.slots(self.trains)
        active = self.keeper.active[slots]
        worlds = active.reshape(len(program.worlds), -1).any(1)
        total = torch.zeros(len(slots), dtype=torch.float64, device=program.device)
        done = 0
        for step in range(steps):
            if interrupt.asked:
                break
            rows = order[:, step * batch : (step + 1) * batch]
            leaves = {name: program.stack(name).weights(learn=True) for name in self.trains}
            losses = program.losses(
                self.trains,
                leaves,
                program.train.x[rows],
                program.train.target[rows],
                state.phase * 1_000_000 + state.epoch,
                step,
            )
            names = [(name, key) for name in leaves for key in leaves[name]]
            gradients = torch.autograd.grad(
                torch.stack([loss.sum() for loss in losses.values()]).sum(),
                [leaves[name][key] for name, key in names],
            )
            now, end = state.epoch * steps + step, self._epochs() * steps
            for name, optimiser in self.optimisers.items():
                own = [g for g, (owner, _) in zip(gradients, names, strict=True) if owner == name]
                stack = program.stack(name)
                optimiser.step(
                    stack.gather(own),
                    optimiser.pace(now, end),
                    active if name == "selector" else worlds,
                )
            judged = losses["selector" if "selector" in self.trains else "predictor"]
            total += judged.detach().flatten().double()
            done += 1
        self.mean_loss = (total / max(1, done)).tolist()
        return done == steps

    def _judge(self, bar: Bar) -> None:
        """Validate, keep what is best, note it down."""
        program, state = self.program, self.state
        slots = program.slots(self.trains)
        scores = program.validate(self.trains)
        if self._waiting:  # a selector that has not moved yet cannot be the best, nor lose patience
            self.keeper.epoch.fill_(state.epoch)
        else:
            self.keeper.update(slots, scores["score"], state.epoch, self._current())
        state.history.append(
            {
                "phase": state.phase,
                "trains": sorted(self.trains),
                "epoch": state.epoch,
                "waiting": self._waiting,
                "slots": slots.tolist(),
                "loss": self.mean_loss,
                **{name: value.tolist() for name, value in scores.items()},
            }
        )
        fraction = scores["fraction"].mean().item() if "fraction" in scores else None
        done = state.phase * self._epochs() + state.epoch + 1
        bar.update(done, sum(self.mean_loss) / len(self.mean_loss), fraction)

    @property
    def _waiting(self) -> bool:
        """Whether the selector still waits for its predictor at the end of this epoch."""
        assert self.training.batch_size is not None
        steps = self.program.train.rows // self.training.batch_size
        selector = self.optimisers.get("selector")
        late = 0 if selector is None else selector.late(self._epochs() * steps)
        return (self.state.epoch + 1) * steps <= late

    def _current(self) -> dict[str, Tensor]:
        """The weights that were just judged, one row for each slot."""
        program = self.program
        current: dict[str, Tensor] = {}
        for name in self._judged:
            state = program.stack(name).state()
            if name == "predictor" and "selector" in self.trains:
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
            self.program.stack(name).load(
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
        for name, rows in self.program.compact(self.trains, self.keeper.active).items():
            if name in self.optimisers:
                self.optimisers[name].take(rows)

    def _save_sometimes(self) -> None:
        if time.monotonic() - self.saved_at >= _SECONDS_BETWEEN_CHECKPOINTS:
            self.save_now()

    def save_now(self) -> None:
        """Write the checkpoint, if one is wanted."""
        if self.path is None:
            return
        self.saved_at = time.monotonic()
        program, state = self.program, self.state
        tensors = {f"keeper/{k}": v for k, v in self.keeper.state().items()}
        for name in ("predictor", "selector")[: 1 if program.selector is None else 2]:
            tensors |= {f"stack/{name}/{k}": v for k, v in program.stack(name).state().items()}
        for name, optimiser in self.optimisers.items():
            tensors |= {f"optimiser/{name}/{k}": v for k, v in optimiser.state().items()}
        values = {
            "phase": state.phase,
            "epoch": state.epoch,
            "history": state.history,
            "seconds": self.seconds,
            "worlds": program.worlds,
            "columns": program.columns,
        }
        checkpoint.write(self.path, self.name, values, tensors)

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

        for name in ("predictor", "selector")[: 1 if program.selector is None else 2]:
            program.stack(name).load(part(f"stack/{name}/"))
        for name, optimiser in self.optimisers.items():
            optimiser.load(part(f"optimiser/{name}/"))
        self.keeper.load(part("keeper/"), program.device)
        return True


def fit(
    method: Method,
    settings: Settings,
    train: Data,
    valid: Data,
    training: Training | None = None,
    *,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    path: Path | None = None,
    show: Show = "auto",
    title: str = "training",
) -> Trained:
    """Train a method in all settings as one stacked program.

    ``path`` names a checkpoint file: a run that was killed continues from it, to the same result.
    Ctrl-C ends training after the current step and keeps the best weights so far; before a
    selector has started there is nothing to keep, and KeyboardInterrupt is raised.
    """
    if not train.rows or not valid.rows:
        raise InputError(
            f"training needs rows to learn from and rows to validate on, but got {train.rows} "
            f"and {valid.rows}; give more rows."
        )
    options = (training or Training()).resolve(train.rows)
    program = Program(method, settings, train, valid, choose_device(device), dtype)
    run = _Run(program, options, path)
    if not run.resume():
        run.save_now()  # a place that cannot be written is noticed before the work, not after
    assert options.epochs is not None
    total = options.epochs * len(method.phases)
    with flushed_denormals(), Interrupt() as interrupt, Bar(title, total, show) as bar:
        interrupted = run.run(bar, interrupt)
    if interrupted:
        warnings.warn(
            f"training was interrupted in epoch {run.state.epoch + 1} of {options.epochs}; "
            "the best networks so far are kept.",
            InterruptedWarning,
            stacklevel=2,
        )
    selector = program.selector
    return Trained(
        predictors=[program.predictor.module(i) for i in range(program.predictor.count)],
        selectors=[] if selector is None else [selector.module(i) for i in range(selector.count)],
        scores=run.keeper.score.tolist(),
        epochs=run.keeper.epoch.tolist(),
        history=run.state.history,
        interrupted=interrupted,
        seconds=run.seconds,
    )
