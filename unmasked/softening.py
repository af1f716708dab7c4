"""Labels with less chance in them: each half itself, half what boosting expects without it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import KFold

from unmasked.engine import Data
from unmasked.metrics import log_likelihoods

_FOLDS = 5
_SHARE = 0.5
_ROWS = (200, 100_000)  # with more the labels themselves say enough
_MOST = 5e7  # rows × columns × classes


def may_soften(train: Data) -> bool:
    """Whether these are labels that boosting can be asked about: enough rows, and in time."""
    hard = bool(((train.target == 0) | (train.target == 1)).all())
    several = int((train.target.sum(0) > 0).sum()) > 1
    quick = train.rows * train.x.shape[1] * train.target.shape[1] <= _MOST
    return hard and several and quick and _ROWS[0] <= train.rows <= _ROWS[1]


def boosting_adds(train: Data, valid: Data, predicted: NDArray[np.float64], seed: int) -> bool:
    """Whether boosting knows what networks do not, by held-out rows with everything shown.

    It does where the mean of both is better than the networks alone, ``predicted`` (rows,
    classes), by more than one standard error.
    """
    target = valid.target.numpy()
    model = _boosting(seed).fit(train.x.numpy(), train.target.numpy().argmax(1))
    boosted = _probabilities(model, valid.x.numpy(), target.shape[1])
    both = log_likelihoods((boosted + predicted) / 2, target)
    gained = both - log_likelihoods(predicted, target)
    return bool(gained.mean() > gained.std() / np.sqrt(len(gained)))


def softened(train: Data, seed: int) -> Data:
    """Mix each label half and half with the prediction of boosting that did not learn from it.

    A label is a draw from p(y | x) and says little of p; its mean with a good guess of p says more.
    No row's label enters its own guess.
    """
    x, label, classes = train.x.numpy(), train.target.argmax(1).numpy(), train.target.shape[1]
    guess = np.zeros((len(x), classes), dtype=np.float32)
    for learned, others in KFold(_FOLDS, shuffle=True, random_state=seed).split(x):
        model = _boosting(seed).fit(x[learned], label[learned])
        guess[others] = _probabilities(model, x[others], classes)
    # rounded, so that a run that goes on with other sums of threads has the same to the bit
    mixed = (1 - _SHARE) * train.target + _SHARE * torch.from_numpy(guess.round(3))
    return Data(train.x, mixed)


def _boosting(seed: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        learning_rate=0.06, max_iter=400, early_stopping=True, random_state=seed
    )


def _probabilities(
    model: HistGradientBoostingClassifier, x: NDArray[np.float32], classes: int
) -> NDArray[np.float64]:
    """(rows, classes); 0 for a class that it did not meet."""
    found = np.zeros((len(x), classes))
    found[:, model.classes_] = model.predict_proba(x)
    return found
