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
from torch.nn.functional import affine_grid, grid_sample, pad

from unmasked.errors import InputError
from unmasked.shapes import ImageShape


@dataclass(frozen=True)
class Shift:
    """Moves each image by up to ``most`` pixels each way, zeros coming in.

    Standardised images have mean zero, so what comes in is the training images' mean.

    >>> Shift(1)(torch.arange(4.0).reshape(1, 1, 2, 2), torch.full((1, 8), 0.99))
    tensor([[[[3., 0.],
              [0., 0.]]]])
    """

    most: int = 2

    def __post_init__(self) -> None:
        whole = isinstance(self.most, int | np.integer) and not isinstance(self.most, bool)
        if not whole or self.most < 0:
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
    between pixels, zeros coming in, where R turns by up to ``turn`` degrees either way, s is from
    1 / (1 + zoom) to 1 + zoom, t up to ``shift`` of the height and of the width each way, c from
    1 − contrast to 1 + contrast and b from −brightness to brightness, in standard deviations of
    the training images' pixels. All are drawn evenly, log s for s.

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
        most = {"shift": 1.0, "turn": 180.0, "zoom": 1.0, "contrast": 1.0, "brightness": math.inf}
        for field in fields(self):
            value, high = getattr(self, field.name), most[field.name]
            number = isinstance(value, int | float | np.integer | np.floating)
            if not number or isinstance(value, bool) or not 0 <= value <= high or value == math.inf:
                until = "at least 0" if high == math.inf else f"from 0 to {high:g}"
                raise InputError(f"{field.name} must be a number {until} but is {value!r}.")

    def __call__(self, images: Tensor, u: Tensor) -> Tensor:
        """images (batch, channels, height, width), u uniform (batch, 8) -> images."""
        _check_images("Retake changes", images)
        _, _, height, width = images.shape
        down, right, turn, zoom, contrast, brightness = (2 * u[:, :6].to(images.dtype) - 1).unbind(
            1
        )  # each (batch,), from −1 to 1
        angle = turn * math.radians(self.turn)
        near = torch.exp(-zoom * math.log1p(self.zoom))  # 1 / s
        cos, sin = near * torch.cos(angle), near * torch.sin(angle)
        # affine_grid measures both sides from −1 to 1, so a turn must know their proportion
        rows = [
            torch.stack([cos, -sin * height / width, 2 * self.shift * right], 1),
            torch.stack([sin * width / height, cos, 2 * self.shift * down], 1),
        ]
        places = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
        moved = grid_sample(images, places, align_corners=False)
        gain = (1 + self.contrast * contrast).reshape(-1, 1, 1, 1)
        return gain * moved + (self.brightness * brightness).reshape(-1, 1, 1, 1)


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
