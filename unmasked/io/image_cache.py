"""Shrunken pictures on disk: read once from their files, then mapped.

``pictures-SIZE-KEY.npy`` holds (pictures, channels, size, size); ``….json`` beside it says why
some could not be read. KEY is a digest of the files' names, lengths and times and of the plan. The
file appears when it is complete. Until then its first part lies beside it, and a reading that was
killed goes on behind that part. One run at a time reads; others that want the same file wait for it
(``….lock``).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from unmasked.datasets.films import file_bar, shown, threads, why
from unmasked.errors import OutputError
from unmasked.io.image_files import Plan, read

_FORMAT = 2  # raise it when pictures are read or shrunk in another way
_SECONDS_BETWEEN_NOTES = 2.0
_AT_ONCE = 256  # pictures that are handed to the readers in one go, so that few wait in memory


def cached_pictures(
    paths: Sequence[Path],
    names: Sequence[str],
    plan: Plan,
    folder: Path,
    progress: bool | Literal["auto", "lines"] = "auto",
) -> tuple[NDArray[Any], dict[int, str], Path]:
    """Pixels (pictures, channels, size, size), mapped; why some have none, by row; their file.

    Pictures without pixels are black.
    """
    key = _key(paths, names, plan)
    file = folder / f"pictures-{plan.size}-{key[:16]}.npy"
    found = _complete(file, key, paths, plan)
    if found is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _only_reader(file, progress):
                found = _complete(file, key, paths, plan)  # another run may have just made it
                if found is None:
                    _fill(file, key, paths, plan, progress)
        except OSError as error:
            raise OutputError(
                f"the shrunken pictures cannot be kept in {folder} ({why(error)}); free some space "
                "or name another folder with --cache."
            ) from error
        found = found or _complete(file, key, paths, plan, retry=False)
        if found is None:
            raise OutputError(
                f"the shrunken pictures in {file} are not as they were written; check the disk."
            )
    return (*found, file)


@contextmanager
def _only_reader(file: Path, progress: bool | Literal["auto", "lines"]) -> Iterator[None]:
    """Wait until no other run writes this file: two would cut off what the other has written.

    The lock lies beside the file, as runs of other machines may share the folder; a run that is
    killed leaves it open. Where nothing can be locked, runs are not kept apart.
    """
    from filelock import FileLock, Timeout

    path = file.with_suffix(".lock")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if shown(progress):
            print(
                f"another run reads the same pictures into {file.parent}; waiting until it ends",
                file=sys.stderr,
                flush=True,
            )
        lock.acquire(timeout=-1)
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
        with suppress(OSError):
            path.unlink()  # who waits for it finds the pictures complete
    finally:
        lock.release()


def _key(paths: Sequence[Path], names: Sequence[str], plan: Plan) -> str:
    stamps: list[Any] = [_FORMAT, asdict(plan)]
    for path, name in zip(paths, names, strict=True):
        state = (0, 0)
        with suppress(OSError):  # what is gone cannot be read either
            state = (path.stat().st_size, path.stat().st_mtime_ns)
        stamps.append([name, *state])
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()


def _note(file: Path) -> Path:
    return file.with_suffix(".json")


def _complete(
    file: Path, key: str, paths: Sequence[Path], plan: Plan, *, retry: bool = True
) -> tuple[NDArray[Any], dict[int, str]] | None:
    """A finished file, as it was written; None without one, or if more can be read by now."""
    said = _said(_note(file), key)
    if said is None:
        return None
    try:
        pixels = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if pixels.shape != (len(paths), *plan.shape) or pixels.dtype != plan.dtype:
        return None
    if retry and any(not isinstance(read(paths[i], plan), str) for i in said):
        return None  # such as after a network drive that was gone
    return pixels, said


def _said(note: Path, key: str) -> dict[int, str] | None:
    """Why pictures could not be read, as a note has it; None if it is no note of this key."""
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        if content["key"] != key:
            return None
        return {int(row): str(reason) for row, reason in content["reasons"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fill(
    file: Path,
    key: str,
    paths: Sequence[Path],
    plan: Plan,
    progress: bool | Literal["auto", "lines"],
) -> None:
    """Read all pictures in their order into a file that is then renamed, and its note after it."""
    part = file.with_suffix(".part")
    note = part.with_suffix(".part.json")
    shape = (len(paths), *plan.shape)
    each = int(np.prod(plan.shape)) * plan.dtype.itemsize
    with open(part, "r+b" if part.exists() else "w+b") as handle:
        start = _header(handle, shape, plan)
        done, reasons = _resumed(handle, note, key, start, each, len(paths))
        handle.truncate(start + done * each)
        handle.seek(start + done * each)
        noted = time.monotonic()
        with file_bar(len(paths), progress, "pictures") as advance:
            for _ in range(done):
                advance()
            for row, pixels in _in_order(paths, done, plan, advance):
                if isinstance(pixels, str):
                    reasons[row] = pixels
                    pixels = np.zeros(plan.shape, plan.dtype)
                handle.write(np.ascontiguousarray(pixels).tobytes())
                if time.monotonic() - noted > _SECONDS_BETWEEN_NOTES:
                    _keep(handle, note, key, row + 1, reasons)
                    noted = time.monotonic()
        _keep(handle, note, key, len(paths), reasons)
    _note(file).unlink(missing_ok=True)  # it is of pixels that go: better none than a wrong one
    os.replace(part, file)
    os.replace(note, _note(file))


def _in_order(paths: Sequence[Path], done: int, plan: Plan, advance: Callable[[], None]) -> Any:
    """(row, pixels or why there are none) of each picture from row ``done`` on."""
    with threads() as pool:
        for start in range(done, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            for row, pixels in enumerate(pool.map(lambda path: read(path, plan), some), start):
                advance()
                yield row, pixels


def _header(handle: BinaryIO, shape: tuple[int, ...], plan: Plan) -> int:
    """Write the head of an .npy file; where the pixels begin."""
    handle.seek(0)
    np.lib.format.write_array_header_2_0(
        handle,
        {"descr": np.lib.format.dtype_to_descr(plan.dtype), "fortran_order": False, "shape": shape},
    )
    return handle.tell()


def _resumed(
    handle: BinaryIO, note: Path, key: str, start: int, each: int, total: int
) -> tuple[int, dict[int, str]]:
    """Return how many pictures an earlier reading left, and why some of them have no pixels."""
    reasons = _said(note, key)
    if reasons is None:
        return 0, {}
    done = int(json.loads(note.read_text(encoding="utf-8")).get("done", 0))
    there = (handle.seek(0, os.SEEK_END) - start) // each
    return (done, reasons) if 0 <= done <= min(there, total) else (0, {})


def _keep(handle: BinaryIO, note: Path, key: str, done: int, reasons: dict[int, str]) -> None:
    """Write what was read so far to the disk, and only then the note that says so."""
    handle.flush()
    os.fsync(handle.fileno())
    content = {"key": key, "done": done, "reasons": reasons}
    temporary = note.with_name(f"{note.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, note)
