"""Read MNIST: 70,000 handwritten digits of 28 × 28 pixels (LeCun, Cortes and Burges).

::

    0  0  type  dimensions | a big-endian 32-bit size for each dimension | the values

The type of MNIST's files is 8, an unsigned byte; no other is read.

From a folder of the four idx files, which may hold another set of the same format, such as
Fashion-MNIST; or downloaded once, checked and cached.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmasked.checks import is_whole
from unmasked.errors import InputError, MissingExtra, OutputError

_GZIP = b"\x1f\x8b"
_BYTE = 8
_OTHERS = {9: "int8", 11: "int16", 12: "int32", 13: "float32", 14: "float64"}
_MOST_DIMENSIONS = 32  # what every version of numpy takes


def read_idx(path: str | Path) -> NDArray[np.uint8]:
    """The array in an idx file of unsigned bytes, read-only, of whichever shape its header says.

    Whether the file is gzipped is decided by how it begins, not by its name.
    """
    path = Path(path)
    content = _unpacked(path)
    if not content:
        raise InputError(f"{path} must be an idx file but is empty; fetch it again.")
    kind, dimensions = content[2:4] if len(content) >= 4 else (0, 0)
    known = kind == _BYTE or kind in _OTHERS
    if content[:2] != b"\0\0" or not known or not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise InputError(
            f"{path} must be an idx file, which begins with the bytes 00 00 08 and the number of "
            f"dimensions, but begins with {content[:4].hex(' ')}; name MNIST's file or one of its "
            "format."
        )
    if kind != _BYTE:
        raise InputError(
            f"{path} must hold unsigned bytes (type 8) but holds {_OTHERS[kind]} (type {kind}); "
            "convert it to unsigned bytes."
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise InputError(
            f"{path} must have a header of {start} bytes for its {dimensions} dimensions but ends "
            f"after {len(content)} bytes; fetch it again."
        )
    shape = tuple(np.frombuffer(content, ">u4", dimensions, 4).tolist())
    here, expected = len(content) - start, math.prod(shape)
    if here != expected:
        raise InputError(
            f"{path} must hold {expected:,} bytes after its header, which says {shape}, but holds "
            f"{here:,}: it is {'cut short' if here < expected else 'longer than it says'}; "
            "fetch it again."
        )
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError as error:  # nothing in one dimension, too much in the others
        raise InputError(
            f"{path} must hold an array that fits in memory but its header says {shape}; "
            "fetch it again."
        ) from error


def _unpacked(path: Path) -> bytes:
    """All bytes of a file, unpacked if they are gzipped."""
    if path.is_dir():
        raise InputError(f"{path} must be an idx file but is a folder; name the file in it.")
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"{path} must be an idx file but does not exist; check the path."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} must be an idx file but cannot be read ({error.strerror}); check its "
            "permissions."
        ) from error
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path} must be a whole gzip file but is damaged ({error}); fetch it again."
        ) from error


MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
"""Where the gzipped files are fetched from, tried in this order."""

# Of the .gz files as the mirrors have them: gzip -6, packed in 1996 and 1998. Packed in another
# way, the same digits have other checksums.
SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

_TRAIN, _TEST, _SIDE, _CLASSES = 60_000, 10_000, 28, 10
_OWN_FILES = "name a folder that has the files with folder= (in a command: --data FOLDER)"


class Images(NamedTuple):
    """Images with their labels.

    x : (images, 1, 28, 28) float32, 0 = background, 1 = full ink. y : (images,) digits 0 to 9.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]


@dataclass(frozen=True)
class Mnist:
    """Images to train on, to validate on and to test on, none of them in two parts."""

    train: Images
    valid: Images
    test: Images


def mnist(folder: str | Path | None = None, *, validation: int = 5_000, seed: int = 0) -> Mnist:
    """MNIST from the files in ``folder``, or downloaded where no folder is named.

    ``validation`` of the 60,000 training images, drawn by ``seed``, are held out to validate on.
    Images stay in the order of the files. The 10,000 test images are always the same.

    A folder's files are MNIST's four, each with or without ``.gz``. What is downloaded is kept in
    the user's cache, and needs ``pip install "unmasked[data]"``.
    """
    _check_whole("validation", validation, 1, _TRAIN - 1)
    _check_whole("seed", seed, 0, None)
    files = _fetched() if folder is None else _found(Path(folder))
    pixels, labels = _read(files, "train", _TRAIN)
    order = np.random.default_rng(seed).permutation(_TRAIN)
    held_out, rest = np.sort(order[:validation]), np.sort(order[validation:])
    return Mnist(
        train=_images(pixels[rest], labels[rest]),
        valid=_images(pixels[held_out], labels[held_out]),
        test=_images(*_read(files, "t10k", _TEST)),
    )


