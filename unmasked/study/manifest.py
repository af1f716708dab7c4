"""The manifest that a study is made from: a CSV with the columns image, method, mask.

One line for each image and method. Paths are relative to the CSV's folder and stay in it. ``case``
names a case (by default the image's path) and ``label`` is what is true of it; neither is ever
shown to readers.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, field
from pathlib import Path

from unmasked.errors import InputError

COLUMNS = ("image", "method", "mask")
INSIDE = Path("study") / "manifest.csv"
"""Where other commands of this package leave a manifest in their output folder."""


@dataclass
class SourceCase:
    """An image with one mask for each method, as files."""

    name: str
    image: Path
    label: str = ""
    masks: dict[str, Path] = field(default_factory=dict)


def find_manifest(folder: Path) -> Path:
    """The manifest in the output folder of another command."""
    path = folder / INSIDE
    if not os.path.isfile(path):  # noqa: PTH113  # False for names that are too long
        raise InputError(
            f"{folder!s:.200} must be the output of `reproduce cxr` or `explain-images`, which "
            f"holds {INSIDE}, but it does not; give your own list with --manifest."
        )
    return path


def read_manifest(path: Path, methods: list[str] | None = None) -> list[SourceCase]:
    """The cases of a manifest, in its order, each with all methods (or with those asked for)."""
    rows = _rows(path)
    root = path.parent.resolve()
    cases: dict[str, SourceCase] = {}
    known: dict[str, None] = {}  # methods in the order in which they first come
    for number, row in rows:
        values = {name: (row.get(name) or "").strip() for name in (*COLUMNS, "case", "label")}
        if not all(values[name] for name in COLUMNS):
            empty = next(name for name in COLUMNS if not values[name])
            raise InputError(f"line {number} of {path} must have a {empty} but it is empty.")
        method = values["method"]
        known[method] = None
        if methods is not None and method not in methods:
            continue
        image = _inside(root, values["image"], path, number)
        mask = _inside(root, values["mask"], path, number)
        name = values["case"] or values["image"]
        case = cases.setdefault(name, SourceCase(name, image, values["label"]))
        if case.image != image:
            raise InputError(
                f"the case {name!r} must have one image but line {number} of {path} gives it "
                f"another, {values['image']}."
            )
        if method in case.masks:
            raise InputError(
                f"the case {name!r} must have one mask for each method but line {number} of "
                f"{path} is its second for {method!r}."
            )
        case.masks[method] = mask
    wanted = list(known) if methods is None else methods
    _check_methods(path, wanted, list(known))
    for case in cases.values():
        if missing := [method for method in wanted if method not in case.masks]:
            raise InputError(
                f"every case of {path} must have a mask of every method but {case.name!r} has "
                f"none of {missing[0]!r}; add the line or leave the method out with --methods."
            )
        case.masks = {method: case.masks[method] for method in wanted}
    return list(cases.values())


def _rows(path: Path) -> list[tuple[int, dict[str, str | None]]]:
    """(line number, {column: text}) of each row."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            rows = [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise InputError(
            f"the manifest {path!s:.200} cannot be read ({error.strerror}); give a CSV with "
            f"{_wanted()}."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"the manifest {path} must be a CSV in UTF-8 but is not ({error})."
        ) from error
    if missing := [name for name in COLUMNS if name not in header]:
        raise InputError(
            f"the manifest {path} must have {_wanted()} but lacks {missing[0]!r}; it has "
            f"{', '.join(header) or 'nothing'}."
        )
    if not rows:
        raise InputError(f"the manifest {path} must list images but has no rows.")
    return rows


def _wanted() -> str:
    return f"the columns {', '.join(COLUMNS)}"


def _inside(root: Path, text: str, manifest: Path, number: int) -> Path:
    """A file named by the manifest, which must lie in the manifest's folder."""
    try:
        path = (root / text).resolve()
        there = path.is_file()
    except (OSError, ValueError) as error:  # names that no file can have
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"line {number} of {manifest} must name a file but names {text!r:.80} ({reason})."
        ) from None
    if not path.is_relative_to(root):
        raise InputError(
            f"line {number} of {manifest} must name a file inside the manifest's folder but "
            f"{text!r} leads outside; copy the file there."
        )
    if not there:
        raise InputError(f"line {number} of {manifest} names {text!r}, which does not exist.")
    return path


def _check_methods(path: Path, wanted: list[str], known: list[str]) -> None:
    for method in wanted:
        if method not in known:
            raise InputError(
                f"--methods must name methods of {path} ({', '.join(known)}) but has {method!r}."
            )
    if len(set(wanted)) != len(wanted) or not 2 <= len(wanted) <= 8:
        raise InputError(
            f"a study must compare 2 to 8 different methods but has {len(wanted)} "
            f"({', '.join(wanted)}); choose them with --methods."
        )
