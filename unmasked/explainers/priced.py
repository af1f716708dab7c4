"""Explainers whose sparsity is a price λ on the fraction shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unmasked.columns import GroupSpec
from unmasked.engine import Training
from unmasked.engine.progress import Show
from unmasked.errors import InputError
from unmasked.estimator import Table
from unmasked.explainers.base import Explainer
from unmasked.explanation import Explanation
from unmasked.masking import Masker
from unmasked.networks import Factory
from unmasked.samplers import RebarBernoulli, Sampler
from unmasked.sparsity import check_sparsity, sparsity_path


class Priced(Explainer):
    """Base of `RealX`, `BaseX` and `Invase`: independent selections, at a price."""

    def __init__(
        self,
        sparsity: float | Sequence[float] | str = "auto",
        *,
        choose: str = "one-standard-error",
        tolerance: float = 0.05,
        model: Any = None,
        selector: nn.Module | Factory | None = None,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        training: Training | None = None,
        restarts: int = 1,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.sparsity = sparsity
        self.choose = choose
        self.tolerance = tolerance
        self.model = model
        self.selector = selector
        self.predictor = predictor
        self.masker = masker
        self.groups = groups
        self.training = training
        self.restarts = restarts
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def _check_levels(self) -> None:
        check_sparsity(self.sparsity)

    def _levels(self) -> tuple[float, ...]:
        return sparsity_path(self.sparsity, self._sizes[1])

    @property
    def _sampler(self) -> Sampler:
        return RebarBernoulli()

    @property
    def sparsity_(self) -> float:
        """The chosen λ."""
        return self._setting(None).level

    def trained_sparsity(self, sparsity: float | None = None) -> float:
        """The λ of the trained path that is meant; without one, the chosen λ."""
        return float(self._setting(sparsity).level)

    def explain(
        self, X: Table, *, sparsity: float | None = None, k: int | None = None
    ) -> Explanation:
        """Select features for each row, in batches of ``batch_size``.

        ``sparsity`` picks another λ of the path; ``k`` shows exactly so many features of each row,
        instead of what pays its price. Where `RealX` searches, ``k`` searches for the best k of
        each row, whatever ``choice_`` is: that choice may give something away.
        """
        if k is None:
            return self._explain(X, sparsity)
        if sparsity is not None:
            raise InputError(f"either sparsity or k says how much to show; leave out k={k!r}.")
        return self._of_size(X, k)

    def _of_size(self, X: Table, k: int) -> Explanation:
        return self._explain(X, None).top(k)

    def predict_proba(
        self, X: Table, *, sparsity: float | None = None, everything: bool = False
    ) -> NDArray[np.float64]:
        """Class probabilities from the shown features alone, under the explainer's predictor.

        ``everything``: from all features instead.
        """
        return self._predict_proba(X, sparsity, everything=everything)
