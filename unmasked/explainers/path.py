"""Read λ as users give it, and choose the setting of a path by a stated rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError
from unmasked.metrics import balanced_accuracy, hits, log_likelihoods

AUTO_PRICES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Prices of one feature, in nats, that ``sparsity="auto"`` tries; λ is the price × features."""


def check_sparsity(sparsity: Any) -> None:
    """Refuse anything but a number ≥ 0, a list of them without duplicates, or "auto"."""
    if isinstance(sparsity, str):
        if sparsity != "auto":
            raise InputError(
                f"sparsity must be a number, a list of numbers or 'auto' but is {sparsity!r}."
            )
        return
    if isinstance(sparsity, int | float | np.number):
        values = [sparsity]
    elif isinstance(sparsity, Sequence | np.ndarray) and len(np.shape(sparsity[:1])) == 1:
        values = list(sparsity)
    else:
        raise InputError(
            f"sparsity must be a number, a list of numbers or 'auto' but is {sparsity!r}."
        )
    for value in values:
        if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
            raise InputError(
                "sparsity (λ, the price in nats of showing everything) must be a finite number of "
                f"at least 0 but is {value!r}."
            )
    if not values or len(set(values)) < len(values):
        raise InputError(f"sparsity must list different numbers but is {values}.")


def sparsity_path(sparsity: float | Sequence[float] | str, features: int) -> tuple[float, ...]:
    """The λ values to train.

    >>> sparsity_path("auto", 100)
    (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """
    if isinstance(sparsity, str):
        return tuple(price * features for price in AUTO_PRICES)
    if isinstance(sparsity, int | float | np.number):
        return (float(sparsity),)
    return tuple(float(value) for value in sparsity)


RULES = ("one-standard-error", "accuracy", "tolerance", "balanced")
OF_FULL = ("tolerance", "balanced")
"""Rules that ask how good a model is that sees everything."""
_MOSTLY_BLANK = 0.5
_ROUNDING = 1e-9  # 0.85 − 0.05 is a little more than 0.8


@dataclass(frozen=True)
class Candidate:
    """One setting as its own predictor sees it on validation rows, with test-time masks."""

    sparsity: float
    fraction: float
    accuracy: float
    balanced_accuracy: float
    logliks: NDArray[Any]  # (rows,)
    blank: float = 0.0  # share of the rows that show nothing

    @classmethod
    def judged(
        cls,
        sparsity: float,
        masks: NDArray[np.bool_],
        predicted: NDArray[Any],
        target: NDArray[Any],
    ) -> Candidate:
        """From test-time masks (rows, features) and what is predicted from them (rows, classes)."""
        label = target.argmax(1)
        return cls(
            sparsity,
            float(masks.mean()),
            float(hits(predicted, label).mean()),
            balanced_accuracy(predicted, label),
            log_likelihoods(predicted, target),
            float((~masks.any(1)).mean()),
        )

    @property
    def loglik(self) -> float:
        return float(self.logliks.mean())


def choose(
    candidates: list[Candidate],
    rule: str,
    *,
    tolerance: float = 0.05,
    full_accuracy: float | None = None,
) -> tuple[int, str]:
    """The position of the setting to keep, and why, in words.

    * "one-standard-error": the sparsest whose mean log-likelihood lies below the best one's by no
      more than one standard error of their paired difference over the validation rows.
    * "accuracy": the largest accuracy (the paper, synthetic sets); the sparser of equals.
    * "tolerance": the sparsest whose accuracy is within ``tolerance`` of a model that sees
      everything (the paper, real data); the largest accuracy if none is.
    * "balanced": the same by balanced accuracy, in which a rare class counts as much as a common
      one, among the settings that show something in most rows (in any, if none does). By accuracy
      alone a setting that shows nothing and always names the common class is good enough where
      that class is common enough; one cell in one row is hardly more.

    full_accuracy : of the model that sees everything, by the same measure as the rule's.
    """
    fractions = np.array([c.fraction for c in candidates])
    balanced = rule == "balanced"
    accuracies = np.array([c.balanced_accuracy if balanced else c.accuracy for c in candidates])
    measure = "validation balanced accuracy" if balanced else "validation accuracy"
    if rule == "one-standard-error":
        best = int(np.argmax([c.loglik for c in candidates]))
        good = [_close(c.logliks, candidates[best].logliks) for c in candidates]
        reason = (
            "the sparsest setting within one standard error of the best validation log-likelihood"
        )
        return _sparsest(fractions, np.array(good)), reason
    largest = _sparsest(fractions, accuracies == accuracies.max())
    if rule == "accuracy":
        return largest, f"the largest {measure}"
    if rule in OF_FULL:
        if full_accuracy is None:
            raise InputError(f"the rule {rule!r} needs the accuracy of the full model.")
        enough = accuracies >= full_accuracy - tolerance - _ROUNDING
        showing = (fractions > 0) & (np.array([c.blank for c in candidates]) < _MOSTLY_BLANK)
        if not showing.any():
            showing = fractions > 0
        if balanced and showing.any():
            enough &= showing
            largest = _sparsest(fractions, showing & (accuracies == accuracies[showing].max()))
        if enough.any():
            return _sparsest(fractions, enough), (
                f"the sparsest setting with {measure} within {tolerance:g} of the full model's "
                f"{full_accuracy:.3f}"
            )
        return largest, (
            f"the largest {measure}, as none is within {tolerance:g} of the full model's "
            f"{full_accuracy:.3f}"
        )
    raise InputError(f"choose must be one of {', '.join(RULES)} but is {rule!r}.")


def _close(logliks: NDArray[Any], best: NDArray[Any]) -> bool:
    difference = best - logliks
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return bool(difference.mean() <= error)


def _sparsest(fractions: NDArray[Any], allowed: NDArray[Any]) -> int:
    return int(np.argmin(np.where(allowed, fractions, np.inf)))
