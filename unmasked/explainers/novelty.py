"""Measure how usual rows are: do they lie where the training rows lie, or outside?

The distance of a row from the training rows is Mahalanobis', with a shrunken covariance Σ::

    d(x)² = (x − μ)ᵀ Σ⁻¹ (x − μ)

and a row's *familiarity* the share of held-out rows at least as far away, counting the row itself::

    p(x) = (1 + #{held-out rows with d ≥ d(x)}) / (1 + #held-out rows)

So a row drawn like the held-out ones has p ≤ α with probability at most α, whatever the table looks
like: a conformal p-value. It sees rows that lie far out, not every way to be unlike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf
from torch import Tensor

OUTSIDE = 0.01
"""Rows with a smaller familiarity are called outside."""
_ROWS = 20_000  # to learn the covariance from
_COLUMNS = 1_000  # of wider tables only each column's own spread
_KEPT = 2_000  # held-out distances that are kept


@dataclass(frozen=True, eq=False)
class Reach:
    """mean (columns,), root (columns, k) with Σ⁻¹ = root · rootᵀ, distances (held-out rows,)
    sorted."""

    mean: NDArray[np.float64]
    root: NDArray[np.float64]
    distances: NDArray[np.float64]

    @classmethod
    def learn(cls, train: NDArray[np.float32], held_out: NDArray[np.float32]) -> Reach:
        """From training rows and others that were held out, (rows, columns) each."""
        rows = train[: min(len(train), _ROWS)].astype(np.float64)
        mean = rows.mean(0)
        if rows.shape[1] > _COLUMNS:
            spread = rows.std(0)
            root = np.where(spread > 0, 1 / np.maximum(spread, 1e-12), 0.0)[None]
        else:
            covariance = LedoitWolf().fit(rows).covariance_
            # a constant column has no spread, and then nothing to say about a row that differs
            values, vectors = np.linalg.eigh(covariance)
            usable = values > 1e-10 * max(values[-1], 1e-300)
            root = vectors[:, usable] / np.sqrt(values[usable])
        found = cls(mean, root, np.zeros(0))
        distances = np.sort(found.distance(held_out))
        if len(distances) > _KEPT:  # evenly thinned: the shares stay right to 1 / _KEPT
            distances = distances[np.linspace(0, len(distances) - 1, _KEPT).round().astype(int)]
        return cls(mean, root, distances)

    def distance(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """(rows, columns) -> (rows,)."""
        away = matrix.astype(np.float64) - self.mean
        scaled = away * self.root if self.root.shape[0] == 1 else away @ self.root
        return np.sqrt((scaled**2).sum(1))

    def familiarity(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """(rows, columns) -> p-values (rows,)."""
        count = len(self.distances)
        farther = count - np.searchsorted(self.distances, self.distance(matrix), side="left")
        return (1 + farther) / (1 + count)

    def tensors(self) -> dict[str, Tensor]:
        """Return mean, root and distances as tensors, by the names they are saved under."""
        return {
            f"reach.{name}": torch.from_numpy(np.ascontiguousarray(getattr(self, name)))
            for name in ("mean", "root", "distances")
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Reach | None:
        """The inverse of `tensors`; None where an older program saved nothing."""
        names = ("mean", "root", "distances")
        if not all(f"reach.{name}" in tensors for name in names):
            return None
        return cls(*(tensors[f"reach.{name}"].numpy() for name in names))
