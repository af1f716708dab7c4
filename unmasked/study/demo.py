"""``unmasked study demo``: a small study on phantom X-rays, whose truth is known.

The methods are made up, of known quality: cells at all four edges that decide the cardiothoracic
ratio, only those on the left, cells that miss the edges, and random cells.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmasked.data.phantom import Phantom, phantom, truth_of_superpixels
from unmasked.errors import InputError, SavedError
from unmasked.pictures import png, to_rgb
from unmasked.study.create import Created, Wording, create_study
from unmasked.study.folder import read_study
from unmasked.study.manifest import read_manifest

METHODS = ("all edges", "left edges", "missed edges", "random")
"""From best to worst."""
_GRID = 16
WORDING = Wording(
    title="Is the heart enlarged? Which explanation shows it?",
    question=(
        "Rank the options: which selection shows best what you need to judge whether the heart is "
        "enlarged? Options that are equally good may share a place."
    ),
    sufficient="Sufficient to judge the heart's size",
)


def write_phantoms(folder: Path, cases: int, size: int = 256, seed: int = 0) -> Path:
    """Films and masks as files, with the manifest that lists them."""
    films = phantom(cases, size=size, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, masks in enumerate(selections(films, seed)):
        image = f"film{i}.png"
        values = to_rgb(films.x[i], limits=(0, 1))
        (folder / image).write_bytes(png(values))
        for j, (method, mask) in enumerate(zip(METHODS, masks, strict=True)):
            name = f"film{i}-{j}.png"
            (folder / name).write_bytes(png(np.repeat(255 * mask[..., None], 3, 2).astype("u1")))
            lines.append([image, method, name, f"film {i}", int(films.y[i])])
    manifest = folder / "manifest.csv"
    with open(manifest, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "method", "mask", "case", "label"], *lines])
    return manifest


def selections(films: Phantom, seed: int) -> NDArray[np.bool_]:
    """(films, methods, lines, columns): what each made-up method selects."""
    rng = np.random.default_rng([seed, 7])
    truth = truth_of_superpixels(films.truth, _GRID).reshape(-1, _GRID, _GRID)
    middle = (films.thorax.mean(1) * _GRID / films.x.shape[-1]).astype(int)  # (films,)
    left = truth & (np.arange(_GRID) < middle[:, None])[:, None, :]
    missed = np.roll(truth, -4, axis=1) & ~truth
    random = rng.permuted(truth.reshape(len(truth), -1), axis=1).reshape(truth.shape)
    return np.stack([truth, left, missed, random], axis=1)


def check_demo(folder: Path) -> None:
    """Refuse a folder that is not an earlier demonstration's: its links would stop working."""
    try:
        found = read_study(folder).title == WORDING.title
    except SavedError:
        found = False
    if not found:
        raise InputError(
            f"--out must be a new folder or that of an earlier demonstration but {folder} is "
            "neither; choose another."
        )


def create_demo(
    folder: Path, *, cases: int = 8, seed: int = 0, secret: bytes | None = None
) -> Created:
    """A study of phantom films with two readers."""
    with tempfile.TemporaryDirectory() as scratch:
        manifest = write_phantoms(Path(scratch), cases, seed=seed)
        return create_study(
            folder,
            read_manifest(manifest),
            ["Reader 1", "Reader 2"],
            seed=seed,
            wording=WORDING,
            secret=secret,
        )
