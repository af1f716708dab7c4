"""``unmasked explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unmasked.cli.common import (
    RESUME,
    Device,
    Epochs,
    Json,
    Quiet,
    Seed,
    command_line,
    of_the_model,
    one_sentence_errors,
    only_run,
    read_sparsity,
    say,
    shown,
    without_remarks,
)
from unmasked.errors import InputError


def explain(
    table: Annotated[Path, typer.Argument(help="A CSV, TSV or Parquet file.", show_default=False)],
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: TABLE-explained)")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Explain new rows with this saved explainer.")
    ] = None,
    sparsity: Annotated[
        str,
        typer.Option(
            help="Price of showing everything: a number, several as 0.1,0.2 or auto. With --model: "
            "one of those that it was trained with."
        ),
    ] = "auto",
    id_column: Annotated[
        str | None, typer.Option("--id", help="A column that names the rows; no feature.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Rows with the same value, such as a patient, stay in one part."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Train on the earliest rows by this column, test on the last")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out, as a,b.")] = None,
    stability: Annotated[
        int, typer.Option(help="Train so many more, alike but for the seed: which rows hold?")
    ] = 0,
    restarts: Annotated[
        int, typer.Option(help="Train each price so many times; keep the best on validation rows.")
    ] = 1,
    search: Annotated[
        bool | None,
        typer.Option(
            help="Search for the columns of each row, or train a selector by gradients. (default: "
            "search, unless --restarts asks for selectors)",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    epochs: Epochs = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the columns that each row's outcome rests on: train, explain, check and report.

    Splits the table, trains REAL-X and EVAL-X, explains the test rows, and writes what is shown of
    each with its values, predictions, masks, the fitted model, results.json, plots and
    report.html. With --model, explains new rows instead.
    """
    folder = table.with_name(f"{table.stem}-explained") if out is None else out
    with one_sentence_errors(RESUME), only_run(folder):
        if model is None and target is None:
            raise InputError(
                "either --target (the column to predict) or --model (a saved explainer) is needed; "
                "give one."
            )
        prices = read_sparsity(sparsity)
        from unmasked.cli.workflows.explain_table import explain_new_rows, explain_table
        from unmasked.io.tables import Roles

        left_out = tuple(part.strip() for part in (drop or "").split(",") if part.strip())
        roles = Roles(id_column, group, time, left_out)

        if model is not None:
            result = explain_new_rows(
                table,
                model,
                folder,
                target=target,
                sparsity=of_the_model(prices),
                device=device,
                roles=roles,
                command=command_line(),
            )
        else:
            assert target is not None
            from unmasked.training import Training

            result = explain_table(
                table,
                target,
                folder,
                sparsity=prices,
                seed=seed,
                device=device,
                show=shown(quiet=quiet, json=json),
                training=None if epochs is None else Training(epochs=epochs),
                roles=roles,
                seeds=stability,
                restarts=restarts,
                search="auto" if search is None else search,
                command=command_line(),
            )
        say(
            result.results,
            result.summary,
            f"Report: {folder / 'report.html'}   rows: {folder / 'explanations.csv'}   "
            f"predictions: {folder / 'predictions.csv'}",
            json=json,
            quiet=quiet,
            more=[] if result.scores is None else [f"\n{without_remarks(result.scores)}"],
        )
