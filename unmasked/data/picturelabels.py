"""``labels.csv``: which picture has which label, and perhaps which patient it is of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pandas as pd

from unmasked.columns import nearest
from unmasked.data.picturefiles import NO_PICTURE, SUFFIXES
from unmasked.data.tables import read_table
from unmasked.errors import InputError

IMAGE_NAMES = (
    "image", "images", "file", "filename", "file_name", "file name", "image_file", "image file",
    "image_name", "image name", "image_path", "image path", "path", "filepath", "image index",
    "image_id", "image id", "picture",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "class", "target", "diagnosis", "finding", "category", "y")


@dataclass(frozen=True)
class Skipped:
    """A picture that is left out; ``reason`` goes behind its name."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file} was skipped: it {self.reason}."


@dataclass
class Listing:
    """Pictures by their names below the folder, with what is said about each; (pictures,) each."""

    paths: list[Path]
    names: list[str]
    labels: list[str] | None = None
    groups: list[str] | None = None
    skipped: list[Skipped] = field(default_factory=list)
    classes: tuple[str, ...] = ()
    """All labels of the table, also those of pictures that are left out."""

    @property
    def empty(self) -> list[str]:
        """Classes without a picture."""
        return sorted(set(self.classes) - set(self.labels or ()))

    def keep(self, rows: list[int]) -> Listing:
        """Some of the pictures."""
        return Listing(
            [self.paths[i] for i in rows],
            [self.names[i] for i in rows],
            None if self.labels is None else [self.labels[i] for i in rows],
            None if self.groups is None else [self.groups[i] for i in rows],
            list(self.skipped),
            self.classes,
        )


def read_labels(
    table: Path,
    files: dict[str, Path],
    *,
    others: Sequence[str] = (),
    image_column: str | None = None,
    label_column: str | None = None,
    group: str | None = None,
) -> Listing:
    """The pictures of a folder, ``files`` by name, that a table has labels for, in its order.

    A cell names a picture by its path below the folder, by its file name alone, or without its
    ending, wherever only one picture is meant. ``others`` are files that are no such pictures.
    """
    content = _text(table)
    columns = list(content.columns)
    if image_column is None and label_column is None:
        _check_header(columns, files, table)
    image, label = _columns(content, files, table, image_column, label_column)
    if group is not None and group not in columns:
        raise InputError(f"{table} has no column {group!r}; {nearest(group, columns)}")
    if group in (image, label) or image == label:
        raise InputError(
            f"image, label and group must be different columns of {table} but are {image!r}, "
            f"{label!r} and {group!r}; name others."
        )
    known, unusable = _Names(files), _Names({name: Path(name) for name in others})
    known.learn(content[image])
    listing = Listing([], [], [], None if group is None else [])
    said: dict[str, tuple[str, str]] = {}  # picture -> its label and group, first come
    contradictory, listed = set(), set()
    for number, row in enumerate(content.itertuples(index=False), 2):
        values = dict(zip(columns, row, strict=True))
        cell, own = values[image].strip(), values[label].strip()
        whose = "" if group is None else values[group].strip()
        if not cell:
            listing.skipped.append(Skipped(f"line {number} of {table.name}", "names no picture"))
            continue
        name = known.find(cell)
        listed.add(name)
        problem = (
            NO_PICTURE if name is None and unusable.find(cell) is not None
            else f"is listed in {table.name} but is not in the folder" if name is None
            else "stands for more than one picture in the folder" if name == ""
            else f"has no {label} in {table.name}" if not own
            else f"has no {group} in {table.name}" if group is not None and not whose
            else None
        )  # fmt: skip
        if problem is not None or not name:
            listing.skipped.append(Skipped(cell, problem or "has no name"))
        elif said.setdefault(name, (own, whose)) != (own, whose):
            contradictory.add(name)
    for name in contradictory:
        listing.skipped.append(Skipped(name, f"comes more than once in {table.name}, differently"))
    for name in sorted(set(files) - listed):
        listing.skipped.append(Skipped(str(name), f"has no line in {table.name}"))
    assert listing.labels is not None
    for name, (own, whose) in said.items():
        if name in contradictory:
            continue
        listing.paths.append(files[name])
        listing.names.append(name)
        listing.labels.append(own)
        if listing.groups is not None:
            listing.groups.append(whose)
    listing.classes = tuple(sorted({value.strip() for value in content[label]} - {""}))
    return listing


def _check_header(columns: list[str], files: dict[str, Path], table: Path) -> None:
    """Without a first line of names, the first picture would be taken for them."""
    plain = {name.strip().lower() for name in columns}
    endings = {PurePosixPath(name).name for name in files}  # "image" may be a picture's stem too
    named = next((name for name in columns if name.strip().split("/")[-1] in endings), None)
    if named is not None and plain.isdisjoint((*IMAGE_NAMES, *LABEL_NAMES)):
        raise InputError(
            f"the first line of {table} must name its columns, such as image,label, but holds the "
            f"picture {named}; put such a line above it."
        )


