"""Maskers for images: superpixels, and what hidden ones look like.

A feature is a cell of a grid, or a region of the user's own label map; all channels of a pixel are
shown or hidden together. The masker of one pixel is wrapped: `Token` (the default) shows the
mask as one more channel, `Zero` puts zeros, `Blur` a blurred copy, `ImageMean` the image's mean.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import conv2d, pad

from unmasked.checks import grid_pair, is_whole
from unmasked.errors import InputError
from unmasked.masks.maskers import Groups, Masker, Token
from unmasked.shapes import Float, ImageShape


class Fill(Masker):
    """Puts something in place of hidden pixels: x ⊙ m + filled ⊙ (1 − m).

    What is put there comes from the whole image, so a little of what is hidden shines through:
    `Token` and `Zero` hide completely.
    """

    def features(self, columns: int) -> int:
        """Return ``columns``: each number is masked by itself.

        Parameters
        ----------
        columns : how many numbers an image has.
        """
        return columns

    def width(self, columns: int) -> int:
        """Return ``columns``: the image with its hidden pixels filled.

        Parameters
        ----------
        columns : how many numbers an image has.
        """
        return columns

    @abstractmethod
    def filled(self, images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
        """Return images of the same shape, from which hidden pixels take their values.

        Parameters
        ----------
        images : (batch, channels, height, width), whole.
        """

    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch columns"]:
        raise InputError(
            f"{type(self).__name__} is for images (rows, channels, height, width), but a table "
            "came; use Token() or Zero()."
        )


@dataclass(frozen=True)
class ImageMean(Fill):
    """Hidden pixels take each channel's mean over the image."""

    def filled(self, images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
        """Return each channel's mean over the image, at every pixel.

        Parameters
        ----------
        images : (batch, channels, height, width), whole.
        """
        return images.mean((2, 3), keepdim=True).expand_as(images)


@dataclass(frozen=True)
class Blur(Fill):
    """Hidden pixels take a Gaussian blur of the image, with mirrored edges.

    Parameters
    ----------
    sigma : standard deviation of the blur in pixels, above 0; 4 by default.
    """

    sigma: float = 4.0

    def __post_init__(self) -> None:
        number = isinstance(self.sigma, int | float | np.integer | np.floating)
        if not number or not 0 < self.sigma < float("inf"):
            raise InputError(f"sigma must be a number of pixels above 0 but is {self.sigma!r}.")
        object.__setattr__(self, "sigma", float(self.sigma))

    def filled(self, images: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
        """Return the blurred images.

        Parameters
        ----------
        images : (batch, channels, height, width), whole.
        """
        batch, channels, height, width = images.shape
        result = images.reshape(batch * channels, 1, height, width)
        for axis, length in ((2, height), (3, width)):
            reach = min(max(1, round(3 * self.sigma)), length - 1)
            place = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
            kernel = torch.exp(-0.5 * (place / self.sigma) ** 2)
            kernel = kernel / kernel.sum()
            if axis == 2:
                padded = pad(result, (0, 0, reach, reach), mode="reflect") if reach else result
                result = conv2d(padded, kernel.reshape(1, 1, -1, 1))
            else:
                padded = pad(result, (reach, reach, 0, 0), mode="reflect") if reach else result
                result = conv2d(padded, kernel.reshape(1, 1, 1, -1))
        return result.reshape(images.shape)


@dataclass(frozen=True, eq=False)
class Superpixels(Masker):
    """Cells of a grid, or regions of a label map, over any image size.

    Parameters
    ----------
    grid : (lines, columns) of cells, or one number for both; None: every pixel is a feature. Where
        the size does not divide evenly, cells differ by at most one pixel.
    labels : instead of a grid, an array (height, width) of region numbers 0, 1, 2, … without gaps.
    masker : what hidden pixels look like: `Token` (default), `Zero`, `Blur`, `ImageMean` or your
        own.
    shape : (channels, height, width) of the images; `fit` fills it in.

    Examples
    --------
    >>> from unmasked import Zero
    >>> one = Superpixels(2, masker=Zero()).bound((1, 2, 4))
    >>> one(torch.ones(1, 8), torch.tensor([[1.0, 0.0, 0.0, 1.0]])).reshape(2, 4)
    tensor([[1., 1., 0., 0.],
            [0., 0., 1., 1.]])
    """

    grid: int | tuple[int, int] | None = None
    labels: Any = None
    masker: Masker = field(default_factory=Token)
    shape: ImageShape | None = None

    def __post_init__(self) -> None:
        if self.grid is not None and self.labels is not None:
            raise InputError("either grid or labels says what the superpixels are, but both came.")
        if self.grid is not None:
            object.__setattr__(self, "grid", grid_pair(self.grid))
        if self.labels is not None:
            object.__setattr__(self, "labels", _label_map(self.labels))
        if isinstance(self.masker, Superpixels | Groups) or not isinstance(self.masker, Masker):
            raise InputError(
                f"the masker inside Superpixels must hide single pixels but is {self.masker!r:.80}."
            )
        object.__setattr__(self, "_on", {})  # the map on each device, made once
        if self.shape is not None:
            self._check()

    def bound(self, shape: tuple[int, ...]) -> Superpixels:
        """Return a copy of this masker for images of one size.

        Parameters
        ----------
        shape : (channels, height, width) of the images.
        """
        return replace(self, shape=tuple(shape))  # type: ignore[arg-type]  # checked there

    def _check(self) -> None:
        shape: Any = self.shape
        if (
            not isinstance(shape, tuple | list)
            or len(shape) != 3
            or not all(is_whole(n) and n > 0 for n in shape)
        ):
            raise InputError(
                f"the images' shape must be (channels, height, width) but is {shape!r}."
            )
        channels, height, width = (int(n) for n in shape)
        object.__setattr__(self, "shape", (channels, height, width))
        numbers = channels * height * width
        if self.masker.features(numbers) != numbers:
            raise InputError(
                f"the masker inside Superpixels must hide each of the {numbers} numbers of an "
                f"image but {self.masker!r:.80} has {self.masker.features(numbers)} features."
            )
        if isinstance(self.grid, tuple) and (self.grid[0] > height or self.grid[1] > width):
            raise InputError(
                f"a grid of {self.grid[0]} × {self.grid[1]} cells needs at least as many lines and "
                f"columns of pixels, but the images are {height} × {width}; use a coarser grid."
            )
        if self.labels is not None and self.labels.shape != (height, width):
            raise InputError(
                f"the superpixel map must have the images' size {height} × {width} but is "
                f"{self.labels.shape[0]} × {self.labels.shape[1]}; make it for these images."
            )

    @property
    def map(self) -> NDArray[np.int64]:
        """The feature of each pixel, (height, width)."""
        _, height, width = self._shape
        if self.labels is not None:
            found: NDArray[np.int64] = self.labels
            return found
        lines, columns = self.grid if isinstance(self.grid, tuple) else (height, width)
        line, column = _cells(height, lines), _cells(width, columns)
        return line[:, None] * columns + column[None, :]

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each feature: its cell's line and column, or its region's number."""
        if self.labels is not None:
            return tuple(f"region {i}" for i in range(int(self.labels.max()) + 1))
        _, height, width = self._shape
        lines, columns = self.grid if isinstance(self.grid, tuple) else (height, width)
        return tuple(f"r{i}c{j}" for i in range(lines) for j in range(columns))

    @property
    def index(self) -> tuple[int, ...]:
        """The feature of each number of an image, channel after channel."""
        return tuple(np.tile(self.map.ravel(), self._shape[0]).tolist())

    @property
    def _shape(self) -> ImageShape:
        if self.shape is None:
            raise InputError(
                "Superpixels must know the images' size; fit on images, or use "
                "Superpixels(…).bound((channels, height, width))."
            )
        return self.shape

    def features(self, columns: int) -> int:
        """Return the number of superpixels.

        Parameters
        ----------
        columns : how many numbers an image has; it must be channels × height × width of ``shape``.
        """
        self._columns(columns)
        return int(self.map.max()) + 1

    def width(self, columns: int) -> int:
        """Return the width of what a predictor takes; with `Token` the mask is one more channel.

        Parameters
        ----------
        columns : how many numbers an image has; it must be channels × height × width of ``shape``.
        """
        self._columns(columns)
        _, height, width = self._shape
        if type(self.masker) is Token:
            return columns + height * width
        return self.masker.width(columns)

    @property
    def shown_shape(self) -> ImageShape:
        """(channels, height, width) of what a predictor is shown."""
        channels, height, width = self._shape
        total = self.width(channels * height * width)
        return total // (height * width), height, width

    def _columns(self, columns: int) -> None:
        expected = int(np.prod(self._shape))
        if columns != expected:
            raise InputError(
                f"images of {' × '.join(map(str, self._shape))} are rows of {expected} numbers, "
                f"but rows of {columns} came."
            )

    def pixels(self, mask: Float[Tensor, "batch features"]) -> Float[Tensor, "batch pixels"]:
        """The mask of each pixel.

        Parameters
        ----------
        mask : (batch, features), 1 = shown.
        """
        if self.grid is None and self.labels is None:
            return mask
        return mask.index_select(-1, self._map_on(mask.device))

    def _map_on(self, device: torch.device) -> Tensor:
        """On the device, made once: a captured step cannot copy from the host."""
        cache: dict[torch.device, Tensor] = self._on  # type: ignore[attr-defined]
        if device not in cache:
            cache[device] = torch.from_numpy(self.map.ravel()).to(device)
        return cache[device]

    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch features"]
    ) -> Float[Tensor, "batch width"]:
        channels, height, width = self._shape
        shown = self.pixels(mask)
        spread = shown if channels == 1 else shown.repeat(1, channels)
        inner = self.masker
        if type(inner) is Token:  # the user's own kind of one is asked as any other
            return torch.cat([x * spread, shown], dim=-1)
        if isinstance(inner, Fill):
            filled = inner.filled(x.reshape(-1, channels, height, width)).reshape(x.shape)
            return x * spread + filled * (1 - spread)  # exactly x where shown
        return inner(x, spread)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Superpixels) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        what = f"grid={self.grid}"
        if self.labels is not None:
            regions, size = int(self.labels.max()) + 1, self.labels.shape
            digest = zlib.crc32(self.labels.tobytes())  # a run that resumes must know it again
            what = f"labels=<{regions} regions of {size[0]} × {size[1]}, {digest:08x}>"
        return f"Superpixels({what}, masker={self.masker!r}, shape={self.shape})"


def _cells(length: int, cells: int) -> NDArray[np.int64]:
    """The cell of each of ``length`` places; sizes differ by at most one.

    >>> _cells(7, 3).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    return (np.arange(length) * cells) // length


def _label_map(labels: ArrayLike) -> NDArray[np.int64]:
    try:
        values = np.asarray(labels)
    except ValueError as error:  # lines of different lengths
        raise InputError(
            "a superpixel map must be an array (height, width) of whole numbers but its lines "
            "differ in length."
        ) from error
    if values.ndim != 2 or values.dtype.kind not in "iub":
        raise InputError(
            "a superpixel map must be an array (height, width) of whole numbers but has shape "
            f"{values.shape} and type {values.dtype}."
        )
    found = np.unique(values)
    if not values.size or found[0] != 0 or found[-1] != len(found) - 1:
        raise InputError(
            "the regions of a superpixel map must be numbered 0, 1, 2, … without gaps but are "
            f"{found[:5].tolist()}…; renumber them."
        )
    return values.astype(np.int64)
