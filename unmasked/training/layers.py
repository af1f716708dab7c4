"""Plain sequences of layers for many networks at once, with a backward pass written by hand.

Most networks here are linear layers, activations and BatchNorm in a row. For those autograd's
many small kernels cost as much as the matrix products, so one function runs all layers of all
networks forward and backward. Inside, activations lie as (count, width, rows): BatchNorm and the
bias's gradient then sum over neighbouring numbers, and every product reads and writes memory in
order. ``differentiable`` computes the same by ordinary operations: it is what the hand-written
pass is tested against, what a compiler traces, and what runs where gradients of evaluation-mode
weights are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_ELEMENTWISE = (nn.ReLU, nn.SELU, nn.SiLU, nn.GELU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Identity)
_FROM_RESULT = (nn.ReLU, nn.SELU, nn.ELU, nn.Tanh, nn.Sigmoid)  # slope known from the result
_SELU = (1.6732632423543772, 1.0507009873554805)
_ALIGNMENT = 32  # numbers; products of matrices that start at 128 bytes are quicker

Values = dict[str, Tensor]


def understood(module: nn.Module) -> bool:
    """Return True for a plain sequence of layers, which the passes of this file can run.

    A layer that is used twice, hooked or parameterised in another way is not plain.
    """
    if type(module) is not nn.Sequential or not len(module):
        return False
    layers = list(module)
    return (
        len({id(layer) for layer in layers}) == len(layers)
        and all(parameter.requires_grad for parameter in module.parameters())
        and all(_plain(layer) for layer in [module, *layers])
        and all(
            type(layer) is nn.Linear
            or (type(layer) in _ELEMENTWISE and _usual_activation(layer))
            or (type(layer) is nn.BatchNorm1d and _usual_norm(layer))
            for layer in layers
        )
    )


def _plain(layer: nn.Module) -> bool:
    """Return True if a layer does what its kind does and no more: no hooks, no other weights."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    own = {name for name, _ in layer.named_parameters(recurse=False)}
    return not any(getattr(layer, name) for name in hooks) and own <= {"weight", "bias"}


def _usual_norm(layer: nn.BatchNorm1d) -> bool:
    return layer.affine and layer.track_running_stats and layer.momentum is not None


def _usual_activation(layer: nn.Module) -> bool:
    return not (isinstance(layer, nn.GELU) and layer.approximate != "none")


