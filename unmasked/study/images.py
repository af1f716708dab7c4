"""Make the pictures that readers are served, and the order in which options are shown.

Rows come from Williams squares. In each block of as many cases as there are methods, every method
stands once in every place; over a square (two, for an odd number of methods) every method follows
every other one equally often. Which method takes which role is drawn anew for each block, and
blocks are scattered over the cases, so that what was seen tells nothing about what comes.

Pictures are decoded and encoded anew, so no metadata of the source survives. A selection is served
as layers over the image, with two bits a pixel and without compression:

    0  outside        1  inside        2  the rim of a region

So all layers of a case have the same number of bytes, whatever they show. Palettes make two layers
of the same values: *over* tints and outlines the selection, *hide* covers everything else.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion

from unmasked.errors import InputError
from unmasked.plots.overlays import HIDDEN, MARK, enlargement, to_rgb


def williams(methods: int) -> NDArray[np.int64]:
    """A Williams design, (rows, methods): rows are orders; one square, or two if odd.

    >>> williams(4)
    array([[0, 3, 1, 2],
           [1, 0, 2, 3],
           [2, 1, 3, 0],
           [3, 2, 0, 1]])
    """
    first = [0]
    for step in range(1, methods):  # 0, −1, 1, −2, 2, …
        first.append(-(step // 2 + 1) % methods if step % 2 else step // 2)
    square = (np.array(first) + np.arange(methods)[:, None]) % methods
    return square if methods % 2 == 0 else np.concatenate([square, square[:, ::-1]])


def balanced_orders(cases: int, methods: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(cases, methods): which method stands in each place.

    Every method stands in every place equally often, to within one case where ``cases`` is not a
    multiple of ``methods``.
    """
    squares = williams(methods).reshape(-1, methods, methods)
    rows: list[NDArray[np.int64]] = []
    while len(rows) < cases:
        roles = rng.permutation(methods)
        for square in rng.permutation(squares):
            rows.extend(roles[square[line]] for line in rng.permutation(methods))
    # A part of the last square is still a part of a Latin square: counts differ by one at most.
    return np.array(rows[:cases])[rng.permutation(cases)]


MOST_PIXELS = 4096
"""Along either side."""
_TINT = 96  # of 255: opacity inside a region; its rim is opaque
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read_image(path: Path) -> NDArray[np.uint8]:
    """An image file as (height, width) or (height, width, 3) values from 0 to 255.

    Values of 8 bits stay as they are; those of 16 bits are spread from the smallest to the largest.
    Small images are enlarged by a whole factor.
    """
    values = _decoded(path, "image")
    if values.ndim == 3 and values.shape[2] == 4:
        values = values[..., :3]
    if values.dtype != np.uint8:
        values = to_rgb(values if values.ndim == 2 else np.moveaxis(values, -1, 0))
    if values.ndim == 3 and (values == values[..., :1]).all():
        values = values[..., 0]
    factor = enlargement(*values.shape[:2])
    return values.repeat(factor, 0).repeat(factor, 1)


def read_mask(path: Path, size: tuple[int, int]) -> NDArray[np.bool_]:
    """A mask file, of the image's size or of a grid of superpixels, as (height, width) of ``size``.

    Whatever is not zero is shown; what is transparent is not.
    """
    values = _decoded(path, "mask")
    shown = values != 0
    if shown.ndim == 3:
        colour, alpha = (shown[..., :3], shown[..., 3]) if shown.shape[2] == 4 else (shown, True)
        shown = colour.any(2) & alpha
    lines, columns = shown.shape
    height, width = size
    if lines > height or columns > width:
        raise InputError(
            f"the mask {path} must have the image's size or that of a coarser grid but is "
            f"{lines} × {columns} over {height} × {width} pixels."
        )
    # The cells of Superpixels(grid): they differ by at most a pixel where the size does not divide.
    down = np.arange(height) * lines // height
    across = np.arange(width) * columns // width
    result: NDArray[np.bool_] = shown[np.ix_(down, across)]
    return result


def is_graded(path: Path) -> bool:
    """Return true if a mask file has more than two values, as a heat map or a mask in JPEG has."""
    values = _decoded(path, "mask")
    light = values if values.ndim == 2 else values[..., :3].max(2)
    return len(np.unique(light)) > 2


def regions(shown: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """(height, width) of 0 outside, 1 inside, 2 on the rim, which lies inside the region.

    >>> regions(np.ones((3, 4), bool))
    array([[2, 2, 2, 2],
           [2, 1, 1, 2],
           [2, 2, 2, 2]], dtype=uint8)
    """
    wide = max(1, round(max(shown.shape) / 220))
    inside = binary_erosion(shown, np.ones((3, 3)), iterations=wide, border_value=0)
    result: NDArray[np.uint8] = np.where(shown, np.where(inside, 1, 2), 0).astype(np.uint8)
    return result


def over_png(values: NDArray[np.uint8]) -> bytes:
    """The layer that tints and outlines the selection."""
    ink = _rgb(MARK)
    return _indexed(values, [(0, 0, 0), ink, ink], [0, _TINT, 255])


def hide_png(values: NDArray[np.uint8]) -> bytes:
    """The layer that covers everything but the selection."""
    cover = _rgb(HIDDEN)
    return _indexed(values, [cover, cover, cover], [255, 0, 0])


def image_png(values: NDArray[np.uint8]) -> bytes:
    """(height, width) or (height, width, 3) as PNG without metadata.

    It is compressed: all options of a case share the image, so its size tells nothing.
    """
    height, width = values.shape[:2]
    lines = np.pad(values.reshape(height, -1), ((0, 0), (1, 0)))  # 0 first: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if values.ndim == 2 else 2, 0, 0, 0)
    return (
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def _indexed(
    values: NDArray[np.uint8], colours: list[tuple[int, int, int]], opacity: list[int]
) -> bytes:
    """Two bits a pixel, stored without compression: the length depends on the size alone."""
    height, width = values.shape
    padded = np.pad(values, ((0, 0), (0, -width % 4))).reshape(height, -1, 4)
    packed = (padded << np.array([6, 4, 2, 0], np.uint8)).sum(2).astype(np.uint8)
    lines = np.pad(packed, ((0, 0), (1, 0)))
    return (
        _SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 2, 3, 0, 0, 0))
        + _chunk(b"PLTE", b"".join(bytes(colour) for colour in colours))
        + _chunk(b"tRNS", bytes(opacity))
        + _chunk(b"IDAT", zlib.compress(lines.tobytes(), 0))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _decoded(path: Path, what: str) -> NDArray[Any]:
    """A picture's values, (height, width) or (height, width, 3 or 4)."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            if max(file.size) > MOST_PIXELS:
                raise InputError(
                    f"the {what} {path} may have {MOST_PIXELS} pixels along a side but is "
                    f"{file.size[1]} × {file.size[0]}; make it smaller first."
                )
            if file.mode == "P":
                picture = file.convert("RGBA" if "transparency" in file.info else "RGB")
            elif file.mode in ("LA", "PA", "CMYK", "YCbCr"):
                picture = file.convert("RGBA" if file.mode in ("LA", "PA") else "RGB")
            else:
                picture = file.copy()
            values = np.asarray(picture)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError, SyntaxError) as error:
        raise InputError(f"the {what} {path} cannot be read as a picture ({error}).") from error
    return values.astype(np.uint8) * 255 if values.dtype == bool else values
