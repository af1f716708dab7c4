"""Films as pixels: read from pictures, shrunk, and kept in a cache that is whole or not there."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from unmasked.errors import InputError, OutputError

_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # whose pixels are bytes
_KEPT = re.compile(r"chest-xray-\d+-[0-9a-f]{16}\.npz")
_FORMAT = 1  # of the cache; raise it when films are shrunk in another way


def read_films(
    sources: list[Path] | list[bytes],
    size: int,
    folder: Path | None,
    progress: bool | Literal["auto"],
    kind: str,
) -> tuple[NDArray[np.uint8], dict[int, str], list[str]]:
    """Pixels (films, size, size), why some have none, by row, and what there is to say about it.

    What was read is kept in ``folder``, in place of what was kept there of the same ``kind``: films
    that have changed since. What could not be read is tried again the next time.
    """
    shape = (len(sources), size, size)
    file = key = None
    pixels, read = np.zeros(shape, np.uint8), np.zeros(len(sources), bool)
    if folder is not None:
        key = _fingerprint(sources, size)
        file = folder / f"chest-xray-{size}-{key[:16]}.npz"
        pixels, read = _from_cache(file, key, shape) or (pixels, read)
    reasons: dict[int, str] = {}
    before, todo = read.sum(), np.flatnonzero(~read).tolist()
    with file_bar(len(todo), progress, "films") as advance, threads() as pool:
        films = pool.map(lambda i: _film(sources[i], size), todo)
        for i, film in zip(todo, films, strict=True):
            if isinstance(film, str):
                reasons[i] = film
            else:
                pixels[i], read[i] = film, True
            advance()
    remarks = []
    if file is not None and key is not None and read.sum() > before:
        failed = _to_cache(file, key, pixels, read, kind)
        if failed is None:
            _forget_others(file, kind)
        else:
            remarks.append(
                f"the shrunken films could not be kept in {file.parent.resolve().name} ({failed}), "
                "so they will be read again the next time; make room for them there or, in Python, "
                "name another folder with `chest_xray(…, cache=)`."
            )
    return pixels, reasons, remarks


def _film(source: Path | bytes, size: int) -> NDArray[np.uint8] | str:
    """The grey pixels (size, size) of one film, or why there are none."""
    from PIL import Image, UnidentifiedImageError  # comes with matplotlib

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            if image.width != image.height:
                return f"is {image.width} × {image.height} pixels, not square"
            if image.mode not in _MODES:
                return f"has pixels of the kind {image.mode!r}, not of 8 bits"
            film = image.convert("RGBA") if image.mode == "P" else image
            film = film.convert("L")
            if film.width != size:  # each new pixel is a weighted mean of all that it covers
                film = film.resize((size, size), Image.Resampling.LANCZOS)
            return np.array(film)
    except UnidentifiedImageError:
        return "is no picture"
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and others
        return f"cannot be read ({why(error)})"


def why(error: Exception) -> str:
    """What an error says, in a few words."""
    said = getattr(error, "strerror", None) or str(error).split("\n")[0].split(". ")[0]
    return str(said).rstrip(".") or type(error).__name__


@contextmanager
def threads(most: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """For work on many files; what waits is dropped where the work ends early."""
    pool = ThreadPoolExecutor(most)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def shown(show: bool | Literal["auto", "lines"]) -> bool | Literal["lines"]:
    """How to show progress: as asked, or a bar where somebody watches."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules if show == "auto" else show


@contextmanager
def file_bar(
    total: int, show: bool | Literal["auto", "lines"], what: str, doing: str = "reading"
) -> Iterator[Callable[[], None]]:
    """A progress bar over files, or a line; silent where nobody watches. Gives what to call after
    each."""
    show = shown(show)
    if show == "lines" and total:
        print(f"{doing} {total:,} {what}", file=sys.stderr, flush=True)
    if show is not True or not total:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from unmasked.bars import progress_bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with progress_bar(*columns) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda: bar.advance(task)


# ---------------------------------------------------------------------- the cache


def made_folder(cache: Path) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the cache {cache} must be a folder but cannot be made ({error.strerror}); in Python, "
            "name another with `chest_xray(…, cache=)`."
        ) from error
    return cache


def _fingerprint(sources: Sequence[Path | bytes], size: int) -> str:
    """Of the films' names, lengths and times, in their order, and how they are shrunk."""
    stamps: list[Any] = [_FORMAT, int(size)]
    for path in sources:
        if isinstance(path, Path):
            with suppress(OSError):  # what is gone cannot be read either
                state = path.stat()
                stamps.append([path.name, state.st_size, state.st_mtime_ns])
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()


def _from_cache(
    file: Path, key: str, shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]] | None:
    """Pixels (films, size, size) and which of them were read, (films,); None if not as written."""
    wanted = {"key": ("text", 0), "pixels": ("bytes", 3), "read": ("true and false", 1)}
    try:
        arrays = read_arrays(file, wanted)
    except InputError:  # none, or a damaged one
        return None
    pixels, read = arrays["pixels"], arrays["read"]
    if arrays["key"] != key or pixels.shape != shape or len(read) != shape[0]:
        return None
    return pixels, read


def _to_cache(
    file: Path, key: str, pixels: NDArray[np.uint8], read: NDArray[np.bool_], kind: str
) -> str | None:
    """Write the cache, whole or not at all; why it could not be."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as handle:
            np.savez(handle, key=np.array(key), pixels=pixels, read=read, kind=np.array(kind))
        os.replace(part, file)
    except OSError as error:
        return why(error)
    finally:
        with suppress(OSError):
            part.unlink()
    return None


def _forget_others(file: Path, kind: str) -> None:
    """Remove caches of the same kind beside a new one, which nobody will read again."""
    for path in file.parent.glob("chest-xray-*.npz"):
        if _KEPT.fullmatch(path.name) and path != file:
            with suppress(InputError, OSError):  # an earlier version's, which does not say its kind
                if read_arrays(path, {"kind": ("text", 0)})["kind"] == kind:
                    path.unlink()


_KINDS = {
    "bytes": "u",
    "whole numbers": "iub",
    "numbers": "iuf",
    "true and false": "b",
    "text": "U",
}


def read_arrays(path: Path, wanted: dict[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file, each of the kind and the number of dimensions that are wanted."""
    result = {}
    try:
        with open(path, "rb") as file:
            numpys = file.read(6) == b"\x93NUMPY"
            if not numpys and not is_zipfile(file):  # numpy takes anything else for pickled data
                raise ValueError("it is none, or only the beginning of one")
            file.seek(0)
            content = np.load(file, allow_pickle=False)
            there = content.files if isinstance(content, NpzFile) else []
            missing = [name for name in wanted if name not in there]
            if missing:
                raise InputError(
                    f"{path} must hold the arrays {', '.join(wanted)} but has no "
                    f"{', '.join(missing)}; name a file of this form."
                )
            for name, (kind, dimensions) in wanted.items():
                values = result[name] = content[name]
                wide = kind == "bytes" and values.dtype != np.uint8
                if values.dtype.kind not in _KINDS[kind] or wide or values.ndim != dimensions:
                    raise InputError(
                        f"{path} must hold {kind} in {dimensions} dimension(s) as {name!r} but "
                        f"holds {values.dtype} of shape {values.shape}; name a file of this form."
                    )
    except InputError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} must be an .npz file of plain arrays but cannot be read ({why(error)}); "
            "check the path or fetch it again."
        ) from error
    return result
