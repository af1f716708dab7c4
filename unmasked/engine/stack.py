"""Many networks of one architecture as one: parameters stacked on a leading axis.

Networks are written for one setting. A `Stack` holds the parameters of several in one flat
tensor (count, parameters), so that clipping, stopping and best-epoch keeping act on rows of it,
and hands them out as dictionaries of (count, *shape) views that ``torch.vmap`` maps over.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

Weights = dict[str, Tensor]


class Stack:
    """``count`` networks of the same architecture.

    Attributes
    ----------
    flat : (count, parameters), what the optimiser moves.
    buffers : everything that is not learned, each (count, *shape).
    """

    def __init__(
        self, modules: Sequence[nn.Module], device: torch.device, dtype: torch.dtype
    ) -> None:
        first = modules[0]
        # Two templates instead of one that is toggled: evaluating can never move a statistic.
        self._train = copy.deepcopy(first).to(device=device, dtype=dtype).train()
        self._eval = copy.deepcopy(first).to(device=device, dtype=dtype).eval()
        learned = {name for name, p in first.named_parameters() if p.requires_grad}
        self._shapes = {name: p.shape for name, p in first.named_parameters() if name in learned}
        rows = []
        kept: dict[str, list[Tensor]] = {}
        for module in modules:
            values = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            values = {name: value.detach() for name, value in values.items()}
            rows.append(torch.cat([values[name].flatten() for name in self._shapes]))
            for name, value in values.items():
                if name not in learned:
                    kept.setdefault(name, []).append(value)
        self.flat = torch.stack(rows).to(device=device, dtype=dtype)
        self.buffers: Weights = {}
        for name, column in kept.items():
            stacked = torch.stack(column).to(device)
            self.buffers[name] = stacked.to(dtype) if stacked.is_floating_point() else stacked

    @property
    def template(self) -> nn.Module:
        """The architecture; its own numbers mean nothing."""
        return self._train

    @property
    def count(self) -> int:
        return self.flat.shape[0]

    def weights(self, *, learn: bool = False) -> Weights:
        """Parameters as views (count, *shape) of ``flat``; leaves that take gradients if asked."""
        views: Weights = {}
        start = 0
        for name, shape in self._shapes.items():
            stop = start + shape.numel()
            view = self.flat.detach()[:, start:stop].view(self.count, *shape)
            views[name] = view.requires_grad_() if learn else view
            start = stop
        return views

    def apply(self, weights: Weights, buffers: Weights, x: Tensor, *, training: bool) -> Tensor:
        """Run one network, given its own weights and buffers without the leading axis."""
        template = self._train if training else self._eval
        result: Tensor = functional_call(template, {**weights, **buffers}, (x,))
        return result

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients of ``weights(learn=True)``, in order, as one tensor like ``flat``."""
        return torch.cat([g.reshape(self.count, -1) for g in gradients], dim=1)

    def take(self, rows: Tensor) -> None:
        """Keep these rows only, in this order; a row may be repeated."""
        self.flat = self.flat[rows]
        self.buffers = {name: value[rows] for name, value in self.buffers.items()}

    def state(self) -> Weights:
        """Everything needed to restore this stack, by name."""
        return {"flat": self.flat, **{f"buffer.{k}": v for k, v in self.buffers.items()}}

    def load(self, state: Weights) -> None:
        """Restore what `state` returned."""
        self.flat = state["flat"].to(self.flat)
        self.buffers = {
            name: state[f"buffer.{name}"].to(value) for name, value in self.buffers.items()
        }

    def module(self, row: int) -> nn.Module:
        """One network as an ordinary module in evaluation mode, on the CPU."""
        module = copy.deepcopy(self._eval)
        values = {name: value[row] for name, value in self.weights().items()}
        values |= {name: value[row] for name, value in self.buffers.items()}
        module.load_state_dict(values, strict=False)
        return module.to("cpu").eval()


def over_leading(function: Callable[..., Any], vectorise: bool) -> Callable[..., Any]:
    """Map ``function`` over the first axis of all its arguments (trees of tensors).

    One entry, or networks that vmap cannot map, run one at a time through the same interface.
    """

    def mapped(*arguments: Any) -> Any:
        count = pytree.tree_leaves(arguments)[0].shape[0]
        if vectorise and count > 1:
            return torch.vmap(function)(*arguments)
        state = torch.get_rng_state() if count > 1 else None
        results = []
        for i in range(count):
            if state is not None:  # random layers must not feel how many neighbours there are
                torch.set_rng_state(state)
            results.append(function(*pytree.tree_map(lambda leaf, i=i: leaf[i], arguments)))
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *results)

    return mapped
