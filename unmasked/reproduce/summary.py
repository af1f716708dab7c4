"""Summarise rows of results over seeds, and say in sentences what the tables show."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from unmasked.errors import InputError
from unmasked.reproduce.published import published

NOTHING = "–"
"""Stands in a cell where there is no figure."""


def number(value: float) -> str:
    """Three decimals with a true minus.

    >>> number(0.9844), number(-0.5), number(-0.0001)
    ('0.984', '−0.500', '0.000')
    """
    text = f"{value:.3f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


@dataclass(frozen=True)
class Figure:
    """One metric of one method: its value for each seed.

    >>> str(Figure({0: 0.7, 1: 0.8, 2: 0.9})), str(Figure({0: 0.7}))
    ('0.800 ± 0.058', '0.700')
    """

    values: dict[int, float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def error(self) -> float | None:
        """Standard error of the mean, sample standard deviation / √n; None for one seed."""
        n = len(self.values)
        return statistics.stdev(self.values.values()) / math.sqrt(n) if n > 1 else None

    def minus(self, other: Figure) -> Figure | None:
        """The difference, seed by seed, over the seeds that both have; None without any."""
        shared = self.values.keys() & other.values.keys()
        return Figure({s: self.values[s] - other.values[s] for s in shared}) if shared else None

    def __str__(self) -> str:
        error = self.error
        return number(self.mean) + ("" if error is None else f" ± {number(error)}")


@dataclass(frozen=True)
class Summary:
    """The chosen rows of one method on one data set, over seeds."""

    dataset: str
    method: str
    seeds: int
    setting: str
    """The chosen λ or k, such as "0.1 ×4, 0.075"."""
    metrics: dict[str, Figure]


Summaries = dict[tuple[str, str], Summary]
"""(data set, method) -> its summary."""


def summarise(rows: Iterable[dict[str, Any]]) -> Summaries:
    """Summarise the chosen rows, in the order in which methods first appear."""
    grouped: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        if not row["chosen"]:
            continue
        key = (row["dataset"], row["method"])
        by_seed = grouped.setdefault(key, {})
        if row["seed"] in by_seed:
            raise InputError(
                f"each data set, method and seed must have one chosen row, but {key[0]}, {key[1]}, "
                f"seed {row['seed']} has two; mark one of them as chosen."
            )
        by_seed[row["seed"]] = row
    return {key: _summary(key, by_seed) for key, by_seed in grouped.items()}


def _summary(key: tuple[str, str], by_seed: dict[int, dict[str, Any]]) -> Summary:
    values: dict[str, dict[int, float]] = {}
    for seed, row in by_seed.items():
        for name, figure in row["metrics"].items():
            value = figure["value"] if isinstance(figure, dict) else figure
            if value is not None and math.isfinite(value):
                values.setdefault(name, {})[seed] = float(value)
    metrics = {name: Figure(v) for name, v in values.items()}
    settings = [row["setting"] for row in by_seed.values()]
    return Summary(*key, len(by_seed), setting_text(settings), metrics)


def setting_text(settings: list[dict[str, Any]]) -> str:
    """The chosen λ or k over seeds, the most frequent first; a range for more than two.

    >>> setting_text([{"sparsity": 0.1}, {"sparsity": 0.075}, {"sparsity": 0.1}])
    '0.1 ×2, 0.075'
    >>> setting_text([{"k": k} for k in (2, 3, 5)]), setting_text([{"k": 4}] * 3)
    ('2–5', '4')
    """
    chosen = [s.get("sparsity", s.get("k")) for s in settings]
    counts = Counter(c for c in chosen if c is not None)
    if not counts:
        return NOTHING
    if len(counts) == 1:
        return f"{next(iter(counts)):g}"
    if len(counts) > 2:
        return f"{min(counts):g}–{max(counts):g}"
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{value:g}" + (f" ×{n}" if n > 1 else "") for value, n in ordered)


JOINT = ("L2X", "INVASE", "BASE-X")


def lead(rows: list[dict[str, Any]]) -> list[str]:
    """Paragraphs; only about methods that were run."""
    found = summarise(rows)
    sets = sorted({dataset for dataset, _ in found})
    words = []
    if all((name, "REAL-X") in found for name in sets):
        words.append(
            f"REAL-X ({', '.join(sets)}): shows the control-flow feature x11 in "
            f"{_each(found, sets, 'REAL-X', 'cfsr')} of the rows; eAUROC "
            f"{_each(found, sets, 'REAL-X', 'eauroc')} (paper {_paper(sets, 'REAL-X', 'eauroc')}, "
            f"optimum on the same rows {_each(found, sets, 'optimum', 'auroc')}, random masks of "
            f"the same sizes {_each(found, sets, 'random masks', 'eauroc')})."
        )
    for name in JOINT:
        if all((dataset, name) in found for dataset in sets):
            words.append(
                f"{name}: x11 in {_each(found, sets, name, 'cfsr')} of the rows; AUROC "
                f"{_each(found, sets, name, 'auroc')} under its own predictor, "
                f"{_each(found, sets, name, 'eauroc')} under EVAL-X; log-likelihood "
                f"{_each(found, sets, name, 'loglik')} and {_each(found, sets, name, 'eloglik')}."
            )
    omitted = "true features without x11"
    if all((name, omitted) in found for name in sets):
        with_it, without = (
            [_mean(found, name, method, "eloglik") for name in sets]
            for method in ("true features", omitted)
        )
        cost = " / ".join(f"{a - b:.3f}" for a, b in zip(with_it, without, strict=True))
        words.append(
            "Leaving x11 out of the true features costs "
            f"{cost} nats under EVAL-X, while its AUROC goes from "
            f"{_each(found, sets, 'true features', 'eauroc')} to "
            f"{_each(found, sets, omitted, 'eauroc')}; exactly it would go from "
            f"{_each(found, sets, 'true features', 'oauroc')} to "
            f"{_each(found, sets, omitted, 'oauroc')}."
        )
    return words


Found = dict[tuple[str, str], Summary]


def _mean(found: Found, dataset: str, method: str, key: str) -> float:
    figure = found[dataset, method].metrics.get(key)
    return float("nan") if figure is None else figure.mean


def _each(found: Found, sets: list[str], method: str, key: str) -> str:
    return " / ".join(f"{_mean(found, name, method, key):.3f}" for name in sets)


def _paper(sets: list[str], method: str, key: str) -> str:
    return " / ".join(f"{published(name, method).metrics[key]:.3f}" for name in sets)
