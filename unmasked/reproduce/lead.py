"""What the synthetic tables say, in sentences made from their figures."""

from __future__ import annotations

from typing import Any

from unmasked.reproduce.published import published
from unmasked.reproduce.summary import Summary, summarise

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
