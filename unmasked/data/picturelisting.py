"""Which files lie in a folder of pictures, and what to call them."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from unmasked.data.films import why
from unmasked.data.picturefiles import SUFFIXES, kind_of
from unmasked.data.picturelabels import Skipped
from unmasked.errors import InputError


@dataclass(frozen=True)
class FolderFiles:
    """What lies in a folder and the folders in it, in order.

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
