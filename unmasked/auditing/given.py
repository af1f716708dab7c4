"""`Given`: one explanation as it came, whatever it came as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError
from unmasked.targets import as_array


@dataclass(frozen=True)
class Given:
    """One explanation as it came.

    values : (rows, features), 0/1 masks or attributions; (rows, features, classes) where
    attributions came for each class, NaN where a row has none for a class. features, ids : names
    of its columns and labels of its rows, where it has any. ranks : (rows, features) numbers that
    order the features of masks, if known. classes : what the third axis holds, where that is
    known: names of classes, or their numbers in the model's order. listed : how many features
    every row weighs, where the others merely have no weight.
    """

    name: str
    values: NDArray[Any]
    features: list[str] | None = None
    ids: NDArray[Any] | None = None
    ranks: NDArray[Any] | None = None
    classes: list[str] | list[int] | None = None
    listed: int | None = None


def numbers(name: str, thing: Any) -> NDArray[Any]:
    """What came as an array (rows, features) or (rows, features, classes), or a sentence."""
    values = as_array(thing)
    if values.dtype == object:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            values = np.asarray(None)
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 3):
        shape = "" if values.ndim == 0 else f" of shape {values.shape}"
        raise InputError(
            f"explanation {name!r} must be a table of numbers (rows, features) but is a "
            f"{type(thing).__name__}{shape}."
        )
    if values.ndim == 3 and _are_interactions(values):
        raise InputError(
            f"explanation {name!r} holds interactions of {values.shape[1]} features with each "
            "other but one attribution for each feature is needed; sum them over the last axis."
        )
    return compact(values)


def _are_interactions(values: NDArray[Any]) -> bool:
    """Square and symmetric in every row, as SHAP's interaction values are."""
    rows, first, second = values.shape
    if first != second or first < 2 or not rows:
        return False
    some = values[:100]
    return bool(np.allclose(some, some.transpose(0, 2, 1)) and some.any())


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Zeros and ones as booleans: an eighth of the memory, for a million rows."""
    if values.dtype != bool and bool(np.isin(values, (0, 1)).all()):
        return values.astype(bool)
    return values
