"""Chest X-rays of the NIH Clinical Center: hearts that are enlarged (cardiomegaly) or not.

From a folder of ChestX-ray14 as NIH distributes it (112,120 films, 42 GB), or from one packed file
of shrunken films. Nothing is downloaded: https://nihcc.app.box.com/v/ChestXray-NIHCC has the films.
NIH asks users to link that page, to cite Wang et al., "ChestX-ray8", CVPR 2017, and to acknowledge
the NIH Clinical Center. Labels were mined from reports by a program; NIH expects over 90% right.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmasked.checks import check_whole, is_whole
from unmasked.datasets.films import (
    Listing,
    listed_in_file,
    listed_in_folder,
    made_folder,
    read_arrays,
    read_films,
)
from unmasked.errors import DataWarning, InputError

_SIDE = 1024  # of NIH's films, in which its boxes are measured
_HELD_OUT = 300  # films to validate on, and to test on, where nothing else is said
_NAMES = ("training", "validation", "test")


class Films(NamedTuple):
    """Films with their labels.

    x : (films, 1, size, size) float32, 0 = black, 1 = white. y : (films,) 1 = cardiomegaly.
    names : (films,) file names. patients : (films,) patients' numbers as text; None if unknown.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    names: NDArray[np.str_]
    patients: NDArray[np.str_] | None


@dataclass(frozen=True)
class ChestXrays:
    """Films to train on, to validate on and to test on; no patient in two parts where known.

    Attributes
    ----------
    boxes : where a radiologist drew the enlarged heart, by film: (boxes, 4) numbers, left, top,
        width and height in pixels of x. Few films have one.
    remarks : what there is to know about these films, a sentence each.
    skipped : the films that could not be used and why, a sentence each.
    """

    train: Films
    valid: Films
    test: Films
    boxes: dict[str, NDArray[np.float64]]
    remarks: list[str]
    skipped: list[str]


class HeartMasks(NamedTuple):
    """Other films, with the outlines of hearts and lungs.

    x : (films, 1, height, width) float32, 0 = black, 1 = white. heart, lungs : (films, height,
    width) bool. ratio : (films,) cardiothoracic ratio, from the masks; measured : (films,) the
    same as a radiologist has it, NaN where unknown. source : (films,) the set each is from.
    """

    x: NDArray[np.float32]
    heart: NDArray[np.bool_]
    lungs: NDArray[np.bool_]
    ratio: NDArray[np.float64]
    measured: NDArray[np.float64]
    source: NDArray[np.str_]


