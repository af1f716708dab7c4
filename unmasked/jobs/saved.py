"""What explaining with a saved model is for tables and for pictures alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmasked.errors import OutputError
from unmasked.evaluation import Scores
from unmasked.explainers import RealX
from unmasked.explanation import Explanation


def model_folders(given: Path, out: Path) -> tuple[Path, Path | None]:
    """The explainer's folder and the evaluator's, from either it or the output around it.

    Refuses an output folder ``out`` that holds them.
    """
    model = given / "model" if (given / "model" / "config.json").is_file() else given
    if out.resolve() in (model.resolve(), model.resolve().parent):
        raise OutputError(
            f"{out} holds the model itself and its results; choose another folder with --out."
        )
    evaluator = model.parent / "evaluator"
    return model, evaluator if (evaluator / "config.json").is_file() else None


def said_price(explainer: RealX, price: float) -> str:
    """λ, and whether it is the one that was chosen when the model was trained."""
    chosen = explainer.sparsity_
    return f"{price:g}" if price == chosen else f"{price:g} (not the chosen {chosen:g})"


def new_row(
    dataset: str, explainer: RealX, price: float, explanation: Explanation, scores: Scores | None
) -> dict[str, Any]:
    """The row of ``results.json``; without scores it says only how much is shown."""
    return {
        "dataset": dataset,
        "method": "REAL-X",
        "setting": {"sparsity": price},
        "chosen": price == explainer.sparsity_,
        "metrics": {
            "fraction": explanation.fraction,
            **({} if scores is None else scores.figures("explanation")),
        },
    }