def _text(table: Path) -> pd.DataFrame:
    """All cells as they are written, so that 01 stays "01" and None a label; holes are empty."""
    content = read_table(table)  # refuses what is no table
    if table.suffix.lower() in (".parquet", ".pq"):
        return content.astype(object).where(content.notna(), "").astype(str)
    only = str(content.columns[0])
    separator = "\t" if table.suffix.lower() == ".tsv" else ","
    for usual in (";", "\t"):  # as spreadsheets write it in many countries
        if content.shape[1] == 1 and usual in only:
            separator = usual
    return pd.read_csv(table, sep=separator, dtype=str, keep_default_na=False)


def _columns(
    content: pd.DataFrame,
    files: dict[str, Path],
    table: Path,
    image: str | None,
    label: str | None,
) -> tuple[str, str]:
    """The column of pictures and that of labels: as asked, by a usual name, or by what is in it."""
    columns = [str(name) for name in content.columns]
    for name in (image, label):
        if name is not None and name not in columns:
            raise InputError(f"{table} has no column {name!r}; {nearest(name, columns)}")
    plain = {name.strip().lower(): name for name in reversed(columns)}
    if image is None:
        usual = next((plain[name] for name in IMAGE_NAMES if name in plain), None)
        image = usual or _column_of_files(content, files)
    if label is None:
        label = next((plain[name] for name in LABEL_NAMES if name in plain), None)
        if label is None and len(columns) == 2 and image is not None:
            label = next(name for name in columns if name != image)
    for found, what, option in (
        (image, "the pictures' file names", "--image-column"),
        (label, "the labels", "--label-column"),
    ):
        if found is None:
            raise InputError(
                f"{table} must have a column with {what} but which of {', '.join(columns)[:200]} "
                f"it is cannot be told; name it with {option}."
            )
    assert image is not None
    assert label is not None
    return image, label


def _column_of_files(content: pd.DataFrame, files: dict[str, Path]) -> str | None:
    """The column most of whose cells name pictures."""
    known = _Names(files)
    shares = {
        str(name): sum(bool(known.find(cell.strip())) for cell in content[name]) / len(content)
        for name in content.columns
    }
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] > 0.5 else None


class _Names:
    """Finds a picture by what a cell says."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files
        self.above: tuple[str, ...] = ()  # folders that the pictures' folder lies in, where asked
        self.ways: tuple[dict[str, list[str]], ...] = ({}, {}, {})
        for name in files:
            path = PurePosixPath(name)
            known = path.suffix.lower() in SUFFIXES  # the end of 1.2.840.7 is no ending
            keys = (path.name, path.stem if known else path.name, path.name.lower())
            for way, key in zip(self.ways, keys, strict=True):
                way.setdefault(key, []).append(name)

    def learn(self, cells: Iterable[str]) -> None:
        """Whether cells name different folders above the one that is explained."""
        above = set()
        for cell in cells:
            found = self.find(cell.strip())
            *folders, _ = _plain(cell.strip()).split("/")
            below = found.count("/") if found else 0
            if found and len(folders) > below:
                above.add(tuple(folders[: len(folders) - below]))
        if len(above) > 1:
            name, path = next(iter(self.files.items()))
            self.above = path.parents[name.count("/")].resolve().parts

    def find(self, cell: str) -> str | None:
        """The picture's name; "" if more than one is meant, None if none is.

        Folders may be left out on either side, but not contradict each other: siteB/1.png is not
        siteA/1.png, though /films/siteA/1.png may be. If a table names folders above these that
        differ, they must be those that the pictures really lie in.
        """
        name = _plain(cell)
        if name in self.files:
            return name
        *folders, last = name.split("/")
        for way, key in zip(self.ways, (last, last, last.lower()), strict=True):
            deep = {
                own: _together(folders, [*self.above, *own.split("/")[:-1]])
                for own in way.get(key, ())
            }
            possible = {own: depth for own, depth in deep.items() if depth is not None}
            if possible:
                most = max(possible.values())
                best = [own for own, depth in possible.items() if depth == most]
                return best[0] if len(best) == 1 else ""
        return None


def _plain(cell: str) -> str:
    """A path as other systems write it, in our way."""
    return cell.replace("\\", "/").removeprefix("./")


def _together(one: list[str], other: list[str]) -> int | None:
    """How many folders two paths share at their ends, as far as both go; None if they differ.

    >>> _together(["films", "a"], ["a"]), _together([], ["a"]), _together(["b"], ["a"])
    (1, 0, None)
    """
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    return len(pairs) if all(a == b for a, b in pairs) else None
