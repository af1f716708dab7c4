"""DICOM files as plain pictures: what a viewer would show, between black (0) and white (1).

::

    stored numbers → modality (slope, intercept, or its table) → window → 0 … 1 → MONOCHROME1 turned

The window is the file's first one; without any, the picture's own range is used, so that two
pictures of different exposure look alike. Padding outside the picture is black and counts for
nothing. A file that would become one grey all over by its slope, or for want of a window, is
refused. Needs the package pydicom (extra ``dicom``).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import MissingExtra

_PREAMBLE, _MAGIC = 128, b"DICM"
_GREY = ("MONOCHROME1", "MONOCHROME2")
_COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


def is_dicom(start: bytes) -> bool:
    """Return True if a file that begins so (132 bytes) is DICOM, by the mark after its preamble."""
    return start[_PREAMBLE : _PREAMBLE + 4] == _MAGIC


def begins_with_an_element(start: bytes) -> bool:
    """Return True if a file begins with DICOM data at once, as those of old archives do.

    That is a low element of group 2 or 8, and then the kind of its value in two letters or, unsaid,
    a small length.

    >>> begins_with_an_element(b"\\x08\\x00\\x05\\x00CS"), begins_with_an_element(b"\\x08\\x00text")
    (True, False)
    """
    group, element = (int.from_bytes(start[at : at + 2], "little") for at in (0, 2))
    kind, length = start[4:6], int.from_bytes(start[4:8], "little")
    told = len(kind) == 2 and kind.isalpha() and kind.isupper()
    return group in (2, 8) and element < 0x100 and len(start) >= 6 and (told or length <= 64)


def header(path: Path) -> Any:
    """Everything of a file but its pixels."""
    return _read(path, stop_before_pixels=True)


def refusal(dataset: Any) -> str | None:
    """Why a file holds no single picture of a known kind; None if it does."""
    if "Rows" not in dataset or "Columns" not in dataset:
        return "is a DICOM file without a picture"
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        return f"is a DICOM file of {frames} frames, not of one; save the frame you mean by itself"
    kind = dataset.get("PhotometricInterpretation", "nothing")
    if kind not in _GREY + _COLOUR:
        return f"is a DICOM file whose pixels are {kind}, neither grey nor RGB"
    return None


def is_colour(dataset: Any) -> bool:
    return dataset.get("PhotometricInterpretation") in _COLOUR


def is_deep(dataset: Any) -> bool:
    """Return True if 8 bits would lose something: a grey picture stored with more."""
    return not is_colour(dataset) and int(dataset.get("BitsStored", 16)) > 8


def unit_picture(path: Path) -> NDArray[np.float32]:
    """(height, width), or (height, width, 3) in colour, from 0 (black) to 1 (white).

    ValueError says why there is nothing to be seen.
    """
    dataset = _read(path)
    stored = np.asarray(dataset.pixel_array)
    if is_colour(dataset):
        most = float(2 ** int(dataset.BitsStored) - 1)
        return (stored / most).clip(0, 1).astype(np.float32)
    values = np.asarray(import_module("pydicom.pixels").apply_modality_lut(stored, dataset))
    inside = _inside(stored, dataset)
    _check_values(values[inside], stored[inside])
    shown = _windowed(values.astype(np.float64), dataset, inside)
    if dataset.PhotometricInterpretation == "MONOCHROME1":  # there, the smallest is white
        shown = 1 - shown
    return np.where(inside, shown, 0.0).astype(np.float32)


def _inside(stored: NDArray[Any], dataset: Any) -> NDArray[np.bool_]:
    """Mark the pixels of the picture itself, without the padding around it."""
    padding = dataset.get("PixelPaddingValue")
    if padding is None:
        return np.ones(stored.shape, bool)
    other = dataset.get("PixelPaddingRangeLimit", padding)
    low, high = sorted((int(padding), int(other)))
    inside: NDArray[np.bool_] = (stored < low) | (stored > high)
    return inside


def _check_values(values: NDArray[Any], stored: NDArray[Any]) -> None:
    """Refuse what its slope and intercept leave nothing of."""
    if not values.size:
        raise ValueError("all of it is padding")
    if not np.isfinite(values).all():
        raise ValueError("its slope and intercept make numbers that are not finite")
    if values.min() == values.max() and stored.min() < stored.max():
        raise ValueError("its slope makes all its pixels the same")


def _windowed(
    values: NDArray[np.float64], dataset: Any, inside: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """From 0 to 1 by the file's window (DICOM PS3.3, C.11.2.1.2), or by the values' own range."""
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is not None and width is not None and width > 0:
        function = dataset.get("VOILUTFunction", "LINEAR")
        if function == "SIGMOID":
            scaled = np.clip(4 * (values - centre) / width, -700, 700)
            return 1 / (1 + np.exp(-scaled))
        if function != "LINEAR_EXACT":  # LINEAR counts whole steps: from −½ to width − ½
            centre, width = centre - 0.5, width - 1
        if width > 0:
            return np.clip((values - centre) / width + 0.5, 0, 1)
        return (values > centre).astype(np.float64)
    if "VOILUTSequence" in dataset:
        values = np.asarray(
            import_module("pydicom.pixels").apply_voi(values.astype(np.int64), dataset), np.float64
        )
    low, high = values[inside].min(), values[inside].max()
    if low == high:
        raise ValueError("all its pixels are the same and it has no window")
    return np.clip((values - low) / (high - low), 0, 1)


def _first(value: Any) -> float | None:
    """A window may be listed more than once; viewers show the first. One of nan is none."""
    if value is None or value == "":
        return None
    several = not isinstance(value, str | float | int) and hasattr(value, "__len__")
    number = float(value[0] if several else value)
    return number if np.isfinite(number) else None


def _read(path: Path, **options: Any) -> Any:
    """A file, also one of an old archive, which begins with its data and does not say how they are
    written: by the standard with implicit types and small bytes first, unless they tell."""
    dataset = _pydicom().dcmread(path, force=True, **options)
    meta = dataset.file_meta
    if "TransferSyntaxUID" not in meta:
        if "PhotometricInterpretation" not in dataset:
            raise ValueError("there is no picture in it that can be read so")
        implicit, little = dataset.original_encoding
        uids = import_module("pydicom.uid")
        explicit = uids.ExplicitVRLittleEndian if little else uids.ExplicitVRBigEndian
        meta.TransferSyntaxUID = uids.ImplicitVRLittleEndian if implicit else explicit
    return dataset


def missing_decoder(error: Exception) -> str | None:
    """Say what to install where a file is compressed in a way that pydicom alone cannot undo."""
    if "missing dependencies" not in str(error):
        return None
    kind = str(error).partition("'")[2].partition("'")[0]
    return (
        f"is compressed as {kind or 'something'}, which needs another package: install "
        "pylibjpeg[all] or python-gdcm"
    )


def _pydicom() -> Any:
    try:
        return import_module("pydicom")
    except ImportError as error:
        raise MissingExtra("pydicom", "dicom", "reading DICOM files") from error
