"""Small tables and quick estimators that the tests of the user-facing classes share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked import MLP, EvalX, PostHoc, RealX, Training

NAMES = ["age", "dose", "weight", "height"]
TINY = MLP((8,))


def rows(count: int = 80, columns: int = 4, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels follow the first column, and less the second; the others mean nothing."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, columns))
    y = (x[:, 0] + 0.5 * x[:, 1] + 0.3 * random.standard_normal(count) > 0).astype(int)
    return x, y


def frame(count: int = 80) -> tuple[pd.DataFrame, NDArray[Any]]:
    """The same rows with names, and an index that is not 0, 1, 2, …"""
    x, y = rows(count)
    index = pd.Index([f"patient {i}" for i in range(count)])
    return pd.DataFrame(x, columns=NAMES, index=index), y


def mixed(count: int = 80) -> tuple[pd.DataFrame, NDArray[Any]]:
    """One column of each kind: number, text, category, truth value."""
    x, y = rows(count)
    table = pd.DataFrame(
        {
            "age": x[:, 0],
            "town": np.array(["Ulm", "Graz", "Łódź"])[np.arange(count) % 3],
            "grade": pd.Categorical(np.where(x[:, 1] > 0, "high", "low")),
            "smoker": x[:, 2] > 0,
        }
    )
    return table, y


def quick(**changes: Any) -> RealX:
    """A RealX that fits in a fraction of a second and changes visibly while doing so."""
    settings: dict[str, Any] = {
        "sparsity": 0.1,
        "selector": TINY,
        "predictor": TINY,
        "training": Training(epochs=3, batch_size=20, learning_rate=0.05),
        "progress": False,
        "device": "cpu",
        "random_state": 0,
    }
    return RealX(**{**settings, **changes})


def quick_evaluator(**changes: Any) -> EvalX:
    settings: dict[str, Any] = {
        "predictor": TINY,
        "training": Training(epochs=3, batch_size=20, learning_rate=0.05),
        "progress": False,
        "device": "cpu",
        "random_state": 0,
    }
    return EvalX(**{**settings, **changes})


def boosted(**changes: Any) -> EvalX:
    """EvalX with a small tree ensemble."""
    trees = HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5)
    return EvalX(**{"estimator": trees, "mask_copies": 5, "random_state": 0, **changes})


def posthoc(**changes: Any) -> PostHoc:
    """PostHoc with a network that trains in no time."""
    training = Training(epochs=3, batch_size=20, learning_rate=0.05)
    settings: dict[str, Any] = {"training": training, "progress": False, "device": "cpu"}
    return PostHoc(**{"predictor": TINY, "random_state": 0, **settings, **changes})


class Recorder:
    """A model of numbers that keeps what it was asked."""

    def __call__(self, X: Any) -> Any:
        self.asked = X
        first = np.asarray(X[:, 0] if not isinstance(X, pd.DataFrame) else X.iloc[:, 0])
        return 1 / (1 + np.exp(-first.astype(float)))


def assert_one_sentence(error: Exception) -> None:
    text = str(error)
    assert "\n" not in text
    assert ". " not in text.replace(" …", "")
    assert len(text) < 300
