"""Screen wide tables, and let networks know a part of the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmasked.explainers.search.values import SetPredictor
from unmasked.shapes import Float

_PRODUCTS = 1e11  # of rows × columns × columns × classes; of wider tables fewer rows are paired
_NUMBERS = 2**26  # of a table that are looked at at once
_BLOCK = 500  # columns at once
_CLASSES = 10  # the most frequent ones


@torch.no_grad()
def evidence(
    x: Float[Tensor, "rows columns"], target: Float[Tensor, "rows classes"]
) -> Float[Tensor, " columns"]:
    """Score how surely each column goes with a class: alone, squared, or beside one other column.

    −log p, in nats, of the largest |z| of the means of yx and yx², or of yxx′ and yxx′² over all
    other columns x′, whichever is surer, y the class less its share; p is multiplied by how many
    were looked at, as among many products some are large by chance. A product sees what neither of
    its parts does, such as x1 · x2; of three columns it knows nothing.
    """
    rows, columns = x.shape
    labels = target.sum(0).argsort(descending=True)[: min(_CLASSES, _needed(target))]
    y = target[:, labels] - target[:, labels].mean(0)
    alone = x.new_zeros(columns)
    mean, spread = x.mean(0), x.var(0, correction=0)
    for label in range(y.shape[1]):
        for power in (1, 2):
            alone = torch.maximum(alone, _alone(x, y[:, label], mean, spread, power))
    paired = max(1, min(rows, int(_PRODUCTS / (columns**2 * y.shape[1]))))
    some = torch.linspace(0, rows - 1, paired).long().to(x.device)
    pairs = _paired(x[some], y[some], mean, spread)
    return torch.maximum(_surprise(alone, 2), _surprise(pairs, 2 * max(columns - 1, 1)))


def _alone(x: Tensor, y: Tensor, mean: Tensor, spread: Tensor, power: int) -> Tensor:
    """|z| of the mean of y times each column, or its square."""
    total, squares = torch.zeros_like(mean), torch.zeros_like(mean)
    for start, stop in _steps(len(x), _NUMBERS // x.shape[1]):
        part = x[start:stop] - mean
        part = part if power == 1 else part**2 - spread
        total += y[start:stop] @ part
        squares += y[start:stop] ** 2 @ part**2
    return _z(total, squares)


def _paired(x: Tensor, y: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """The largest |z| of the mean of y times each column times another, or its square."""
    columns = x.shape[1]
    largest = x.new_zeros(columns)
    for label in range(y.shape[1]):
        for start, stop in _steps(columns, _BLOCK):
            here = torch.arange(stop - start, device=x.device)
            sums = x.new_zeros(2, 2, stop - start, columns)  # with others and squares: total, z
            for first, last in _steps(len(x), _NUMBERS // columns):
                part = x[first:last] - mean
                block = part[:, start:stop] * y[first:last, label, None]
                for i, other in enumerate((part, part**2 - spread)):
                    sums[i, 0] += block.T @ other
                    sums[i, 1] += (block**2).T @ other**2
            for total, squares in sums:
                z = _z(total, squares)
                z[here, here + start] = 0
                largest[start:stop] = torch.maximum(largest[start:stop], z.amax(1))
    return largest


def _steps(count: int, most: int) -> list[tuple[int, int]]:
    """From 0 to ``count`` in steps of at most so many."""
    size = max(1, most)
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def _needed(target: Tensor) -> int:
    """Of two classes one says all."""
    return 1 if target.shape[1] == 2 else target.shape[1]


def _z(total: Tensor, squares: Tensor) -> Tensor:
    return total.abs() / squares.clamp_min(1e-12).sqrt()


def _surprise(z: Tensor, looks: int) -> Tensor:
    """−log of the chance that the largest of so many |z| is as large by chance."""
    return -(torch.special.log_ndtr(-z.double()) + math.log(2 * looks)).to(z)


def best_features(scores: Float[Tensor, " columns"], index: Sequence[int]) -> list[int]:
    """All features, those with the best columns first; of several columns one is good by chance."""
    owner = torch.tensor(index, device=scores.device)
    lowest = scores.new_full((max(index) + 1,), -torch.inf)
    best = lowest.scatter_reduce(0, owner, scores, "amax") - owner.bincount().to(scores).log()
    order: list[int] = best.argsort(descending=True, stable=True).tolist()
    return order


_HIDDEN = -7.0  # the logit of a feature that nothing shows


@dataclass(frozen=True)
class Part:
    """Some of a table's features, with the columns of its matrix that belong to them.

    features : their numbers, ascending. columns : of the whole matrix. index : for each of these
    columns its feature's place in ``features``.
    """

    features: tuple[int, ...]
    columns: tuple[int, ...]
    index: tuple[int, ...]

    @classmethod
    def of(cls, features: Sequence[int], index: Sequence[int]) -> Part:
        """Of a matrix whose column c belongs to feature ``index[c]``."""
        kept = tuple(sorted(features))
        place = {feature: i for i, feature in enumerate(kept)}
        columns = tuple(c for c, feature in enumerate(index) if feature in place)
        return cls(kept, columns, tuple(place[index[c]] for c in columns))

    @property
    def plain(self) -> bool:
        """Return True if every column is a feature of its own, in order."""
        return self.index == tuple(range(len(self.index)))

    def numeric(self, whole: Mapping[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
        """{column of the part: edges of its bins}, from the same of the whole matrix."""
        return {i: whole[c] for i, c in enumerate(self.columns) if c in whole}


class PartSelector(nn.Module):
    """A selector of some features, (batch, columns) -> logits of all; the others stay hidden."""

    def __init__(self, selector: nn.Module, part: Part, features: int) -> None:
        super().__init__()
        self.selector = selector
        self.features = features
        self.columns, self.shown = list(part.columns), list(part.features)

    def forward(self, x: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch features"]:
        """The part's logits in their places."""
        logits = x.new_full((len(x), self.features), _HIDDEN)
        logits[:, self.shown] = self.selector(x[:, self.columns])
        return logits


class PartPredictor(nn.Module):
    """A predictor from some columns, told all: [x · m, m] of the whole row."""

    def __init__(self, predictor: SetPredictor, part: Part, columns: int) -> None:
        super().__init__()
        self.predictor = predictor
        self.part = part
        self.inputs = [*part.columns, *(columns + c for c in part.columns)]

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch classes"]:
        """Logits from what is shown of the part."""
        logits: Tensor = self.predictor(x[:, self.inputs])
        return logits
