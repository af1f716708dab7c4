"""Take one training step: AdamW on a stack; on CUDA compiled and captured as a graph.

The captured step reads fixed places in memory (which rows, the noise, the learning rates, which
rows are active); running it is copying into those places and one launch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from unmasked.errors import InputError, UnmaskedWarning
from unmasked.training import noise
from unmasked.training.options import Training
from unmasked.training.program import Program
from unmasked.training.rows import Batch
from unmasked.training.stack import Stack, Weights


class Optimiser:
    """Moves a stack's flat parameters. Rows (networks) never mix.

    In a CUDA graph the learning rate is a tensor on the device, so that a captured step follows
    the schedule.
    """

    def __init__(self, stack: Stack, training: Training, *, selector: bool, delayed: bool) -> None:
        self.stack, self.training = stack, training
        self.peak = training.selector_learning_rate if selector else training.learning_rate
        self.delay = training.selector_delay if delayed else 0.0
        self._make()

    def _make(self) -> None:
        flat = self.stack.flat
        self._pace = -1.0
        on_device = flat.device.type == "cuda"
        self.rate: Tensor | float = torch.ones((), device=flat.device) if on_device else 1.0
        # AdamW counts its steps in single precision
        self.steps = torch.zeros((), device=flat.device)
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)

    def late(self, steps: int) -> int:
        """Return the number of ``steps`` that this stack waits before it moves."""
        return int(self.delay * steps)

    def set_pace(self, step: int, steps: int) -> None:
        """Set the rate of step ``step`` of ``steps``; a selector may have to wait."""
        late = self.late(steps)
        pace = 0.0 if step < late else self.training.pace(step - late, steps - late)
        if pace == self._pace:
            return
        self._pace = pace
        if isinstance(self.rate, Tensor):
            self.rate.fill_(self.peak * pace)
        else:
            self.rate = self.peak * pace

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """Move along −gradient (count, parameters); only rows in ``active`` (count,) if given."""
        flat, training = self.stack.flat, self.training
        coupled = bool(training.l2) and not training.weight_decay and training.clip is None
        if training.l2 and not coupled:
            gradient = torch.add(gradient, flat, alpha=2 * training.l2)
        if training.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * (training.clip / norm.clamp_min(training.clip))
        before = None if active is None else flat.clone()
        # torch's own function: its class costs as much as a small step, and a second to import
        (adam if coupled else adamw)(
            [flat], [gradient], [self.mean], [self.square], [], [self.steps],
            fused=True,
            capturable=flat.device.type == "cuda",
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.rate,
            weight_decay=2 * training.l2 if coupled else training.weight_decay,
            eps=1e-8,
            maximize=False,
        )  # fmt: skip
        if before is not None and active is not None:
            flat.copy_(torch.where(active.unsqueeze(1), flat, before))

    def state(self) -> dict[str, Tensor]:
        """Adam's moments and count of steps, by name."""
        return {"step": self.steps, "exp_avg": self.mean, "exp_avg_sq": self.square}

    def load(self, state: dict[str, Tensor]) -> None:
        """Attach to the stack's present parameters with these moments."""
        self._make()
        self.steps.copy_(state["step"])
        self.mean.copy_(state["exp_avg"])
        self.square.copy_(state["exp_avg_sq"])

    def take(self, rows: Tensor) -> None:
        """Follow the stack after it kept ``rows`` only."""
        self.load({k: v if k == "step" else v[rows.to(v.device)] for k, v in self.state().items()})


Augment = Callable[[Tensor, Tensor], Tensor]
_CHANCES = 8  # uniform numbers that an augmentation has for each row
_LOSS = ""  # no network is called so
_WARM_UP = 3  # steps that torch wants to see before it captures


