"""The paper's synthetic tables S1, S2 and S3, and INVASE's Syn1 … Syn6: their truth is known.

All features are standard normal, independent unless a correlation is asked for. x11 decides which
of two leaves makes y, and P(y = 1 | x) = 1 / (1 + f(x)) with::

    f_A = exp(x1 · x2)
    f_B = exp(x3² + x4² + x5² + x6² − 4)
    f_C = exp(−10 sin(0.2 x7) + |x8| + x9 + exp(−x10) − 2.4)

    S1: x11 < 0: A, else B      S2: x11 < 0: A, else C      S3: x11 < 0: B, else C

So a row's truth is its leaf's features and the control-flow feature x11. Syn1, Syn2 and Syn3 are
the leaves A, B and C alone, where x11 means nothing; Syn4, Syn5 and Syn6 are S1, S2 and S3.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unmasked.errors import InputError

CONTROL_FLOW = 10
"""Column of x11, the feature that decides which leaf applies."""

_LEAF_FEATURES = {"A": (0, 1), "B": (2, 3, 4, 5), "C": (6, 7, 8, 9)}
_TREES: dict[str, tuple[str, ...]] = {
    **{"S1": ("A", "B"), "S2": ("A", "C"), "S3": ("B", "C")},
    **{"Syn1": ("A",), "Syn2": ("B",), "Syn3": ("C",)},
    **{"Syn4": ("A", "B"), "Syn5": ("A", "C"), "Syn6": ("B", "C")},
}


@dataclass(frozen=True)
class Synthetic:
    """Rows of a synthetic table with everything that is true about them.

    Attributes
    ----------
    name : as it was asked for, so "Syn4" where "S1" would have drawn the same.
    x : (rows, features) features.
    y : (rows,) labels 0 and 1.
    truth : (rows, features) bool, the features that P(y | x) depends on in that row.
    probability : (rows,) the true P(y = 1 | x).
    branch : (rows,) the leaf of each row, such as "B".
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.int64]
    truth: NDArray[np.bool_]
    probability: NDArray[np.float64]
    branch: NDArray[np.str_]

    @property
    def feature_names(self) -> list[str]:
        return [f"x{i + 1}" for i in range(self.x.shape[1])]


def synthetic(
    name: str, rows: int, seed: int, *, noise_features: int = 0, correlation: float = 0.0
) -> Synthetic:
    """Draw rows of S1 … S3 or Syn1 … Syn6, with features that mean nothing if asked.

    Parameters
    ----------
    name : "S1", "S2", "S3" or "Syn1" … "Syn6".
    rows : how many to draw, at least 1.
    seed : of the draw; the same seed draws the same rows.
    noise_features : how many features that mean nothing follow x11; 0 by default.
    correlation : of any two features, those that mean nothing included; at least 0, below 1. By
        default 0.

    Examples
    --------
    >>> data = synthetic("S3", 5, seed=0, noise_features=2)
    >>> data.x.shape, data.feature_names[-1]
    ((5, 13), 'x13')
    """
    leaves = leaves_of(name)
    check_correlation(correlation)
    if rows < 1 or noise_features < 0:
        raise InputError(
            f"rows must be at least 1 and noise_features at least 0 but are {rows} and "
            f"{noise_features}."
        )
    random = np.random.default_rng(seed)
    x = _features(random, rows, CONTROL_FLOW + 1 + noise_features, correlation)
    negative = x[:, CONTROL_FLOW] < 0
    truth = np.zeros(x.shape, dtype=bool)
    truth[:, CONTROL_FLOW] = len(leaves) > 1
    here = np.where(negative, leaves[0], leaves[-1])  # (rows,) the leaf of each
    exponent = np.empty(rows)
    for leaf in leaves:
        at = here == leaf
        exponent[at] = log_odds_against(leaf, x[at])
        truth[np.ix_(at, _LEAF_FEATURES[leaf])] = True
    probability: NDArray[np.float64] = expit(-exponent)
    y = (random.random(rows) < probability).astype(np.int64)
    return Synthetic(name, x, y, truth, probability, here)


def leaves_of(name: str) -> tuple[str, ...]:
    """The leaf for x11 < 0 and the one for all others, or the only leaf."""
    if name not in _TREES:
        raise InputError(f"the synthetic sets are {', '.join(_TREES)} but {name!r} was asked for.")
    return _TREES[name]


def check_correlation(correlation: Any) -> None:
    """Refuse what is no correlation that any number of features can have with each other."""
    number = isinstance(correlation, Real) and not isinstance(correlation, bool)
    if not number or not 0 <= correlation < 1:
        raise InputError(
            f"correlation must be a number of at least 0 and below 1 but is {correlation!r}; "
            "pass 0 for independent features."
        )


def _features(
    random: np.random.Generator, rows: int, columns: int, correlation: float
) -> NDArray[np.float64]:
    """Standard normal features (rows, columns), each two with the same correlation."""
    own = random.standard_normal((rows, columns))
    if correlation == 0:
        return own
    common = random.standard_normal((rows, 1))
    x: NDArray[np.float64] = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    return x


def log_odds_against(leaf: str, x: NDArray[Any]) -> NDArray[np.float64]:
    """log f of a leaf, the log-odds against y = 1, for rows (rows, ≥ 10) of features."""
    result: NDArray[np.float64]
    if leaf == "A":
        result = x[:, 0] * x[:, 1]
    elif leaf == "B":
        result = (x[:, 2:6] ** 2).sum(1) - 4
    else:
        result = -10 * np.sin(0.2 * x[:, 6]) + np.abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4
    return result
