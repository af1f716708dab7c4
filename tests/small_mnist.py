"""A stand-in for MNIST that has its sizes, and the idx format written from its description.

The first three pixels of an image spell its number, so a test can tell where each image went. Its
files pack to almost nothing.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from unmasked.datasets import Images

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN, TEST = 60_000, 10_000


def packed(array: np.ndarray, kind: int = 8) -> bytes:
    """An idx file, written from the format's description."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, kind, array.ndim]) + sizes + array.tobytes()


def message(caught: pytest.ExceptionInfo[BaseException], *parts: str | Path) -> str:
    """The message, which is one sentence and names all ``parts``."""
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text
    for part in parts:
        assert str(part) in text
    return text


def standin(images: int) -> np.ndarray:
    """(images, 28, 28): the number of an image in its first three pixels."""
    pixels = np.zeros((images, 28, 28), np.uint8)
    number = np.arange(images)
    pixels[:, 0, 0], pixels[:, 0, 1], pixels[:, 0, 2] = number % 256, number // 256 % 256, 255
    return pixels


def standin_labels(images: int, shift: int = 0) -> np.ndarray:
    return ((np.arange(images) * 7 + shift) % 10).astype(np.uint8)


def numbers(images: Images) -> np.ndarray:
    """The number of each image in its file, read off its pixels."""
    pixels = np.rint(images.x[:, 0, 0, :2] * 255).astype(int)
    return pixels[:, 0] + 256 * pixels[:, 1]


def replace(folder: Path, name: str, content: bytes) -> Path:
    path = folder / f"{name}.gz"
    path.unlink()
    path.write_bytes(gzip.compress(content, 1))
    return path


def write_complete(folder: Path) -> Path:
    """Four gzipped files of MNIST's sizes; tests copy the folder as links."""
    for name, array in zip(
        NAMES,
        (standin(TRAIN), standin_labels(TRAIN), standin(TEST), standin_labels(TEST, shift=3)),
        strict=True,
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress(packed(array), 1))
    return folder


def linked(complete: Path, copy: Path) -> Path:
    """A folder like ``complete`` that a test may change, file by file."""
    copy.mkdir()
    for name in NAMES:
        (copy / f"{name}.gz").symlink_to(complete / f"{name}.gz")
    return copy
