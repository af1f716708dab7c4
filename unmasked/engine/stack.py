"""Many networks of one architecture as one: parameters stacked on a leading axis.

Networks are written for one setting. A `Stack` holds the parameters of several in one flat
tensor (count, parameters), so that clipping, stopping and best-epoch keeping act on rows of it,
and hands them out as dictionaries of (count, *shape) views that ``torch.vmap`` maps over.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

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
    mode : how all of them are run at once. ``probe``, a few rows (rows, inputs), is for trying.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        probe: Tensor,
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
        self.mode: Literal["layers", "vmap", "loop"] = "layers"
        if not understood(first) or self.flat.shape[1] != sum(
            p.numel() for p in first.parameters()
        ):
            self.mode = "vmap" if self._maps(probe.to(device, dtype)) else "loop"

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

    def forward(self, weights: Weights, x: Tensor, *, training: bool) -> Tensor:
        """Run every network on its own rows: (count, rows, inputs) -> (count, rows, outputs).

        ``weights`` are those of `weights`, with or without gradients. Layers that are understood
        run as batched products; other modules through vmap; what vmap refuses, one at a time.
        """
        return self.forward_with({**weights, **self.buffers}, x, training=training)

    def forward_with(self, values: Weights, x: Tensor, *, training: bool = False) -> Tensor:
        """`forward` with weights and buffers of any networks of this architecture."""
        if x.shape[0] == 1:  # squeezed, not indexed: the gradient of an index is a copy
            own = {name: value.squeeze(0) for name, value in values.items()}
            return self._one(own, x.squeeze(0), training).unsqueeze(0)
        if self.mode == "layers":
            return stacked_layers(self._train, values, x, training=training)
        template = self._train if training else self._eval
        if self.mode == "vmap":
            return torch.vmap(lambda own, rows: functional_call(template, own, (rows,)))(values, x)
        state = torch.get_rng_state()
        results = []
        for i in range(x.shape[0]):
            torch.set_rng_state(state)  # random layers must not feel how many neighbours there are
            own = {name: value[i] for name, value in values.items()}
            results.append(self._one(own, x[i], training))
        return torch.stack(results)

    def _one(self, own: Weights, x: Tensor, training: bool) -> Tensor:
        result: Tensor = functional_call(self._train if training else self._eval, own, (x,))
        return result

    def _maps(self, x: Tensor) -> bool:
        """Whether ``torch.vmap`` can run this architecture in training; tried, not guessed."""
        twice = {name: torch.cat([v[:1], v[:1]]) for name, v in self.weights().items()}
        buffers = {name: torch.cat([v[:1], v[:1]]) for name, v in self.buffers.items()}
        try:
            torch.vmap(lambda w, b: functional_call(self._train, {**w, **b}, (x,)))(twice, buffers)
        except Exception:  # whatever a user's module raises under vmap means: one at a time
            return False
        return True

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

    def to(self, device: torch.device) -> Stack:
        """These networks on a device; this very stack if it is there already."""
        if self.flat.device == device:
            return self
        moved = copy.copy(self)
        moved._train, moved._eval = (
            copy.deepcopy(template).to(device) for template in (self._train, self._eval)
        )
        moved.flat = self.flat.to(device)
        moved.buffers = {name: value.to(device) for name, value in self.buffers.items()}
        return moved

    @classmethod
    def join(cls, stacks: Sequence[Stack]) -> Stack:
        """The networks of several stacks of one architecture, in order."""
        whole = copy.copy(stacks[0])
        whole.flat = torch.cat([stack.flat for stack in stacks])
        whole.buffers = {
            name: torch.cat([stack.buffers[name] for stack in stacks]) for name in whole.buffers
        }
        return whole

    def module(self, row: int) -> nn.Module:
        """One network as an ordinary module in evaluation mode, on the CPU."""
        module = copy.deepcopy(self._eval)
        values = {name: value[row] for name, value in self.weights().items()}
        values |= {name: value[row] for name, value in self.buffers.items()}
        module.load_state_dict(values, strict=False)
        for name, value in self.buffers.items():  # also those that a state_dict leaves out
            parent, _, leaf = name.rpartition(".")
            owner = module.get_submodule(parent)
            if leaf in owner._buffers:
                owner._buffers[leaf] = value[row].clone()
        return module.to("cpu").eval()


_ELEMENTWISE = (nn.ReLU, nn.SELU, nn.SiLU, nn.GELU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Identity)


def understood(module: nn.Module) -> bool:
    """Whether a network is a plain sequence of layers that `stacked_layers` knows."""
    return type(module) is nn.Sequential and all(
        type(layer) is nn.Linear
        or type(layer) in _ELEMENTWISE
        or (type(layer) is nn.BatchNorm1d and _usual(layer))
        for layer in module
    )


def _usual(layer: nn.BatchNorm1d) -> bool:
    return layer.affine and layer.track_running_stats and layer.momentum is not None


def stacked_layers(
    module: nn.Module, values: Weights, x: Tensor, *, training: bool = False
) -> Tensor:
    """All networks of a plain sequence at once: (count, rows, inputs) -> (count, rows, outputs).

    Out of training a BatchNorm after a linear layer is part of that layer's weights.
    """
    layers = [*module.named_children(), ("", None)]
    folded = False
    for (name, layer), (next_name, follower) in pairwise(layers):
        if isinstance(layer, nn.Linear):
            weight, bias = values[f"{name}.weight"], values.get(f"{name}.bias")
            folded = not training and isinstance(follower, nn.BatchNorm1d)
            if folded:
                assert isinstance(follower, nn.BatchNorm1d)
                scale, shift = _affine(follower, _own(follower, next_name, values))
                weight = weight * scale.unsqueeze(2)
                bias = shift if bias is None else shift + bias * scale
            x = _StackedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        elif isinstance(layer, nn.BatchNorm1d):
            x = x if folded else _batch_norm(layer, _own(layer, name, values), x, training)
            folded = False
        elif layer is not None:
            x = layer(x)
    return x


class _StackedLinear(torch.autograd.Function):
    """x (count, rows, inputs), weight (count, outputs, inputs), bias (count, outputs) or None.

    One batched product each way; the bias's gradient is a product with ones, which is quicker than
    a sum over rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        if bias is None:
            return torch.bmm(x, weight.transpose(1, 2))
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        ones = g.new_ones(1, 1, 1).expand(g.shape[0], 1, g.shape[1])
        return (
            torch.bmm(g, weight) if for_x else None,
            torch.bmm(g.transpose(1, 2), x) if for_weight else None,
            torch.bmm(ones, g).squeeze(1) if for_bias else None,
        )


