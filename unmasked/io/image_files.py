"""One picture file (PNG, JPEG or DICOM) as an array of one size, or why there is none.

`look` reads a file's head, `read` its pixels. Both return a text in place of a result where a file
cannot be used, such as "is no PNG, JPEG or DICOM picture", to be put behind the file's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unmasked.datasets.films import why
from unmasked.errors import MissingExtra
from unmasked.io import dicom

Fit = Literal["pad", "crop", "none"]
FITS: tuple[Fit, ...] = ("pad", "crop", "none")
_DICOM = (".dcm", ".dicom", ".ima")
SUFFIXES = (".png", ".jpg", ".jpeg", *_DICOM)
NO_PICTURE = "is no PNG, JPEG or DICOM picture"
_EMPTY = "is empty"
_GREY, _COLOUR = ("1", "L", "LA", "La"), ("RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
_ORIENTATION = 0x0112  # EXIF: from 5 on, height and width change places


class Look(NamedTuple):
    """A file's head: its size in pixels, whether it has colour, whether 8 bits are too few."""

    height: int
    width: int
    colour: bool
    deep: bool


@dataclass(frozen=True)
class Plan:
    """The form of every picture: (channels, size, size) of uint8, or of uint16 where ``deep``.

    fit : "pad": the longer side becomes ``size``, the rest is black; "crop": the shorter side does,
        and what is too long is cut off on both ends; "none": pictures must be size × size.
    """

    size: int
    channels: Literal[1, 3]
    deep: bool
    fit: Fit = "pad"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint16 if self.deep else np.uint8)

    @property
    def white(self) -> int:
        return 65535 if self.deep else 255

    def refusal(self, height: int, width: int) -> str | None:
        """Why a picture of this size cannot become one of ours; None if it can."""
        if self.fit == "none" and (height, width) != (self.size, self.size):
            return f"is {width} × {height} pixels, not {self.size} × {self.size}"
        if self.fit == "pad" and min(height, width) * self.size < max(height, width):
            return (
                f"is {width} × {height} pixels, so narrow that nothing of it is left at "
                f"{self.size} pixels"
            )
        return None

    def place(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Left, top, width and height of the whole picture in pixels of the result.

        >>> Plan(128, 1, False).place(1000, 500)
        (32, 0, 64, 128)
        >>> Plan(128, 1, False, "crop").place(1000, 500)
        (0, -64, 128, 256)
        """
        side = max(height, width) if self.fit == "pad" else min(height, width)
        wide, high = (max(1, round(n * self.size / side)) for n in (width, height))
        return (self.size - wide) // 2, (self.size - high) // 2, wide, high


def kind_of(path: Path) -> Literal["dicom", "picture", "other"]:
    """Return a file's kind by its name, or by how it begins where the ending is not known."""
    suffix = path.suffix.lower()
    if suffix in _DICOM:
        return "dicom"
    if suffix in SUFFIXES:
        return "picture"
    try:
        with open(path, "rb") as file:
            start = file.read(132)
    except OSError:
        return "other"
    if _is_picture(start):
        return "picture"
    bare = not suffix or suffix[1:].isdigit()  # 1.2.840.….7 is how DICOM files are often called
    if dicom.is_dicom(start) or (bare and dicom.begins_with_an_element(start)):
        return "dicom"
    return "other"


def look(path: Path) -> Look | str:
    """A file's head, or why it cannot be used."""
    try:
        if not path.stat().st_size:
            return _EMPTY
        if _is_dicom(path):
            dataset = dicom.header(path)
            refused = dicom.refusal(dataset)
            if refused is not None:
                return refused
            return Look(
                int(dataset.Rows),
                int(dataset.Columns),
                dicom.is_colour(dataset),
                dicom.is_deep(dataset),
            )
        with _opened(path) as image:
            colour = image.mode in _COLOUR or (image.mode == "P" and not _grey_palette(image))
            deep = image.mode.startswith("I")
            if not colour and not deep and image.mode not in (*_GREY, "P"):
                return f"has pixels of the kind {image.mode!r}, neither grey nor colour"
            width, height = image.size
            # of a PNG file, asking would read all of it; cameras write JPEG
            if image.format == "JPEG" and image.getexif().get(_ORIENTATION, 1) >= 5:
                width, height = height, width
            return Look(height, width, colour, deep)
    except MissingExtra:
        raise
    except Exception as error:
        return _refused(path, error)


def read(path: Path, plan: Plan) -> NDArray[Any] | str:
    """Pixels (channels, size, size) by a plan, or why there are none."""
    try:
        if not path.stat().st_size:
            return _EMPTY
        pixels = _dicom_pixels(path) if _is_dicom(path) else _picture_pixels(path)
        if isinstance(pixels, str):
            return pixels
        refused = plan.refusal(*pixels.shape[:2])
        return _planned(pixels, plan) if refused is None else refused
    except MissingExtra:
        raise
    except Exception as error:
        return _refused(path, error)


def _is_dicom(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(132)
    return dicom.is_dicom(start) or (kind_of(path) == "dicom" and not _is_picture(start))


def _is_picture(start: bytes) -> bool:
    return start[:8] == b"\x89PNG\r\n\x1a\n" or start[:3] == b"\xff\xd8\xff"


def _opened(path: Path) -> Any:
    from PIL import Image  # comes with matplotlib

    return Image.open(path, formats=("PNG", "JPEG"))


def _refused(path: Path, error: Exception) -> str:
    """Decoders raise OSError, SyntaxError, struct.error, DecompressionBombError and others."""
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return NO_PICTURE
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot be read ({why(error)})"
    if (advice := dicom.missing_decoder(error)) is not None:
        return advice
    what = " as DICOM" if kind_of(path) == "dicom" else ""
    return f"cannot be read{what} ({why(error)})"


def _grey_palette(image: Any) -> bool:
    palette = np.array(image.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    return bool((palette == palette[:, :1]).all())


def _picture_pixels(path: Path) -> NDArray[Any] | str:
    """(height, width[, 3]) of uint8, or of uint16 where the file has more than 8 bits."""
    from PIL import ImageOps

    with _opened(path) as opened:
        image = ImageOps.exif_transpose(opened) if opened.format == "JPEG" else opened
        if image.mode.startswith("I"):
            wide = np.array(image)
            if wide.min() < 0 or wide.max() > 65535:
                return "has values beyond 16 bits"
            return wide.astype(np.uint16)
        if image.mode == "P":
            grey = _grey_palette(image)
            image = image.convert("RGBA").convert("RGB")
            return np.array(image.convert("L") if grey else image)
        return np.array(image.convert("L" if image.mode in _GREY else "RGB"))


def _dicom_pixels(path: Path) -> NDArray[Any] | str:
    """Read a DICOM file's pixels, as 8 or 16 bits from black to white, or say why that fails."""
    dataset = dicom.header(path)
    refused = dicom.refusal(dataset)
    if refused is not None:
        return refused
    unit = dicom.unit_picture(path)
    if unit.shape[:2] != (dataset.Rows, dataset.Columns):
        return f"has {unit.shape[1]} × {unit.shape[0]} pixels where its head says otherwise"
    kind, white = (np.uint16, 65535) if dicom.is_deep(dataset) else (np.uint8, 255)
    return np.rint(unit * white).astype(kind)


def _planned(pixels: NDArray[Any], plan: Plan) -> NDArray[Any]:
    """(height, width[, 3]) as (channels, size, size); a new pixel is a weighted mean of the old."""
    left, top, width, height = plan.place(*pixels.shape[:2])
    resized = _resized(pixels, width, height)
    if resized.ndim == 3 and plan.channels == 1:
        weights = np.array([0.299, 0.587, 0.114])  # of luma, as everybody's grey
        resized = np.rint(resized @ weights).astype(resized.dtype)
    if plan.deep and resized.dtype == np.uint8:
        resized = resized.astype(np.uint16) * 257  # 255 becomes 65535
    elif not plan.deep and resized.dtype == np.uint16:
        resized = np.rint(resized / 257).astype(np.uint8)
    layers = resized[None] if resized.ndim == 2 else np.moveaxis(resized, -1, 0)
    result = np.zeros(plan.shape, plan.dtype)
    size = plan.size
    into_y, into_x = max(0, top), max(0, left)
    from_y, from_x = max(0, -top), max(0, -left)
    high, wide = min(size, height), min(size, width)
    result[:, into_y : into_y + high, into_x : into_x + wide] = layers[
        :, from_y : from_y + high, from_x : from_x + wide
    ]
    return result


def _resized(pixels: NDArray[Any], width: int, height: int) -> NDArray[Any]:
    from PIL import Image

    if pixels.shape[:2] == (height, width):
        return pixels
    method = Image.Resampling.LANCZOS
    if pixels.dtype == np.uint8:
        return np.array(Image.fromarray(pixels).resize((width, height), method))
    image = Image.fromarray(pixels.astype(np.float32))  # Pillow resizes 16 bits as floats only
    return np.rint(np.array(image.resize((width, height), method)).clip(0, 65535)).astype(np.uint16)
