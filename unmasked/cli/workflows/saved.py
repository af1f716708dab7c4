"""Share between tables and pictures what explaining with a saved model needs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from unmasked.cli.workflows.image_checks import CACHE, OURS
from unmasked.errors import DataWarning, InputError, InterruptedWarning, OutputError
from unmasked.evaluation import EvalX, Scores
from unmasked.explainers import RealX
from unmasked.explainers.saving import saved_kind
from unmasked.explanation.explanation import Explanation
from unmasked.io.output_folder import CHECKPOINTS, MODELS, RESULTS


def model_folders(given: Path, out: Path) -> tuple[Path, Path | None]:
    """The explainer's folder and the evaluator's, from either it or the output around it.

    Refuses an output folder ``out`` that holds them, lies in them or holds others.
    """
    if not given.is_dir():
        what = "is a file" if given.exists() else "does not exist"
        raise InputError(
            f"--model must be the folder of earlier results, or of a saved model, but {given} "
            f"{what}; check the path."
        )
    inside = (given / "model").is_dir() and not (given / "config.json").is_file()
    model = given / "model" if inside else given
    if not (model / "config.json").is_file():
        raise InputError(
            f"--model must be the folder of earlier results, or of a saved model, but {given} is "
            "neither: no config.json lies in it or in a folder model in it; check the path."
        )
    _check_beside(model, out)
    evaluator = model.parent / "evaluator"
    return model, evaluator if (evaluator / "config.json").is_file() else None


def _check_beside(model: Path, out: Path) -> None:
    """New results must not come where a model and its own results are, nor into them."""
    own, home = out.resolve(), model.resolve().parent
    if own in (model.resolve(), home):
        raise OutputError(
            f"{out} holds the model itself and its results; choose another folder with --out."
        )
    kept = [model.resolve()]
    if (home / RESULTS).is_file():  # not just any folder that a model was saved in
        kept += [home / name for name in (*OURS, CACHE)]
    if any(own.is_relative_to(path) for path in kept):
        raise OutputError(
            f"{out} lies in what {home} holds of the model and its results, which goes when they "
            "are replaced; choose another folder with --out."
        )
    if any(saved_kind(out / name) is not None for name in MODELS):
        raise OutputError(
            f"{out} holds a model of its own and its results; choose another folder with --out."
        )


def tell_of_other_training(out: Path, own: Path) -> None:
    """Say that results will take the place of what another command has not finished.

    ``own`` is the `checkpoint_folder` of this run.
    """
    every = out / CHECKPOINTS
    others = [path for path in every.iterdir() if path.is_dir()] if every.is_dir() else []
    if any(path.name != own.name for path in others):
        warnings.warn(
            DataWarning(
                f"{out} holds the unfinished training of a command with other options or other "
                "data, which is forgotten when this one ends; to keep it, stop now and choose "
                "another folder with --out."
            ),
            stacklevel=2,
        )


def tell_of_replacing(out: Path, command: str) -> None:
    """Say that results of another command will be replaced, and what they are.

    ``command`` is what makes the new ones: the same again replaces its own.
    """
    try:
        results = json.loads((out / RESULTS).read_text(encoding="utf-8"))
        earlier = str(results["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if earlier != command:
        warnings.warn(
            DataWarning(
                f"{out} holds earlier results ({_described(results)}, by `{earlier}`), which are "
                "replaced when this run ends; to keep them, stop now and choose another folder "
                "with --out."
            ),
            stacklevel=2,
        )


def _described(results: dict[str, Any]) -> str:
    """Describe what earlier results explained, as far as they say: table, target, model, price."""
    facts = [f"table {results['table']}"] if "table" in results else []
    facts += [f"target {results['target']}"] if "target" in results else []
    facts += [f"model {results['model']}"] if "model" in results else []
    rows = results.get("rows")
    settings = [row.get("setting") for row in rows] if isinstance(rows, list) else []
    prices = [s["sparsity"] for s in settings if isinstance(s, dict) and "sparsity" in s]
    return ", ".join([*facts, *(f"λ = {price:g}" for price in prices[:1])]) or "of another kind"


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
