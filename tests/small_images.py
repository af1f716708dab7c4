"""Small images whose label one quadrant alone decides, and what is fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from small_tables import quick, small
from torch import Tensor, nn
from torch.utils.data import Dataset

from unmasked import MLP, RealX, Roar, SubsetCollection, Superpixels, Training
from unmasked.masks.maskers import Masker

RIGHT = 2  # lines 4 to 7, columns 0 to 3: the third cell of a 2 × 2 grid
GAP = 0.75


def pictures(
    count: int = 60, channels: int = 1, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """8 × 8 pixels of noise; the mean of quadrant `RIGHT` is ±0.75 with the label.

    With one channel the best accuracy is Φ(0.75 · √16) = 0.9987.
    """
    random = np.random.default_rng(seed)
    y = np.arange(count) % 2
    x = random.standard_normal((count, channels, 8, 8)).astype(np.float32)
    x[:, :, 4:, :4] += np.where(y == 1, GAP, -GAP).astype(np.float32)[:, None, None, None]
    return x, y


X, Y = pictures()
RGB, _ = pictures(channels=3)
BYTES = np.clip(np.round(60 * RGB + 120), 0, 255).astype(np.uint8)
CELLS = Superpixels(2)
REGIONS = np.array([[0] * 8] * 3 + [[2] * 4 + [1] * 4] * 5)
LONGER = Training(epochs=30, batch_size=40, learning_rate=0.01, selector_learning_rate=0.01)
WIDE = MLP((16,))


def numbers(fitted: Any, x: Any) -> tuple[NDArray[Any], ...]:
    """All that a fitted explainer says of images."""
    explanation = fitted.explain(x)
    return explanation.masks, explanation.probabilities, fitted.predict_proba(x)


def assert_same(one: Any, other: Any, x: Any = X) -> None:
    for this, that in zip(numbers(one, x), numbers(other, x), strict=True):
        np.testing.assert_array_equal(this, that)


def subsets(**changes: Any) -> SubsetCollection:
    return small(SubsetCollection, ("predictor",), **changes)


def roar(**changes: Any) -> Roar:
    return small(Roar, ("predictor",), **changes)


def only(cell: int, rows: int) -> NDArray[np.bool_]:
    """Masks that show one of four superpixels."""
    return np.arange(4) == np.full((rows, 1), cell)


def some_masks(rows: int, features: int = 4, seed: int = 0) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random((rows, features)) < 0.5


def conv_predictor(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 3, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3 * height * width, outputs),
    )


def conv_selector(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    """Returns a map (batch, 1, side, side), one logit for each cell."""
    side = math.isqrt(outputs)
    return nn.Sequential(
        nn.Conv2d(shape[0], 3, 3, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(side),
        nn.Conv2d(3, 1, 1),
    )


def made(factory: Callable[..., nn.Module], channels: int, outputs: int) -> nn.Module:
    """A ready module of a factory."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory((channels, 8, 8), outputs)


CONV: dict[str, Any] = {"predictor": conv_predictor, "selector": conv_selector}


def trained_real_x() -> RealX:
    """With a low price and a high one."""
    explainer = quick(
        selector=WIDE, predictor=WIDE, training=LONGER, masker=CELLS, sparsity=[0.2, 3.0]
    )
    return explainer.fit(*pictures(400))


class Pairs(Dataset[Any]):
    """Images and labels as a user's own Dataset gives them."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return self.images[i], self.labels[i]


@dataclass(frozen=True)
class Paint(Masker):
    """A user's own masker: hidden numbers take one value."""

    value: float = 7.0

    def features(self, columns: int) -> int:
        return columns

    def width(self, columns: int) -> int:
        return columns

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * mask + self.value * (1 - mask)
