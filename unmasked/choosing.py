"""Which setting of a path to keep, by a stated rule on validation rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError
from unmasked.metrics import balanced_accuracy, hits, log_likelihoods

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
