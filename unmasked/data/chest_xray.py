"""Chest X-rays of the NIH Clinical Center: hearts that are enlarged (cardiomegaly) or not.

From a folder of ChestX-ray14 as NIH distributes it (112,120 films, 42 GB), or from one packed file
of shrunken films. Nothing is downloaded: https://nihcc.app.box.com/v/ChestXray-NIHCC has the films.
NIH asks users to link that page, to cite Wang et al., "ChestX-ray8", CVPR 2017, and to acknowledge
the NIH Clinical Center. Labels were mined from reports by a program; NIH expects over 90% right.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmasked.data.films import made_folder, read_arrays, read_films, why
from unmasked.errors import DataWarning, InputError

POSITIVE, NEGATIVE = "Cardiomegaly", "No Finding"

_SIDE = 1024  # of NIH's films, in which its boxes are measured
_HELD_OUT = 300  # films to validate on, and to test on, where nothing else is said
_IMAGES = ("images_*/images/*.png", "images_*/*.png", "images/*.png")
_NAMES = ("training", "validation", "test")
_OWN = {"train": 0, "training": 0, "valid": 1, "val": 1, "validation": 1, "test": 2}


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
        minute or two, 90 MB); by default in that folder.
    progress : whether to show a progress bar while reading; "auto": where somebody watches.
    """
    _check_whole("size", size, 1)
    _check_whole("seed", seed, 0)
    held_out = (_asked("validation", validation), _asked("test", test))
    path, folder = Path(path), None
    if not path.exists():
        raise InputError(
            f"{path} must be NIH's folder or a packed .npz file but does not exist; check the path."
        )
    if path.is_dir():
        folder = path if cache is None else made_folder(Path(cache))
    listing = _folder(path) if path.is_dir() else _packed(path)
    if balance:
        listing = listing.take(_balanced(listing.y, listing.part, seed))
    pixels, reasons, remarks = read_films(listing.sources, size, folder, progress)
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


def _check_whole(name: str, value: Any, least: int) -> None:
    if not _whole(value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least} but is {value!r}.")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _asked(name: str, value: Any) -> int | float | None:
    share = isinstance(value, float | np.floating) and 0 < value < 1
    if value is None or share or (_whole(value) and value >= 2):
        return value
    raise InputError(
        f"{name} must be a whole number of films of at least 2, or a share between 0 and 1, but is "
        f"{value!r}."
    )


def _scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes (films, height, width) -> (films, 1, height, width) from 0 to 1."""
    return np.divide(pixels[:, None], np.float32(255), dtype=np.float32)


# ---------------------------------------------------------------------- what there is


@dataclass(frozen=True)
class _Listing:
    """Films that are not read yet: (films,) each."""

    path: Path
    names: NDArray[np.str_]
    y: NDArray[np.int64]
    patients: NDArray[np.str_] | None
    part: NDArray[np.int64] | None  # the file's own: 0 training, 1 validation, 2 test
    sources: list[Path] | list[bytes]
    boxes: dict[str, NDArray[np.float64]]
    remarks: list[str]

    def take(self, rows: NDArray[np.int64]) -> _Listing:
        return replace(
            self,
            names=self.names[rows],
            y=self.y[rows],
            patients=None if self.patients is None else self.patients[rows],
            part=None if self.part is None else self.part[rows],
            sources=[self.sources[i] for i in rows],
        )

    def named(self, row: int) -> str:
        """A film, for a sentence."""
        source = self.sources[row]
        return str(source) if isinstance(source, Path) else f"{self.names[row]} in {self.path}"


def _folder(folder: Path) -> _Listing:
    """The films of NIH's folder that have cardiomegaly or no finding."""
    tables = sorted(folder.glob("Data_Entry_2017*.csv"))
    if not tables:
        raise InputError(
            f"the folder {folder} must hold NIH's table Data_Entry_2017.csv or "
            "Data_Entry_2017_v2020.csv but holds neither; add it or name another folder."
        )
    table, remarks = tables[-1], []  # the corrected one of 2020 comes last
    if len(tables) > 1:
        remarks.append(f"{table.name} was read and {tables[0].name} was not.")
    found: dict[str, Path] = {}
    for pattern in _IMAGES:
        for path in sorted(folder.glob(pattern)):
            found.setdefault(path.name, path)
    if not found:
        raise InputError(
            f"the folder {folder} must hold films in images_*/images, images_* or images but has "
            "no .png file there; unpack NIH's archives in it or name another folder."
        )
    label = _labels(table)  # of every film in it
    here = [name for name in label if name in found]
    if len(here) < len(label):
        absent = next(name for name in label if name not in found)
        remarks.append(
            f"{len(label) - len(here):,} of the {len(label):,} films that {table.name} lists for "
            f"these two classes are not in {folder}, such as {absent}."
        )
    y = np.array([label[name][0] for name in here], np.int64)
    for value, finding in ((1, POSITIVE), (0, NEGATIVE)):
        if not (y == value).any():
            listed = sum(1 for one, _ in label.values() if one == value)
            raise InputError(
                f"{table} must list films with {finding!r} that are in {folder} but lists "
                f"{listed:,}, none of which is there; unpack more of NIH's archives in it."
            )
    return _Listing(
        path=folder,
        names=np.array(here),
        y=y,
        patients=np.array([label[name][1] for name in here]),
        part=None,
        sources=[found[name] for name in here],
        boxes=_boxes(folder / "BBox_List_2017.csv"),
        remarks=remarks,
    )


