"""What explaining with a saved model is for tables and for pictures alike."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from unmasked.errors import InputError, InterruptedWarning, OutputError
from unmasked.evaluation import EvalX, Scores
from unmasked.explainers import RealX
from unmasked.explanation import Explanation


def model_folders(given: Path, out: Path) -> tuple[Path, Path | None]:
    """The explainer's folder and the evaluator's, from either it or the output around it.

    Refuses an output folder ``out`` that holds them.
    """
    if not given.is_dir():
        what = "is a file" if given.exists() else "does not exist"
        raise InputError(
            f"--model must be the folder of earlier results, or of a saved model, but {given} "
            f"{what}; check the path."
        )
    inside = (given / "model").is_dir() and not (given / "config.json").is_file()
    model = given / "model" if inside else given
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


def fitted_whole(evaluator: EvalX, *rows: Any, **options: Any) -> EvalX:
    """An evaluator that was trained to its end; a half-trained one must not judge anyone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptedWarning)  # what was learned is not kept
        evaluator.fit(*rows, **options)
    if evaluator.interrupted_:
        raise KeyboardInterrupt  # the checkpoint stays
    return evaluator


def new_rows(
    dataset: str, explainer: RealX, price: float, explanation: Explanation, scores: Scores | None
) -> list[dict[str, Any]]:
    """The rows of ``results.json``; without scores one that says only how much is shown."""
    chosen = price == explainer.sparsity_
    rows = []
    for name, method, fraction in (
        ("explanation", "REAL-X", explanation.fraction),
        ("random", "random masks", explanation.fraction),
        ("everything", "everything shown", 1.0),
        ("nothing", "nothing shown", 0.0),
    ):
        if name == "explanation" or scores is not None:
            figures = {} if scores is None else scores.figures(name)
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "setting": {"sparsity": price} if name == "explanation" else {},
                    "chosen": chosen,
                    "metrics": {"fraction": fraction, **figures},
                }
            )
    return rows


def said_path(path: Path) -> str:
    """A path as results name it: as it was given, but no more than its end if that is absolute."""
    if not path.is_absolute():
        return path.as_posix()
    return "/".join(path.parts[-2:]) if path.name == "model" else path.name