def _check_whole(name: str, value: int, least: int, most: int | None) -> None:
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"from {least:,} to {most:,}" if most is not None else f"of at least {least}"
        raise InputError(f"{name} must be a whole number {limits} but is {value!r}.")


def _images(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Images:
    """Pixels (images, 28, 28) and labels (images,), both bytes -> Images."""
    x = np.divide(pixels[:, None], np.float32(255), dtype=np.float32)  # (images, 1, 28, 28)
    return Images(x, labels.astype(np.int64))


def _read(
    files: dict[str, Path], part: str, count: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pixels (count, 28, 28) and labels (count,) of the part "train" or "t10k", checked."""
    path = files[f"{part}-images-idx3-ubyte"]
    pixels, expected = read_idx(path), (count, _SIDE, _SIDE)
    if pixels.shape != expected:
        colour = " and may be in colour" if pixels.ndim == 4 else ""
        raise InputError(
            f"{path} must hold {count:,} grey images of {_SIDE} × {_SIDE} pixels, {expected}, but "
            f"holds {pixels.shape}{colour}; name MNIST's file or one of its format."
        )
    path = files[f"{part}-labels-idx1-ubyte"]
    labels = read_idx(path)
    if labels.shape != (count,):
        raise InputError(
            f"{path} must hold one label for each of the {count:,} images, {(count,)}, but holds "
            f"{labels.shape}; name the labels that belong to the images."
        )
    if labels.max() >= _CLASSES:
        raise InputError(
            f"{path} must hold labels from 0 to {_CLASSES - 1} but holds {labels.max()}; "
            "name MNIST's file or one of its format."
        )
    return pixels, labels


# ---------------------------------------------------------------------- where the files are


def _found(folder: Path) -> dict[str, Path]:
    """The four files in a folder, under any of their usual names."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"MNIST's folder {folder} must be a folder but {what}; check the path.")
    return {name: _find(folder, name) for name in SHA256}


def _find(folder: Path, name: str) -> Path:
    """A file such as train-images-idx3-ubyte, train-images.idx3-ubyte, either with .gz or not."""
    names = (name, name.replace("-idx", ".idx"))
    usual = [folder / (n + end) for n in names for end in ("", ".gz")]
    # files before folders: some archives unpack to train-images-idx3-ubyte/ beside the file
    here = sorted((path for path in usual if path.exists()), key=Path.is_dir)
    if not here:
        raise InputError(
            f"the folder {folder} must hold MNIST's four files but {name} (or {name}.gz) is "
            "missing; add it or name another folder."
        )
    return here[0]


def _fetched() -> dict[str, Path]:
    """The four files in the cache, downloaded if they are not there or not as they should be."""
    try:
        pooch = import_module("pooch")
    except ImportError as error:
        raise MissingExtra("pooch", "data", "downloading MNIST") from error
    cache = Path(pooch.os_cache("unmasked")) / "mnist"
    return {name: _fetch(pooch, f"{name}.gz", digest, cache) for name, digest in SHA256.items()}


def _fetch(pooch: Any, name: str, digest: str, cache: Path) -> Path:
    """One file from the first mirror that has it right; pooch keeps nothing that is not."""
    refused = import_module("requests").RequestException
    whole = pooch.HTTPDownloader(stream=False)  # a stream that fails leaves its socket open
    absent: Exception | None = None
    different: Exception | None = None
    for mirror in MIRRORS:
        try:
            kept = pooch.retrieve(
                mirror + name, f"sha256:{digest}", fname=name, path=cache, downloader=whole
            )
            return Path(kept)
        except refused as error:  # before the others: some of these are ValueErrors, all OSErrors
            absent = error
        except ValueError as error:
            different = error
        except OSError as error:
            raise OutputError(
                f"{name} must be kept in {cache} but cannot be written there "
                f"({error.strerror or type(error).__name__}); make room or set its permissions, "
                f"or {_OWN_FILES}."
            ) from error
    if different is not None:
        raise InputError(
            f"{name} as downloaded must have the SHA256 checksum {digest} but has another, so it "
            f"was thrown away; try again on another network, or {_OWN_FILES}."
        ) from different
    raise InputError(
        f"{name} could not be fetched from {' or '.join(MIRRORS)} ({type(absent).__name__}); "
        f"check the network, or {_OWN_FILES}."
    ) from absent
