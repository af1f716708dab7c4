"""A folder of pictures (PNG, JPEG, DICOM; 8 or 16 bits; grey or colour) with a table of labels.

Everything is checked before anything is written: the table's columns, that each class has pictures,
that there are enough. A picture that cannot be used is skipped, and said to be; all others are
shrunk to one size and kept in one file, from which they are read when needed (`StoredImages`).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from unmasked.datasets.films import file_bar, threads
from unmasked.errors import InputError
from unmasked.inputs.stored import StoredImages
from unmasked.io.image_cache import cached_pictures
from unmasked.io.image_files import FITS, NO_PICTURE, Fit, Look, Plan, look
from unmasked.io.image_lists import Listing, Skipped, list_pictures, read_labels
from unmasked.io.tables import split_table

LEAST_PICTURES = 10
LEAST_OF_CLASS = 3  # one to train on, to validate and to test
_MANY_CLASSES = 0.5  # more labels than this share of the pictures are no classes
_SMALLEST, _LARGEST = 8, 2048
_OTHER_PICTURES = (".gif", ".tif", ".tiff", ".bmp", ".webp", ".jp2", ".nii", ".nii.gz")

Progress = bool | Literal["auto", "lines"]


@dataclass(frozen=True)
class FoundPictures:
    """A folder's pictures and labels, checked before any is read: `read_pictures` goes on."""

    folder: Path
    listing: Listing
    looks: list[Look]
    plan: Plan


@dataclass(frozen=True)
class PictureFolder:
    """The pictures of a folder, read.

    Attributes
    ----------
    images : (pictures, channels, size, size), on disk. names : their paths below the folder.
    labels, groups : (pictures,) text; None where there are none.
    sizes : (pictures, 2) height and width of the files. deep : (pictures,) whether they have more
        than 8 bits.
    plan : how they were made one size. skipped : what was left out, and why.
    file : where the shrunken pictures lie.
    """

    images: StoredImages
    names: NDArray[np.str_]
    labels: NDArray[np.str_] | None
    groups: NDArray[np.str_] | None
    sizes: NDArray[np.int64]
    deep: NDArray[np.bool_]
    plan: Plan
    skipped: list[Skipped]
    file: Path


def find_pictures(
    folder: Path,
    labels: Path | None = None,
    *,
    size: int = 128,
    fit: Fit = "pad",
    channels: Literal[1, 3] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    group: str | None = None,
    training: bool = True,
    progress: Progress = "auto",
) -> FoundPictures:
    """List the pictures of a folder and look at each file's head; writes nothing.

    labels : a table with a line for each picture; without it, all pictures and no labels.
    size, fit : see `Plan`. channels : 1 makes all grey; by default 3 if any has colour.
    group : a column of the table; pictures of one group will stay together.
    training : whether all classes and enough pictures must be there.
    """
    check_plan(size, fit)
    files = list_pictures(folder)
    if labels is None:
        unusable = [name for name in files.others if name.lower().endswith(_OTHER_PICTURES)]
        skipped = [Skipped(name, NO_PICTURE) for name in unusable]
        pictures = files.pictures
        listing = Listing(list(pictures.values()), list(pictures), skipped=skipped)
    else:
        listing = read_labels(
            labels,
            files.pictures,
            others=files.others,
            skipped=[one.file for one in files.skipped],
            image_column=image_column,
            label_column=label_column,
            group=group,
        )
    listing.skipped[:0] = files.skipped
    if training:
        _check_classes(listing, folder)
    listing, looks = _looked(listing, progress)
    if not looks:
        raise InputError(
            f"{folder} must hold pictures that can be used but of {len(listing.skipped):,} none "
            f"can: {_first(listing.skipped)}; check the files."
        )
    colour = any(own.colour for own in looks)
    plan = Plan(size, channels or (3 if colour else 1), any(own.deep for own in looks), fit)
    listing, looks = _fitting(listing, looks, plan)
    if training:
        _check_classes(listing, folder)
    return FoundPictures(folder, listing, looks, plan)


