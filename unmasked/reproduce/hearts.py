"""Measure where selections on chest X-rays lie, relative to the hearts that a segmenter finds.

`places_of` does everything: it trains the segmenter on films with heart masks, or reads it back,
finds hearts and lungs on the films that were explained, checks what can be checked about them, and
says how much of each method's selections lies where (`where_selections_lie`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmasked.datasets import HeartMasks, heart_masks
from unmasked.errors import InputError
from unmasked.explainers.saving import saved_kind
from unmasked.metrics import Interval, auroc_statistic, bootstrap
from unmasked.reproduce.heart_measures import cardiothoracic_ratios, plausible
from unmasked.reproduce.heart_places import MARGIN, Places, where_selections_lie
from unmasked.reproduce.heart_segmenter import (
    Anatomy,
    Schooling,
    Segmenter,
    check_films,
    fit_segmenter,
)
from unmasked.training.progress import Show

CLASSES = ("without cardiomegaly", "with cardiomegaly")
SEGMENTER = "heart_segmenter"
"""Folder, inside the cache folder, where the trained segmenter is kept."""


def places_of(
    films: str | Path | HeartMasks,
    x: ArrayLike,
    selections: Mapping[str, ArrayLike],
    superpixels: ArrayLike,
    labels: ArrayLike,
    *,
    seed: int = 0,
    device: str = "auto",
    cache_folder: str | Path | None = None,
    margin: float = MARGIN,
    draws: int = 1000,
    schooling: Schooling | None = None,
    show: Show = "auto",
    settings: Mapping[str, Mapping[str, float]] | None = None,
    patients: ArrayLike | None = None,
) -> dict[str, Any]:
    """Measure where each method's selections lie, as plain values for results.json.

    Parameters
    ----------
    films : films with heart masks, or their file: see `heart_masks`.
    x : (n, 1, height, width) from 0 to 1, the films that were explained.
    selections : for each method (n, superpixels), 1 or True = shown.
    superpixels : (height, width), the superpixel of each pixel.
    labels : (n,) 1 = cardiomegaly.
    cache_folder : where the segmenter is kept, and read back if it learned from the same films in
        the same way; None: it is trained anew.
    settings : for each method the seed and the λ or k whose selections these are, to be told.
    patients : (n,) whose films they are; intervals are then over patients.

    Returns
    -------
    {"margin", "segmenter": what it learned from and its scores on held-out films, "hearts": what is
    plausible about those found here and the AUROC of their cardiothoracic ratio for the labels,
    "methods": {method: `Places.to_dict`}, "sentences": the same in words}
    """
    explained = check_films(x)
    y = np.asarray(labels)
    if y.shape != (len(explained),) or not np.isin(y, (0, 1)).all():
        raise InputError(
            f"labels must be {len(explained)} numbers, 1 = cardiomegaly and 0 = not, one for each "
            f"film, but have shape {y.shape} and type {y.dtype}."
        )
    known = films if isinstance(films, HeartMasks) else heart_masks(films)
    segmenter = _segmenter(known, seed, schooling or Schooling(), device, cache_folder, show)
    found = segmenter.anatomy(explained, device=device)
    whose = None if patients is None else np.asarray(patients)
    checked, words = check_hearts(found, y.astype(np.int64), draws=draws, seed=seed, patients=whose)
    methods: dict[str, Any] = {}
    for method, masks in selections.items():
        places = where_selections_lie(
            masks,
            superpixels,
            found.heart,
            lungs=found.lungs,
            labels=y,
            names=CLASSES,
            margin=margin,
            draws=draws,
            seed=seed,
            patients=whose,
        )
        own = dict((settings or {}).get(method, {}))
        methods[method] = {**places.to_dict(), **({"setting": own} if own else {})}
        words += places.sentences(_told(method, own, places))
    return {
        "margin": float(margin),
        "segmenter": {"scores": segmenter.scores, **segmenter.about},
        "hearts": checked,
        "methods": methods,
        "sentences": [_about(segmenter), *words],
    }


def _told(method: str, setting: Mapping[str, float], places: Places) -> str:
    """Name a method, with the setting of its selections, if given, and the share that they show.

    >>> from unmasked.reproduce.heart_places import Group
    >>> group = Group(0, 0, 0, 0, 0.02, {})
    >>> _told("L2X", {"seed": 0, "k": 5}, Places(0.03, {"all": group}))
    'L2X (seed 0, k = 5, 2.0% shown)'
    """
    if not setting:
        return method
    named = [
        f"{'λ' if name == 'sparsity' else name} = {value:g}" for name, value in setting.items()
    ]
    told = ", ".join(named).replace("seed = ", "seed ")
    return f"{method} ({told}, {places.groups['all'].fraction:.1%} shown)"


def place_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Flatten what `places_of` found into rows, one for each method, class of films and place.

    Each has the names under "method", "films" and "place", how many films were "counted" and
    showed "nothing", and the figures of `Share`, {"value", "low", "high"} each.
    """
    return [
        {
            "method": method,
            "films": name,
            "place": place,
            "counted": group["counted"],
            "nothing": group["nothing"],
            **figures,
        }
        for method, one in found["methods"].items()
        for name, group in one["groups"].items()
        for place, figures in group["places"].items()
    ]


