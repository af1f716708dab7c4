"""Selections drawn over images, as arrays of RGB values and as PNG bytes."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError

MARK = "#e69f00"
"""Orange: bright on black, no grey of an X-ray, told from grey by all kinds of colour vision."""
HIDDEN = "#67758a"
"""Slate, between black and white: what is shown, dark or bright, stands out; no grey equals it."""
_TINY, _ENLARGED = 64, 224  # pixels along the longer side: below the first, enlarge to the second


def to_rgb(image: NDArray[Any], *, limits: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """An image as (height, width, 3) values from 0 to 255.

    ``image`` is (height, width) or (channels, height, width) with 1 or 3 channels. Its smallest
    value becomes 0 and its largest 255, or those of ``limits``, beyond which values are cut. An
    image of one value is grey.

    >>> to_rgb(np.array([[0, 1], [2, 4]]))[..., 0]
    array([[  0,  64],
           [128, 255]], dtype=uint8)
    """
    values = _channels(image)  # (channels, height, width)
    low, high = (values.min(), values.max()) if limits is None else _ordered(limits)
    if low == high:
        scaled = np.full_like(values, 128)
    else:  # halves, so that the range of very large numbers does not overflow
        span = high / 2 - low / 2
        scaled = 255 * np.clip((values / 2 - low / 2) / span, 0, 1)
    channels_last = np.moveaxis(scaled, 0, -1)
    return _bytes(np.broadcast_to(channels_last, (*channels_last.shape[:2], 3)))


def overlay(
    image: NDArray[Any],
    shown: NDArray[Any],
    *,
    limits: tuple[float, float] | None = None,
    colour: str = MARK,
    strength: float = 0.5,
    factor: int | None = None,
) -> NDArray[np.uint8]:
    """The image with the shown pixels tinted and each region of them outlined.

    ``image`` and ``limits`` are as in ``to_rgb``. ``shown`` is (height, width): true or false, or
    from 0 to 1, which tints in proportion and outlines what is above ½. ``strength`` is the tint's
    opacity where ``shown`` is 1. Each pixel becomes ``factor`` × ``factor``, by default
    ``enlargement``'s; the result is (factor · height, factor · width, 3). The outline lies inside
    the region, a quarter of an enlarged pixel wide and at least 1.
    """
    rgb = to_rgb(image, limits=limits)
    share = _share(shown, rgb.shape[:2])  # (height, width)
    if not 0 <= strength <= 1:
        raise InputError(f"strength must be from 0 to 1 but is {strength}; 0.5 is the default.")
    factor = _factor(factor, *share.shape)
    ink = _colour(colour)  # (3,)
    opacity = strength * share[..., None]
    tinted = _enlarge(_bytes((1 - opacity) * rgb + opacity * ink), factor)
    tinted[_rim(_enlarge(share > 0.5, factor), max(1, factor // 4))] = _bytes(ink)
    return tinted


def only_shown(
    image: NDArray[Any],
    shown: NDArray[Any],
    *,
    limits: tuple[float, float] | None = None,
    hidden: str = HIDDEN,
    factor: int | None = None,
) -> NDArray[np.uint8]:
    """Draw the pixels that a predictor is shown, ``shown`` above ½, and the others in one colour.

    Arguments and result are as in ``overlay``, so that both pictures have the same size.
    """
    rgb = to_rgb(image, limits=limits)
    share = _share(shown, rgb.shape[:2])
    factor = _factor(factor, *share.shape)
    return _enlarge(np.where((share > 0.5)[..., None], rgb, _bytes(_colour(hidden))), factor)


def enlargement(height: int, width: int) -> int:
    """Return how wide to draw each pixel: 1, but more in small images, where it would be lost.

    >>> enlargement(28, 28), enlargement(128, 128)
    (8, 1)
    """
    longer = max(height, width)
    return 1 if longer >= _TINY else math.ceil(_ENLARGED / longer)


def png(rgb: NDArray[np.uint8]) -> bytes:
    """(height, width, 3) values as PNG bytes: the same for the same values, without metadata."""
    from PIL import Image

    rgb = np.asarray(rgb)
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or rgb.size == 0:
        raise InputError(
            f"a picture must be (height, width, 3) of uint8 but is {rgb.shape} of {rgb.dtype}; "
            "make it with to_rgb, overlay or only_shown."
        )
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, format="PNG")  # with optimize=True slower, hardly smaller
    return buffer.getvalue()


def _channels(image: NDArray[Any]) -> NDArray[np.float64]:
    """One image, checked, as (channels, height, width)."""
    values = np.asarray(image)
    expected = "an image must be (height, width) or (channels, height, width) with 1 or 3 channels"
    if values.ndim == 4:
        raise InputError(
            f"{expected} but has shape {values.shape}, which is a batch; pass one image of it, "
            "such as images[0]."
        )
    if values.ndim not in (2, 3):
        raise InputError(
            f"{expected} but has shape {values.shape}; reshape it to its height and width."
        )
    if values.ndim == 3 and len(values) not in (1, 3):
        last = values.shape[-1] in (1, 3)
        advice = "move them first with np.moveaxis(image, -1, 0)" if last else "pass 1 or 3 of them"
        raise InputError(f"{expected} but has {len(values)} of shape {values.shape}; {advice}.")
    if values.size == 0:
        raise InputError(f"{expected} but has no pixels (shape {values.shape}); pass another.")
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"an image must hold numbers but holds {values.dtype}; convert it to floats first."
        )
    values = values.astype(np.float64)
    if wrong := int((~np.isfinite(values)).sum()):
        raise InputError(
            f"an image must hold finite numbers but has {wrong} NaN or infinite of "
            f"{values.size} values; replace them first."
        )
    return values if values.ndim == 3 else values[None]


def _ordered(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = limits
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"limits must be (low, high) with low < high but are ({low}, {high}); leave them out "
            "to use the image's own range."
        )
    return low, high


def _share(shown: NDArray[Any], size: tuple[int, ...]) -> NDArray[np.float64]:
    """A mask, checked against the image's (height, width)."""
    share = np.asarray(shown)
    if share.shape != size:
        fits = share.size == math.prod(size)
        advice = f"use mask.reshape{size}" if fits else "pass one value for each pixel"
        raise InputError(
            f"a mask must have the image's height and width {size} but has shape {share.shape}; "
            f"{advice}."
        )
    if share.dtype.kind not in "biuf":
        raise InputError(f"a mask must hold true or false but holds {share.dtype}; convert it.")
    share = share.astype(np.float64)
    wrong = ~((share >= 0) & (share <= 1))  # true of NaN
    if wrong.any():
        raise InputError(
            f"a mask must hold values from 0 to 1 but holds {share[wrong][0]:g}; cut it first, "
            "for example with values > 0."
        )
    return share