class Layout:
    """Places of one network's parameters in a row of a flat tensor, each well aligned."""

    def __init__(self, shapes: dict[str, torch.Size]) -> None:
        self.places: dict[str, tuple[int, int, torch.Size]] = {}
        self.size = 0
        for name, shape in shapes.items():
            self.places[name] = (self.size, self.size + shape.numel(), shape)
            self.size += -(-shape.numel() // _ALIGNMENT) * _ALIGNMENT

    def views(self, flat: Tensor) -> Values:
        """The parameters of ``flat`` (count, size) by name, each (count, *shape)."""
        return {
            name: flat[:, start:stop].view(flat.shape[0], *shape)
            for name, (start, stop, shape) in self.places.items()
        }

    def fill(self, flat: Tensor, values: Values) -> Tensor:
        """Put parameters (count, *shape) by name into ``flat`` (count, size)."""
        for name, (start, stop, _) in self.places.items():
            flat[:, start:stop] = values[name].reshape(flat.shape[0], -1)
        return flat


class Pool:
    """Memory of intermediate results on the CPU, used again in the next step.

    Fresh memory is mapped page by page when it is first written, which costs as much as a third
    of a training step. (On CUDA torch does the same itself.)
    """

    def __init__(self) -> None:
        self._free: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def take(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Memory for any contents."""
        free = None
        if like.device.type == "cpu":
            free = self._free.get((torch.Size(shape), like.dtype))
        return free.pop() if free else like.new_empty(shape)

    def clear(self) -> None:
        """Keep nothing."""
        self._free.clear()

    def give(self, tensor: Tensor) -> None:
        """Put memory that nobody reads any more back into the pool; on the CPU only."""
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            self._free.setdefault((tensor.shape, tensor.dtype), []).append(tensor)


class Folded(NamedTuple):
    """A linear layer's weight (count, outputs, inputs) and bias (count, outputs), perhaps with the
    BatchNorm that follows it folded in."""

    weight: Tensor
    bias: Tensor | None


def folded(module: nn.Module, values: Values) -> dict[str, Folded]:
    """Evaluation-mode linear layers by name; a BatchNorm after one becomes part of it."""
    found = {}
    layers = [*module.named_children(), ("", None)]
    for (name, layer), (next_name, follower) in pairwise(layers):
        if isinstance(layer, nn.Linear):
            weight, bias = values[f"{name}.weight"], values.get(f"{name}.bias")
            if isinstance(follower, nn.BatchNorm1d):
                scale, shift = _running(follower, _own(follower, next_name, values))
                weight = weight * scale.unsqueeze(-1)
                bias = shift if bias is None else torch.addcmul(shift, bias, scale)
            found[name] = Folded(weight, bias)
    return found


def _own(layer: nn.Module, name: str, values: Values) -> Values:
    names = [key for key, _ in [*layer.named_parameters(), *layer.named_buffers()]]
    return {key: values[f"{name}.{key}"] for key in names}


def _running(layer: nn.BatchNorm1d, own: Values) -> tuple[Tensor, Tensor]:
    """Scale and shift (count, width) of a BatchNorm with its running statistics."""
    scale = own["weight"] * torch.rsqrt(own["running_var"] + layer.eps)
    return scale, torch.addcmul(own["bias"], own["running_mean"], scale, value=-1)


# ---------------------------------------------------------------------- ordinary operations


def differentiable(module: nn.Module, values: Values, x: Tensor, *, training: bool) -> Tensor:
    """All networks at once: (count, rows, inputs) -> (count, rows, outputs)."""
    ready = {} if training else folded(module, values)
    after_linear = False
    for name, layer in module.named_children():
        if isinstance(layer, nn.Linear):
            weight, bias = ready.get(name) or (
                values[f"{name}.weight"], values.get(f"{name}.bias")
            )  # fmt: skip
            x = _linear(x, weight, bias)
        elif not isinstance(layer, nn.BatchNorm1d):
            x = layer(x)
        elif training:
            x = _train_norm(layer, _own(layer, name, values), x)
        elif not after_linear:
            scale, shift = _running(layer, _own(layer, name, values))
            x = torch.addcmul(shift.unsqueeze(1), x, scale.unsqueeze(1))
        after_linear = isinstance(layer, nn.Linear)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.bmm(x, weight.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _train_norm(layer: nn.BatchNorm1d, own: Values, x: Tensor) -> Tensor:
    """``nn.BatchNorm1d`` in training for each network; running statistics move in place."""
    variance, mean = torch.var_mean(x, dim=1, correction=0)  # (count, width) each
    rows = x.shape[1]
    assert layer.momentum is not None
    with torch.no_grad():
        own["running_mean"].lerp_(mean, layer.momentum)
        own["running_var"].lerp_(variance * (rows / (rows - 1)), layer.momentum)
        own["num_batches_tracked"].add_(1)
    scale = own["weight"] * torch.rsqrt(variance + layer.eps)
    shift = own["bias"] - mean * scale
    return torch.addcmul(shift.unsqueeze(1), x, scale.unsqueeze(1))


# ---------------------------------------------------------------------- written by hand


class Parts(NamedTuple):
    """Inputs that the hand-written passes need beside x and the flat weights.

    values : the parameters (views of the flat weights) and buffers by name; without the leading
        axis where there is one network.
    ready : `folded` weights, only out of training.
    """

    layers: list[tuple[str, nn.Module]]
    layout: Layout
    values: Values
    ready: dict[str, Folded] | None
    pool: Pool

    def linear(self, name: str) -> Folded:
        """A linear layer's numbers."""
        if self.ready is not None:
            return self.ready[name]
        return Folded(self.values[f"{name}.weight"], self.values.get(f"{name}.bias"))

    def normalised(self, i: int) -> bool:
        """Return True if a BatchNorm in training follows linear layer i: it takes the bias out."""
        return (
            self.ready is None
            and i + 1 < len(self.layers)
            and isinstance(self.layers[i + 1][1], nn.BatchNorm1d)
        )

    def after_linear(self, i: int) -> str | None:
        """The name of the linear layer just before layer i."""
        before = self.layers[i - 1] if i else ("", None)
        return before[0] if isinstance(before[1], nn.Linear) else None


def run(flat: Tensor, x: Tensor, parts: Parts) -> Tensor:
    """All networks at once: (count, rows, inputs) -> (count, rows, outputs)."""
    one = flat.shape[0] == 1
    result: Tensor = _Run.apply(x.squeeze(0) if one else x, flat, parts)  # type: ignore[no-untyped-call]
    return result.unsqueeze(0) if one else result


def without_axis(values: Values) -> Values:
    """Drop the leading axis of each value where it counts a single network."""
    return {
        name: value.squeeze(0) if value.shape[0] == 1 else value for name, value in values.items()
    }


class _Norm(NamedTuple):
    """Input, mean and inverse deviation that a BatchNorm's backward pass needs."""

    x: Tensor
    mean: Tensor
    inverse: Tensor


class _Run(torch.autograd.Function):
    """h₀ = xᵀ; linear: W h + b; BatchNorm over rows; activations. h is (count, width, rows), or
    (width, rows) for one network.

    ``ours`` says that no one else holds h (or g), so that it may be overwritten.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, flat: Tensor, parts: Parts) -> Tensor:
        for_x, for_flat = ctx.needs_input_grad[:2]
        learns = for_x or for_flat
        kept: list[Any] = []  # one entry for each layer: what its backward pass needs
        taken: list[Tensor] = []  # from the pool
        h, ours = x.transpose(-1, -2), False
        last = len(parts.layers) - 1
        for i, (name, layer) in enumerate(parts.layers):
            keep: Any = None
            if isinstance(layer, nn.Linear):
                keep = h if for_flat else None
                weight, bias = parts.linear(name)
                bias = None if parts.normalised(i) else bias
                h, ours = _product(weight, h, bias, parts.pool, by_rows=i == last), True
                if i < last:
                    taken.append(h)
            elif isinstance(layer, nn.BatchNorm1d):
                before = parts.after_linear(i)
                if parts.ready is None:
                    shift = parts.values.get(f"{before}.bias")
                    h, keep = _norm_forward(name, layer, parts.values, h, shift)
                    ours = True
                elif before is None:
                    keep, shift = _running(layer, _own(layer, name, parts.values))
                    h, ours = torch.addcmul(shift.unsqueeze(-1), h, keep.unsqueeze(-1)), True
            elif not isinstance(layer, nn.Identity):
                before_it = h
                h, keep = _activate(layer, h, parts.pool, ours=ours, learns=learns)
                ours = not (learns and keep is h)  # what a slope is computed from stays
                if h is not before_it:
                    taken.append(h)
            kept.append(keep if learns else None)
        taken = [tensor for tensor in taken if tensor is not h]  # the result leaves this file
        if learns:
            ctx.parts, ctx.flat, ctx.kept, ctx.taken = parts, flat, kept, taken
        else:
            for tensor in taken:
                parts.pool.give(tensor)
        return h if isinstance(parts.layers[-1][1], nn.Linear) else h.transpose(-1, -2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.kept is None:
            raise RuntimeError("this backward pass runs once: its memory is in use again.")
        parts, pool = ctx.parts, ctx.parts.pool
        for_x, for_flat = ctx.needs_input_grad[:2]
        found = torch.zeros_like(ctx.flat) if for_flat else None
        into = {} if found is None else without_axis(parts.layout.views(found))
        g, ours = gradients[0].transpose(-1, -2), False
        for i in reversed(range(len(parts.layers))):
            (name, layer), keep = parts.layers[i], ctx.kept[i]
            if isinstance(layer, nn.Linear):
                if for_flat:
                    _weight_gradients(name, g, keep, into, biased=not parts.normalised(i))
                before, was_ours = g, ours
                if i > 0 or for_x:
                    g, ours = _back(parts.linear(name).weight, g, pool, by_rows=i == 0), True
                if was_ours:
                    pool.give(before)
            elif isinstance(layer, nn.BatchNorm1d):
                if isinstance(keep, _Norm):
                    g, ours = _norm_backward(name, layer, g, keep, parts.values, into), True
                elif keep is not None:
                    g, ours = g * keep.unsqueeze(-1), True
            elif not isinstance(layer, nn.Identity):
                g, ours = _slope(layer, g, keep, ours=ours), True
        for tensor in ctx.taken:
            pool.give(tensor)
        ctx.parts = ctx.flat = ctx.kept = ctx.taken = None
        return g.transpose(-1, -2) if for_x else None, found, None


def _product(
    weight: Tensor, h: Tensor, bias: Tensor | None, pool: Pool, *, by_rows: bool
) -> Tensor:
    """W h + b, (count, outputs, rows); ``by_rows``: its transpose (count, rows, outputs)."""
    if by_rows:
        left, right = h.transpose(-1, -2), weight.transpose(-1, -2)
    else:
        left, right = weight, h
    shape = (*left.shape[:-1], right.shape[-1])
    # a result by rows leaves this file
    result = h.new_empty(shape) if by_rows else pool.take(shape, h)
    one = left.dim() == 2
    if bias is None:
        (torch.mm if one else torch.bmm)(left, right, out=result)
    else:
        bias = bias.unsqueeze(-2 if by_rows else -1)
        (torch.addmm if one else torch.baddbmm)(bias, left, right, out=result)
    return result


def _back(weight: Tensor, g: Tensor, pool: Pool, *, by_rows: bool) -> Tensor:
    """Wᵀ g; ``by_rows``: stored so that its transpose is in order."""
    result = _product(weight.transpose(-1, -2), g, None, pool, by_rows=by_rows)
    return result.transpose(-1, -2) if by_rows else result


def _weight_gradients(name: str, g: Tensor, h: Tensor, into: Values, *, biased: bool) -> None:
    """g hᵀ and the sums of g over rows, written where they belong."""
    weight, bias = into[f"{name}.weight"], into.get(f"{name}.bias")
    (torch.mm if g.dim() == 2 else torch.bmm)(g, h.transpose(-1, -2), out=weight)
    if bias is not None and biased:
        torch.sum(g, dim=-1, out=bias)


def _norm_forward(
    name: str, layer: nn.BatchNorm1d, values: Values, h: Tensor, shift: Tensor | None
) -> tuple[Tensor, _Norm]:
    """All BatchNorms as one of count × width channels; ``shift`` is a bias left out of h."""
    assert layer.momentum is not None
    mean, variance = values[f"{name}.running_mean"], values[f"{name}.running_var"]
    x = h.reshape(1, -1, h.shape[-1])
    result, own_mean, inverse = torch.native_batch_norm(
        x,
        values[f"{name}.weight"].reshape(-1),
        values[f"{name}.bias"].reshape(-1),
        mean.view(-1),
        variance.view(-1),
        True,
        layer.momentum,
        layer.eps,
    )
    if shift is not None:
        mean.add_(shift, alpha=layer.momentum)
    values[f"{name}.num_batches_tracked"].add_(1)
    return result.view(h.shape), _Norm(x, own_mean, inverse)


def _norm_backward(
    name: str, layer: nn.BatchNorm1d, g: Tensor, keep: _Norm, values: Values, into: Values
) -> Tensor:
    for_x, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
        g.reshape(keep.x.shape),
        keep.x,
        values[f"{name}.weight"].reshape(-1),
        None,
        None,
        keep.mean,
        keep.inverse,
        True,
        layer.eps,
        [True, bool(into), bool(into)],
    )
    if into:
        into[f"{name}.weight"].copy_(for_weight.view(g.shape[:-1]))
        into[f"{name}.bias"].copy_(for_bias.view(g.shape[:-1]))
    result: Tensor = for_x.view(g.shape)
    return result


def _activate(
    layer: nn.Module, h: Tensor, pool: Pool, *, ours: bool, learns: bool
) -> tuple[Tensor, Tensor]:
    """The layer's values, and what its slope is computed from."""
    from_result = isinstance(layer, _FROM_RESULT)
    result = h if ours and (from_result or not learns) else pool.take(h.shape, h)
    aten: Any = torch.ops.aten
    if isinstance(layer, nn.ReLU):
        torch.clamp_min(h, 0, out=result)
    elif isinstance(layer, nn.SELU):
        aten.elu.out(h, _SELU[0], _SELU[1], 1, out=result)
    elif isinstance(layer, nn.ELU):
        aten.elu.out(h, layer.alpha, 1, 1, out=result)
    elif isinstance(layer, nn.Tanh):
        torch.tanh(h, out=result)
    elif isinstance(layer, nn.Sigmoid):
        torch.sigmoid(h, out=result)
    elif isinstance(layer, nn.SiLU):
        aten.silu.out(h, out=result)
    else:
        aten.gelu.out(h, out=result)
    return result, result if from_result else h


def _slope(layer: nn.Module, g: Tensor, keep: Tensor, *, ours: bool) -> Tensor:
    """g times the activation's slope; into g itself where it is ours."""
    result = g if ours else torch.empty_like(keep)
    aten: Any = torch.ops.aten
    if isinstance(layer, nn.ReLU):
        aten.threshold_backward.grad_input(g, keep, 0, grad_input=result)
    elif isinstance(layer, nn.SELU):
        aten.elu_backward.grad_input(g, _SELU[0], _SELU[1], 1, True, keep, grad_input=result)
    elif isinstance(layer, nn.ELU):
        aten.elu_backward.grad_input(g, layer.alpha, 1, 1, True, keep, grad_input=result)
    elif isinstance(layer, nn.Tanh):
        aten.tanh_backward.grad_input(g, keep, grad_input=result)
    elif isinstance(layer, nn.Sigmoid):
        aten.sigmoid_backward.grad_input(g, keep, grad_input=result)
    elif isinstance(layer, nn.SiLU):
        aten.silu_backward.grad_input(g, keep, grad_input=result)
    else:
        aten.gelu_backward.grad_input(g, keep, grad_input=result)
    return result
