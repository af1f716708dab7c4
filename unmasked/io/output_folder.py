"""Write results so that they appear whole or not at all, and replace only what is ours.

A plain file under a name that a command writes is ours if ``results.json`` beside it is, or if a
run was broken off while it put its results in place. Of folders that commands fill (models,
overlays, masks, pictures of a study) a note says which files they put there; a folder with any
other file in it, such as the answers of a reader study or pictures drawn by hand, is not touched.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmasked import __version__
from unmasked.errors import OutputError
from unmasked.explainers.saving import check_replaceable, saved_kind

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
    """Yield the paths that stand in the way and are not known to be ours."""
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
    """Find earlier results left by runs that were killed while they put new ones in place."""
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
    """Return True if a file is a ``results.json`` of ours, of whatever version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"command", "version", "hardware"} <= content.keys()


MODELS = {"model": "RealX", "evaluator": "EvalX"}
"""Fitted objects that commands save in an output folder."""
CHECKPOINTS = ".checkpoint"
"""Folder, inside an output folder, where a command's running training is kept."""


def provenance(command: str) -> dict[str, Any]:
    """Record where figures come from: command, version, commit, hardware, Python and torch."""
    import torch

    hardware = f"{os.cpu_count()} CPU cores, {platform.machine()}"
    if torch.cuda.is_available():
        hardware += f", {torch.cuda.get_device_name(0)}"
    return {
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "hardware": hardware,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def to_json(value: Any) -> str:
    """JSON text; numbers that JSON cannot hold become null, and what is no text in a name, such as
    bytes of a path, is written as \\udcfc."""
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value


def prepare_folder(
    folder: Path, models: dict[str, str] | None = None, writes: Sequence[str] = (RESULTS,)
) -> None:
    """Make sure that a folder exists and can be written, before any work is done.

    ``models`` are the models that will be saved in it, {"name of folder": "kind"}, and ``writes``
    names of other files and folders: what is somebody else's is not overwritten.
    """
    try:
        os.fsencode(folder.resolve()).decode()
    except UnicodeDecodeError:  # safetensors reads no files there
        raise OutputError(
            f"the path of the output folder {folder} must be UTF-8 text but is not; choose another "
            "with --out."
        ) from None
    if os.path.exists(folder) and not folder.is_dir():  # noqa: PTH110
        raise OutputError(f"the output folder {folder} is a file; choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"the output folder {folder} cannot be written ({error.strerror or error}); "
            "choose another with --out."
        ) from error
    for name, kind in (models or {}).items():
        check_replaceable(folder / name, kind)
    check_ours(folder, [*writes, *(models or {})])


@contextmanager
def all_or_nothing(
    folder: Path, *, checked: bool = True, replaces: Sequence[str] = ()
) -> Iterator[Path]:
    """A place to write results in; they move into ``folder`` only when all are complete.

    ``results.json`` leaves first and comes last: where it is, everything else that this run wrote
    is there too, even if the moves are broken off. They are renames within one folder, which need
    no space. ``checked``: what is not known to be ours is not replaced. ``replaces``: names that go
    even where nothing new comes, such as pictures of earlier results.
    """
    part = folder / PART
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        items = sorted(part.iterdir(), key=lambda item: (item.name == RESULTS, item.name))
        gone = sorted({*replaces} - {item.name for item in items})
        if checked:
            _check_again(folder, [*gone, *(item.name for item in items)])
        note_folders(folder, part)
        _put_in_place(items, folder, gone)
        part.rmdir()
    except _InTheWay:
        raise
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OutputError):
            raise
        raise OutputError(
            f"the results cannot be written to {folder} ({error.strerror or error}); earlier "
            "results there are untouched."
        ) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


class _InTheWay(OutputError):
    """Something came in the way while the work was done, which stays where it is."""


def _check_again(folder: Path, names: Sequence[str]) -> None:
    try:
        check_ours(folder, names)
    except OutputError as error:
        raise _InTheWay(f"{error} The new results lie in {folder / PART}.") from error


def _put_in_place(items: Sequence[Path], folder: Path, gone: Sequence[str]) -> None:
    """Move what is new into the folder; what it replaces and ``gone`` go when all is there."""
    for path in left_over(folder):
        shutil.rmtree(path, ignore_errors=True)
    old = Path(tempfile.mkdtemp(prefix=OLD, dir=folder))
    try:
        for name in (*(item.name for item in reversed(items)), *gone):
            if os.path.lexists(folder / name):
                os.replace(folder / name, old / name)
        for item in items:
            os.replace(item, folder / item.name)
    except BaseException:
        for item in items:
            if not os.path.lexists(item):  # it came already
                os.replace(folder / item.name, item)
        for item in old.iterdir():
            os.replace(item, folder / item.name)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def checkpoint_folder(folder: Path, *contents: str | bytes, **settings: object) -> Path:
    """Return where a run keeps its training; runs of other data or settings keep it elsewhere.

    contents : what the run is about, such as the bytes of a table. settings : by name, all that
        decides what is learned; their representations tell them apart.
    """
    digest = hashlib.sha256()
    for part in (*contents, *(f"{name}={settings[name]!r};" for name in sorted(settings))):
        digest.update(part if isinstance(part, bytes) else part.encode())
    return folder / CHECKPOINTS / digest.hexdigest()[:12]


def remove_checkpoints(folder: Path, own: Path | None = None) -> None:
    """Forget the training behind results that are complete.

    ``own`` is the `checkpoint_folder` of the run that made them; the training of others is kept.
    """
    every = folder / CHECKPOINTS
    if own is not None:
        shutil.rmtree(own, ignore_errors=True)
        if every.is_dir() and any(path.is_dir() for path in every.iterdir()):
            return
    shutil.rmtree(every, ignore_errors=True)
