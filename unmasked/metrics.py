"""Metrics: prediction quality with bootstrap intervals, and selection quality against the truth.

The AUROC of two classes is the usual one of P(second class). With more classes it is the
*micro* AUROC, as the paper's authors use it: all (row, class) pairs are pooled, each asking
whether the row belongs to the class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-12  # probabilities below this count as this in a logarithm
_CHUNK_NUMBERS = 4_000_000  # weights held at once while resampling


@dataclass(frozen=True)
class Interval:
    """A figure with a 95% bootstrap interval over rows."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "–"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def log_likelihoods(predicted: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Σ_c target_c log predicted_c for each row: (rows, classes) twice -> (rows,)."""
    result: NDArray[np.float64] = (
        target * np.log(np.clip(np.asarray(predicted, dtype=np.float64), _LEAST, 1))
    ).sum(1)
    return result


def gain_of(gains: NDArray[Any]) -> tuple[float, float]:
    """The mean of paired differences and its standard error; of a single one ∞."""
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else float("inf")
    return float(gains.mean()), error


def kl_divergences(predicted: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """KL(target ‖ predicted) for each row."""
    entropy = (target * np.log(np.clip(np.asarray(target, np.float64), _LEAST, 1))).sum(1)
    result: NDArray[np.float64] = entropy - log_likelihoods(predicted, target)
    return result


def hits(predicted: NDArray[Any], label: NDArray[Any]) -> NDArray[np.float64]:
    """1 where the likeliest predicted class is the label, (rows,)."""
    return (np.asarray(predicted).argmax(1) == label).astype(np.float64)


def balanced_accuracy(predicted: NDArray[Any], label: NDArray[Any]) -> float:
    """Mean over the classes in ``label`` of the share of their rows whose class is named.

    >>> balanced_accuracy(np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]]), np.array([0, 0, 1]))
    0.5
    """
    correct = hits(predicted, label)
    return float(np.mean([correct[label == one].mean() for one in np.unique(label)]))


def auroc(predicted: NDArray[Any], label: NDArray[Any]) -> float:
    """AUROC of probabilities (rows, classes) for labels (rows,) in 0 … classes − 1.

    >>> auroc(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1]))
    1.0
    """
    return float(_Ranking(predicted, label)(np.ones((1, len(label))))[0])


def label_scores(
    predicted: NDArray[Any], label: NDArray[Any], letter: str = ""
) -> dict[str, float]:
    """AUROC, accuracy and mean log-likelihood of probabilities (rows, classes) for labels (rows,).

    ``letter`` stands before each name, as in "eauroc".
    """
    target = np.eye(predicted.shape[1])[label]
    return {
        f"{letter}auroc": auroc(predicted, label),
        f"{letter}acc": float(hits(predicted, label).mean()),
        f"{letter}loglik": float(log_likelihoods(predicted, target).mean()),
    }


class _Ranking:
    """AUROC as a function of row weights; the sorting is done once."""

    def __init__(self, predicted: NDArray[Any], label: NDArray[Any]) -> None:
        predicted = np.asarray(predicted, dtype=np.float64)
        rows, classes = predicted.shape
        label = np.asarray(label)
        if classes == 2:
            scores, positive, row = predicted[:, 1], label == 1, np.arange(rows)
        else:
            scores = predicted.ravel()
            positive = (label[:, None] == np.arange(classes)).ravel()
            row = np.repeat(np.arange(rows), classes)
        order = np.argsort(scores, kind="stable")
        self.row, self.positive = row[order], positive[order].astype(np.float64)
        ordered = scores[order]
        self.ties = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))

    def __call__(self, weights: NDArray[Any]) -> NDArray[np.float64]:
        """Weights (draws, rows) -> AUROC (draws,); NaN where one class is absent."""
        spread = weights[:, self.row]  # (draws, pairs)
        up = np.add.reduceat(spread * self.positive, self.ties, axis=1)
        down = np.add.reduceat(spread * (1 - self.positive), self.ties, axis=1)
        below = np.cumsum(down, axis=1) - down / 2  # half of those that tie
        pairs = up.sum(1) * down.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            result: NDArray[np.float64] = np.where(pairs > 0, (up * below).sum(1) / pairs, np.nan)
        return result


Statistic = Callable[[NDArray[Any]], NDArray[np.float64]]