def chest_xray(
    path: str | Path,
    *,
    size: int = 128,
    balance: bool = True,
    validation: int | float | None = None,
    test: int | float | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: bool | Literal["auto"] = "auto",
) -> ChestXrays:
    """Films with cardiomegaly (1) and without (0) from NIH's folder or a packed file.

    A folder has NIH's table, ``Data_Entry_2017.csv`` or ``Data_Entry_2017_v2020.csv``, the films in
    ``images_*/images``, ``images_*`` or ``images``, and perhaps ``BBox_List_2017.csv``. Label 1 is
    any film whose findings include cardiomegaly, label 0 any with "No Finding"; others are left
    out. Films of a patient stay together in one part.

    A packed file (.npz) has ``jpeg``, all films end to end; ``offsets``, where each begins, and the
    end; ``labels`` and ``filename``. Patients are unknown. If the names have folders train and
    test, and perhaps valid, these stay what they are.

    Parameters
    ----------
    size : films are shrunk to size × size pixels.
    balance : leave out films of the more frequent class, drawn by ``seed``, until both are as many.
    validation, test : how many films to hold out, or which share of them; both classes in
        proportion. By default the packed file's own part, or else 300. A part may have a few less
        if whole patients do not add up.
    cache : where a folder's shrunken films are kept, so that they are read once (5,552 films: a
        minute or two, 90 MB), in one file for each seed, size and balance; by default in that
        folder.
    progress : whether to show a progress bar while reading; "auto": where somebody watches.
    """
    check_whole("size", size, 1)
    check_whole("seed", seed, 0)
    held_out = (_asked("validation", validation), _asked("test", test))
    path, folder = Path(path), None
    if not path.exists():
        raise InputError(
            f"{path} must be NIH's folder or a packed .npz file but does not exist; check the path."
        )
    if path.is_dir():
        folder = path if cache is None else made_folder(Path(cache))
    listing = listed_in_folder(path) if path.is_dir() else listed_in_file(path)
    if balance:
        listing = listing.take(_balanced(listing.y, listing.part, seed))
    kind = f"{'.' if cache is None else path.resolve()} {size} {seed if balance else 'all'}"
    pixels, reasons, remarks = read_films(listing.sources, size, folder, progress, _digest(kind))
    skipped = [f"{listing.named(i)} was skipped: it {why}." for i, why in reasons.items()]
    if len(reasons) == len(listing.y):
        raise InputError(
            f"{path} must hold films that can be read, but of {len(reasons):,} none can: "
            f"{listing.named(0)} {reasons[0]}; fetch them again."
        )
    if skipped:
        warnings.warn(
            f"films must be whole, square pictures of 8 bits but {len(skipped):,} of "
            f"{len(listing.y):,} were skipped, such as {listing.named(min(reasons))}, which "
            f"{reasons[min(reasons)]}; fetch them again.",
            DataWarning,
            stacklevel=2,
        )
        pixels = np.delete(pixels, list(reasons), axis=0)
        listing = listing.take(np.delete(np.arange(len(listing.y)), list(reasons)))
        ill = int(listing.y.sum())
        if balance and 2 * ill != len(listing.y):
            remarks.append(
                f"{ill:,} films with cardiomegaly and {len(listing.y) - ill:,} without are left, "
                "not equally many, since the others cannot be read."
            )
    parts, more = _split(listing, held_out, seed)
    train, valid, test_part = (_films(listing, pixels, rows) for rows in parts)
    scale, used = size / _SIDE, set(listing.names[np.concatenate(parts)].tolist())
    return ChestXrays(
        train=train,
        valid=valid,
        test=test_part,
        boxes={name: scale * box for name, box in listing.boxes.items() if name in used},
        remarks=[*listing.remarks, *remarks, *more],
        skipped=skipped,
    )


