"""Which chest films there are, before any is read: NIH's folder, or a packed file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from unmasked.data.films import read_arrays, why
from unmasked.errors import InputError

POSITIVE, NEGATIVE = "Cardiomegaly", "No Finding"
_IMAGES = ("images_*/images/*.png", "images_*/*.png", "images/*.png")
_OWN = {"train": 0, "training": 0, "valid": 1, "val": 1, "validation": 1, "test": 2}


@dataclass(frozen=True)
class Listing:
    """Films that are not read yet: (films,) each."""

    path: Path
    names: NDArray[np.str_]
    y: NDArray[np.int64]
    patients: NDArray[np.str_] | None
    part: NDArray[np.int64] | None  # the file's own: 0 training, 1 validation, 2 test
    sources: list[Path] | list[bytes]
    boxes: dict[str, NDArray[np.float64]]
    remarks: list[str]

    def take(self, rows: NDArray[np.int64]) -> Listing:
        return replace(
            self,
            names=self.names[rows],
            y=self.y[rows],
            patients=None if self.patients is None else self.patients[rows],
            part=None if self.part is None else self.part[rows],
            sources=[self.sources[i] for i in rows],
        )

    def named(self, row: int) -> str:
        """A film, for a sentence that results may pass on: not where the data lie on a machine."""
        source = self.sources[row]
        if isinstance(source, Path):
            return source.relative_to(self.path).as_posix()
        return f"{self.names[row]} in {self.path.name}"


def listed_in_folder(folder: Path) -> Listing:
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
            f"these two classes are not in {folder.resolve().name}, such as {absent}."
        )
    y = np.array([label[name][0] for name in here], np.int64)
    for value, finding in ((1, POSITIVE), (0, NEGATIVE)):
        if not (y == value).any():
            listed = sum(1 for one, _ in label.values() if one == value)
            problem = (
                f"lists {listed:,}, none of which is there; unpack more of NIH's archives in it"
                if listed
                else "lists no film with it at all; fetch NIH's whole table again"
            )
            raise InputError(
                f"{table} must list films with {finding!r} that are in {folder} but {problem}."
            )
    return Listing(
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


def listed_in_file(path: Path) -> Listing:
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
    return Listing(
        path=path,
        names=names,
        y=y,
        patients=None,
        part=own_parts(names),
        sources=[jpeg[a:b].tobytes() for a, b in pairwise(offsets)],
        boxes={},
        remarks=[
            f"{path.name} does not say who the patients are: patients may repeat across its "
            "splits, and intervals, which take films for independent, may be too narrow.",
            f"films labelled 0 in {path.name} are without cardiomegaly but may have other "
            "findings.",
        ],
    )


def own_parts(names: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """The part that each film's folder says, (films,); None unless all do and one is for testing.

    >>> own_parts(np.array(["a/train/1.png", "a/test/1.png"]))
    array([0, 2])
    """
    found = []
    for name in names.tolist():
        folders = PurePosixPath(name.replace("\\", "/").lower()).parts[:-1]
        found.append(next((_OWN[folder] for folder in folders if folder in _OWN), -1))
    parts = np.array(found, np.int64)
    return parts if (parts >= 0).all() and {0, 2} <= set(found) else None
