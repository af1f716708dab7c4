"""Mask laws: how random masks are drawn, independently of the row.

A law is a pure function of uniform noise, so that a run can be resumed and compared without any
generator's state. It also knows which mask sizes it produces, so that an evaluator trained on it
can say when it is asked about others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from scipy.stats import binom
from torch import Tensor

from unmasked.errors import InputError
from unmasked.shapes import Float

_TAIL = 0.0005  # sizes rarer than this on either side count as never seen


class MaskLaw(ABC):
    """A distribution over masks that knows nothing about the row."""

    @abstractmethod
    def noise_width(self, features: int) -> int:
        """How many uniform numbers one mask takes."""

    @abstractmethod
    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        """Turn uniform noise on [0, 1) into masks of zeros and ones."""

    @abstractmethod
    def sizes(self, features: int) -> tuple[int, int]:
        """Smallest and largest number of shown features that training sees often enough."""


@dataclass(frozen=True)
class Bernoulli(MaskLaw):
    """Each feature is shown with probability ``p``, independently. The paper uses p = 0.5.

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
        return features

    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        return (noise < self.p).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
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
        return features + 1

    def __call__(
        self, noise: Float[Tensor, "batch noise"], features: int
    ) -> Float[Tensor, "batch features"]:
        return (noise[..., :features] < noise[..., features:]).to(noise.dtype)

    def sizes(self, features: int) -> tuple[int, int]:
        return 0, features
