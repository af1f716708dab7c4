"""AdamW on a stack of networks, with clipping, stopping and waiting for each row."""

from __future__ import annotations

import torch
from torch import Tensor

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
        self.rate = torch.ones((), device=flat.device) if on_device else 1.0
        self.adam = torch.optim.AdamW(
            [flat],
            lr=self.rate,
            weight_decay=self.training.weight_decay,
            fused=True,
            capturable=on_device,
        )

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
            for group in self.adam.param_groups:
                group["lr"] = self.peak * pace

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """Move along −gradient (count, parameters); only rows in ``active`` (count,) if given."""
        flat, training = self.stack.flat, self.training
        if training.l2:
            gradient = torch.add(gradient, flat, alpha=2 * training.l2)
        if training.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * (training.clip / norm.clamp_min(training.clip))
        flat.grad = gradient
        before = None if active is None else flat.clone()
        self.adam.step()
        if before is not None and active is not None:
            flat.copy_(torch.where(active.unsqueeze(1), flat, before))

    def state(self) -> dict[str, Tensor]:
        """Adam's moments, by name."""
        (flat,) = self.adam.param_groups[0]["params"]  # not the stack's, which may be new by now
        values = self.adam.state.get(flat, {})
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Attach to the stack's present parameters with these moments."""
        self._make()
        if state:
            flat = self.stack.flat
            self.adam.state[flat] = {
                # AdamW keeps its count of steps in single precision
                name: value.to(flat.device, torch.float32) if name == "step" else value.to(flat)
                for name, value in state.items()
            }

    def take(self, rows: Tensor) -> None:
        """Follow the stack after it kept ``rows`` only."""
        state = {k: v if k == "step" else v[rows.to(v.device)] for k, v in self.state().items()}
        self.load(state)
