"""Whose is what lies in an output folder? Commands replace what they wrote, and nothing else.

A plain file under a name that a command writes is ours if ``results.json`` beside it is, or if a
run was broken off while it put its results in place. Of folders that commands fill (overlays,
masks, pictures of a study) a note says which files they put there; a folder with any other file in
it, such as the answers of a reader study or pictures drawn by hand, is not touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from unmasked.errors import OutputError
from unmasked.storage import saved_kind

NOTE = ".unmasked.json"
PART, OLD = ".part", ".old"
"""Inside an output folder: results that are not complete, and those that they replace."""
RESULTS = "results.json"


def check_ours(folder: Path, names: Iterable[str]) -> None:
    """Refuse to write ``names`` into a folder where one of them is somebody else's."""
    strange = next(_strange(folder, names), None)
    if strange is not None:
        raise OutputError(
            f"{strange} exists and was not written by unmasked, which would replace it; choose "
            "another folder with --out, or move it away."
        )


def _strange(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """What stands in the way and is not ours."""
    noted = _noted(folder)
    ours = _is_results(folder / RESULTS) or any((folder / own).is_dir() for own in (PART, OLD))
    for name in names:
        path = folder / name
        if path.is_symlink():
            yield path
        elif path.is_dir():
            if saved_kind(path) is None:  # models are looked at by whoever saves them
                yield from (own for own in _files(path) if _below(folder, own) not in noted)
        elif path.exists() and not ours:
            yield path


def note_folders(folder: Path, part: Path) -> None:
    """Say which files of ``part``'s folders will lie in ``folder``, beside those that do already.

    The note comes before the files, so that what is there is ours at every moment.
    """
    own = {
        _below(part, file)
        for path in part.iterdir()
        if path.is_dir() and saved_kind(path) is None
        for file in _files(path)
    }
    if own:
        there = {name for name in _noted(folder) if (folder / name).exists()}
        new = part / NOTE
        new.write_text(json.dumps(sorted(own | there)), encoding="utf-8")
        os.replace(new, folder / NOTE)


def _files(folder: Path) -> Iterator[Path]:
    """Everything in a folder and the folders in it but the folders themselves."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path


def _below(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


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
