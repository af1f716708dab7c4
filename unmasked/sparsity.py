"""λ as the user gives it: a number, a list, or "auto"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmasked.errors import InputError

AUTO_PRICES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Prices of one feature, in nats, that ``sparsity="auto"`` tries; λ is the price × features."""


def check_sparsity(sparsity: Any) -> None:
    """Refuse anything but a number ≥ 0, a list of them without duplicates, or "auto"."""
    if isinstance(sparsity, str):
        if sparsity != "auto":
            raise InputError(
                f"sparsity must be a number, a list of numbers or 'auto' but is {sparsity!r}."
            )
        return
    if isinstance(sparsity, int | float | np.number):
        values = [sparsity]
    elif isinstance(sparsity, Sequence | np.ndarray) and len(np.shape(sparsity[:1])) == 1:
        values = list(sparsity)
    else:
        raise InputError(
            f"sparsity must be a number, a list of numbers or 'auto' but is {sparsity!r}."
        )
    for value in values:
        if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
            raise InputError(
                "sparsity (λ, the price in nats of showing everything) must be a finite number of "
                f"at least 0 but is {value!r}."
            )
    if not values or len(set(values)) < len(values):
        raise InputError(f"sparsity must list different numbers but is {values}.")


def sparsity_path(sparsity: float | Sequence[float] | str, features: int) -> tuple[float, ...]:
    """The λ values to train.

    >>> sparsity_path("auto", 100)
    (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """
    if isinstance(sparsity, str):
        return tuple(price * features for price in AUTO_PRICES)
    if isinstance(sparsity, int | float | np.number):
        return (float(sparsity),)
    return tuple(float(value) for value in sparsity)
