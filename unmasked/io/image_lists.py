"""List the files of a folder of pictures, and read the table of their labels."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pandas as pd

from unmasked.datasets.films import why
from unmasked.errors import InputError
from unmasked.inputs.table import nearest
from unmasked.io.image_files import NO_PICTURE, SUFFIXES, kind_of
from unmasked.io.tables import read_table


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder and of the folders in it, in order.

    pictures : by their names, paths below the folder. others : names of files that are none.
    skipped : folders and links behind which there may be pictures, but nothing can be read.
    """

    pictures: dict[str, Path]
    others: list[str]
    skipped: list[Skipped]


def list_pictures(folder: Path) -> FolderFiles:
    """All PNG, JPEG and DICOM files below a folder; links to other folders are followed.

    What begins with a dot is not looked at.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"{folder} must be a folder of pictures but {what}; check the path.")
    pictures: dict[str, Path] = {}
    others: list[str] = []
    paths, skipped = _below(folder)
    for name, path in _by_name(folder, sorted(paths)).items():
        if path.is_file():
            if kind_of(path) == "other":
                others.append(name)
            else:
                pictures[name] = path
        elif path.is_symlink() and path.suffix.lower() in SUFFIXES:
            skipped.append(Skipped(name, "is a link to a file that is not there"))
    if not pictures:
        reasons = f" ({skipped[0].file} {skipped[0].reason})" if skipped else ""
        raise InputError(
            f"the folder {folder} must hold PNG, JPEG or DICOM pictures but holds none{reasons}; "
            "name another folder."
        )
    return FolderFiles(pictures, others, skipped)


def _below(folder: Path) -> tuple[list[Path], list[Skipped]]:
    """Files below a folder, each once however links lead to it; and folders that stay closed."""
    skipped: list[Skipped] = []

    def closed(error: OSError) -> None:
        where = Path(os.fsdecode(error.filename)).relative_to(folder)
        skipped.append(Skipped(_called(where), f"is a folder that cannot be read ({why(error)})"))

    paths: list[Path] = []
    seen = {folder.resolve()}
    for here, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        paths += [Path(here, name) for name in names if not name.startswith(".")]
        entered = []
        for name in sorted(folders):
            path = Path(here, name)
            if name.startswith("."):
                continue
            if path.is_symlink():
                target = path.resolve()
                if target.is_relative_to(folder.resolve()) or target in seen:
                    continue  # its files are listed where they are
                seen.add(target)
            entered.append(name)
        folders[:] = entered
    return paths, skipped


def _by_name(folder: Path, paths: list[Path]) -> dict[str, Path]:
    """Files by their readable names; where one name is written in two ways, the other as it is."""
    below = [path.relative_to(folder) for path in paths]
    used = {own.as_posix() for own in below if _called(own) == own.as_posix()}
    found = {}
    for own, path in zip(below, paths, strict=True):
        name = _called(own)
        if name != own.as_posix() and name in used:
            name = os.fsencode(own).decode(errors="backslashreplace")
        used.add(name)
        found[name] = path
    return found


def _called(below: Path) -> str:
    return "/".join(readable(part) for part in below.parts)


def readable(name: str) -> str:
    """A file's name as people write it: as one sign what some systems store as letter and accent,
    and bytes of an old archive that are no UTF-8 as Latin-1.

    >>> readable("Mu\\u0308ller.png") == readable("M\\udcfcller.png") == "M\\u00fcller.png"
    True
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        name = os.fsencode(name).decode("latin-1")
    return unicodedata.normalize("NFC", name)


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
    lines: dict[str, set[str]] = field(default_factory=dict)
    """Labels of the table by what `Skipped` calls a picture."""

    @property
    def empty(self) -> list[str]:
        """Classes without a picture."""
        return sorted(set(self.classes) - set(self.labels or ()))

    def skipped_of(self, label: str) -> list[Skipped]:
        """List the skipped files that the table gives this label."""
        return [one for one in self.skipped if label in self.lines.get(one.file, ())]

    def keep(self, rows: list[int]) -> Listing:
        """Some of the pictures."""
        return Listing(
            [self.paths[i] for i in rows],
            [self.names[i] for i in rows],
            None if self.labels is None else [self.labels[i] for i in rows],
            None if self.groups is None else [self.groups[i] for i in rows],
            list(self.skipped),
            self.classes,
            self.lines,
        )


