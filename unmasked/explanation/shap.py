"""Rows in the form that SHAP wants beside its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.errors import InputError


def table_data(data: Any, index: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """The explained rows, (rows, features), from a table that holds them."""
    if isinstance(data, pd.DataFrame):
        data = matched_rows(data, index, names)
    values = np.asarray(data)
    if values.shape != (len(index), len(names)):
        raise InputError(
            f"data must have the explanation's {len(index):,} rows and {len(names):,} features but "
            f"has shape {values.shape}; give the explained rows, a column for each feature."
        )
    return values


def image_data(data: Any, rows: int, size: tuple[int, ...]) -> NDArray[Any]:
    """The explained images, (rows, height, width, channels), as SHAP takes them."""
    values = np.asarray(data)
    if values.ndim != 4 or (values.shape[0], *values.shape[2:]) != (rows, *size):
        raise InputError(
            f"data must be the {rows:,} explained images (rows, channels, {size[0]}, {size[1]}) "
            f"but has shape {values.shape}."
        )
    return np.moveaxis(values, 1, -1)


def matched_rows(data: pd.DataFrame, index: NDArray[Any], names: Sequence[str]) -> pd.DataFrame:
    """Rows by label and columns by name, where the table has them; else as they are."""
    names = list(names)
    data = data.rename(columns=str)
    if set(names) <= set(data.columns):
        data = data[names]
    if data.index.is_unique and pd.Index(index).isin(data.index).all():
        return data.loc[list(index)]
    if len(data) != len(index) or set(index.tolist()) & set(data.index):
        absent = [label for label in index.tolist() if label not in data.index]
        told = f"row {absent[0]!r} is not there" if absent else "its labels repeat"
        raise InputError(
            f"data must hold the {len(index):,} explained rows under their labels, but of its "
            f"{len(data):,} rows {told}; give the table that was explained."
        )
    return data
