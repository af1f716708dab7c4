"""``unmasked reproduce``: the paper's tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from unmasked.cli.common import (
    RESUME,
    Device,
    Epochs,
    Json,
    Quiet,
    command_line,
    one_sentence_errors,
)
from unmasked.errors import InputError

Number = TypeVar("Number", int, float)
app = typer.Typer(
    help="Make the tables of the paper, ours beside the published figures.",
    no_args_is_help=True,
)


@app.callback()
def _main() -> None: ...


@app.command()
def synthetic(
    preset: Annotated[
        str, typer.Option(help="paper, tuned (our best recipe) or quick (for a laptop).")
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.  [default: synthetic-PRESET]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, each with data of its own.")] = 1,
    sets: Annotated[str, typer.Option(help="Data sets.")] = "S1,S2,S3",
    methods: Annotated[
        str | None, typer.Option(help="Methods, such as REAL-X,L2X.  [default: all five]")
    ] = None,
    sparsities: Annotated[
        str | None, typer.Option(help="Grid of λ.  [default: the preset's]")
    ] = None,
    ks: Annotated[
        str | None, typer.Option(help="Grid of L2X's k.  [default: the preset's]")
    ] = None,
    choose_by: Annotated[
        str,
        typer.Option(help="Whose validation score chooses λ and k: own (the paper's) or eval-x."),
    ] = "own",
    collection: Annotated[
        bool | None,
        typer.Option(help="Train a model for each of the 2,048 subsets.  [default: the preset's]"),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to train, validate and test on, each.")] = 10_000,
    epochs: Epochs = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """S1, S2 and S3: Table 1, EVAL-X against 2,048 models, REAL-X against REAL-X-STEP."""
    with one_sentence_errors(RESUME):
        from unmasked.engine import Training
        from unmasked.reproduce import recipes
        from unmasked.reproduce.synthetic import run_synthetic

        recipe = recipes.preset(preset)
        if seeds < 1 or rows < 100:
            raise InputError(
                f"--seeds must be at least 1 and --rows at least 100 but are {seeds} and {rows}."
            )
        names = _list(sets)
        chosen = tuple(recipes.one_of("set", name, recipes.DATASETS) for name in names)
        asked = recipes.EXPLAINERS if methods is None else tuple(_list(methods))
        explainers = tuple(recipes.one_of("method", name, recipes.EXPLAINERS) for name in asked)
        for what, values in (("--sets", chosen), ("--methods", explainers)):
            if not values or len(set(values)) < len(values):
                raise InputError(f"{what} must list different names but is {', '.join(values)!r}.")
        recipe = replace(
            recipe,
            rows=rows,
            judge=recipes.one_of("--choose-by", choose_by, ("own", "eval-x")),
            prices=_numbers("--sparsities", sparsities, float, recipe.prices),
            numbers=_numbers("--ks", ks, int, recipe.numbers),
        )
        if collection is not None:
            recipe = replace(
                recipe,
                collection=(recipe.collection or Training(epochs=100)) if collection else None,
            )
        if epochs is not None:
            recipe = recipes.with_epochs(recipe, epochs)
        folder = out or Path(f"synthetic-{recipe.name}")
        result = run_synthetic(
            folder,
            recipe,
            datasets=chosen,
            explainers=explainers,
            seeds=tuple(range(seeds)),
            device=device,
            show=False if quiet or json else "auto",
            command=command_line(),
        )
        if json:
            typer.echo((folder / "results.json").read_text(encoding="utf-8"))
        elif not quiet:
            typer.echo((folder / "tables.txt").read_text(encoding="utf-8"))
            training = sum(value for name, value in result.seconds.items() if name != "all")
            typer.echo(
                f"{training:.0f} s of training, {result.seconds['all']:.0f} s in all. "
                f"Tables: {folder / 'tables.html'}"
            )


@app.command()
def mnist(
    preset: Annotated[
        str, typer.Option(help="paper, tuned (our best recipe) or quick (for a laptop).")
    ] = "quick",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the four idx files.  [default: downloaded once]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.  [default: mnist-PRESET]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    methods: Annotated[
        str | None, typer.Option(help="Methods, such as REAL-X,L2X.  [default: all four]")
    ] = None,
    sparsities: Annotated[
        str | None, typer.Option(help="Grid of λ.  [default: the preset's]")
    ] = None,
    ks: Annotated[
        str | None, typer.Option(help="Grid of L2X's k.  [default: the preset's]")
    ] = None,
    epochs: Epochs = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """MNIST: Table 2, samples with their selections, L2X's single pixel, a gallery."""
    with one_sentence_errors(RESUME):
        from unmasked.data.mnist import mnist as load
        from unmasked.reproduce import imagerecipes as recipes
        from unmasked.reproduce.mnist import run_mnist
        from unmasked.reproduce.recipes import one_of

        recipe = recipes.preset(preset)
        if seeds < 1:
            raise InputError(f"--seeds must be at least 1 but is {seeds}.")
        asked = recipes.EXPLAINERS if methods is None else tuple(_list(methods))
        explainers = tuple(one_of("method", name, recipes.EXPLAINERS) for name in asked)
        if not explainers or len(set(explainers)) < len(explainers):
            raise InputError(f"--methods must list different names but is {methods!r}.")
        recipe = replace(
            recipe,
            prices=_numbers("--sparsities", sparsities, float, recipe.prices),
            numbers=_numbers("--ks", ks, int, recipe.numbers),
        )
        if epochs is not None:
            recipe = recipes.with_epochs(recipe, epochs)
        recipes.check_grid(recipe, recipes.PIXELS)
        folder = out or Path(f"mnist-{recipe.name}")
        result = run_mnist(
            folder,
            recipe,
            load(data),
            explainers=explainers,
            seeds=tuple(range(seeds)),
            device=device,
            show=False if quiet or json else "auto",
            command=command_line(),
        )
        if json:
            typer.echo((folder / "results.json").read_text(encoding="utf-8"))
        elif not quiet:
            typer.echo((folder / "tables.txt").read_text(encoding="utf-8"))
            training = sum(value for name, value in result.seconds.items() if name != "all")
            typer.echo(
                f"{training:.0f} s of training, {result.seconds['all']:.0f} s in all. "
                f"Tables: {folder / 'tables.html'}, pictures: {folder / 'gallery.html'}"
            )


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(
    option: str, text: str | None, kind: type[Number], default: tuple[Number, ...]
) -> tuple[Number, ...]:
    """A grid as the user wrote it; the preset's where none was given."""
    if text is None:
        return default
    try:
        return tuple(kind(part) for part in _list(text))
    except ValueError:
        whole = "whole numbers" if kind is int else "numbers"
        raise InputError(
            f"{option} must be {whole} with commas between them but is {text!r}."
        ) from None
