"""Marks for promises that all explainers hold, and what their tests compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_tables import (
    EXPLAINERS,
    PATHS,
    SELECTING,
)

from unmasked.explanation.explanation import Explanation

PATH = [0.01, 0.3, 3.0]
Maker = Callable[..., Any]
each_explainer = pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())
each_selecting = pytest.mark.parametrize("make", SELECTING.values(), ids=SELECTING.keys())
each_path = pytest.mark.parametrize(
    ("make", "path"), [(make, PATHS[name]) for name, make in SELECTING.items()], ids=SELECTING
)


def same(one: Explanation, other: Explanation) -> bool:
    return np.array_equal(one.masks, other.masks) and np.array_equal(
        one.probabilities, other.probabilities
    )