def read_labels(
    table: Path,
    files: dict[str, Path],
    *,
    others: Sequence[str] = (),
    skipped: Sequence[str] = (),
    image_column: str | None = None,
    label_column: str | None = None,
    group: str | None = None,
) -> Listing:
    """The pictures of a folder, ``files`` by name, that a table has labels for, in its order.

    A cell names a picture by its path below the folder, by its file name alone, or without its
    ending, wherever only one picture is meant. ``others`` are files that are no such pictures, and
    ``skipped`` those of which it is said already why they are left out.
    """
    content = read_table(table, as_written=True)
    columns = list(content.columns)
    if len(columns) == 1:
        text = table.suffix.lower() != ".parquet"
        raise InputError(
            f"{table} must have a column of file names and one of labels but has one column, "
            f"{columns[0][:80]!r}"
            + (
                ", so it is probably separated by something other than commas, semicolons or tabs; "
                "save it with commas."
                if text
                else "; add the other."
            )
        )
    if image_column is None and label_column is None:
        _check_header(columns, files, table)
    image, label = _columns(content, files, table, image_column, label_column)
    _check_columns(columns, table, image, label, group)
    known, unusable, done = _Names(files), _only_names(others), _only_names(skipped)
    cells = [cell.strip() for cell in content[image]]
    known.learn(cells)
    meant = [known.find(cell) for cell in cells]
    own = [value.strip() for value in content[label]]
    whose = [""] * len(own) if group is None else [value.strip() for value in content[group]]
    if all(name is None for name in meant):
        _check_names(cells, (unusable, done), files, table, image)
    absent = [Skipped(name, f"has no line in {table.name}") for name in sorted({*files} - {*meant})]
    said, left_out = _said(meant, own, whose, table, label, group)
    return Listing(
        [files[name] for name in said],
        list(said),
        [values[0] for values in said.values()],
        None if group is None else [values[1] for values in said.values()],
        [*_without_file(cells, meant, unusable, done, table), *left_out, *absent],
        tuple(sorted({*own} - {""})),
        _lines(
            cells,
            [name or done.find(cell) for cell, name in zip(cells, meant, strict=True)],
            own,
            table,
        ),
    )


def _check_columns(
    columns: list[str], table: Path, image: str, label: str, group: str | None
) -> None:
    """Columns that are used must be there once, and be different ones."""
    if group is not None and group not in columns:
        raise InputError(f"{table} has no column {group!r}; {nearest(group, columns)}")
    if group in (image, label) or image == label:
        raise InputError(
            f"image, label and group must be different columns of {table} but are {image!r}, "
            f"{label!r} and {group!r}; name others."
        )
    for name in (image, label, group):
        if name is not None and columns.count(name) > 1:
            raise InputError(
                f"the column {name!r} must come once in {table} but comes {columns.count(name)} "
                "times; rename or remove the others."
            )


def _lines(
    cells: Sequence[str], meant: Sequence[str | None], labels: Sequence[str], table: Path
) -> dict[str, set[str]]:
    """Collect the labels that come with each picture, or with a cell that means none."""
    found: dict[str, set[str]] = {}
    for row, (cell, name, label) in enumerate(zip(cells, meant, labels, strict=True), 1):
        found.setdefault(name or cell or _nameless(row, table), set()).add(label)
    return found


def _nameless(row: int, table: Path) -> str:
    return f"row {row} below the header of {table.name}"


def _without_file(
    cells: Sequence[str], meant: Sequence[str | None], unusable: _Names, done: _Names, table: Path
) -> list[Skipped]:
    """Lines that mean no picture, or more than one; without those that are ``done``."""
    skipped = []
    for row, (cell, name) in enumerate(zip(cells, meant, strict=True), 1):
        if not cell:
            skipped.append(Skipped(_nameless(row, table), "names no picture"))
        elif name == "":
            skipped.append(Skipped(cell, "stands for more than one picture in the folder"))
        elif name is None and done.find(cell) is not None:
            continue
        elif name is None and unusable.find(cell) is not None:
            skipped.append(Skipped(cell, NO_PICTURE))
        elif name is None:
            skipped.append(Skipped(cell, f"is listed in {table.name} but is not in the folder"))
    return skipped


