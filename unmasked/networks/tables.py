"""Networks: the multilayer perceptron, and how a network is asked for.

Explainers take a network as a ready ``nn.Module`` or as a factory, a callable
``(inputs, outputs) -> nn.Module``. An `MLP` is such a factory, and the default one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.shapes import Float

Factory = Callable[[int, int], nn.Module]
"""(inputs, outputs) -> network from (batch, inputs) to (batch, outputs)."""

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}
NORMALISATIONS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


@dataclass(frozen=True)
class MLP:
    """Layout of a multilayer perceptron; calling it with inputs and outputs builds the network.

    Parameters
    ----------
    hidden : the width of each hidden layer, (200, 200) by default.
    activation : "relu", "selu", "silu" (default), "gelu", "elu" or "tanh".
    normalisation : "layer" or "batch", between a hidden layer and its activation; None (default)
        for none.
    initialisation : "torch" (default), PyTorch's own, or "glorot": Glorot uniform weights and zero
        biases, the default of Keras and so of the authors' code.

    Examples
    --------
    >>> MLP(hidden=(8,), activation="relu")(3, 2)
    Sequential(
      (0): Linear(in_features=3, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    hidden: tuple[int, ...] = (200, 200)
    activation: str = "silu"
    normalisation: str | None = None
    initialisation: str = "torch"

    def __post_init__(self) -> None:
        widths = self.hidden if isinstance(self.hidden, list | tuple) else (None,)
        if not all(is_whole(w) and w > 0 for w in widths):
            raise InputError(
                f"hidden must hold whole numbers above 0 but is {self.hidden!r}; "
                "give one width for each hidden layer, such as (200, 200)."
            )
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        _one_of("activation", self.activation, list(ACTIVATIONS))
        if self.normalisation is not None:
            _one_of("normalisation", self.normalisation, list(NORMALISATIONS))
        _one_of("initialisation", self.initialisation, ["torch", "glorot"])

    def __call__(self, inputs: int, outputs: int) -> nn.Module:
        """Build the network, (batch, inputs) -> (batch, outputs), from torch's random state."""
        layers: list[nn.Module] = []
        for width in self.hidden:
            layers.append(nn.Linear(inputs, width))
            if self.normalisation is not None:
                layers.append(NORMALISATIONS[self.normalisation](width))
            layers.append(ACTIVATIONS[self.activation]())
            inputs = width
        layers.append(nn.Linear(inputs, outputs))
        if self.initialisation == "glorot":
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    nn.init.zeros_(layer.bias)
        return nn.Sequential(*layers)


@dataclass(frozen=True)
class SetMLP:
    """A predictor that reads what is shown as a set; calling it builds one. For `Token` masks.

    Each column j has an embedding of its own, those of the shown columns are added up, and an MLP
    reads the sum::

        h = Σ_j m_j · V_j φ(a_j x_j + b_j)        logits = MLP(h)

    A hidden column leaves the sum, so what was learned with few columns shown carries over to
    many. Takes [x ⊙ m, m], what `Token` makes.

    Parameters
    ----------
    hidden : the widths of the MLP's hidden layers, (200, 200) by default.
    inner : how many numbers φ(a_j x_j + b_j) is, for each column; 32 by default.
    embedding : how many numbers the sum h is; 128 by default.
    activation : φ, and the MLP's: "silu" by default, or another of `MLP`.
    bins : be told what the columns of a table are (`bound`); False by default. Numbers that are far
        from normal are then also cut into bins, one input each that rises from 0 to 1 within its
        bin. Columns that hold 0 or 1 enter as they are, without φ.

    Examples
    --------
    >>> SetMLP(hidden=(8,), inner=4, embedding=6)(6, 2)(torch.zeros(5, 6)).shape
    torch.Size([5, 2])
    """

    hidden: tuple[int, ...] = (200, 200)
    inner: int = 32
    embedding: int = 128
    activation: str = "silu"
    bins: bool = False

    def __post_init__(self) -> None:
        head = MLP(self.hidden, self.activation)  # checks both
        object.__setattr__(self, "hidden", head.hidden)
        for name in ("inner", "embedding"):
            value = getattr(self, name)
            whole = is_whole(value)
            if not whole or value < 1:
                raise InputError(f"{name} must be a whole number above 0 but is {value!r}.")

    def __call__(self, inputs: int, outputs: int) -> nn.Module:
        """Build the network, (batch, inputs) -> (batch, outputs), from torch's random state."""
        if inputs % 2:
            raise InputError(
                "SetMLP takes values and mask side by side, so an even number of inputs, but got "
                f"{inputs}; use it with masker=Token()."
            )
        head = MLP(self.hidden, self.activation)(self.embedding, outputs)
        if self.bins:
            return self.bound(dict.fromkeys(range(inputs // 2), ()))(inputs, outputs)
        return _SetNetwork(inputs // 2, self.inner, self.embedding, self.activation, head)

    def bound(self, numeric: Mapping[int, Sequence[float]]) -> Factory:
        """Return this network told of a table; without ``bins`` it is what it was.

        Parameters
        ----------
        numeric : {column that holds numbers: edges of its bins}; no edges, no bins.
        """
        return BoundSet(self, numeric) if self.bins else self


@dataclass(frozen=True)
class BoundSet:
    """A `SetMLP` that knows a table's columns; a factory like it."""

    network: SetMLP
    numeric: Mapping[int, Sequence[float]]

    def __call__(self, inputs: int, outputs: int) -> nn.Module:
        """Build the network, (batch, inputs) -> (batch, outputs), from torch's random state."""
        own = self.network
        head = MLP(own.hidden, own.activation)(own.embedding, outputs)
        return TableSet(inputs // 2, own.inner, own.embedding, own.activation, head, self.numeric)


class _SetNetwork(nn.Module):
    """See `SetMLP`."""

    def __init__(
        self, columns: int, inner: int, embedding: int, activation: str, head: nn.Module
    ) -> None:
        super().__init__()
        self.columns = columns
        self.slope = nn.Parameter(torch.randn(columns, inner))
        self.offset = nn.Parameter(torch.randn(columns, inner))
        # so that the sum over the columns starts with entries of about 1
        self.join = nn.Linear(columns * inner, embedding)
        self.activation = ACTIVATIONS[activation]()
        self.head = head

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch outputs"]:
        value, mask = x[..., : self.columns], x[..., self.columns :]
        inner = self.activation(value.unsqueeze(-1) * self.slope + self.offset)
        shown = (inner * mask.unsqueeze(-1)).flatten(-2)  # (batch, columns × inner)
        result: Tensor = self.head(self.join(shown))
        return result


class TableSet(nn.Module):
    """See `SetMLP.bound`. Everything before ``join`` belongs to one column each.

    owner : for each input of ``join``, the column that it belongs to.
    """

    owner: Tensor
    numeric: Tensor
    binned: Tensor
    low: Tensor
    width: Tensor

    def __init__(
        self,
        columns: int,
        inner: int,
        embedding: int,
        activation: str,
        head: nn.Module,
        numeric: Mapping[int, Sequence[float]],
    ) -> None:
        super().__init__()
        self.columns = columns
        bins = [(i, a, b - a) for i, edges in numeric.items() for a, b in pairwise(edges)]
        whole = torch.long
        self._constant("numeric", torch.tensor(list(numeric), dtype=whole))
        self._constant("binned", torch.tensor([i for i, _, _ in bins], dtype=whole))
        self._constant("low", torch.tensor([a for _, a, _ in bins]))
        self._constant("width", torch.tensor([w for _, _, w in bins]))
        every = torch.arange(columns)
        owner = [every, every, self.binned, self.numeric.repeat_interleave(inner)]
        self._constant("owner", torch.cat(owner))
        self.slope = nn.Parameter(torch.randn(len(numeric), inner))
        self.offset = nn.Parameter(torch.randn(len(numeric), inner))
        self.join = nn.Linear(len(self.owner), embedding)
        self.activation = ACTIVATIONS[activation]()
        self.head = head

    def _constant(self, name: str, value: Tensor) -> None:
        # not saved with the weights: the table's columns are
        self.register_buffer(name, value, persistent=False)

    def inputs(
        self, value: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch inputs"]:
        """Concatenate mask, values, bins and inner units for ``join``; a hidden column's are 0."""
        binned = (value[..., self.binned] - self.low) / self.width
        inner = self.activation(value[..., self.numeric].unsqueeze(-1) * self.slope + self.offset)
        parts = [
            mask,
            value,
            binned.clamp(0, 1) * mask[..., self.binned],
            (inner * mask[..., self.numeric].unsqueeze(-1)).flatten(-2),
        ]
        return torch.cat(parts, dim=-1)

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch outputs"]:
        value, mask = x[..., : self.columns], x[..., self.columns :]
        result: Tensor = self.head(self.join(self.inputs(value, mask)))
        return result


def set_inputs(network: SetMLP, columns: int, numeric: Mapping[int, Sequence[float]]) -> int:
    """Numbers that the first layer of a bound `SetMLP` adds up for a row.

    >>> set_inputs(SetMLP(inner=4), 3, {0: (), 1: (0.0, 1.0, 2.0)})
    16
    """
    bins = sum(max(0, len(edges) - 1) for edges in numeric.values())
    return 2 * columns + bins + network.inner * len(numeric)


def build(network: nn.Module | Factory, inputs: int, outputs: int, seed: int) -> nn.Module:
    """Copy a module, or build one from a factory with torch's random state set to ``seed``."""
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = network(inputs, outputs)
    if not isinstance(module, nn.Module):
        raise InputError(
            "a network must be a torch.nn.Module, or a factory (inputs, outputs) that returns one, "
            f"but the factory returned {type(module).__name__}."
        )
    return module


def check_shapes(
    module: nn.Module, name: str, inputs: Float[Tensor, "batch inputs"], outputs: int
) -> None:
    """Fail before training when a network does not map (batch, inputs) to (batch, outputs)."""
    module = copy.deepcopy(module).float().eval()
    expected = (inputs.shape[0], outputs)
    try:
        with torch.no_grad():
            result = module(inputs)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            f"the {name} must take an input of shape (batch, {inputs.shape[1]}) and return "
            f"(batch, {outputs}), but it failed on an input of shape {tuple(inputs.shape)}: "
            f"{(str(error) or type(error).__name__).splitlines()[0]}"
        ) from error
    shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
    if shape != expected:
        raise InputError(
            f"the {name} must return shape {expected} for an input of shape "
            f"{tuple(inputs.shape)}, but returned {shape}; change its last layer."
        )


def _one_of(name: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)} but is {value!r}.")
