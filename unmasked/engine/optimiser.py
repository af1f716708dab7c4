"""AdamW on a stack of networks, with clipping, stopping and waiting for each row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from unmasked.engine.options import Training
from unmasked.engine.stack import Stack


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
        """How many of the steps this stack waits."""
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