def _said(
    meant: Sequence[str | None],
    labels: Sequence[str],
    groups: Sequence[str],
    table: Path,
    label: str,
    group: str | None,
) -> tuple[dict[str, tuple[str, str]], list[Skipped]]:
    """Each picture's label and group, first come; and the pictures of which they cannot be told."""
    said: dict[str, tuple[str, str]] = {}
    reasons: dict[str, str] = {}
    for name, own, whose in zip(meant, labels, groups, strict=True):
        if not name:
            continue
        if said.setdefault(name, (own, whose)) != (own, whose):
            reasons[name] = f"comes more than once in {table.name}, differently"
        elif not own or (group is not None and not whose):
            reasons.setdefault(name, f"has no {group if own else label} in {table.name}")
    skipped = [Skipped(name, reasons[name]) for name in sorted(reasons)]
    return {name: said[name] for name in said if name not in reasons}, skipped


def _check_names(
    cells: Sequence[str],
    unusable: Sequence[_Names],
    files: dict[str, Path],
    table: Path,
    image: str,
) -> None:
    """A column of which no cell names a file is hardly the one that is meant."""
    names = list(dict.fromkeys(cell for cell in cells if cell))
    if not names or any(own.find(cell) is not None for own in unusable for cell in names):
        return
    first, path = next(iter(files.items()))
    many = f"none of the {len(names):,} names" if len(names) > 1 else "the only name"
    raise InputError(
        f"{many} in column {image!r} of {table} is {'a' if len(names) > 1 else 'not a'} picture of "
        f"{path.parents[first.count('/')]}: the table has {names[0]!r}, the folder {first!r}; "
        "correct them, or name another column with --image-column."
    )


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
            label = next((name for name in columns if name != image), None)
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
    """The column most of whose cells name pictures; None if there is none, or two alike.

    Names with their endings count before those without: 0, 1, … may number the rows.
    """
    known, whole = _Names(files), {PurePosixPath(name).name.lower() for name in files}

    def shares(cells: pd.Series) -> tuple[float, float]:
        named = [_plain(cell.strip()) for cell in cells if known.find(cell.strip())]
        ending = sum(name.split("/")[-1].lower() in whole for name in named)
        return ending / len(content), len(named) / len(content)

    found = {str(name): shares(cells) for name, cells in content.items()}
    (best, most), *others = sorted(found.items(), key=lambda item: item[1], reverse=True)
    alike = bool(others) and others[0][1] == most
    return best if most[1] > 0.5 and not alike else None


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
        """Note where the explained folder really lies if cells name different folders above it."""
        named = set()
        for cell in cells:
            found = self.find(cell.strip())
            *folders, _ = _plain(cell.strip()).split("/")
            below = found.count("/") if found else 0
            if found and len(folders) > below:
                named.add(tuple(folders[: len(folders) - below]))
        if len(named) > 1:
            name, path = next(iter(self.files.items()))
            above = path.parents[name.count("/")].resolve().parts
            self.above = tuple(unicodedata.normalize("NFC", part) for part in above)

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


def _only_names(names: Iterable[str]) -> _Names:
    """For files of which no more than the name is needed."""
    return _Names({name: Path(name) for name in names})


def _plain(cell: str) -> str:
    """A path as other systems write it, in our way; accents as in `picturelisting.readable`."""
    return unicodedata.normalize("NFC", cell.replace("\\", "/").removeprefix("./"))


def _together(one: list[str], other: list[str]) -> int | None:
    """Count the folders two paths share at their ends, as far as both go; None if they differ.

    >>> _together(["films", "a"], ["a"]), _together([], ["a"]), _together(["b"], ["a"])
    (1, 0, None)
    """
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    return len(pairs) if all(a == b for a, b in pairs) else None
