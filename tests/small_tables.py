"""Small tables and quick estimators that the tests of the user-facing classes share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked import L2X, MLP, BaseX, EvalX, Full, Invase, PostHoc, RealX, Training
from unmasked.errors import DataWarning

NAMES = ["age", "dose", "weight", "height"]
TINY = MLP((8,))
Found = TypeVar("Found")


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


SHORT = Training(epochs=3, batch_size=20, learning_rate=0.05)


def small(kind: Callable[..., Any], networks: tuple[str, ...], **changes: Any) -> Any:
    """An estimator that fits in a fraction of a second and changes visibly while doing so."""
    settings: dict[str, Any] = {
        **dict.fromkeys(networks, TINY),
        "training": SHORT,
        "progress": False,
        "device": "cpu",
        "random_state": 0,
    }
    return kind(**{**settings, **changes})


def quick(**changes: Any) -> RealX:
    return small(RealX, ("selector", "predictor"), **{"sparsity": 0.1, **changes})


def quick_first(**changes: Any) -> RealX:
    return quick(**{"predictor_first": True, **changes})


def quick_base(**changes: Any) -> BaseX:
    return small(BaseX, ("selector", "predictor"), **{"sparsity": 0.1, **changes})


def quick_invase(**changes: Any) -> Invase:
    return small(Invase, ("selector", "predictor"), **{"sparsity": 0.1, **changes})


def quick_l2x(**changes: Any) -> L2X:
    return small(L2X, ("selector", "predictor"), **{"k": 2, **changes})


def quick_full(**changes: Any) -> Full:
    return small(Full, ("predictor",), **changes)


def quick_evaluator(**changes: Any) -> EvalX:
    return small(EvalX, ("predictor",), **changes)


# Every explainer, for promises that are the same for all; those that learn what to show.
EXPLAINERS: dict[str, Callable[..., Any]] = {
    "RealX": quick,
    "RealX, predictor first": quick_first,
    "BaseX": quick_base,
    "Invase": quick_invase,
    "L2X": quick_l2x,
    "Full": quick_full,
}
SELECTING = {name: make for name, make in EXPLAINERS.items() if name != "Full"}
# A path of settings for each, by the name of its parameter.
PATHS: dict[str, dict[str, Any]] = {
    name: {"k": [1, 3, 2]} if name == "L2X" else {"sparsity": [0.01, 0.3, 3.0]}
    for name in SELECTING
}


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


def loud(work: Callable[[], Found]) -> tuple[Found, list[str]]:
    """What work returns, and what it remarked."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = work()
    return found, [str(one.message) for one in caught if one.category is DataWarning]
