"""Whose is what lies in an output folder? Commands replace what they wrote, and nothing else.

A plain file under a name that a command writes is ours if ``results.json`` beside it is, or if a
run was broken off while it put its results in place. Of folders that commands fill (models,
overlays, masks, pictures of a study) a note says which files they put there; a folder with any
other file in it, such as the answers of a reader study or pictures drawn by hand, is not touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from unmasked.errors import OutputError
from unmasked.storage import saved_kind

NOTE = ".unmasked.json"
PART, OLD = ".unmasked.part", ".unmasked.old"
"""Inside an output folder: results that are not complete, and (a prefix) those they replace."""
RESULTS = "results.json"
_NOBODYS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # what systems put into folders unasked
_NOBODYS_BEGIN = ("._", ".nfs")


def check_ours(folder: Path, names: Iterable[str]) -> None:
    """Refuse to write ``names`` into a folder where one of them is not known to be ours."""
    strange = next(_strange(folder, names), None)
    if strange is not None:
        raise OutputError(
            f"{strange} exists and is not known to be a result of unmasked, which would replace "
            "it; choose another folder with --out, or move it away."
        )


def _strange(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """What stands in the way and is not known to be ours."""
    noted = _noted(folder)
    ours = _is_results(folder / RESULTS) or any(left_over(folder))
    for name in names:
        path = folder / name
        if path.is_symlink():
            yield path
        elif path.is_dir():
            other = [own for own in _files(path) if _below(folder, own) not in noted]
            model = saved_kind(path) is not None and not any(_is_in(name, own) for own in noted)
            yield from () if model else other  # one that was saved before there were notes
        elif path.exists() and not ours:
            yield path


def note_folders(folder: Path, part: Path) -> None:
    """Say which files of ``part``'s folders will lie in ``folder``, beside those that do already.

    The note comes before the files, so that what is there is ours at every moment.
    """
    own = {_below(part, file) for path in part.iterdir() if path.is_dir() for file in _files(path)}
    if own:
        there = {name for name in _noted(folder) if (folder / name).exists()}
        new = part / NOTE
        new.write_text(json.dumps(sorted(own | there)), encoding="utf-8")
        os.replace(new, folder / NOTE)


def left_over(folder: Path) -> Iterator[Path]:
    """What runs that were killed while they put results in place have left of earlier ones."""
    return (path for path in folder.glob(f"{OLD}*") if path.is_dir())


def _files(folder: Path) -> Iterator[Path]:
    """Everything that somebody put into a folder and the folders in it."""
    for path in sorted(folder.rglob("*")):
        nobodys = path.name in _NOBODYS or path.name.startswith(_NOBODYS_BEGIN)
        if not nobodys and (path.is_symlink() or not path.is_dir()):
            yield path


def _below(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _is_in(name: str, path: str) -> bool:
    return path.startswith(f"{name}/")


def _noted(folder: Path) -> set[str]:
    try:
        content = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return set(map(str, content)) if isinstance(content, list) else set()


def _is_results(path: Path) -> bool:
    """Whether a file is a ``results.json`` of ours, of whatever version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"command", "version", "hardware"} <= content.keys()