def read_pictures(
    found: FoundPictures, cache: Path, *, training: bool = True, progress: Progress = "auto"
) -> PictureFolder:
    """Read and shrink all pictures, or find them in the cache; those that cannot be are skipped."""
    listing = found.listing
    pixels, reasons, file = cached_pictures(
        listing.paths, listing.names, found.plan, cache, progress
    )
    good = [row for row in range(len(listing.names)) if row not in reasons]
    skipped = [Skipped(listing.names[row], why) for row, why in sorted(reasons.items())]
    kept = listing.keep(good)
    kept.skipped += skipped
    if not good:
        raise InputError(
            f"{found.folder} must hold pictures that can be read but none can: {_first(skipped)}; "
            "check the files."
        )
    if training:
        _check_classes(kept, found.folder)
    return PictureFolder(
        images=StoredImages(pixels, np.array(good)),
        names=np.array(kept.names),
        labels=None if kept.labels is None else np.array(kept.labels),
        groups=None if kept.groups is None else np.array(kept.groups),
        sizes=np.array([found.looks[row][:2] for row in good]),
        deep=np.array([found.looks[row].deep for row in good]),
        plan=found.plan,
        skipped=kept.skipped,
        file=file,
    )


def split_pictures(
    labels: NDArray[np.str_], groups: NDArray[np.str_] | None, *, seed: int
) -> dict[str, NDArray[np.int64]]:
    """60% of the pictures to train on, 20% to validate, 20% to test, classes in proportion.

    With groups, nobody's pictures are in two parts, and the shares are as near as that allows.
    """
    if groups is None:
        table = pd.DataFrame({"row": np.arange(len(labels)), "label": labels})
        split = split_table(table, "label", seed=seed)
        parts = {name: getattr(split, name)[0]["row"].to_numpy() for name in _PARTS}
    else:
        parts = _split_groups(labels, groups, seed)
    whose = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    return _with_every_class(parts, labels, whose)


