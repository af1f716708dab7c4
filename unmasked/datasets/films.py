"""List chest films, read their pixels, shrink them, and keep them in a cache."""

from __future__ import annotations

import csv
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
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from unmasked.errors import InputError, OutputError

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
    """Shorten an error to the system's message or its own first sentence, or else to its type."""
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
    """Resolve "auto" to a bar in a terminal or notebook, else to none; keep other choices."""
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

    from unmasked.plots.notebook import progress_bar

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