def _own(layer: nn.Module, name: str, values: Weights) -> Weights:
    names = [key for key, _ in [*layer.named_parameters(), *layer.named_buffers()]]
    return {key: values[f"{name}.{key}"] for key in names}


def _affine(
    layer: nn.BatchNorm1d,
    own: Weights,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale and shift (count, width) of a BatchNorm; with its running statistics by default."""
    mean = own["running_mean"] if mean is None else mean
    variance = own["running_var"] if variance is None else variance
    scale = own["weight"] * torch.rsqrt(variance + layer.eps)
    return scale, own["bias"] - mean * scale


def _batch_norm(layer: nn.BatchNorm1d, own: Weights, x: Tensor, training: bool) -> Tensor:
    """``nn.BatchNorm1d`` for each network; in training its running statistics move in place."""
    if not training:
        scale, shift = _affine(layer, own)
        return torch.addcmul(shift.unsqueeze(1), x, scale.unsqueeze(1))
    variance, mean = torch.var_mean(x, dim=1, correction=0)  # (count, width) each
    rows = x.shape[1]
    assert layer.momentum is not None
    with torch.no_grad():
        own["running_mean"].lerp_(mean, layer.momentum)
        own["running_var"].lerp_(variance * (rows / (rows - 1)), layer.momentum)
        own["num_batches_tracked"].add_(1)
    scale, shift = _affine(layer, own, mean, variance)
    return torch.addcmul(shift.unsqueeze(1), x, scale.unsqueeze(1))


def over_leading(
    function: Callable[..., Any], axes: int, *arguments: Any, vectorise: bool = True
) -> Any:
    """Map a function that is written for one setting over ``axes`` leading axes.

    An axis of length 1 in an argument is the same for all: it is not copied. What vmap refuses
    runs one at a time (``vectorise=False``).
    """
    if axes == 0:
        return function(*arguments)
    leaves, structure = pytree.tree_flatten(arguments)
    if all(leaf.shape[:axes].numel() == 1 for leaf in leaves):  # one setting: nothing to map
        plain = [leaf.reshape(leaf.shape[axes:]) for leaf in leaves]
        result = function(*pytree.tree_unflatten(plain, structure))
        return pytree.tree_map(lambda part: part.reshape((1,) * axes + part.shape), result)
    length = max(leaf.shape[0] for leaf in leaves)

    def inner(*own: Any) -> Any:
        parts = pytree.tree_unflatten(list(own), structure)
        return over_leading(function, axes - 1, *parts, vectorise=vectorise)

    if vectorise and length > 1:
        axis = [0 if leaf.shape[0] == length else None for leaf in leaves]
        rest = [leaf if where == 0 else leaf[0] for leaf, where in zip(leaves, axis, strict=True)]
        return torch.vmap(inner, in_dims=tuple(axis))(*rest)
    results = [inner(*(leaf[min(i, leaf.shape[0] - 1)] for leaf in leaves)) for i in range(length)]
    return pytree.tree_map(lambda *parts: torch.stack(parts), *results)