def _with_every_class(
    parts: dict[str, NDArray[np.int64]], labels: NDArray[np.str_], groups: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Move groups until each part has every class: proportions alone may leave rare ones out.

    The first group of a class moves from the part that has most of them, where that leaves every
    class behind that was there. (A picture of its own always may, if a class has three.)
    """
    place = np.empty(len(labels), dtype=np.int64)
    for number, rows in enumerate(parts.values()):
        place[rows] = number

    def of(name: str, number: int) -> NDArray[np.int64]:
        return np.unique(groups[(labels == name) & (place == number)])

    for name, number in product(sorted(set(labels.tolist())), range(len(parts))):
        if len(of(name, number)):
            continue
        most_first = sorted(range(len(parts)), key=lambda other: -len(of(name, other)))
        for giver, own in [(other, one) for other in most_first for one in of(name, other)]:
            moved = groups == own
            if all(len(of(kind, giver)) > 1 for kind in set(labels[moved].tolist())):
                place[moved] = number
                break
        else:
            raise InputError(
                f"{[*_PARTS.values()][number]} must have pictures of every class but has none of "
                f"{name!r}, since pictures of a group stay together: a class needs at least "
                f"{LEAST_OF_CLASS} groups, and {name!r} has "
                f"{len(np.unique(groups[labels == name]))}; give more groups or another --seed."
            )
    return {part: np.flatnonzero(place == number) for number, part in enumerate(parts)}


_PARTS = {"train": "training", "valid": "validation", "test": "testing"}


def _split_groups(
    labels: NDArray[np.str_], groups: NDArray[np.str_], seed: int
) -> dict[str, NDArray[np.int64]]:
    different = len(set(groups.tolist()))
    if different < 5:
        raise InputError(
            f"pictures must be of at least 5 groups, to train, validate and test, but are of "
            f"{different}; give more, or leave out --group."
        )
    if max(Counter(labels.tolist()).values()) < 5:
        raise InputError(
            "a class must have at least 5 pictures to be split by groups but none has; give more, "
            "or leave out --group."
        )
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a rare class: looked at by the caller
        parts = [held_out for _, held_out in folds.split(np.zeros(len(labels)), labels, groups)]
    return {
        "train": np.sort(np.concatenate(parts[2:])),
        "valid": np.sort(parts[1]),
        "test": np.sort(parts[0]),
    }


# ---------------------------------------------------------------------- checks


def check_plan(size: int, fit: str) -> None:
    """Refuse sizes and ways to make pictures square that there are none of."""
    if not _SMALLEST <= size <= _LARGEST:
        raise InputError(
            f"--size must be a number of pixels from {_SMALLEST} to {_LARGEST} but is {size}."
        )
    if fit not in FITS:
        raise InputError(f"--fit must be one of {', '.join(FITS)} but is {fit!r}.")


def _looked(listing: Listing, progress: Progress) -> tuple[Listing, list[Look]]:
    """Each file's head; those without are skipped."""
    looks: list[Look] = []
    good: list[int] = []
    skipped = []
    with file_bar(len(listing.paths), progress, "heads") as advance, threads() as go:
        for row, own in enumerate(go.map(look, listing.paths)):
            advance()
            if isinstance(own, str):
                skipped.append(Skipped(listing.names[row], own))
            else:
                good.append(row)
                looks.append(own)
    kept = listing.keep(good)
    kept.skipped += skipped
    return kept, looks


def _fitting(listing: Listing, looks: Sequence[Look], plan: Plan) -> tuple[Listing, list[Look]]:
    """Pictures that can be made one size; with ``fit="none"`` any other size is an error."""
    reasons = [plan.refusal(own.height, own.width) for own in looks]
    wrong = [row for row, reason in enumerate(reasons) if reason is not None]
    if wrong and plan.fit == "none":
        more = len(wrong) - 1
        others = f", as are {more:,} others" if more > 1 else ", as is one other" if more else ""
        raise InputError(
            f"all pictures must be {plan.size} × {plan.size} pixels but {listing.names[wrong[0]]} "
            f"{reasons[wrong[0]]}{others}; use --fit pad or crop."
        )
    good = [row for row, reason in enumerate(reasons) if reason is None]
    kept = listing.keep(good)
    kept.skipped += [Skipped(listing.names[row], str(reasons[row])) for row in wrong]
    return kept, [looks[row] for row in good]


def _check_classes(listing: Listing, folder: Path) -> None:
    """Enough pictures of each class, or one sentence that names what is missing."""
    if listing.labels is None:
        raise InputError(f"training on {folder} needs labels, but none came; give their file.")
    counts = Counter(listing.labels)
    left_out = _left_out(listing.skipped)
    if listing.empty:
        none = listing.empty[0]
        raise InputError(
            f"each class must have pictures but {none!r} has none in {folder} "
            f"({_left_out(listing.skipped_of(none), ' of its')}); add them or remove its lines."
        )
    if len(counts) < 2:
        only = f"one class only ({next(iter(counts))!r})" if counts else "no labels"
        raise InputError(
            f"the pictures must be of at least two classes but have {only}; {left_out}."
        )
    total = len(listing.labels)
    if len(counts) > max(2, _MANY_CLASSES * total):
        raise InputError(
            f"labels must be classes but {total:,} pictures have {len(counts):,} different ones, "
            "which looks like names; name the column of labels with --label-column."
        )
    if total < LEAST_PICTURES:
        raise InputError(
            f"at least {LEAST_PICTURES} pictures are needed to train, validate and test but "
            f"{folder} has {total} with labels; {left_out}."
        )
    rare, count = min(counts.items(), key=lambda item: item[1])
    if count < LEAST_OF_CLASS:
        raise InputError(
            f"each class must have at least {LEAST_OF_CLASS} pictures, to train, validate and "
            f"test, but {rare!r} has {count}; {_left_out(listing.skipped_of(rare), ' of its')}."
        )


def _left_out(skipped: Sequence[Skipped], whose: str = "") -> str:
    text = f"{len(skipped):,}{whose} {'was' if len(skipped) == 1 else 'were'} skipped"
    return f"{text}, such as {_first(skipped)}" if skipped else text


def _first(skipped: Sequence[Skipped]) -> str:
    return f"{skipped[0].file}, which {skipped[0].reason}" if skipped else "no file"
