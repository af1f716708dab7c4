"""Read images, and learn their size and statistics: the counterpart of `Columns`.

Inside, an image is one long row, channel after channel, line after line, so that tables and images
share every other part; networks that want pictures are given pictures (`ForImages`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from unmasked.errors import InputError
from unmasked.inputs.stored import StoredImages, StoredRows
from unmasked.networks.tables import MLP, Factory, SetMLP
from unmasked.shapes import ImageShape


def is_images(x: Any) -> bool:
    """Return True for images (rows, channels, height, width), one array or a list of images."""
    lists = 0
    while isinstance(x, list | tuple) and len(x):
        x, lists = x[0], lists + 1
    return lists + int(getattr(x, "ndim", 0)) == 4


def read_images(x: Any) -> NDArray[np.float32]:
    """Images as an array (rows, channels, height, width) of finite numbers.

    Images that are stored on disk stay there: they are whole numbers, and of one size.
    """
    if isinstance(x, StoredImages):
        return cast(NDArray[np.float32], x)
    values = _stack([_array(image) for image in x]) if isinstance(x, list | tuple) else _array(x)
    if values.ndim != 4 or 0 in values.shape:
        raise InputError(
            "images must come as (rows, channels, height, width), at least one of each, but came "
            f"with shape {values.shape}."
        )
    if values.dtype == object or values.dtype.kind not in "buif":
        raise InputError(f"images must hold numbers but hold {values.dtype}.")
    with np.errstate(over="ignore"):  # what is too large is told below
        values = values.astype(np.float32, copy=False)
    wrong = ~np.isfinite(values).all(axis=(1, 2, 3))
    if wrong.any():
        raise InputError(
            "images must hold finite numbers of at most 3e38 but image "
            f"{int(np.argmax(wrong))} does not, nor do {int(wrong.sum()) - 1} others; replace "
            "NaN and infinite values."
        )
    return values


def unpacked(x: Any, y: Any, *, labels: bool) -> tuple[Any, Any]:
    """A ``Dataset`` as its images and, where ``labels`` are wanted and none came, its labels.

    Anything else is returned as it came.
    """
    if not isinstance(x, Dataset):
        return x, y
    images, own = from_dataset(x)
    return images, own if labels and y is None else y


def from_dataset(dataset: Any) -> tuple[Any, Any]:
    """All items (image, label) of a PyTorch ``Dataset``: images and labels as arrays."""
    images, labels = [], []
    if not hasattr(dataset, "__len__"):
        raise InputError(
            "a Dataset must have a length and numbered items but "
            f"{type(dataset).__name__} has none; collect its items in an array."
        )
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"a Dataset must give pairs (image, label) but item {i} is a "
                f"{type(item).__name__}; wrap it in one that does."
            )
        if not hasattr(item[0], "ndim"):  # such as a picture of PIL, whose channels come last
            raise InputError(
                "a Dataset must give images as arrays or tensors (channels, height, width) but "
                f"that of item {i} is a {type(item[0]).__name__}; convert it in the Dataset."
            )
        images.append(_array(item[0]))
        labels.append(_array(item[1]))
    if not images:
        raise InputError("a Dataset must have at least one item but has none.")
    if len({label.shape for label in labels}) > 1:
        raise InputError(
            "the labels of a Dataset must have one shape but have "
            f"{' and '.join(map(str, sorted({label.shape for label in labels})[:3]))}."
        )
    return _stack(images), np.stack(labels)


def _array(x: Any) -> NDArray[Any]:
    return np.asarray(x.detach().cpu().numpy() if hasattr(x, "detach") else x)


def _stack(images: list[NDArray[Any]]) -> NDArray[Any]:
    """Images of one size as one array."""
    shapes = sorted({image.shape for image in images})
    if len(shapes) > 1:
        raise InputError(
            f"all images must have one size but have {' and '.join(map(str, shapes[:3]))}; "
            "resize or crop them first."
        )
    return np.stack(images)


@dataclass(frozen=True)
class Pixels:
    """The size of the images, each channel's mean and scale over training pixels, and the names of
    the features (set by the masker: a pixel or a superpixel each)."""

    shape: ImageShape
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    features: tuple[str, ...]
    index: tuple[int, ...]
    """For each number of an image, row by row of the matrix, the number of its feature."""

    @classmethod
    def learn(
        cls,
        images: NDArray[np.float32] | StoredImages,
        names: tuple[str, ...],
        index: tuple[int, ...],
    ) -> Pixels:
        """Statistics of the training images."""
        channels, height, width = images.shape[1:]
        if isinstance(images, StoredImages):
            mean, scale = images.statistics
        else:
            mean = images.mean(axis=(0, 2, 3), dtype=np.float64)
            scale = images.std(axis=(0, 2, 3), dtype=np.float64)
        scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
        return cls(
            (channels, height, width), tuple(mean.tolist()), tuple(scale.tolist()), names, index
        )

    @property
    def plain(self) -> bool:
        """The masker already knows what belongs together."""
        return True

    def check(self, images: NDArray[np.float32] | StoredImages) -> None:
        """Refuse images of another size than those learned from."""
        if images.shape[1:] != self.shape:
            advice = "resize them"
            if images.shape[1] != self.shape[0]:
                grey = self.shape[0] == 1 and images.shape[1] == 3
                advice = "convert them to grey" if grey else "give them the same channels"
            raise InputError(
                f"images must be {_size(self.shape)} as in training but are "
                f"{_size(images.shape[1:])}; {advice}."
            )

    def matrix(self, images: NDArray[np.float32] | StoredImages) -> NDArray[np.float32]:
        """Standardised images as rows, (rows, channels · height · width); stored ones stay so."""
        self.check(images)
        mean, scale = np.array(self.mean, np.float32), np.array(self.scale, np.float32)
        if isinstance(images, StoredImages):
            return cast(NDArray[np.float32], StoredRows(images, mean, scale))
        broad = (1, -1, 1, 1)
        standard: NDArray[np.float32] = images - mean.reshape(broad)
        standard /= scale.reshape(broad)  # in place: one pass over memory less
        return standard.reshape(len(images), -1)

    def to_config(self) -> dict[str, Any]:
        """Plain values for JSON; what the masker says is saved with the masker."""
        return {
            "images": True,
            "shape": list(self.shape),
            "mean": list(self.mean),
            "scale": list(self.scale),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], names: tuple[str, ...], index: tuple[int, ...]
    ) -> Pixels:
        """The inverse of `to_config`."""
        channels, height, width = config["shape"]
        return cls(
            (channels, height, width), tuple(config["mean"]), tuple(config["scale"]), names, index
        )


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} × {shape[1]} × {shape[2]} (channels, height, width)"


@dataclass(frozen=True)
class ForImages:
    """A network of pictures as one of rows: a factory (inputs, outputs) -> Module.

    An `MLP` reads the row as it is. A module is given (batch, *shape); so is what a factory makes,
    which is called with the shape (channels, height, width) and the number of outputs. What they
    return may be a map (batch, 1, lines, columns), one logit for each cell of a grid; or one for
    each pixel, whose mean over each of the ``regions`` (height, width) is then taken.
    """

    network: nn.Module | Factory
    shape: ImageShape
    regions: NDArray[np.int64] | None = None

    def __call__(self, inputs: int, outputs: int) -> nn.Module:
        network: Any = self.network
        if isinstance(network, SetMLP) and self.shape[0] != 2:
            raise InputError(
                "SetMLP is a predictor that takes one channel and its mask side by side but is "
                f"given {self.shape[0]}; use it with grey images and masker=Token()."
            )
        if isinstance(network, MLP | SetMLP):
            return network(inputs, outputs)
        if isinstance(network, nn.Module):
            module = copy.deepcopy(network)
        else:
            try:
                module = network(self.shape, outputs)
            except TypeError as error:  # such as a factory for tables
                raise InputError(
                    "with images a factory is called with ((channels, height, width), outputs), "
                    f"here ({self.shape}, {outputs}), but it failed: "
                    f"{(str(error) or type(error).__name__).splitlines()[0]}"
                ) from error
        if not isinstance(module, nn.Module):
            raise InputError(
                "with images a factory is called with ((channels, height, width), outputs) and "
                f"must return a torch.nn.Module but returned {type(module).__name__}."
            )
        regions = None if outputs == self.shape[1] * self.shape[2] else self.regions
        return nn.Sequential(nn.Unflatten(1, self.shape), module, Row(regions))


class Row(nn.Module):
    """A map (batch, …) as rows (batch, outputs); what is no map is left for others to refuse.

    A map of all pixels (batch, 1, height, width) becomes its means over ``regions``.
    """

    def __init__(self, regions: NDArray[np.int64] | None = None) -> None:
        super().__init__()
        self.size = None if regions is None else tuple(regions.shape)
        index = torch.zeros(0, dtype=torch.long)
        if regions is not None:
            index = torch.from_numpy(np.ascontiguousarray(regions).ravel())
        # not saved with the weights: the masker knows them
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("shares", 1 / torch.bincount(index).float(), persistent=False)

    def forward(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dim() <= 2:
            return x
        flat = x.flatten(1)
        if self.size is None or x.dim() != 4 or x.shape[1] != 1 or tuple(x.shape[2:]) != self.size:
            return flat
        assert isinstance(self.index, Tensor)
        assert isinstance(self.shares, Tensor)
        sums = flat.new_zeros(flat.shape[0], len(self.shares)).index_add(1, self.index, flat)
        return sums * self.shares.to(flat.dtype)
