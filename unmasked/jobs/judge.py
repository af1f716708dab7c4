"""EVAL-X in a job on a table: who it is, whether it can be saved, whether it may judge anybody."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.health import worthless
from unmasked.errors import DataWarning
from unmasked.jobs.predictions import Predictions
from unmasked.metrics import Interval, bootstrap, log_likelihoods, mean_statistic
from unmasked.storage import has_skops

_DRAWS = 1000
_MUCH = 0.25  # of what is shown is worth: useless features always cost a little


def savable() -> str:
    """What `EvalX` may pick from, said before training: boosted trees are saved by skops."""
    if has_skops():
        return "auto"
    warnings.warn(
        DataWarning(
            "EVAL-X will be networks alone, as boosted trees cannot be saved without the package "
            "'skops'; run: pip install skops."
        ),
        stacklevel=2,
    )
    return "network"


def doubts(predictions: Predictions, classes: NDArray[Any], learned: Any, target: str) -> list[str]:
    """What must be read before any figure: an EVAL-X that can judge nobody. None where it can.

    learned : the labels that it learned from, of these classes, whose shares it should beat.
    """
    if predictions.labels is None:
        return []
    truth = predictions.labels[:, None] == np.array(predictions.classes, dtype=object)
    counts = (pd.Index(learned).to_numpy()[:, None] == classes).sum(0) + 0.5
    shares = counts / counts.sum()  # half a row more, so that none has no chance
    full, shown, trivial = (
        log_likelihoods(p, truth)
        for p in (predictions.everything, predictions.shown, np.broadcast_to(shares, truth.shape))
    )
    found = worthless(_paired(full - trivial))
    lost = _paired(shown - full)
    if lost.low > 0 and _paired(shown - full - _MUCH * (shown - trivial)).low > 0:
        found.append(
            f"it predicts {target} worse from everything than from what is shown, by {lost} nats "
            "a row"
        )
    if not found:
        return []
    return [
        f"EVAL-X, which judges here, is not good enough: {'; and '.join(found)}. Do not rely on "
        f"the figures below. What helps: more rows, or columns that say more about {target}."
    ]


def _paired(values: NDArray[np.float64]) -> Interval:
    return bootstrap({"it": mean_statistic(values)}, len(values), draws=_DRAWS, seed=0)["it"]