def _segmenter(
    films: HeartMasks,
    seed: int,
    schooling: Schooling,
    device: str,
    cache_folder: str | Path | None,
    show: Show,
) -> Segmenter:
    """From the cache, if it learned from these films in this way; else trained, and kept there."""
    folder = None if cache_folder is None else Path(cache_folder) / SEGMENTER
    digest = _digest(films)
    if folder is not None and saved_kind(folder) == Segmenter.__name__:
        kept = Segmenter.load(folder)
        same = (kept.about.get("digest"), kept.about.get("seed"), kept.schooling)
        if same == (digest, seed, schooling):
            return kept
    training = None if folder is None else folder.with_name(f"{folder.name} training")
    segmenter = fit_segmenter(
        films, seed=seed, schooling=schooling, device=device, show=show, folder=training
    )
    segmenter.about["digest"] = digest
    if folder is not None and training is not None:
        segmenter.save(folder)
        shutil.rmtree(training, ignore_errors=True)
    return segmenter


def _digest(films: HeartMasks) -> str:
    """Of everything that a segmenter learns from."""
    total = hashlib.sha256(repr(films.x.shape).encode())
    for values in (films.x, films.heart, films.lungs, films.source):
        total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def check_hearts(
    found: Anatomy,
    y: NDArray[np.int64],
    *,
    draws: int = 1000,
    seed: int = 0,
    patients: NDArray[Any] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Summarise what can be checked of hearts on films without masks, as values and in words.

    Their area and place; and the AUROC of the cardiothoracic ratio for the labels (films,), which
    would be 0.5 if hearts were found at random. Films without heart or lungs have no ratio and are
    not counted in it.
    """
    ratio = cardiothoracic_ratios(found.heart, found.lungs)  # (films,)
    known = np.isfinite(ratio)
    values: dict[str, Any] = {**plausible(found.heart), "without_ratio": int((~known).sum())}
    words = [
        f"Hearts were found on {values['films'] - values['without']:,} of {values['films']:,} "
        f"films; they take {values['area']['mean']:.1%} of a film (standard deviation "
        f"{values['area']['sd']:.1%})."
    ]
    if len(set(y[known].tolist())) == 2:
        scores = np.stack([-ratio[known], ratio[known]], axis=1)  # only the order counts
        name = "ratio_auroc"
        one: Interval = bootstrap(
            {name: auroc_statistic(scores, y[known])},
            int(known.sum()),
            draws=draws,
            seed=seed,
            groups=None if patients is None else patients[known],
        )[name]
        values[name] = one.to_json()
        means = [float(ratio[known & (y == c)].mean()) for c in (0, 1)]
        values["ratio"] = dict(zip(CLASSES, means, strict=True))
        words.append(
            f"Their cardiothoracic ratio, on average {means[1]:.3f} with and {means[0]:.3f} "
            f"without cardiomegaly, tells the labels apart with AUROC {one}."
        )
    return values, words


def _about(segmenter: Segmenter) -> str:
    scores = ", ".join(
        f"{one['dice']:.3f} on {one['films']:.0f} of {source}"
        for source, one in segmenter.scores.items()
    )
    return (
        f"Hearts and lungs were found by a small network that learned from "
        f"{segmenter.about['films']:,} films with masks ({', '.join(segmenter.about['sources'])}); "
        f"on held-out films its hearts have a mean Dice of {scores}; films from elsewhere may be "
        "harder."
    )
