"""Screen wide tables: which features y may depend on, alone or together with one other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unmasked.shapes import Float

_PRODUCTS = 2e11  # of rows × columns × columns; of wider tables fewer rows are looked at
_BLOCK = 500  # columns at once
_CLASSES = 10  # the most frequent ones


@torch.no_grad()
def second_moments(
    x: Float[Tensor, "rows columns"], target: Float[Tensor, "rows classes"]
) -> Float[Tensor, " columns"]:
    """How clearly each column goes with a class: alone, squared, or beside one other column.

    The largest |z| of the means of yx, yx², yxx′ and yxx′², y the class less its share. A product
    sees what neither of its parts does, such as x1 · x2; of three columns it knows nothing.
    """
    rows, columns = x.shape
    some = torch.linspace(0, rows - 1, max(1, min(rows, int(_PRODUCTS / columns**2)))).long()
    x, target = x[some.to(x.device)], target[some.to(x.device)]
    x = x - x.mean(0)
    largest = x.new_zeros(columns)
    for label in target.sum(0).argsort(descending=True)[: min(_CLASSES, _needed(target))]:
        y = target[:, label] - target[:, label].mean()
        square = x**2 - (x**2).mean(0)
        for alone in (x, square):
            largest = torch.maximum(largest, _z(y @ alone, y**2 @ alone**2))
        for start in range(0, columns, _BLOCK):
            block = x[:, start : start + _BLOCK] * y[:, None]  # (rows, block)
            here = torch.arange(block.shape[1], device=x.device)
            for other in (x, square):
                z = _z(block.T @ other, (block**2).T @ other**2)
                z[here, here + start] = 0
                found = largest[start : start + _BLOCK]
                largest[start : start + _BLOCK] = torch.maximum(found, z.amax(1))
    return largest


def _needed(target: Tensor) -> int:
    """Of two classes one says all."""
    return 1 if target.shape[1] == 2 else target.shape[1]


def _z(total: Tensor, squares: Tensor) -> Tensor:
    return total.abs() / squares.clamp_min(1e-12).sqrt()


def best_features(scores: Float[Tensor, " columns"], index: Sequence[int]) -> list[int]:
    """All features, those with the best columns first."""
    owner = torch.tensor(index, device=scores.device)
    best = scores.new_zeros(max(index) + 1).scatter_reduce(0, owner, scores, "amax")
    order: list[int] = best.argsort(descending=True, stable=True).tolist()
    return order