def _factor(factor: int | None, height: int, width: int) -> int:
    if factor is None:
        return enlargement(height, width)
    if not isinstance(factor, int | np.integer) or factor < 1:
        raise InputError(
            f"factor must be a whole number from 1 but is {factor!r}; leave it out for the default."
        )
    return int(factor)


def _colour(name: str) -> NDArray[np.float64]:
    """A colour that matplotlib knows, as (3,) values from 0 to 255."""
    from matplotlib.colors import to_rgb as parse

    try:
        return 255 * np.array(parse(name))
    except ValueError as error:
        raise InputError(
            f"a colour must be one that matplotlib knows but is {name!r}; write it as '{MARK}'."
        ) from error


def _enlarge(pixels: NDArray[Any], factor: int) -> NDArray[Any]:
    """(height, width, …) -> (factor · height, factor · width, …)."""
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def _rim(region: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """The pixels of a region, (height, width), that lie within ``width`` of its border.

    Diagonal neighbours count, so that the rim has no gap in a corner; beyond the image's edge
    nothing belongs to the region, so that the rim is closed there.
    """
    inside = region
    for axis in (0, 1):
        padded = np.pad(inside, [(width, width) if a == axis else (0, 0) for a in (0, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * width + 1, axis=axis)
        inside = np.asarray(windows.all(-1))
    return region & ~inside


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(values).astype(np.uint8)
