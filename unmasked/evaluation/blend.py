"""Networks, boosted trees or both: which predicts best from what is shown, on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmasked import defaults
from unmasked.engine import Data
from unmasked.evaluation import copies
from unmasked.masklaws import MaskLaw
from unmasked.metrics import gain_of, log_likelihoods

_DRAWS = 3  # random masks of each validation row
_JUDGED = 5000  # validation rows, at most

Predict = Callable[[NDArray[np.float32], NDArray[np.bool_]], NDArray[Any]]
"""(rows, columns) and their masks (rows, features) -> (rows, classes)."""


@dataclass(frozen=True)
class Trees:
    """Boosted trees on masked copies. used : the columns they know, count : copies of a row."""

    estimator: Any
    used: NDArray[np.bool_]
    count: int

    def predict(
        self, x: NDArray[np.float32], masks: NDArray[np.bool_], index: Any, classes: int
    ) -> NDArray[np.float64]:
        """p(class | what the masks show), (rows, classes)."""
        return copies.predict(self.estimator, self.used, copies.hide(x, masks, index), classes)


@dataclass(frozen=True)
class Choice:
    """share : of the boosted trees in what is predicted. reason : why, a sentence's second half."""

    share: float
    reason: str


def grow(drawn: copies.Copies, most: int, train: Data, valid: Data, seed: int) -> Trees | None:
    """Boosted trees on at most so many masked copies; None where they would take too long."""
    classes, columns = train.target.shape[1], train.x.shape[1]
    larger = max(train.rows, valid.rows)
    rows = larger * (classes if drawn.soft else 1)
    count = min(most, drawn.most(larger, classes), defaults.copies(rows, columns, classes))
    if count < 1 or not enough_to_learn(train, valid):
        return None
    return Trees(*copies.learn(defaults.boosting(), drawn, count, train, valid, seed))


def enough_to_learn(train: Data, valid: Data) -> bool:
    """Whether at least two classes have rows, and some of them rows to stop on."""
    known = train.target.sum(0) > 0
    return int(known.sum()) > 1 and bool((valid.target.sum(0) > 0)[known].any())


@dataclass(frozen=True)
class Asked:
    """Validation rows with masks that show everything, then random ones: who predicts them best?

    x : (rows, columns), target : (rows, classes), masks : several of (rows, features).
    """

    x: NDArray[np.float32]
    target: NDArray[Any]
    masks: list[NDArray[np.bool_]]

    @classmethod
    def of(cls, valid: Data, features: int, law: MaskLaw, seed: int) -> Asked:
        """Of some of the rows."""
        some = np.unique(np.linspace(0, valid.rows - 1, min(valid.rows, _JUDGED)).astype(np.int64))
        noise = torch.Generator().manual_seed(seed)
        masks = [np.ones((len(some), features), dtype=bool)]
        for _ in range(_DRAWS):
            uniform = torch.rand((len(some), law.noise_width(features)), generator=noise)
            masks.append(law(uniform, features).numpy() > 0)
        return cls(valid.x[some].numpy(), valid.target[some].numpy(), masks)

    def trees(self, networks: Predict, trees: Predict) -> Choice:
        """The share of the trees with which networks predict best."""
        asked = [(networks(self.x, own), trees(self.x, own)) for own in self.masks]
        return _said(_gains(asked, self.target, defaults.SHARES), len(self.x))

    def doubt(self, predict: Predict, prior: NDArray[np.float64]) -> float:
        """The share of the class shares, (classes,), with which it predicts best."""
        same = np.broadcast_to(prior, self.target.shape)
        asked = [(predict(self.x, own), same) for own in self.masks]
        return defaults.share(_gains(asked, self.target, defaults.DOUBTS))


def mixed(one: NDArray[Any], other: NDArray[Any], share: float) -> NDArray[np.float64]:
    """The mean of both probabilities, the other's with this weight."""
    result: NDArray[np.float64] = (1 - share) * one + share * other
    return result


def _gains(
    asked: list[tuple[NDArray[Any], NDArray[Any]]], target: NDArray[Any], shares: Sequence[float]
) -> dict[float, NDArray[np.float64]]:
    """For each share, (rows,): half for everything shown (the first), half for random masks."""
    weight = [0.5, *[0.5 / (len(asked) - 1)] * (len(asked) - 1)]

    def loglik(share: float) -> NDArray[np.float64]:
        each = [log_likelihoods(mixed(*both, share), target) for both in asked]
        result: NDArray[np.float64] = np.average(each, axis=0, weights=weight)
        return result

    alone = loglik(0.0)
    return {share: loglik(share) - alone for share in shares}


def _said(gains: dict[float, NDArray[np.float64]], rows: int) -> Choice:
    share = defaults.share(gains)
    best = share or max(gains, key=lambda own: float(gains[own].mean()))
    gain, error = gain_of(gains[best])
    figures = f"by {gain:.3f} ± {error:.3f} nats on {rows:,} validation rows"
    if not share:
        return Choice(0.0, f"boosted trees did not predict surely better ({figures})")
    better = "boosted trees predict better" if share == 1 else "together they predict better"
    return Choice(share, f"{better} than the networks alone ({figures})")
