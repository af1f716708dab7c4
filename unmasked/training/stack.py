"""Many networks of one architecture as one: parameters stacked on a leading axis.

Networks are written for one setting. A `Stack` holds the parameters of several in one flat
tensor (count, parameters), so that clipping, stopping and best-epoch keeping act on rows of it,
and hands them out as dictionaries of (count, *shape) views that ``torch.vmap`` maps over; plain
sequences of layers are run by `unmasked.training.layers`, straight from the flat tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from unmasked.errors import InputError
from unmasked.training import layers

Weights = dict[str, Tensor]


class Stack:
    """``count`` networks of the same architecture.

    Attributes
    ----------
    flat : (count, parameters), what the optimiser moves.
    buffers : everything that is not learned, each (count, *shape).
    mode : how all of them are run at once. ``probe``, a few rows (rows, inputs), is for trying.
    precision : of what goes from layer to layer inside modules that are not plain layers, so also
        of their results, with weights and the sums of products in ``dtype``; None: all in
        ``dtype``. Pictures then lie channels-last, as the fast kernels want them.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        probe: Tensor,
        precision: torch.dtype | None = None,
    ) -> None:
        first = modules[0]
        self.precision = precision
        # Two templates instead of one that is toggled: evaluating can never move a statistic.
        self._train = copy.deepcopy(first).to(device=device, dtype=dtype).train()
        self._eval = copy.deepcopy(first).to(device=device, dtype=dtype).eval()
        learned = {name: p.shape for name, p in first.named_parameters() if p.requires_grad}
        self.layout = layers.Layout(learned)
        columns: dict[str, list[Tensor]] = {}
        for module in modules:
            for name, value in [*module.named_parameters(), *module.named_buffers()]:
                columns.setdefault(name, []).append(value.detach())
        stacked = {name: torch.stack(column) for name, column in columns.items()}
        # in the modules' own precision until it is moved as a whole
        flat = stacked[next(iter(learned))].new_zeros(len(modules), self.layout.size)
        self.flat = self.layout.fill(flat, stacked).to(device=device, dtype=dtype)
        self.buffers: Weights = {}
        for name, value in stacked.items():
            if name not in learned:
                floats = value.is_floating_point()
                self.buffers[name] = value.to(device, dtype if floats else value.dtype)
        self._pool, self._layers = layers.Pool(), list(self._train.named_children())
        self._seen: tuple[tuple[int, ...], Weights] = ((), {})
        self._compiled: Callable[[Weights, Tensor, bool], Tensor] | None = None
        self.mode: Literal["layers", "vmap", "each", "random"] = "layers"
        if not layers.understood(first):
            maps = self._maps(probe.to(device, dtype))
            self.mode = ("each" if _convolves(first) else "vmap") if maps else "random"

    @property
    def template(self) -> nn.Module:
        """The architecture; its own numbers mean nothing."""
        return self._train

    @property
    def count(self) -> int:
        return self.flat.shape[0]

    def weights(self, *, learn: bool = False) -> Weights:
        """Return the weights that `forward` takes: views of ``flat``, with gradients if asked.

        A plain sequence takes the flat tensor as it is, other modules each parameter by name.
        """
        flat = self.flat.detach()
        views = {"flat": flat} if self.mode == "layers" else self.layout.views(flat)
        return {name: view.requires_grad_() for name, view in views.items()} if learn else views

    def forward(self, weights: Weights, x: Tensor, *, training: bool) -> Tensor:
        """Run every network on its own rows: (count, rows, inputs) -> (count, rows, outputs).

        ``weights`` are those of `weights`, with or without gradients. Layers that are understood
        run as batched products; other modules through vmap; convolutions one network at a time,
        since many at once are slower; so is what vmap refuses, such as layers that draw.
        """
        return self.forward_with({**weights, **self.buffers}, x, training=training)

    def forward_with(self, values: Weights, x: Tensor, *, training: bool = False) -> Tensor:
        """`forward` with weights and buffers of any networks of this architecture."""
        if self.mode == "layers":
            return self.run_layers(values, x, training=training)
        if x.shape[0] == 1:  # squeezed, not indexed: the gradient of an index is a copy
            own = {name: value.squeeze(0) for name, value in values.items()}
            return self._one(own, x.squeeze(0), training).unsqueeze(0)
        if self.mode == "vmap":
            return torch.vmap(lambda own, rows: self._one(own, rows, training))(values, x)
        state = torch.get_rng_state() if self.mode == "random" else None
        results = []
        parts = {name: value.unbind(0) for name, value in values.items()}
        for i, rows in enumerate(x.unbind(0)):
            if state is not None:  # random layers must not feel how many neighbours there are
                torch.set_rng_state(state)
            own = {name: value[i] for name, value in parts.items()}
            results.append(self._one(own, rows, training))
        return torch.stack(results)

    def named(self, values: Weights) -> Weights:
        """A plain sequence's parameters and buffers by name, from what `forward_with` takes."""
        flat, pointers = values["flat"], tuple(value.data_ptr() for value in values.values())
        seen, views = self._seen
        if pointers != seen:  # making views takes longer than a small product
            views = layers.without_axis({**values, **self.layout.views(flat.detach())})
            self._seen = (pointers, views)
        return views

    def run_layers(
        self,
        values: Weights,
        x: Tensor,
        *,
        training: bool,
        ready: dict[str, layers.Folded] | None = None,
    ) -> Tensor:
        """A plain sequence; ``ready`` are its folded weights where they were made before."""
        flat = values["flat"]
        if torch.compiler.is_compiling() or (flat.requires_grad and not training):
            every = {**values, **self.layout.views(flat)}
            return layers.differentiable(self._train, every, x, training=training)
        named = self.named(values)
        if not training and ready is None:
            ready = layers.folded(self._train, named)
        parts = layers.Parts(self._layers, self.layout, named, ready, self._pool)
        return layers.run(flat, x, parts)

    @contextmanager
    def compiled(self, backend: str | Callable[..., Any] = "inductor") -> Iterator[None]:
        """Inside, networks that run one at a time are compiled, once for each shape of rows.

        One network is compiled and serves them all: a program of many would take as many times as
        long to compile.
        """
        if self.mode == "each":
            self._compiled = torch.compile(self._written, dynamic=False, backend=backend)
        try:
            yield
        finally:
            self._compiled = None

    def _one(self, own: Weights, x: Tensor, training: bool) -> Tensor:
        return (self._compiled or self._written)(own, x, training)

    def _written(self, own: Weights, x: Tensor, training: bool) -> Tensor:
        """One network, as its module is written."""
        template = self._train if training else self._eval
        if self.precision is None:
            result: Tensor = functional_call(template, own, (x,))
            return result
        own = {
            name: value.to(self.precision, memory_format=torch.channels_last)
            if value.dim() == 4
            else value
            for name, value in own.items()
        }
        # no cache: it would keep what a captured step must make anew
        with torch.autocast(x.device.type, self.precision, cache_enabled=False):
            result = functional_call(template, own, (x,))
        return result.to(x.dtype)

    def _maps(self, x: Tensor) -> bool:
        """Return True if ``torch.vmap`` can run this architecture in training: it is tried."""
        views = self.layout.views(self.flat)
        twice = {name: torch.cat([v[:1], v[:1]]) for name, v in views.items()}
        buffers = {name: torch.cat([v[:1], v[:1]]) for name, v in self.buffers.items()}
        try:
            torch.vmap(lambda w, b: functional_call(self._train, {**w, **b}, (x,)))(twice, buffers)
        except Exception:  # whatever a user's module raises under vmap means: one at a time
            return False
        return True

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients of ``weights(learn=True)``, in order, as one tensor like ``flat``."""
        if self.mode == "layers":
            return gradients[0]
        named = dict(zip(self.layout.places, gradients, strict=True))
        return self.layout.fill(torch.zeros_like(self.flat), named)

    def take(self, rows: Tensor) -> None:
        """Keep these rows only, in this order; a row may be repeated."""
        self.forget()
        self.flat = self.flat[rows]
        self.buffers = {name: value[rows] for name, value in self.buffers.items()}

    def forget(self) -> None:
        """Let go of memory that is kept for the next step."""
        self._pool.clear()
        self._seen = ((), {})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": layers.Pool(), "_seen": ((), {}), "_compiled": None}

    def state(self) -> Weights:
        """Everything needed to restore this stack, by name."""
        return {"flat": self.flat, **{f"buffer.{k}": v for k, v in self.buffers.items()}}

    def load(self, state: Weights) -> None:
        """Restore what `state` returned."""
        self.flat = state["flat"].to(self.flat)
        self.buffers = {
            name: state[f"buffer.{name}"].to(value) for name, value in self.buffers.items()
        }

    def begin_as(self, other: Stack, name: str) -> None:
        """Take the numbers of trained networks; each serves as many of these in a row."""
        if str(self.template) != str(other.template) or self.layout.places != other.layout.places:
            raise InputError(
                f"{name} must start as networks of its own architecture, but those that came are "
                f"{type(other.template).__name__} of other layers or sizes."
            )
        times = self.count // other.count
        theirs = other.state()
        self.load({key: value.repeat_interleave(times, 0) for key, value in theirs.items()})

    def to(self, device: torch.device) -> Stack:
        """These networks on a device; this very stack if it is there already."""
        if self.flat.device == device:
            return self
        moved = copy.copy(self)
        moved._pool, moved._seen = layers.Pool(), ((), {})
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
        whole._pool, whole._seen = layers.Pool(), ((), {})
        whole.flat = torch.cat([stack.flat for stack in stacks])
        whole.buffers = {
            name: torch.cat([stack.buffers[name] for stack in stacks]) for name in whole.buffers
        }
        return whole

    def module(self, row: int) -> nn.Module:
        """One network as an ordinary module in evaluation mode, on the CPU."""
        module = copy.deepcopy(self._eval)
        values = {name: value[row] for name, value in self.layout.views(self.flat).items()}
        values |= {name: value[row] for name, value in self.buffers.items()}
        module.load_state_dict(values, strict=False)
        for name, value in self.buffers.items():  # also those that a state_dict leaves out
            parent, _, leaf = name.rpartition(".")
            owner = module.get_submodule(parent)
            if leaf in owner._buffers:
                owner._buffers[leaf] = value[row].clone()
        return module.to("cpu").eval()


class Networks:
    """A stack ready to run several times with the same weights.

    With ``learning`` weights (leaves) in training mode; without, in evaluation mode with the
    stack's present ones, so that gradients flow to the inputs only.
    """

    def __init__(self, stack: Stack, learning: Weights | None = None) -> None:
        self.stack, self.count, self.training = stack, stack.count, learning is not None
        self.values = {**(stack.weights() if learning is None else learning), **stack.buffers}
        self.ready: dict[str, layers.Folded] | None = None
        if stack.mode == "layers" and not self.training:
            self.ready = layers.folded(stack.template, stack.named(self.values))

    def __call__(self, x: Tensor) -> Tensor:
        """(count, rows, inputs) -> (count, rows, outputs)."""
        stack, values = self.stack, self.values
        if self.ready is None:
            return stack.forward_with(values, x, training=self.training)
        return stack.run_layers(values, x, training=False, ready=self.ready)


def _convolves(module: nn.Module) -> bool:
    return any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())


def over_leading(function: Callable[..., Any], axes: int, *arguments: Any) -> Any:
    """Map a function that is written for one setting over ``axes`` leading axes.

    An axis of length 1 in an argument is the same for all: it is not copied.
    """
    if axes == 0:
        return function(*arguments)
    leaves, structure = pytree.tree_flatten(arguments)
    if all(leaf.shape[:axes].numel() == 1 for leaf in leaves):  # one setting: nothing to map
        plain = [leaf.reshape(leaf.shape[axes:]) for leaf in leaves]
        result = function(*pytree.tree_unflatten(plain, structure))
        if isinstance(result, Tensor):
            return result.reshape((1,) * axes + result.shape)
        return pytree.tree_map(lambda part: part.reshape((1,) * axes + part.shape), result)
    length = max(leaf.shape[0] for leaf in leaves)

    def inner(*own: Any) -> Any:
        parts = pytree.tree_unflatten(list(own), structure)
        return over_leading(function, axes - 1, *parts)

    if length > 1:
        axis = [0 if leaf.shape[0] == length else None for leaf in leaves]
        rest = [leaf if where == 0 else leaf[0] for leaf, where in zip(leaves, axis, strict=True)]
        return torch.vmap(inner, in_dims=tuple(axis))(*rest)
    return pytree.tree_map(lambda part: part.unsqueeze(0), inner(*(leaf[0] for leaf in leaves)))
