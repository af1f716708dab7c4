"""What `benchmarks/defaults.py` compares RealX with: SHAP's and LIME's top features, one fixed set.

shap and lime are imported when they are used: a machine with a GPU may have neither.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables_rivals import lime_values, tree_shap

from unmasked.datasets import synthetic
from unmasked.evaluation import ExactPosterior
from unmasked.metrics import log_likelihoods

FIXED_SEED = 200_000  # rows that find the fixed set are drawn apart from all others
FIXED_ROWS = 5_000
LIME_ROWS = 300
WIDE, WIDE_SHAP_ROWS, WIDE_LIME_ROWS = 1_000, 2_000, 50  # so many columns, so many rows explained


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Do the work: what it returns, and its seconds."""
    begun = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begun


def ready(library: str) -> None:
    """Import a library before any clock runs."""
    with warnings.catch_warnings():  # its import calls what newer matplotlib is about to drop
        warnings.simplefilter("ignore")
        importlib.import_module(library)


def top_of_each(values: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Show each row's features of the largest values, as many as the row's size.

    >>> top_of_each(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]), np.array([1, 2])).astype(int)
    array([[1, 0, 0],
           [0, 1, 1]])
    """
    ranks = np.argsort(-values, axis=1, kind="stable").argsort(1)
    shown: NDArray[np.bool_] = ranks < sizes[:, None]
    return shown


def shap_masks(
    model: Any, x: NDArray[np.float64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], float]:
    """Show the largest |TreeSHAP values| of each row, and say the seconds; of wide tables fewer."""
    rows = x[:WIDE_SHAP_ROWS] if x.shape[1] >= WIDE else x
    ready("shap")
    values, seconds = timed(lambda: tree_shap(model, rows)["only"])
    return top_of_each(values, sizes[: len(rows)]), seconds


def lime_masks(
    model: Any,
    learned: NDArray[np.float64],
    x: NDArray[np.float64],
    sizes: NDArray[np.int64],
    seed: int,
) -> tuple[NDArray[np.bool_], float]:
    """Show the largest |LIME weights| of the first rows, and say the seconds; of wide fewer."""
    rows = x[: WIDE_LIME_ROWS if x.shape[1] >= WIDE else LIME_ROWS]
    ready("lime.lime_tabular")
    values, seconds = timed(lambda: lime_values(model, learned, rows, [], seed))
    return top_of_each(values, sizes[: len(rows)]), seconds


@cache
def relevant(name: str) -> tuple[int, ...]:
    """The columns that make y in some rows of a set.

    >>> relevant("Syn4")
    (0, 1, 2, 3, 4, 5, 10)
    """
    return tuple(int(i) for i in np.flatnonzero(synthetic(name, 100, seed=0).truth.any(0)))


@cache
def best_fixed_set(name: str, correlation: float, size: int) -> tuple[int, ...]:
    """The columns that tell most of y if all rows show the same ones.

    Every set of so many relevant columns is tried, and judged by the expected log-likelihood of
    the exact posterior on rows that are drawn for this alone: no fixed set can do better.
    """
    rows = synthetic(name, FIXED_ROWS, FIXED_SEED, correlation=correlation)
    target = np.stack([1 - rows.probability, rows.probability], axis=1)
    judge = ExactPosterior(name, correlation=correlation)

    def worth(columns: tuple[int, ...]) -> float:
        masks = np.zeros(rows.x.shape, dtype=bool)
        masks[:, columns] = True
        return float(log_likelihoods(judge.predict_proba(rows.x, masks), target).mean())

    return max(combinations(relevant(name), min(size, len(relevant(name)))), key=worth)
