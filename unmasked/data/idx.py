"""Reads idx files, the format of MNIST, gzipped or not.

::

    0  0  type  dimensions | a big-endian 32-bit size for each dimension | the values

The type of MNIST's files is 8, an unsigned byte; no other is read.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError

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
