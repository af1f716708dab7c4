"""``unmasked audit``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from unmasked.cli.common import (
    RESUME,
    Epochs,
    Json,
    Quiet,
    Seed,
    command_line,
    one_sentence_errors,
    only_run,
    say,
    shown,
)
from unmasked.errors import InputError

N = TypeVar("N", int, float)


def audit(
    table: Annotated[
        Path, typer.Argument(help="A CSV, TSV or Parquet file of unseen rows.", show_default=False)
    ],
    masks: Annotated[
        list[str],
        typer.Option(
            help="Masks or attributions of these rows (.csv, .tsv, .parquet, .npy, .npz); may be "
            "given several times, also as NAME=FILE."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(help="The column that is predicted; without it, what --model predicts."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The explained scikit-learn model: do the masks give its prediction away?"
        ),
    ] = None,
    trust_model: Annotated[
        bool,
        typer.Option(
            "--trust-model",
            help="Load --model even if it is a pickle, which can run any code: your own file only.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: TABLE-audited)")
    ] = None,
    top: Annotated[
        str | None, typer.Option(help="Cut attributions at the k largest; 1,3,5 is a sweep.")
    ] = None,
    fraction: Annotated[
        str | None, typer.Option(help="Cut attributions at this fraction of the features.")
    ] = None,
    of_class: Annotated[
        str | None, typer.Option("--class", help="Whose attributions, where each class has some.")
    ] = None,
    signed: Annotated[
        bool, typer.Option("--signed", help="Rank attributions by value, not by absolute value.")
    ] = False,
    id_column: Annotated[
        str | None, typer.Option("--id", help="The column that labels rows here and in the masks.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="A column of what belongs together, such as a patient.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="A column of dates or numbers: folds are periods, neighbours dependent."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Audit rows of this --time or later; evaluators learn from the others."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column that is no feature.")] = None,
    train: Annotated[
        Path | None, typer.Option(help="Rows for the evaluators to learn from, a table like TABLE.")
    ] = None,
    rest: Annotated[
        str | None,
        typer.Option(help="Rows not audited: train (evaluators learn from them) or drop."),
    ] = None,
    evaluator: Annotated[
        str, typer.Option(help="Masks that EVAL-X learns from: every-size, or bernoulli (½).")
    ] = "every-size",
    learner: Annotated[
        str,
        typer.Option(
            help="auto: networks, boosted trees or both; network: plain ones alone; or boosting: "
            "several times faster and less exact."
        ),
    ] = "auto",
    folds: Annotated[int, typer.Option(help="Folds of the cross-fitting.", min=2)] = 3,
    seeds: Annotated[int, typer.Option(help="Evaluators of each fold.", min=2)] = 2,
    threshold: Annotated[float, typer.Option(help="Nats that count as encoding.")] = 0.02,
    max_rows: Annotated[int, typer.Option(help="Of more rows, a sample is audited.", min=50)] = (
        50_000
    ),
    epochs: Epochs = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Do explanations show what predictions rest on, or give the answer away?

    TABLE must hold rows that neither the explainers nor the explained model were trained on.
    Writes results.json, report.html and summary.md.
    """
    folder = table.with_name(f"{table.stem}-audited") if out is None else out
    with one_sentence_errors(RESUME), only_run(folder):
        if target is None and model is None:
            raise InputError(
                "either --target (the column that is predicted) or --model (whose predictions are "
                "explained) is needed; give one, or both."
            )
        sizes, shares = _numbers(top, "--top", int), _numbers(fraction, "--fraction", float)
        from unmasked.auditing.settings import AuditSettings
        from unmasked.cli.workflows.audit_table import audit_table
        from unmasked.io.tables import Roles
        from unmasked.training import Training

        settings = AuditSettings(
            evaluator=evaluator,  # type: ignore[arg-type]
            learner=learner,  # type: ignore[arg-type]
            folds=folds,
            seeds=seeds,
            threshold=threshold,
            max_rows=max_rows,
            training=None if epochs is None else Training(epochs=epochs),
        )
        result, results = audit_table(
            table,
            target,
            masks,
            folder,
            roles=Roles(id_column, group, time, tuple(drop or ())),
            since=since,
            model=model,
            trust=trust_model,
            train=train,
            rest=rest,
            top=sizes,
            fraction=shares,
            of_class=of_class,
            signed=signed,
            settings=settings,
            seed=seed,
            show=shown(quiet=quiet, json=json),
            command=command_line(),
        )
        say(
            results,
            result.summary,
            f"Report: {folder / 'report.html'}   figures: {folder / 'results.json'}",
            json=json,
            quiet=quiet,
            more=[f"  {line}" for line in result.assumptions],
        )


def _numbers(text: str | None, name: str, kind: Callable[[str], N]) -> list[N] | None:
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{name} must be a number, or several as 1,3,5, but is {text!r}."
        ) from None
