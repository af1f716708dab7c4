"""Figures with intervals: every statistic of every explanation on the same resampled rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing.queries import Answers
from unmasked.metrics import (
    Interval,
    Statistic,
    auroc_statistic,
    average_statistic,
    bootstrap,
    hits,
    log_likelihoods,
    mean_statistic,
)

_MOST_PAIRS = 8  # explanations that are all compared with each other


class Resampler:
    """Paired bootstrap intervals over rows; rows of one group are drawn together."""

    def __init__(self, groups: NDArray[np.int64] | None, draws: int, seed: int) -> None:
        self._groups, self._draws, self._seed = groups, draws, seed

    def __call__(
        self,
        statistics: dict[str, Statistic],
        rows: NDArray[np.int64],
        *,
        differences: dict[str, tuple[str, str]] | None = None,
        width: int = 1,
    ) -> dict[str, Interval]:
        """Intervals of statistics of these rows (positions among all)."""
        count = len(rows)
        if self._groups is not None:
            names, owner = np.unique(self._groups[rows], return_inverse=True)
            count = len(names)
            statistics = {name: _by_group(s, owner) for name, s in statistics.items()}
            width *= max(1, -(-len(rows) // count))
        return bootstrap(
            statistics,
            count,
            draws=self._draws,
            seed=self._seed,
            differences=differences,
            width=width,
        )


def _by_group(statistic: Statistic, owner: NDArray[np.int64]) -> Statistic:
    """A row weighs what its group weighs."""
    return lambda weights: statistic(weights[:, owner])


def label_statistics(
    predicted: list[NDArray[Any]], label: NDArray[np.int64], prefix: str
) -> dict[str, Statistic]:
    """AUROC, accuracy and log-likelihood of probabilities, averaged over several draws."""
    target = np.eye(predicted[0].shape[1])[label]
    loglik = np.mean([log_likelihoods(p, target) for p in predicted], axis=0)
    correct = np.mean([hits(p, label) for p in predicted], axis=0)
    return {
        f"{prefix}auroc": average_statistic([auroc_statistic(p, label) for p in predicted]),
        f"{prefix}acc": mean_statistic(correct),
        f"{prefix}loglik": mean_statistic(loglik),
    }


def all_figures(
    answers: Answers,
    label: NDArray[np.int64],
    masks: list[NDArray[np.bool_]],
    roar: list[NDArray[Any]],
    posthoc: list[NDArray[Any]] | None,
    resample: Resampler,
    random_draws: int,
) -> tuple[dict[str, Interval], list[dict[str, Interval]], dict[tuple[int, int], Interval]]:
    """References, each explanation's metrics, and paired differences between explanations.

    The keys of an explanation: ``fraction``; ``eauroc eacc eloglik`` of what it shows; the same
    after ``random_``; ``over_random_`` (paired differences), ``over_nothing_eloglik``,
    ``below_everything_eloglik``; on the sampled rows ``sample_eacc sample_eloglik best_eacc
    best_eloglik below_best_eloglik``; ``roar_auroc roar_acc roar_loglik``; ``posthoc_auroc
    posthoc_acc posthoc_loglik`` where a model was given.
    """
    mean = {name: p.mean(0) for name, p in answers.p.items()}
    statistics: dict[str, Statistic] = {}
    differences: dict[str, tuple[str, str]] = {}
    for name in ("everything", "nothing"):
        statistics |= label_statistics([mean[name]], label, f"{name}/e")
    for i, shown in enumerate(masks):
        own, random = f"{i}/", f"{i}/random_"
        statistics[f"{own}fraction"] = mean_statistic(shown.mean(1))
        statistics |= label_statistics([mean[f"shown/{i}"]], label, f"{own}e")
        draws = [mean[f"random/{i}/{j}"] for j in range(random_draws)]
        statistics |= label_statistics(draws, label, f"{random}e")
        statistics |= label_statistics([roar[i]], label, f"{own}roar_")
        if posthoc is not None:
            statistics |= label_statistics([posthoc[i]], label, f"{own}posthoc_")
        for metric in ("eauroc", "eacc", "eloglik"):
            differences[f"{own}over_random_{metric}"] = own + metric, random + metric
        differences[f"{own}over_nothing_eloglik"] = f"{own}eloglik", "nothing/eloglik"
        differences[f"{own}below_everything_eloglik"] = "everything/eloglik", f"{own}eloglik"
    pairs = list(combinations(range(len(masks)), 2)) if len(masks) <= _MOST_PAIRS else []
    for a, b in pairs:
        differences[f"pair/{a}/{b}"] = f"{a}/eloglik", f"{b}/eloglik"
    found = resample(
        statistics,
        np.arange(len(label)),
        differences=differences,
        width=mean["nothing"].shape[1],
    )
    found |= _best_figures(answers, label, mean, len(masks), resample)
    references: dict[str, Interval] = {}
    each: list[dict[str, Interval]] = [{} for _ in masks]
    compared: dict[tuple[int, int], Interval] = {}
    for name, interval in found.items():
        first, rest = name.split("/", 1)
        if first == "pair":
            left, right = rest.split("/")
            compared[int(left), int(right)] = interval
        elif first.isdigit():
            each[int(first)][rest] = interval
        else:
            references[f"{first}_{rest}"] = interval
    return references, each, compared


def _best_figures(
    answers: Answers,
    label: NDArray[np.int64],
    mean: dict[str, NDArray[Any]],
    count: int,
    resample: Resampler,
) -> dict[str, Interval]:
    """Compare each explanation with the search's masks of the same sizes, on the sampled rows."""
    rows = answers.sampled
    statistics: dict[str, Statistic] = {}
    differences: dict[str, tuple[str, str]] = {}
    for i in range(count):
        for prefix, p in (("sample_e", mean[f"shown/{i}"][rows]), ("best_e", answers.best[i])):
            made = label_statistics([p], label[rows], f"{i}/{prefix}")
            statistics |= {name: s for name, s in made.items() if not name.endswith("auroc")}
        differences[f"{i}/below_best_eloglik"] = f"{i}/best_eloglik", f"{i}/sample_eloglik"
    return resample(statistics, rows, differences=differences)


def curve_figures(
    values: NDArray[np.float64], rows: NDArray[np.int64], resample: Resampler
) -> list[Interval]:
    """The mean of each point of a curve; values : (points, rows)."""
    make: Callable[[NDArray[Any]], Statistic] = mean_statistic
    found = resample({str(i): make(point) for i, point in enumerate(values)}, rows)
    return [found[str(i)] for i in range(len(values))]
