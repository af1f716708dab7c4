"""Augmentations: training images changed a little, fresh in every step (`Training.augment`).

Each takes images (batch, channels, height, width) and uniform numbers u (batch, 8), and is a pure
function of both, so that a run can be resumed and compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.shapes import ImageShape

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Shift:
    """Moves each image by up to ``most`` pixels each way, zeros coming in.

    Standardised images have mean zero, so what comes in is the training images' mean.

    Parameters
    ----------
    most : how far, in whole pixels; 2 by default.

    Examples
    --------
    >>> Shift(1)(torch.arange(4.0).reshape(1, 1, 2, 2), torch.full((1, 8), 0.99))
    tensor([[[[3., 0.],
              [0., 0.]]]])
    """

    most: int = 2

    def __post_init__(self) -> None:
        if not is_whole(self.most) or self.most < 0:
            raise InputError(
                f"most must be a whole number of pixels, at least 0, but is {self.most!r}."
            )

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        """images (batch, channels, height, width), u uniform (batch, 8) -> images."""
        _check_images("Shift moves", images)
        batch, channels, height, width = images.shape
        step = torch.floor(u[:, :2] * (2 * self.most + 1)).long() - self.most  # (batch, 2)
        padded = pad(images, (self.most,) * 4)
        line = torch.arange(height, device=images.device) + self.most
        column = torch.arange(width, device=images.device) + self.most
        lines = (line + step[:, :1]).reshape(batch, 1, height, 1)
        columns = (column + step[:, 1:]).reshape(batch, 1, 1, width)
        wide = width + 2 * self.most
        where = (lines * wide + columns).expand(batch, channels, height, width)
        return padded.flatten(2).gather(2, where.flatten(2)).reshape(images.shape)


@dataclass(frozen=True)
class Retake:
    """Each image as if it were taken again: a little moved, turned, nearer, brighter, flatter.

    A new pixel at p, in pixels from the middle, is c · x(R p / s + t) + b, read with straight lines
    between pixels. Zeros come in. All that follows is drawn evenly, log s for s.

    Parameters
    ----------
    shift : t is up to this share of the height and of the width each way; 0.06 by default.
    turn : R turns by up to so many degrees either way; 8 by default.
    zoom : s is from 1 / (1 + zoom) to 1 + zoom; 0.1 by default.
    contrast : c is from 1 − contrast to 1 + contrast; 0.2 by default.
    brightness : b is from −brightness to brightness, in standard deviations of the training images'
        pixels; 0.2 by default.

    Examples
    --------
    >>> turned = Retake(0, 180, 0, 0, 0)(torch.arange(4.0).reshape(1, 1, 2, 2), torch.zeros(1, 8))
    >>> turned.round()
    tensor([[[[3., 2.],
              [1., 0.]]]])
    """

    shift: float = 0.06
    turn: float = 8.0
    zoom: float = 0.1
    contrast: float = 0.2
    brightness: float = 0.2

    def __post_init__(self) -> None:
        most = {"shift": 1.0, "turn": 180.0, "zoom": 1.0, "contrast": 1.0, "brightness": _LARGEST}
        for field in fields(self):
            value, high = getattr(self, field.name), most[field.name]
            number = isinstance(value, int | float | np.integer | np.floating)
            if not number or isinstance(value, bool) or not 0 <= value <= high:
                until = "at least 0" if high == _LARGEST else f"from 0 to {high:g}"
                raise InputError(f"{field.name} must be a number {until} but is {value!r:.40}.")
            object.__setattr__(self, field.name, float(value))  # equal ones are written alike

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        """images (batch, channels, height, width), u uniform (batch, 8) -> images."""
        _check_images("Retake changes", images)
        height, width = images.shape[2:]
        exact = torch.promote_types(images.dtype, torch.float32)
        both_ways = (2 * u[:, :6].to(exact) - 1)[..., None, None]
        down, right, turn, zoom, contrast, brightness = both_ways.unbind(1)  # each (batch, 1, 1)
        angle = turn * math.radians(self.turn)
        far = torch.exp(-zoom * math.log1p(self.zoom))  # 1 / s
        cos, sin = far * torch.cos(angle), far * torch.sin(angle)
        # sums of products, not a matrix product, which a GPU may round to ten bits
        line, column = (_middles(side, images.device, exact) for side in (height, width))
        line = line[:, None]  # (height, 1) and (width,), in pixels from the middle
        x = cos * column - sin * line + self.shift * width * right  # (batch, height, width)
        y = sin * column + cos * line + self.shift * height * down
        places = torch.stack([2 * x / width, 2 * y / height], -1)
        moved = grid_sample(images.to(exact), places, align_corners=False)
        gain, more = 1 + self.contrast * contrast, self.brightness * brightness
        return (gain[:, None] * moved + more[:, None]).to(images.dtype)


@dataclass(frozen=True)
class Flattened:
    """An augmentation of pictures as one of rows."""

    augment: Any
    shape: ImageShape

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        result: Any = self.augment(x.reshape(-1, *self.shape), u)
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        if shape != (x.shape[0], *self.shape):
            raise InputError(
                f"augment must return images of shape {(x.shape[0], *self.shape)} but returned "
                f"{shape}."
            )
        rows: Tensor = result.reshape(x.shape)
        return rows


def _check_images(does: str, images: Tensor) -> None:
    if images.dim() != 4:
        raise InputError(
            f"{does} images (batch, channels, height, width), but rows of shape "
            f"{tuple(images.shape)} came; leave out augment for tables."
        )


def _middles(count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Of pixels along a side, from its middle: −(count − 1) / 2 to (count − 1) / 2."""
    return torch.arange(count, device=device, dtype=dtype) - (count - 1) / 2
