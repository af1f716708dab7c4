"""``unmasked explain-images``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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


def explain_images(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(help="A folder of PNG, JPEG or DICOM pictures.", show_default=False),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A CSV, TSV or Parquet file with a column of file names and one of labels."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; FOLDER-explained by default.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Explain new pictures with this saved explainer.")
    ] = None,
    size: Annotated[int, typer.Option(help="Pixels of the square pictures are brought to.")] = 128,
    fit: Annotated[
        str | None,
        typer.Option(
            help="pad: proportions kept, black around; crop: the middle square; none: all pictures "
            "must be SIZE × SIZE. By default pad; with --model as its pictures were read."
        ),
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="Make coloured pictures grey.")] = False,
    superpixels: Annotated[
        int | None,
        typer.Option(
            help="Cells across and down of the grid that is shown or hidden; by default 8, for "
            "unet-densenet 16.",
            min=1,
        ),
    ] = None,
    sparsity: Annotated[
        str,
        typer.Option(
            help="Price of showing everything: a number, several as 0.5,1 or auto. With --model: "
            "one of those that it was trained with."
        ),
    ] = "auto",
    network: Annotated[
        str,
        typer.Option(
            help="small; medium, better, for a GPU; unet-densenet, the paper's, for a GPU and with "
            "the extra images; auto: medium on a GPU, else small."
        ),
    ] = "auto",
    image_column: Annotated[
        str | None, typer.Option(help="The column of file names, if it has another name.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="The column of labels, if it has another name.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="A column of the labels such as patient, whose pictures stay in one part and are "
            "resampled together."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Where the shrunken pictures are kept; OUT/cache by default."),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    epochs: Epochs = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the parts of each picture that its label rests on: train, explain, check and draw.

    Splits the folder, trains REAL-X and EVAL-X, explains the test pictures, and writes overlays,
    masks, the fitted model, results.json, gallery.html and material for a reader study. With
    --model, explains new pictures instead.
    """
    with one_sentence_errors(RESUME), only_run(target := _target(folder, out)):
        if model is None and labels is None:
            raise InputError(
                "either --labels (a table of file names and labels) or --model (a saved "
                "explainer) is needed; give one."
            )
        if model is not None:
            _check_beside_model(context)
        prices = read_sparsity(sparsity)
        from unmasked.cli.workflows.explain_images import (
            Reading,
            explain_folder,
            explain_new_pictures,
        )

        shared: dict[str, Any] = {
            "reading": Reading(
                size=size,
                fit=fit,  # type: ignore[arg-type]  # checked by the job
                grey=grey,
                image_column=image_column,
                label_column=label_column,
                group=group,
                cache=cache,
            ),
            "seed": seed,
            "device": device,
            "show": shown(quiet=quiet, json=json),
            "command": command_line(),
        }
        if model is not None:
            result = explain_new_pictures(
                folder, model, target, labels=labels, sparsity=of_the_model(prices), **shared
            )
        else:
            assert labels is not None
            result = explain_folder(
                folder,
                labels,
                target,
                superpixels=superpixels,
                sparsity=prices,
                network=network,
                epochs=epochs,
                **shared,
            )
        say(
            result.results,
            result.summary,
            f"Gallery: {target / 'gallery.html'}   overlays: {target / 'overlays'}   "
            f"masks: {target / 'masks'}",
            json=json,
            quiet=quiet,
            more=[] if result.scores is None else [f"\n{without_remarks(result.scores)}"],
        )


def _target(folder: Path, out: Path | None) -> Path:
    """The output folder, by default beside the pictures'."""
    where = folder.resolve()
    if out is None and not where.name:
        raise InputError(
            f"results cannot be written beside {folder}, as they would be by default; choose a "
            "folder with --out."
        )
    return where.with_name(f"{where.name}-explained") if out is None else out


def _check_beside_model(context: typer.Context) -> None:
    """Refuse options of training: the model has its own."""
    for name in ("size", "grey", "superpixels", "network", "epochs"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(
                f"--{name} belongs to training and cannot be given beside --model, which has its "
                "own; leave it out."
            )