def heart_masks(path: str | Path) -> HeartMasks:
    """Films with masks of heart and lungs, to train a segmenter on or to measure margins with.

    A file (.npz) with ``images``, ``heart`` and ``lungs`` (films, height, width), the
    cardiothoracic ratios ``ctr_from_masks`` and ``ctr_groundtruth``, and ``source`` (films,).
    """
    path = Path(path)
    arrays = read_arrays(
        path,
        {
            "images": ("bytes", 3),
            "heart": ("true and false", 3),
            "lungs": ("true and false", 3),
            "ctr_from_masks": ("numbers", 1),
            "ctr_groundtruth": ("numbers", 1),
            "source": ("text", 1),
        },
    )
    shape = arrays["images"].shape
    for name, values in arrays.items():
        expected = shape[: values.ndim]
        if values.shape != expected:
            raise InputError(
                f"{path} must hold {name!r} for its images, {expected}, but holds {values.shape}; "
                "name a file whose arrays belong together."
            )
    return HeartMasks(
        x=_scaled(arrays["images"]),
        heart=arrays["heart"],
        lungs=arrays["lungs"],
        ratio=arrays["ctr_from_masks"].astype(np.float64),
        measured=arrays["ctr_groundtruth"].astype(np.float64),
        source=arrays["source"],
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _asked(name: str, value: Any) -> int | float | None:
    share = isinstance(value, float | np.floating) and 0 < value < 1
    if value is None or share or (is_whole(value) and value >= 2):
        return value
    raise InputError(
        f"{name} must be a whole number of films of at least 2, or a share between 0 and 1, but is "
        f"{value!r}."
    )


def _scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes (films, height, width) -> (films, 1, height, width) from 0 to 1."""
    return np.divide(pixels[:, None], np.float32(255), dtype=np.float32)


# ---------------------------------------------------------------------- which part of it


def _balanced(y: NDArray[np.int64], part: NDArray[np.int64] | None, seed: int) -> NDArray[np.int64]:
    """Rows with as many of each class, in each of the file's own parts, in the order they came."""
    random = np.random.default_rng([seed, 0])
    kept = []
    for number in range(3):
        here = np.ones(len(y), bool) if part is None else part == number
        classes = [np.flatnonzero(here & (y == value)) for value in (0, 1)]
        fewer = min(map(len, classes))
        kept += [random.permutation(rows)[:fewer] for rows in classes]
        if part is None:
            break
    return np.sort(np.concatenate(kept))


def _split(
    listing: Listing, held_out: tuple[int | float | None, int | float | None], seed: int
) -> tuple[list[NDArray[np.int64]], list[str]]:
    """The rows of each part, and what there is to say about them."""
    y, path = listing.y, listing.path
    of = np.arange(len(y)) if listing.patients is None else _numbered(listing.patients)
    if listing.patients is not None and of.max() < 2:
        raise InputError(
            f"{path} must hold films of at least 3 patients, to train, validate and test, but of "
            f"the two classes it holds {of.max() + 1}; unpack more of NIH's archives in it."
        )
    own = np.zeros(len(y), np.int64) if listing.part is None else listing.part
    where, remarks = own.copy(), []
    for number in (2, 1):  # testing first: what is tested does not depend on what validates
        asked, pool = held_out[number - 1], own == number
        if pool.any() and asked is None:
            continue
        has_own = bool(pool.any())
        pool = pool if has_own else where == 0
        total = pool.sum() if has_own else len(y)
        count = _HELD_OUT if asked is None else asked
        count = int(count) if is_whole(count) else max(2, round(float(count) * total))
        if count > pool.sum() - (0 if has_own else 2):
            left = f"{pool.sum():,} of the {len(y):,} films of {path} are left"
            raise InputError(
                f"{_NAMES[number]} asks for {count:,} films but {left}; give more films or, in "
                f"Python, ask for fewer with `chest_xray(…, {_NAMES[number]}=)`."
            )
        drawn = _drawn(y, of, pool, count, np.random.default_rng([seed, number]))
        where[pool & (own == number)] = -1
        where[drawn] = number
        if drawn.sum() < count:
            remarks.append(
                f"{_NAMES[number]} has {drawn.sum():,} films where {count:,} were asked for, since "
                "films of a patient stay together."
            )
    for number, name in enumerate(_NAMES):
        for value, finding in ((1, "with"), (0, "without")):
            if not ((where == number) & (y == value)).any():
                raise InputError(
                    f"{name} must have films of both classes but has none {finding} cardiomegaly "
                    f"of the {len(y):,} films of {path}, whose patients stay together; give more "
                    "films or, in Python, change how many validation= and test= hold out."
                )
    return [np.flatnonzero(where == number) for number in range(3)], remarks


def _numbered(patients: NDArray[np.str_]) -> NDArray[np.int64]:
    """Patients as whole numbers from 0, (films,)."""
    return np.unique(patients, return_inverse=True)[1]


def _drawn(
    y: NDArray[np.int64],
    patient: NDArray[np.int64],
    pool: NDArray[np.bool_],
    count: int,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """Films of whole patients out of a pool, (films,): ``count`` or less, classes in proportion.

    Patients come in random order; who has more films of a class than are still wanted is passed by.
    """
    ill = min(max(round(count * y[pool].mean()), 1), count - 1)
    left = np.array([count - ill, ill])
    films = np.zeros((patient.max() + 1, 2), np.int64)  # of each patient and class, in the pool
    np.add.at(films, (patient[pool], y[pool]), 1)
    taken = np.zeros(len(films), bool)
    for one in random.permutation(np.flatnonzero(films.any(1))):
        if (films[one] <= left).all():
            left -= films[one]
            taken[one] = True
    return pool & taken[patient]


def _films(listing: Listing, pixels: NDArray[np.uint8], rows: NDArray[np.int64]) -> Films:
    patients = None if listing.patients is None else listing.patients[rows]
    return Films(_scaled(pixels[rows]), listing.y[rows], listing.names[rows], patients)
