"""Labels with less chance in them: each half itself, half what boosting expects without it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import KFold

from unmasked.explainers.defaults import tree_work
from unmasked.metrics import gain_of, log_likelihoods
from unmasked.training import Data

_FOLDS = 5
_STOPPING = 5  # of the rows that boosting learns from, one in so many tells it when to stop
_SHARE = 0.5
_ROWS = (200, 100_000)  # with more the labels themselves say enough
_MOST = 5e6  # `tree_work`: a minute for all boosting at the most


def may_soften(train: Data) -> bool:
    """Return True if boosting can learn these labels: hard ones, enough rows, and in time."""
    hard = bool(((train.target == 0) | (train.target == 1)).all())
    several = int((train.target.sum(0) > 0).sum()) > 1
    quick = tree_work(train.rows, train.x.shape[1], train.target.shape[1]) <= _MOST
    return hard and several and quick and _ROWS[0] <= train.rows <= _ROWS[1]


def boosting_adds(train: Data, valid: Data, predicted: NDArray[np.float64], seed: int) -> bool:
    """Return True if boosting knows what networks do not, by held-out rows with everything shown.

    It does where the mean of both is better than the networks alone, ``predicted`` (rows,
    classes), by more than one standard error.
    """
    target = valid.target.numpy()
    boosted = _boosted(train.x.numpy(), train.target.numpy(), valid.x.numpy(), seed)
    both = log_likelihoods((boosted + predicted) / 2, target)
    gain, error = gain_of(both - log_likelihoods(predicted, target))
    return gain > error


def softened(train: Data, seed: int) -> Data:
    """Mix each label half and half with the prediction of boosting that did not learn from it.

    A label is a draw from p(y | x) and says little of p; its mean with a good guess of p says more.
    No row's label enters its own guess.
    """
    x, target = train.x.numpy(), train.target.numpy()
    guess = np.zeros(target.shape, dtype=np.float32)
    for learned, others in KFold(_FOLDS, shuffle=True, random_state=seed).split(x):
        guess[others] = _boosted(x[learned], target[learned], x[others], seed)
    # rounded, so that a run that goes on with other sums of threads has the same to the bit
    guess = guess.round(3)
    guess /= guess.sum(1, keepdims=True)
    return Data(train.x, (1 - _SHARE) * train.target + _SHARE * torch.from_numpy(guess))


def _boosted(
    x: NDArray[np.float32], target: NDArray[np.float32], asked: NDArray[np.float32], seed: int
) -> NDArray[np.float64]:
    """Fit boosting to x and its labels, and predict the rows ``asked``, (asked rows, classes).

    A class that it did not meet gets 0. Where it meets too little, its classes' shares are said.
    """
    label = target.argmax(1)
    stops = np.random.default_rng(seed).permutation(len(x)) % _STOPPING == 0
    known = np.unique(label[~stops])
    stops_on = stops & np.isin(label, known)
    few = 2 * len(known) > len(x)  # rows for each class
    if few or len(known) < 2 or not stops_on.any():
        return np.tile(target.mean(0, dtype=np.float64), (len(asked), 1))
    model = HistGradientBoostingClassifier(
        learning_rate=0.06, max_iter=400, early_stopping=True, random_state=seed
    )
    model.fit(x[~stops], label[~stops], X_val=x[stops_on], y_val=label[stops_on])
    found = np.zeros((len(asked), target.shape[1]))
    found[:, model.classes_] = model.predict_proba(asked)
    return found
