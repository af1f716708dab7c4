"""What ``explain-images`` refuses before it looks at a picture: what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unmasked.data.picture_folder import check_plan
from unmasked.data.picturefiles import Fit
from unmasked.errors import InputError, OutputError
from unmasked.jobs.imageparts import NETWORKS, Networks, networks
from unmasked.networks import Factory
from unmasked.report.ownership import PART
from unmasked.report.results import CHECKPOINTS, MODELS
from unmasked.sparsity import check_sparsity
from unmasked.superpixels import Superpixels

WRITES = ("overlays", "masks", "study", "explained.csv", "gallery.html", "results.json")
"""What lies in the output folder beside the models."""
CACHE = "cache"
OURS = (*WRITES, *MODELS, PART, CHECKPOINTS)
"""What commands put into an output folder and replace; the cache of pictures stays."""


def checked_networks(
    size: int,
    fit: Fit,
    superpixels: int,
    sparsity: float | Sequence[float] | str,
    network: str,
    *,
    gpu: bool,
) -> Networks:
    """Refuse options that cannot be, before a folder is looked at."""
    check_sparsity(sparsity)
    check_plan(size, fit)
    if network not in NETWORKS:
        raise InputError(f"--network must be one of {', '.join(NETWORKS)} but is {network!r}.")
    masker = Superpixels(superpixels).bound((1, size, size))
    parts = networks(network, size, superpixels, gpu=gpu)
    factory: Factory = parts.predictor
    factory(masker.shown_shape, 2)  # type: ignore[arg-type]  # a missing package is told now
    factory = parts.selector
    factory((1, size, size), superpixels**2)  # type: ignore[arg-type]
    return parts


def check_no_columns(**named: str | None) -> None:
    """Refuse columns of a table that did not come, by the names of their options."""
    for option, name in named.items():
        if name is not None:
            raise InputError(
                f"--{option.replace('_', '-')} names the column {name!r} of a table of labels but "
                "none came; give it with --labels, or leave this out."
            )


def check_apart(folder: Path, out: Path, labels: Path | None, cache: Path | None) -> None:
    """What is written must not become pictures of the folder, nor replace them or their labels."""
    if labels is not None and _within_results(labels, out, WRITES):
        raise OutputError(
            f"the labels {labels} lie where results are written to; copy them elsewhere, or choose "
            "another folder with --out."
        )
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise OutputError(
            f"the output folder {out} must lie outside of the pictures' folder {folder}, or its "
            "pictures would be explained the next time; choose another with --out."
        )
    if _within_results(folder, out, (*OURS, CACHE)):
        raise OutputError(
            f"the pictures' folder {folder} lies where results are written to, which replace what "
            "is there; copy the pictures elsewhere, or choose another folder with --out."
        )
    if cache is not None:
        _check_cache(cache, folder, out)


def _check_cache(cache: Path, folder: Path, out: Path) -> None:
    """Shrunken pictures must have a folder of their own."""
    own = cache.resolve()
    if own.is_relative_to(folder.resolve()):
        raise OutputError(
            f"the folder {cache} of the shrunken pictures must lie outside of the pictures' folder "
            f"{folder}; choose another with --cache."
        )
    if _within_results(cache, out, OURS):
        raise OutputError(
            f"the folder {cache} of the shrunken pictures lies where results are written to, which "
            "replace what is there; choose another with --cache."
        )
    there = next((path for path in (own, *own.parents) if path.exists()), own)
    if there.exists() and not there.is_dir():
        raise OutputError(
            f"--cache must name a folder for the shrunken pictures but {there} is a file; choose "
            "another."
        )


def _within_results(path: Path, out: Path, names: Sequence[str]) -> bool:
    results = {(out / name).resolve() for name in names}
    own = path.resolve()
    return not results.isdisjoint((own, *own.parents))
