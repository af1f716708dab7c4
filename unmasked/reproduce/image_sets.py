"""Run ``unmasked reproduce mnist`` and ``cxr``: the paper's Tables 2 and 3 with their figures."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.datasets.chest_xray import ChestXrays, Films, heart_masks
from unmasked.datasets.mnist import Images, Mnist
from unmasked.datasets.phantom import Phantom, phantom, truth_of_superpixels
from unmasked.errors import OutputError
from unmasked.masks.superpixels import Superpixels
from unmasked.plots.overlays import png, to_rgb
from unmasked.reproduce.hearts import places_of
from unmasked.reproduce.image_figures import Drawn, View
from unmasked.reproduce.image_recipes import ImageRecipe
from unmasked.reproduce.image_training import Parts, Rows, Workshop
from unmasked.reproduce.images import Pictures, run_images
from unmasked.reproduce.judging import Reproduction
from unmasked.reproduce.render import CXR, MNIST

_STUDY_CASES = 50  # as many as the paper's readers saw
_PHANTOMS = (8000, 300, 300)  # films drawn to train on (or fewer), to validate and to test on


def run_cxr(
    folder: Path,
    recipe: ImageRecipe,
    data: ChestXrays,
    *,
    drawn: Sequence[Phantom] | None = None,
    hearts: Path | None = None,
    command: str = "unmasked reproduce cxr",
    **options: Any,
) -> Reproduction:
    """Table 3 from films; other options as for `run_images`.

    drawn : where they are drawn, the films to learn from, to validate and to test on with all
        that is true about them.
    hearts : a file of films with outlined hearts, to tell where the selections lie.
    """
    if hearts is None:
        _check_no_places(folder)
    remarks = (*data.remarks, *data.skipped)
    masker, probability = recipe.masker, None
    parts = _cxr_parts(data, recipe.rows)
    if drawn is not None and isinstance(masker, Superpixels) and masker.grid is not None:
        parts = _with_truth(parts, drawn, masker.grid, recipe.rows)
        p = drawn[2].probability
        probability = np.stack([1 - p, p], axis=1)
    pictures = Pictures(parts, data.test.x, probability, remarks, data.test.patients)

    def extra(part: Path, work: Workshop, found: Drawn) -> tuple[dict[str, Any], list[str]]:
        view = View(CXR, data.test.x, data.test.y, work.recipe.masker)
        write_study(part / "study", view, found)
        if hearts is None:
            return {}, []
        return _places(hearts, view, found, work, data.test.patients)

    return run_images(folder, recipe, pictures, CXR, command=command, extra=extra, **options)


def _check_no_places(folder: Path) -> None:
    """Refuse to replace results that say where selections lie by some that do not."""
    try:
        said = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # there is nothing to lose
    if isinstance(said, dict) and "places" in said:
        raise OutputError(
            f"{folder} holds results that say where selections lie, which a run without --hearts "
            "would lose; give --hearts, or choose another folder with --out."
        )


def drawn_films(
    size: int, seed: int = 0, *, most: int | None = None
) -> tuple[ChestXrays, list[Phantom]]:
    """Phantom films in place of real ones, and the same with all that is true about them.

    most : how many films to learn from are needed at most (`ImageRecipe.rows`); None: all.
    """
    train, *others = _PHANTOMS
    counts = (train if most is None else min(train, most), *others)
    parts = [phantom(rows, size, 3 * seed + i) for i, rows in enumerate(counts)]
    films = [_films(part, i) for i, part in enumerate(parts)]
    remarks = [
        "These films are drawn, not taken: the label depends on four edges of heart and thorax, "
        "and the best AUROC there can be is 0.958."
    ]
    return ChestXrays(films[0], films[1], films[2], {}, remarks, []), parts


def _films(part: Phantom, number: int) -> Films:
    names = np.array([f"phantom-{number}-{i:05d}" for i in range(len(part.y))])
    return Films(part.x, part.y, names, names)


def _cxr_parts(data: ChestXrays, most: int | None) -> Parts:
    """Standardised films as rows; at most so many to learn from.

    They are taken evenly from all: the first ones of a packed file have all the same label.
    """
    mean, scale = float(data.train.x.mean()), float(data.train.x.std()) or 1.0

    def rows(films: Films, most: int | None = None) -> Rows:
        some = _some(len(films.y), most)
        x = (films.x[some] - mean) / scale
        return Rows(x.reshape(len(x), -1).astype(np.float32), films.y[some], 2)

    channels, height, width = data.train.x.shape[1:]
    return Parts(
        rows(data.train, most), rows(data.valid), rows(data.test), (channels, height, width)
    )


def _with_truth(
    parts: Parts, drawn: Sequence[Phantom], grid: int | tuple[int, int], most: int | None
) -> Parts:
    """Add the cells that decide the label to all parts; of films to learn from, for ``most``."""
    train, valid, test = (truth_of_superpixels(films.truth, grid) for films in drawn)
    return replace(
        parts,
        train=replace(parts.train, truth=train[_some(len(train), most)]),
        valid=replace(parts.valid, truth=valid),
        test=replace(parts.test, truth=test),
    )


def _some(count: int, most: int | None) -> NDArray[np.int64]:
    """Return which films to learn from: all ``count``, or ``most`` spread evenly over them."""
    return np.arange(count) if most is None or most >= count else _evenly(count, most)


def _evenly(count: int, most: int) -> NDArray[np.int64]:
    """``most`` of the numbers below ``count``, as far apart as can be.

    >>> _evenly(10, 4)
    array([1, 3, 6, 8])
    """
    return ((2 * np.arange(most) + 1) * count // (2 * most)).astype(np.int64)


def write_study(folder: Path, view: View, drawn: Drawn) -> None:
    """Test films with each method's selection, as ``unmasked study create`` takes them.

    As many of each class as there are, up to 50 in all, the first ones: not picked by hand.
    ``manifest.csv`` has a line for each film and method: case, image, method, mask, label.
    """
    folder.mkdir()
    classes = np.unique(view.y)
    each = _STUDY_CASES // len(classes)
    which = np.sort(np.concatenate([np.flatnonzero(view.y == c)[:each] for c in classes]))
    lines = []
    for case, i in enumerate(which):
        image = f"case{case:02d}.png"
        (folder / image).write_bytes(png(to_rgb(view.x[i])))
        for number, (name, (found, chosen)) in enumerate(drawn.items()):
            shown = view.pixels(found.masks["test"][0, chosen[0], i])
            mask = f"case{case:02d}-mask{number}.png"
            (folder / mask).write_bytes(png(np.repeat(255 * shown[..., None], 3, 2).astype("u1")))
            label = view.subject.classes[int(view.y[i])]
            lines.append([case, image, name, mask, label])
    with (folder / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "image", "method", "mask", "label"])
        writer.writerows(lines)


def check_hearts(path: Path) -> None:
    """Refuse a file without outlined hearts before any work."""
    heart_masks(path)


def _places(
    hearts: Path, view: View, drawn: Drawn, work: Workshop, patients: NDArray[np.str_] | None
) -> tuple[dict[str, Any], list[str]]:
    """Measure where the first seed's chosen selections lie: on the heart, on its margin."""
    masker, seed = work.recipe.masker, work.seeds[0]
    assert isinstance(masker, Superpixels)
    chosen, settings = {}, {}
    for name, (selected, which) in drawn.items():
        chosen[name] = selected.masks["test"][0, which[0]]
        settings[name] = {"seed": seed, **selected.settings[which[0]]}
    found = places_of(
        hearts,
        view.x,
        chosen,
        masker.map,
        view.y,
        seed=seed,
        settings=settings,
        patients=patients,
        device=work.place.device,
        cache_folder=work.place.checkpoints,
        show=work.place.show,
    )
    sentences: list[str] = found.pop("sentences")
    return {"places": found}, sentences


def run_mnist(
    folder: Path,
    recipe: ImageRecipe,
    data: Mnist,
    *,
    command: str = "unmasked reproduce mnist",
    **options: Any,
) -> Reproduction:
    """Table 2 from MNIST's images, as they are (0 black, 1 white); options as for `run_images`."""
    pictures = Pictures(_mnist_parts(data, recipe.rows), data.test.x)
    return run_images(folder, recipe, pictures, MNIST, command=command, **options)


def _mnist_parts(data: Mnist, most: int | None) -> Parts:
    """Images as rows; at most so many to learn from."""

    def rows(images: Images, most: int | None = None) -> Rows:
        x = images.x[:most]
        return Rows(x.reshape(len(x), -1), images.y[:most], 10)

    channels, height, width = data.train.x.shape[1:]
    return Parts(
        rows(data.train, most), rows(data.valid), rows(data.test), (channels, height, width)
    )