def _labels(table: Path) -> dict[str, tuple[int, str]]:
    """The label and the patient of each film of either class, in the table's order."""
    result: dict[str, tuple[int, str]] = {}
    for line, cells in _lines(table, ("Image Index", "Finding Labels", "Patient ID")):
        name, findings, patient = cells
        if not name or not findings or not patient:
            raise InputError(
                f"{table} must say film, findings and patient in each line but line {line} says "
                f"{name!r}, {findings!r} and {patient!r}; fetch it again."
            )
        if name in result:
            raise InputError(
                f"{table} must list each film once but lists {name} again in line {line}; fetch it "
                "again."
            )
        if POSITIVE in (finding.strip() for finding in findings.split("|")):
            result[name] = (1, patient)
        elif findings == NEGATIVE:
            result[name] = (0, patient)
    return result


def _boxes(table: Path) -> dict[str, NDArray[np.float64]]:
    """Boxes (boxes, 4) of cardiomegaly by film, in pixels of NIH's films; none without the file.

    The file's header says ``Bbox [x,y,w,h],,,`` where its lines have four numbers.
    """
    if not table.exists():
        return {}
    found: dict[str, list[list[float]]] = {}
    columns = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]")
    for line, (name, finding, *numbers) in _lines(table, columns):
        if finding != POSITIVE:
            continue
        try:
            box = [float(number) for number in numbers]
        except ValueError:
            box = [np.nan]
        if not np.isfinite(box).all() or min(box[2:]) <= 0:
            raise InputError(
                f"{table} must have a box of four numbers in each line, its width and height above "
                f"0, but line {line} has {', '.join(numbers)}; fetch it again or remove it."
            )
        found.setdefault(name, []).append(box)
    return {name: np.array(boxes) for name, boxes in found.items()}


def _lines(table: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The number of each line of a CSV table and its cells under some columns."""
    try:
        with open(table, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in columns if name not in header]
            if missing:
                raise InputError(
                    f"{table} must have the columns {', '.join(columns)} but has no "
                    f"{', '.join(missing)} among {', '.join(header)[:200]}; name the folder with "
                    "NIH's table."
                )
            places = [header.index(name) for name in columns]
            for cells in reader:
                if len(cells) > max(places):
                    yield reader.line_num, [cells[i].strip() for i in places]
                elif any(cells):
                    raise InputError(
                        f"{table} must have at least {max(places) + 1} cells in each line but line "
                        f"{reader.line_num} has {len(cells)}; fetch it again."
                    )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{table} must be a CSV table but cannot be read ({why(error)}); fetch it again."
        ) from error


def _packed(path: Path) -> _Listing:
    """The films in a packed file."""
    arrays = read_arrays(
        path,
        {
            "jpeg": ("bytes", 1),
            "offsets": ("whole numbers", 1),
            "labels": ("whole numbers", 1),
            "filename": ("text", 1),
        },
    )
    jpeg, names = arrays["jpeg"], arrays["filename"]
    offsets, y = arrays["offsets"].astype(np.int64), arrays["labels"].astype(np.int64)
    if not len(y) == len(names) == len(offsets) - 1:
        raise InputError(
            f"{path} must hold as many 'labels' as 'filename' and one 'offsets' more, but holds "
            f"{len(y):,}, {len(names):,} and {len(offsets):,}; fetch it again."
        )
    if offsets[0] != 0 or offsets[-1] != len(jpeg) or (np.diff(offsets) < 0).any():
        raise InputError(
            f"{path} must hold 'offsets' that rise from 0 to the {len(jpeg):,} bytes of 'jpeg' but "
            f"they go from {offsets[0]:,} to {offsets[-1]:,}, not all upwards; fetch it again."
        )
    if not np.isin(y, (0, 1)).all() or len(np.unique(y)) < 2:
        raise InputError(
            f"{path} must hold 'labels' 0 and 1, both of them, but holds "
            f"{np.unique(y)[:5].tolist()}; name a packed file of chest X-rays."
        )
    return _Listing(
        path=path,
        names=names,
        y=y,
        patients=None,
        part=_own_parts(names),
        sources=[jpeg[a:b].tobytes() for a, b in pairwise(offsets)],
        boxes={},
        remarks=[
            f"{path.name} does not say who the patients are: patients may repeat across its "
            "splits.",
            f"films labelled 0 in {path.name} are without cardiomegaly but may have other "
            "findings.",
        ],
    )


def _own_parts(names: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """The part that each film's folder says, (films,); None unless all do and one is for testing.

    >>> _own_parts(np.array(["a/train/1.png", "a/test/1.png"]))
    array([0, 2])
    """
    found = []
    for name in names.tolist():
        folders = PurePosixPath(name.replace("\\", "/").lower()).parts[:-1]
        found.append(next((_OWN[folder] for folder in folders if folder in _OWN), -1))
    parts = np.array(found, np.int64)
    return parts if (parts >= 0).all() and {0, 2} <= set(found) else None


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
    listing: _Listing, held_out: tuple[int | float | None, int | float | None], seed: int
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
        count = int(count) if _whole(count) else max(2, round(float(count) * total))
        if count > pool.sum() - (0 if has_own else 2):
            left = f"{pool.sum():,} of the {len(y):,} films of {path} are left"
            raise InputError(
                f"{_NAMES[number]} asks for {count:,} films but {left}; add films, or ask for "
                f"fewer with `chest_xray(…, {_NAMES[number]}=)`."
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
                    f"of the {len(y):,} films of {path}, whose patients stay together; change how "
                    "many films validation= and test= hold out."
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


def _films(listing: _Listing, pixels: NDArray[np.uint8], rows: NDArray[np.int64]) -> Films:
    patients = None if listing.patients is None else listing.patients[rows]
    return Films(_scaled(pixels[rows]), listing.y[rows], listing.names[rows], patients)