def mean_statistic(values: NDArray[Any]) -> Statistic:
    """The weighted mean of a figure per row, as a function of weights (draws, rows)."""
    return lambda weights: (weights @ values) / weights.sum(1)


def auroc_statistic(predicted: NDArray[Any], label: NDArray[Any]) -> Statistic:
    """AUROC as a function of weights (draws, rows)."""
    return _Ranking(predicted, label)


def average_statistic(statistics: list[Statistic]) -> Statistic:
    """The average of several statistics, such as one for each draw of random masks."""
    return lambda weights: np.mean([statistic(weights) for statistic in statistics], axis=0)


def bootstrap(
    statistics: dict[str, Statistic],
    rows: int,
    *,
    draws: int,
    seed: int,
    differences: dict[str, tuple[str, str]] | None = None,
    width: int = 1,
    groups: NDArray[Any] | None = None,
) -> dict[str, Interval]:
    """95% percentile intervals, all statistics on the same resampled rows (so they pair).

    Each draw weights the rows by how often resampling with replacement takes them. With ``groups``
    (rows,), whole groups are taken: rows of one patient are alike, and intervals that take them for
    so many independent ones are too narrow.
    ``differences`` names pairs of statistics whose difference is wanted too. ``width`` is how many
    numbers a statistic holds for each row and draw (the classes of a micro AUROC): for memory.
    """
    random = np.random.default_rng(seed)
    of = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    different = int(of.max()) + 1 if rows else 0
    one = np.ones((1, rows))
    values = {name: float(statistic(one)[0]) for name, statistic in statistics.items()}
    found: dict[str, list[NDArray[np.float64]]] = {name: [] for name in statistics}
    chunk = max(1, min(draws, _CHUNK_NUMBERS // max(1, rows * width)))
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        weights = np.stack(
            [
                np.bincount(random.integers(different, size=different), minlength=different)[of]
                for _ in range(count)
            ]
        ).astype(np.float64)
        for name, statistic in statistics.items():
            found[name].append(statistic(weights))
    joined = {name: np.concatenate(parts or [np.array([np.nan])]) for name, parts in found.items()}
    for name, (left, right) in (differences or {}).items():
        values[name] = values[left] - values[right]
        joined[name] = joined[left] - joined[right]
    result = {}
    for name, all_draws in joined.items():
        all_draws = all_draws[np.isfinite(all_draws)]
        known = len(all_draws) and (groups is None or different > 1)  # one group tells nothing
        low, high = np.percentile(all_draws, [2.5, 97.5]) if known else (np.nan, np.nan)
        result[name] = Interval(values[name], float(low), float(high))
    return result


@dataclass(frozen=True)
class SelectionQuality:
    """Rates at which selections find the truth, averaged over rows as the paper and INVASE do.

    tpr : share of a row's true features that are shown.
    fdr : share of a row's shown features that are not true; 0 where nothing is shown.
    cfsr : share of rows that show the control-flow feature; None where there is none.
    """

    tpr: float
    fdr: float
    cfsr: float | None

    def to_json(self) -> dict[str, float]:
        values = {"tpr": self.tpr, "fdr": self.fdr}
        return values if self.cfsr is None else {**values, "cfsr": self.cfsr}


def selection_quality(
    masks: NDArray[Any], truth: NDArray[Any], control_flow: int | None = None
) -> SelectionQuality:
    """Compare masks with the true features.

    Parameters
    ----------
    masks : (rows, features), 1 = shown.
    truth : (rows, features), 1 = the feature is true of the row.
    control_flow : position of the control-flow feature, for the CFSR; None (default) for none.

    Examples
    --------
    >>> selection_quality(np.array([[1, 1, 0], [0, 0, 0]]), np.array([[1, 0, 1], [1, 0, 0]]), 0)
    SelectionQuality(tpr=0.25, fdr=0.25, cfsr=0.5)
    """
    shown, true = np.asarray(masks, dtype=bool), np.asarray(truth, dtype=bool)
    tpr = (shown & true).sum(1) / np.maximum(true.sum(1), 1)
    fdr = (shown & ~true).sum(1) / np.maximum(shown.sum(1), 1)
    cfsr = None if control_flow is None else float(shown[:, control_flow].mean())
    return SelectionQuality(float(tpr.mean()), float(fdr.mean()), cfsr)
