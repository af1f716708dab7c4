"""A small table with explanations of every kind, and quick settings, for the tests of the audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked import AuditSettings

FEATURES = ["age", "dose", "weight", "height", "pulse"]
QUICK = AuditSettings(
    learner="boosting",
    folds=2,
    encoding_folds=3,
    sample=30,
    random_draws=2,
    bootstrap_draws=100,
    gallery=20,
)


def table(count: int = 400, seed: int = 0) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Labels follow age and dose; the other columns mean nothing."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, len(FEATURES)))
    y = np.where(x[:, 0] + x[:, 1] + 0.7 * random.standard_normal(count) > 0, "ill", "well")
    index = pd.Index([f"p{i}" for i in range(count)], name="patient")
    return pd.DataFrame(x, columns=FEATURES, index=index), y


def honest(count: int = 400) -> NDArray[np.int64]:
    """Age and dose of every row, and for every other row its weight: chosen by nobody's label."""
    masks = np.zeros((count, len(FEATURES)), dtype=np.int64)
    masks[:, :2] = 1
    masks[::2, 2] = 1
    return masks


def code(y: NDArray[Any]) -> NDArray[np.int64]:
    """One feature that means nothing: the height of the ill, the pulse of the well."""
    return np.eye(len(FEATURES), dtype=np.int64)[np.where(y == "ill", 3, 4)]


def attributions(X: pd.DataFrame) -> NDArray[np.float64]:
    """As of a linear model that has found age and dose."""
    found: NDArray[np.float64] = X.to_numpy() * np.array([1.0, 1.0, 0.1, 0.1, 0.1])
    return found
