"""Pictures that stay on disk: the counterpart of an array, for sets larger than memory.

A file holds all pictures as whole numbers, (rows, channels, height, width) of 8 or 16 bits; it is
mapped, not read. What is asked for by row comes as float32 from 0 (black) to 1 (white).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError

Which = slice | NDArray[np.int64] | NDArray[np.bool_]
_AT_ONCE = 2**24  # bytes that are read in one go where all rows must be seen


class StoredImages:
    """Images in a mapped file; an array to read from by row, and never all of it in memory.

    pixels : (all, channels, height, width) of uint8 or uint16, such as ``np.load(file,
        mmap_mode="r")``. rows : which of them are meant, in this order; all by default.

    >>> images = StoredImages(np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1))
    >>> images.shape, images[1:].ravel().tolist(), images.take(np.array([2])).shape
    ((3, 1, 1, 1), [0.20000000298023224, 1.0], (1, 1, 1, 1))
    """

    ndim = 4

    def __init__(self, pixels: NDArray[Any], rows: NDArray[np.int64] | None = None) -> None:
        if pixels.ndim != 4 or pixels.dtype not in (np.uint8, np.uint16):
            raise InputError(
                "stored images must be (rows, channels, height, width) of uint8 or uint16 but are "
                f"{pixels.shape} of {pixels.dtype}; store them so."
            )
        self.pixels = pixels
        self.rows = np.arange(len(pixels)) if rows is None else np.asarray(rows, np.int64)
        if not len(self.rows):
            raise InputError("stored images must be at least one but none came; give some rows.")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        _, channels, height, width = self.pixels.shape
        return len(self.rows), channels, height, width

    @property
    def white(self) -> int:
        """The whole number that stands for 1."""
        return int(np.iinfo(self.pixels.dtype).max)

    def take(self, rows: Which) -> StoredImages:
        """Some of the images; nothing is read."""
        return StoredImages(self.pixels, self.rows[rows])

    def whole_numbers(self, rows: Which) -> NDArray[Any]:
        """Some of the images as they are stored, in memory."""
        return np.asarray(self.pixels[self.rows[rows]])

    def __getitem__(self, rows: Which) -> NDArray[np.float32]:
        """Some of the images, in memory, from 0 to 1."""
        return np.divide(self.whole_numbers(rows), np.float32(self.white), dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of them, in memory: for parts that can do no better."""
        return self[:].astype(dtype or np.float32, copy=False)

    def blocks(self) -> Iterator[slice]:
        """Slices that together are all rows, each small."""
        size = max(1, _AT_ONCE // int(np.prod(self.shape[1:]) * self.pixels.dtype.itemsize))
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    @cached_property
    def statistics(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each channel's mean and standard deviation, (channels,) each.

        From how often each whole number occurs, so that the order of summing cannot matter.
        """
        levels = self.white + 1
        counts = np.zeros((self.shape[1], levels), np.int64)
        for block in self.blocks():
            values = self.whole_numbers(block)
            for channel in range(len(counts)):
                counts[channel] += np.bincount(values[:, channel].ravel(), minlength=levels)
        value = np.divide(np.arange(levels), np.float32(self.white), dtype=np.float32)
        share = counts / counts.sum(1, keepdims=True)
        mean = share @ value.astype(np.float64)
        spread = value.astype(np.float64) - mean[:, None]  # (channels, levels)
        return mean, np.sqrt((share * spread**2).sum(1))

    @cached_property
    def digest(self) -> bytes:
        """Of the pixels, so that a run that resumes knows them again."""
        found = hashlib.sha256(f"{self.shape} {self.pixels.dtype}".encode())
        for block in self.blocks():
            found.update(np.ascontiguousarray(self.whole_numbers(block)).data.cast("B"))
        return found.digest()


class StoredRows:
    """Stored images as standardised rows, (rows, channels · height · width): read when asked for.

    mean, scale : of each channel, (channels,).
    """

    def __init__(
        self, images: StoredImages, mean: NDArray[np.float32], scale: NDArray[np.float32]
    ) -> None:
        self.images, self.mean, self.scale = images, mean, scale

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.images), int(np.prod(self.images.shape[1:]))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Which) -> NDArray[np.float32]:
        """Some of the rows, in memory."""
        broad = (1, -1, 1, 1)
        values = (self.images[rows] - self.mean.reshape(broad)) / self.scale.reshape(broad)
        return values.reshape(len(values), -1)

    def take(self, rows: Which) -> StoredRows:
        """Some of the rows; nothing is read."""
        return StoredRows(self.images.take(rows), self.mean, self.scale)

    @property
    def digest(self) -> bytes:
        return self.images.digest + self.mean.tobytes() + self.scale.tobytes()
