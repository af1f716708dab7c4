"""Mask laws: how random masks are drawn, independently of the row.

A law is a pure function of uniform noise, so that a run can be resumed and compared without any
generator's state. It also knows which mask sizes it produces, so that an evaluator trained on it
can say when it is asked about others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from unmasked.checks import grid_pair, is_whole
from unmasked.errors import InputError
from unmasked.shapes import Float

_TAIL = 0.0005  # sizes rarer than this on either side count as never seen


class MaskLaw(ABC):
    """A distribution over masks that knows nothing about the row."""

    @abstractmethod
    def noise_width(self, features: int) -> int:
        """Return the number of uniform numbers that one mask over the features takes.

        Parameters
        ----------
        features : how many features a mask has.
        """

    @abstractmethod
    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        """Turn uniform noise on [0, 1) into masks of zeros and ones."""

    @abstractmethod
    def sizes(self, features: int) -> tuple[int, int]:
        """Smallest and largest number of shown features that training sees often enough.

        Parameters
        ----------
        features : how many features a mask has.
        """


@dataclass(frozen=True)
class Bernoulli(MaskLaw):
    """Each feature is shown with probability ``p``, independently. The paper uses p = 0.5.

    Parameters
    ----------
    p : the probability, from 0 to 1; 0.5 by default.

    Examples
    --------
    >>> Bernoulli(0.5).sizes(784)
    (346, 438)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(
                f"Bernoulli(p) needs a probability between 0 and 1 but got p={self.p}; "
                "the paper's is 0.5."
            )

    def noise_width(self, features: int) -> int:
        """Return ``features``: each has a uniform number of its own.

        Parameters
        ----------
        features : how many features a mask has.
        """
        return features

    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        return (noise < self.p).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
        """Return the sizes between which at least 999 of 1,000 masks lie.

        Parameters
        ----------
        features : how many features a mask has.
        """
        low, high = binom.ppf([_TAIL, 1 - _TAIL], features, self.p)
        return int(low), int(high)


@dataclass(frozen=True)
class UniformSize(MaskLaw):
    """Every size from 0 to all features equally often, every set of a size equally often.

    A threshold t ~ U(0, 1) is drawn for each row and a feature is shown when its own uniform
    number lies below t. Integrated over t the size is uniform on {0, …, features}
    (∫ C(d, k) tᵏ (1 − t)ᵈ⁻ᵏ dt = 1 / (d + 1)), with no sorting.

    >>> UniformSize().sizes(784)
    (0, 784)
    """

    def noise_width(self, features: int) -> int:
        """Return one more than ``features``: the threshold is a uniform number too.

        Parameters
        ----------
        features : how many features a mask has.
        """
        return features + 1

    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        return (noise[..., :features] < noise[..., features:]).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
        """Return 0 and ``features``: every size comes.

        Parameters
        ----------
        features : how many features a mask has.
        """
        return 0, features


@dataclass(frozen=True)
class Patches(MaskLaw):
    """Every size equally often, for cells of a grid, scattered or in patches of several widths.

    What a selector shows of a picture lies together; a predictor that has learned from scattered
    cells alone meets such masks unprepared. Uniform numbers on the grid, averaged over windows of
    w × w cells that wrap around its edges, are a rough landscape. Its k lowest cells are shown,
    where k ~ U{0, …, cells}, and w is one of ``widths``, equally often. With w = 1 this is
    `UniformSize`, so every mask can come. Each cell is shown equally often, whatever w is.

    Parameters
    ----------
    grid : (lines, columns) of cells, or one number for both, as in `Superpixels`.
    widths : of windows, odd and narrower than the grid, or 1; by default 1, 3 and 5 where they fit.

    Examples
    --------
    >>> law = Patches(4)
    >>> law.widths, law.noise_width(16), law.sizes(16)
    ((1, 3), 18, (0, 16))
    """

    grid: int | tuple[int, int]
    widths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        pair = grid_pair(self.grid)
        most = max(1, min(pair) - 1)  # a window as wide as the grid sees the same everywhere
        widths = tuple(w for w in (1, 3, 5) if w <= most) if self.widths is None else self.widths
        several = isinstance(widths, tuple | list) and len(widths) > 0
        if not several or not all(is_whole(w) and w % 2 and 0 < w <= most for w in widths):
            raise InputError(
                f"widths must be odd whole numbers from 1 to {most}, narrower than the grid, but "
                f"are {self.widths!r}; name others."
            )
        object.__setattr__(self, "grid", pair)
        object.__setattr__(self, "widths", tuple(int(w) for w in widths))

    def noise_width(self, features: int) -> int:
        """Return two more than ``features``: size and window are drawn too.

        Parameters
        ----------
        features : how many features a mask has; it must be the number of cells.
        """
        self._check(features)
        return features + 2

    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        self._check(features)
        assert isinstance(self.grid, tuple)
        assert self.widths is not None
        cells, size, which = noise[..., :features], noise[..., -2:-1], noise[..., -1:]
        ground = cells.reshape(-1, 1, *self.grid)
        window = torch.floor(which * len(self.widths))  # (batch, 1)
        chosen = cells
        for number, width in enumerate(self.widths):
            around = pad(ground, (width // 2,) * 4, mode="circular")
            smooth = avg_pool2d(around, width, stride=1).reshape(cells.shape)
            chosen = torch.where(window == number, smooth, chosen)
        rank = chosen.argsort(-1).argsort(-1)
        return (rank < torch.floor(size * (features + 1))).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
        """Return 0 and ``features``: every size comes.

        Parameters
        ----------
        features : how many features a mask has; it must be the number of cells.
        """
        self._check(features)
        return 0, features

    def _check(self, features: int) -> None:
        assert isinstance(self.grid, tuple)
        lines, columns = self.grid
        if features != lines * columns:
            raise InputError(
                f"Patches are for a grid of {lines} × {columns} cells, but there are {features} "
                "features; give it the grid of the superpixels."
            )