class Stepper:
    """Runs the steps of one phase for the worlds and settings that compute now."""

    def __init__(
        self,
        program: Program,
        trains: frozenset[str],
        optimisers: dict[str, Optimiser],
        *,
        compiles: bool = False,
        augment: Augment | None = None,
        pieces: int = 1,
    ) -> None:
        self.program, self.trains, self.optimisers = program, trains, optimisers
        self.judged = "selector" if "selector" in trains else "predictor"
        self._compiled: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captures = program.device.type == "cuda" and not program.random_layers
        self._compiles = compiles
        self._augment, self._pieces = augment, pieces

    def __call__(
        self, rows: Tensor, phase: int, step: int, active: dict[str, Tensor | None]
    ) -> Tensor:
        """Step number ``step`` of a phase, on ``rows`` (W, B).

        Returns the loss of what is judged, one for each slot.
        """
        augments = _CHANCES if self._augment is not None else 0
        draws = self.program.noise(self.trains, rows.shape[1], phase, step, augments)
        if not self._captures:
            with self._layers_noise(phase, step):
                return self._step(rows, draws, active)
        if self._graph is None:
            self._capture(rows, draws, active)
        assert self._graph is not None
        self._rows.copy_(rows)
        for name, value in draws.items():
            self._noise[name].copy_(value)
        for name, which in active.items():
            if which is not None:
                own = self._active[name]
                assert own is not None
                own.copy_(which)
        self._graph.replay()
        return self._loss

    def _losses(self, leaves: dict[str, Weights], batch: Batch) -> dict[str, Tensor]:
        return self.program.losses(self.trains, leaves, batch)

    def _step(
        self, rows: Tensor, draws: dict[str, Tensor], active: dict[str, Tensor | None]
    ) -> Tensor:
        """Gradients of the batch, in pieces where memory is short, then a step of each stack."""
        total = rows.shape[1]
        size = -(-total // self._pieces)
        sums: dict[str, Tensor] = {}
        for start in range(0, total, size):
            found = self._gradients(rows[:, start : start + size], draws, start)
            share = min(size, total - start) / total  # every loss is a mean over rows
            for name, value in found.items():
                part = value if share == 1 else share * value
                sums[name] = sums[name] + part if name in sums else part
        for name, optimiser in self.optimisers.items():
            optimiser.step(sums[name], active[name])
        return sums[_LOSS]

    def _gradients(self, rows: Tensor, draws: dict[str, Tensor], start: int) -> dict[str, Tensor]:
        """Each stack's gradient for some rows of a batch, and the loss of what is judged."""
        some = slice(start, start + rows.shape[1])
        leaves, batch = self._inputs(rows, {name: u[:, :, some] for name, u in draws.items()})
        losses = (self._compiled or self._losses)(leaves, batch)
        names = [(name, key) for name in leaves for key in leaves[name]]
        gradients = torch.autograd.grad(
            torch.stack([loss.sum() for loss in losses.values()]).sum(),
            [leaves[name][key] for name, key in names],
            allow_unused=True,  # a user's network may have layers that take no part
            materialize_grads=True,
        )
        found = {_LOSS: losses[self.judged].detach().flatten()}
        for name in self.optimisers:
            own = [g for g, (owner, _) in zip(gradients, names, strict=True) if owner == name]
            found[name] = self.program.stacks[name].gather(own)
        return found

    def _inputs(self, rows: Tensor, draws: dict[str, Tensor]) -> tuple[dict[str, Weights], Batch]:
        """Weights that take gradients, and the batch."""
        program = self.program
        leaves = {name: program.stacks[name].weights(learn=True) for name in self.optimisers}
        x, target, masks = program.train.take(program.worlds, program.columns, rows)
        if self._augment is not None:
            u = draws["augment"][:, 0]  # (W, B, 8)
            rows_of_all = x.flatten(0, 1)
            changed = self._augment(rows_of_all, u.flatten(0, 1))
            if not isinstance(changed, Tensor) or changed.shape != rows_of_all.shape:
                came = getattr(changed, "shape", None)
                raise InputError(
                    f"augment must return rows of shape {tuple(rows_of_all.shape)} but returned "
                    f"{type(changed).__name__ if came is None else tuple(came)}."
                )
            x = changed.reshape(x.shape)
        return leaves, Batch(x, target, masks, draws)

    # ------------------------------------------------------------------ CUDA

    def _capture(
        self, rows: Tensor, draws: dict[str, Tensor], active: dict[str, Tensor | None]
    ) -> None:
        self._rows = rows.clone()
        self._noise = {name: value.clone() for name, value in draws.items()}
        self._active = {
            name: None if value is None else value.clone() for name, value in active.items()
        }
        stacks = [self.program.stacks[name] for name in self.optimisers]
        before = [{k: v.clone() for k, v in stack.state().items()} for stack in stacks]
        moments = [
            {k: v.clone() for k, v in optimiser.state().items()}
            for optimiser in self.optimisers.values()
        ]
        with ExitStack() as compiled:
            if self._compiles:
                self._compile(compiled)
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP):
                    self._step(self._rows, self._noise, self._active)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._loss = self._step(self._rows, self._noise, self._active)
        self._graph = graph
        with torch.no_grad():  # warming up has moved the weights: put all back where it was
            for stack, state in zip(stacks, before, strict=True):
                for name, value in stack.state().items():
                    value.copy_(state[name])
            for optimiser, state in zip(self.optimisers.values(), moments, strict=True):
                for name, value in optimiser.state().items():
                    value.copy_(state[name]) if name in state else value.zero_()

    def _compile(self, compiled: ExitStack) -> None:
        """Compile the losses, or networks that run one at a time, for as long as ``compiled`` is
        open; where no compiler works, the graph is captured without."""
        # once for each program, and again when settings have left it: torch counts per function
        torch.compiler.reset()
        stacks = self.program.stacks.values()
        if any(stack.mode == "each" for stack in stacks):
            for stack in stacks:
                compiled.enter_context(stack.compiled())
        else:
            self._compiled = torch.compile(self._losses, dynamic=False)
        try:
            with warnings.catch_warnings():  # torch's tracer looks at weights that are views
                warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor")
                self._step(self._rows, self._noise, self._active)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self._compiled = None
            compiled.close()
            detail = (str(error) or type(error).__name__).splitlines()[0]
            warnings.warn(
                f"the training step could not be compiled ({detail}); it runs without, slower "
                "and with the same result.",
                UnmaskedWarning,
                stacklevel=2,
            )

    # ------------------------------------------------------------------ random layers

    def _layers_noise(self, phase: int, step: int) -> Any:
        """Random layers (dropout) see the same state in every setting of a step."""
        return (
            _seeded(self.program.device, phase, step)
            if self.program.random_layers
            else nullcontext()
        )


@contextmanager
def _seeded(device: torch.device, phase: int, step: int) -> Iterator[None]:
    """torch's own random state, set by (phase, step) and put back afterwards."""
    source = noise.generator(torch.device("cpu"), 0, "layers", phase, step)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(source.initial_seed())
        yield
