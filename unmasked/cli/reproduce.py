"""``unmasked reproduce``: the paper's tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from unmasked.cli.common import (
    RESUME,
    Device,
    Epochs,
    Json,
    Quiet,
    command_line,
    one_sentence_errors,
    only_run,
    shown,
)
from unmasked.errors import InputError

if TYPE_CHECKING:
    from unmasked.reproduce.judging import Reproduction

Number = TypeVar("Number", int, float)
Preset = Annotated[
    str, typer.Option(help="paper, tuned (our best recipe) or quick (for a laptop).")
]
FourMethods = Annotated[
    str | None,
    typer.Option(
        help="Such as REAL-X,L2X; ours are REAL-X-EXCHANGE and REAL-X-K.  "
        "(default: the paper's four)"
    ),
]
Sparsities = Annotated[str | None, typer.Option(help="Grid of λ. (default: the preset's)")]
FirstSeed = Annotated[
    int, typer.Option(help="The first of them; runs with other seeds can be joined.")
]
Ks = Annotated[
    str | None,
    typer.Option(help="Grid of k (L2X; of images also REAL-X-K). (default: the preset's)"),
]
Jobs = Annotated[
    int,
    typer.Option(
        help="How many networks to train at a time, in processes of their own: a large GPU has "
        "room for several.",
        min=1,
    ),
]
app = typer.Typer(
    help="Make the tables of the paper, ours beside the published figures.",
    no_args_is_help=True,
)


@app.callback()
def _main() -> None: ...


@app.command()
def synthetic(
    preset: Preset = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: synthetic-PRESET)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, each with data of its own.")] = 1,
    sets: Annotated[str, typer.Option(help="Data sets.")] = "S1,S2,S3",
    methods: Annotated[
        str | None, typer.Option(help="Methods, such as REAL-X,L2X. (default: all five)")
    ] = None,
    sparsities: Sparsities = None,
    ks: Ks = None,
    choose_by: Annotated[
        str,
        typer.Option(help="Whose validation score chooses λ and k: own (the paper's) or eval-x."),
    ] = "own",
    collection: Annotated[
        bool | None,
        typer.Option(help="Train a model for each of the 2,048 subsets. (default: the preset's)"),
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to train, validate and test on, each.")] = 10_000,
    epochs: Epochs = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """S1, S2 and S3: Table 1, EVAL-X against 2,048 models, REAL-X against REAL-X-STEP."""
    with one_sentence_errors(RESUME):
        from unmasked.reproduce import recipes
        from unmasked.reproduce.synthetic import run_synthetic
        from unmasked.training import Training

        recipe = whole = recipes.preset(preset)
        if seeds < 1 or rows < 100:
            raise InputError(
                f"--seeds must be at least 1 and --rows at least 100 but are {seeds} and {rows}."
            )
        chosen = _names("set", sets, recipes.DATASETS)
        explainers = _names("method", methods, recipes.EXPLAINERS)
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
        told = _told(
            {
                f"--epochs {epochs}": epochs is not None,
                _grid("--sparsities", recipe.prices): recipe.prices != whole.prices,
                _grid("--ks", recipe.numbers): recipe.numbers != whole.numbers,
                f"--rows {rows}": recipe.rows != whole.rows,
                f"--choose-by {recipe.judge}": recipe.judge != whole.judge,
                f"--{'' if collection else 'no-'}collection": (recipe.collection is None)
                != (whole.collection is None),
            }
        )
        recipe = replace(recipe, deviations=(*recipe.deviations, *told))
        folder = out or Path(f"synthetic-{recipe.name}")
        with only_run(folder):
            result = run_synthetic(
                folder,
                recipe,
                datasets=chosen,
                explainers=explainers,
                seeds=tuple(range(seeds)),
                device=device,
                show=shown(quiet=quiet, json=json),
                command=command_line(),
            )
        _show(result, json=json, quiet=quiet)


@app.command()
def mnist(
    preset: Preset = "quick",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the four idx files. (default: downloaded once)"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: mnist-PRESET)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    first_seed: FirstSeed = 0,
    methods: FourMethods = None,
    sparsities: Sparsities = None,
    ks: Ks = None,
    epochs: Epochs = None,
    device: Device = "auto",
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """MNIST: Table 2, samples with their selections, L2X's single pixel, a gallery."""
    with one_sentence_errors(RESUME):
        from unmasked.datasets.mnist import mnist as load
        from unmasked.reproduce import image_recipes as recipes
        from unmasked.reproduce.image_sets import run_mnist
        from unmasked.reproduce.recipes import check_grid

        recipe = whole = recipes.preset(preset)
        numbered = _seeds(seeds, first_seed)
        explainers = _names("method", methods, recipes.EXPLAINERS, recipes.OURS)
        recipe = replace(
            recipe,
            prices=_numbers("--sparsities", sparsities, float, recipe.prices),
            numbers=_numbers("--ks", ks, int, recipe.numbers),
        )
        if epochs is not None:
            recipe = recipes.with_epochs(recipe, epochs)
        told = _told(
            {
                f"--epochs {epochs}": epochs is not None,
                _grid("--sparsities", recipe.prices): recipe.prices != whole.prices,
                _grid("--ks", recipe.numbers): recipe.numbers != whole.numbers,
            }
        )
        recipe = replace(recipe, deviations=(*recipe.deviations, *told))
        check_grid(recipe.prices, recipe.numbers, recipes.PIXELS)
        folder = out or Path(f"mnist-{recipe.name}")
        with only_run(folder):
            result = run_mnist(
                folder,
                recipe,
                load(data),
                explainers=explainers,
                seeds=numbered,
                device=device,
                show=shown(quiet=quiet, json=json),
                command=command_line(),
                jobs=jobs,
            )
        _show(result, json=json, quiet=quiet)


