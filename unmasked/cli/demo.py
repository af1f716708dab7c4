"""``unmasked demo``."""

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
    one_sentence_errors,
    only_run,
    shown,
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results, plots and report.")] = Path("demo"),
    seed: Seed = 0,
    device: Device = "auto",
    rows: Annotated[int, typer.Option(help="Training rows, and as many to test.", min=100)] = 10000,
    epochs: Epochs = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain a table whose truth is known, check it, and write a report to look at."""
    with one_sentence_errors(RESUME), only_run(out):
        from unmasked.cli.workflows.demo import run_demo
        from unmasked.training import Training

        result = run_demo(
            out,
            seed=seed,
            device=device,
            show=shown(quiet=quiet, json=json),
            rows=rows,
            training=Training(epochs=epochs),
            command=command_line(),
        )
        if json:
            typer.echo((out / "results.json").read_text(encoding="utf-8"))
        elif not quiet:
            from rich.console import Console
            from rich.table import Table

            table = Table(*result.table.header, title="S3: REAL-X, checked by EVAL-X")
            for column in table.columns[1:]:
                column.justify = "right"
            for i, row in enumerate(result.table.rows):
                table.add_row(*row, style="bold" if i in result.table.stressed else None)
            console = Console(width=None if Console().is_terminal else 110)
            console.print(table)
            for sentence in result.summary:
                console.print(f"• {sentence}", highlight=False)
            console.print(f"\n{result.seconds:.0f} s. Report: {out / 'report.html'}")