@app.command()
def cxr(
    data: Annotated[
        str,
        typer.Option(
            help="NIH's folder ChestX-ray14, a packed .npz file, or 'phantom' for drawn films."
        ),
    ] = "phantom",
    preset: Preset = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: cxr-PRESET)")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Films are shrunk to so many pixels a side. (default: 128; quick: 64)"),
    ] = None,
    superpixels: Annotated[
        int | None, typer.Option(help="Superpixels along a side. (default: 16)")
    ] = None,
    superpixel_size: Annotated[
        int | None, typer.Option(help="Instead: how many pixels a superpixel has along a side.")
    ] = None,
    hearts: Annotated[
        Path | None,
        typer.Option(help="A file of outlined hearts (.npz): tell where selections lie."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    first_seed: FirstSeed = 0,
    methods: FourMethods = None,
    sparsities: Sparsities = None,
    ks: Ks = None,
    epochs: Epochs = None,
    device: Device = "auto",
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Chest X-rays: Table 3, samples with their selections, a gallery, a folder for a study."""
    with one_sentence_errors(RESUME):
        from unmasked.datasets.chest_xray import chest_xray
        from unmasked.reproduce import cxr_recipes
        from unmasked.reproduce import image_recipes as recipes
        from unmasked.reproduce.image_sets import check_hearts, drawn_films, run_cxr
        from unmasked.reproduce.recipes import check_grid

        recipe = cxr_recipes.preset(preset)
        numbered = _seeds(seeds, first_seed)
        usual = 64 if recipe.name == "quick" else 128
        side = usual if size is None else size
        if side < 32:
            raise InputError(f"--size must be at least 32 pixels but is {side}.")
        grid = cxr_recipes.cells(side, superpixels, superpixel_size)
        explainers = _names("method", methods, recipes.EXPLAINERS, recipes.OURS)
        prices = _numbers("--sparsities", sparsities, float, recipe.prices)
        numbers = _numbers("--ks", ks, int, recipe.numbers)
        if ks is None:  # a coarse grid has fewer superpixels than the preset's largest k
            numbers = tuple(k for k in numbers if k <= grid**2)
        cells = f"--superpixels {superpixels}"
        if superpixel_size is not None:
            cells = f"--superpixel-size {superpixel_size}"
        told = _told(
            {
                f"--epochs {epochs}": epochs is not None,
                _grid("--sparsities", prices): prices != recipe.prices,
                _grid("--ks", numbers): ks is not None and numbers != recipe.numbers,
                f"--size {side}": side != usual,
                cells: grid != cxr_recipes.GRID,
            }
        )
        recipe = replace(
            cxr_recipes.with_cells(recipe, grid),
            prices=prices,
            numbers=numbers,
            deviations=(*recipe.deviations, *told),
        )
        if epochs is not None:
            recipe = recipes.with_epochs(recipe, epochs)
        check_grid(recipe.prices, recipe.numbers, grid**2)
        if hearts is not None:
            check_hearts(hearts)
        films, drawn = drawn_films(side, most=recipe.rows) if data == "phantom" else (None, None)
        folder = out or Path(f"cxr-{recipe.name}")
        with only_run(folder):
            result = run_cxr(
                folder,
                recipe,
                films or chest_xray(data, size=side),
                drawn=drawn,
                hearts=hearts,
                explainers=explainers,
                seeds=numbered,
                device=device,
                show=shown(quiet=quiet, json=json),
                command=command_line(),
                jobs=jobs,
            )
        _show(result, json=json, quiet=quiet)


@app.command()
def join(
    folders: Annotated[
        list[Path], typer.Argument(help="What runs with other seeds, or other methods, wrote.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the table of all of them.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """One table of MNIST or X-rays from runs that differ in nothing but --first-seed or --methods.

    Methods are joined where FULL and the evaluators came out the same to the last digit.
    """
    with one_sentence_errors(), only_run(out):
        from unmasked.reproduce.join import join_tables

        _show(join_tables(folders, out, command_line()), json=json, quiet=quiet)


def _seeds(count: int, first: int) -> tuple[int, ...]:
    if count < 1 or first < 0:
        raise InputError(
            f"--seeds must be at least 1 and --first-seed at least 0 but are {count} and {first}."
        )
    return tuple(range(first, first + count))


def _grid(option: str, values: tuple[float, ...]) -> str:
    return f"{option} {','.join(f'{value:g}' for value in values)}"


def _told(given: dict[str, bool]) -> list[str]:
    """Say in a sentence which options make a run differ from its preset; none: no sentence.

    >>> _told({"--epochs 1": True, "--ks 4": True, "--size 64": False})
    ["Of this run: --epochs 1, --ks 4 instead of the preset's; what is said above of these is the
    preset's."]
    """
    changed = ", ".join(option for option, differs in given.items() if differs)
    if not changed:
        return []
    return [
        f"Of this run: {changed} instead of the preset's; what is said above of these is the "
        "preset's."
    ]


def _names(
    what: str, text: str | None, known: tuple[str, ...], more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The names a user listed, of those known and of ``more``; all known where none was."""
    from unmasked.reproduce.recipes import one_of

    if text is None:
        return known
    names = tuple(one_of(what, name, known + more) for name in _list(text))
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"--{what}s must list different names of {', '.join(known + more)} but is {text!r}."
        )
    return names


def _show(result: Reproduction, *, json: bool, quiet: bool) -> None:
    """Print a run's tables, time and files; or, as asked, its ``results.json`` or nothing."""
    folder = result.folder
    if json:
        typer.echo((folder / "results.json").read_text(encoding="utf-8"))
    elif not quiet:
        typer.echo((folder / "tables.txt").read_text(encoding="utf-8"))
        gallery = folder / "gallery.html"
        pictures = f", pictures: {gallery}" if gallery.is_file() else ""
        typer.echo(f"{_time(result)} Tables: {folder / 'tables.html'}{pictures}")


def _time(result: Reproduction) -> str:
    """Say how long a run took, of which the training may lie before it, or side by side."""
    training = sum(value for name, value in result.seconds.items() if name != "all")
    said = f"{training:.0f} s of training"
    if result.joined:
        return f"{said} in the runs that are joined."
    more = ["some of it in an earlier run"] if result.resumed else []
    more += [f"{result.jobs} at a time"] if result.jobs > 1 else []
    said += f" ({'; '.join(more)})" if more else ""
    return f"{said}, {result.seconds['all']:.0f} s in {'this run' if more else 'all'}."


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(
    option: str, text: str | None, kind: type[Number], default: tuple[Number, ...]
) -> tuple[Number, ...]:
    """A grid as the user wrote it; the preset's where none was given."""
    if text is None:
        return default
    try:
        found = tuple(kind(part) for part in _list(text))
    except ValueError:
        found = ()
    if not found:
        whole = "whole numbers" if kind is int else "numbers"
        raise InputError(f"{option} must be {whole} with commas between them but is {text!r}.")
    return found
