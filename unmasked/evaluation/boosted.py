"""Let a classifier learn from masked copies of the rows, alone or beside networks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from unmasked.errors import DataWarning, InputError
from unmasked.explainers import defaults
from unmasked.masks.distributions import MaskLaw
from unmasked.metrics import gain_of, log_likelihoods
from unmasked.training import Data

_MOST_ROWS = 2_000_000  # copies of rows held at once
_MOST_NUMBERS = 100_000_000  # numbers held at once: 0.8 GB where a classifier makes them float64
_PROBE_ROWS = 20  # of each class, to find out whether a classifier takes NaN


@dataclass(frozen=True)
class Copies:
    """Draws random-mask copies of rows, with what a classifier's ``fit`` takes beside them.

    index : for each column of the matrix, its feature. features : how many there are.
    """

    law: MaskLaw
    index: tuple[int, ...]
    features: int
    soft: bool

    def count(self, asked: int, rows: int, classes: int) -> int:
        """Return the number of copies to draw of a row: as asked, or fewer if memory is short."""
        count = min(asked, max(1, self.most(rows, classes)))
        if count < asked:
            warnings.warn(
                f"{asked} masked copies of {rows:,} rows are too many to hold in memory: {count} "
                'of each row are drawn; networks (estimator="network") draw anew in every step.',
                DataWarning,
                stacklevel=5,
            )
        return count

    def most(self, rows: int, classes: int) -> int:
        """Return the most copies of each row that surely fit in memory; 0 if not even one does."""
        times = rows * (classes if self.soft else 1)
        return min(_MOST_ROWS // times, _MOST_NUMBERS // (times * len(self.index)))

    def draw(
        self, data: Data, count: int, noise: torch.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32] | None]:
        """Masked copies (copies, columns), class numbers (copies,) and, of soft targets, weights.

        A soft target becomes one copy for each class that has a probability, which is its weight.
        """
        x, target = data.x.numpy(), data.target.numpy()
        masked = np.empty((count, *x.shape), dtype=np.float32)
        for copy in masked:
            uniform = torch.rand((len(x), self.law.noise_width(self.features)), generator=noise)
            copy[:] = hide(x, self.law(uniform, self.features).numpy() > 0, self.index)
        matrix = masked.reshape(-1, x.shape[1])  # every row once, then every row again, …
        if not self.soft:
            return matrix, np.tile(target.argmax(1), count), None
        row, label = np.nonzero(np.tile(target, (count, 1)))
        return matrix[row], label, target[row % len(x), label]


def predict(
    estimator: Any, used: NDArray[np.bool_], masked: NDArray[np.float32], classes: int
) -> NDArray[np.float64]:
    """Probabilities (rows, classes) of rows whose hidden values are NaN.

    A class that training gave no probability at all, and so the estimator does not know, gets 0.
    """
    result = np.zeros((len(masked), classes))
    known = np.asarray(estimator.classes_, dtype=np.int64)
    result[:, known] = estimator.predict_proba(masked[:, used])
    return result


def hide(
    matrix: NDArray[np.float32], masks: NDArray[np.bool_], index: tuple[int, ...]
) -> NDArray[np.float32]:
    """The rows (rows, columns) with NaN in all columns of the features that a mask hides."""
    return np.where(masks[:, list(index)], matrix, np.float32(np.nan))


def learn(
    estimator: Any, copies: Copies, asked: int, train: Data, valid: Data | None, seed: int
) -> tuple[Any, NDArray[np.bool_], int]:
    """Fit a clone of the estimator on masked copies.

    Returns it, the columns it was given (those shown at least once) and the number of copies.
    valid : rows to stop on, for classifiers that take such (`takes_validation`).
    """
    count = copies.count(asked, train.rows, train.target.shape[1])
    noise = torch.Generator().manual_seed(seed)
    matrix, label, weight = copies.draw(train, count, noise)
    # A column that is NaN in every row breaks some classifiers.
    used: NDArray[np.bool_] = np.logical_not(np.isnan(matrix).all(0))
    if not used.any() or len(np.unique(label)) < 2:
        raise InputError(
            "the estimator needs shown features and at least two classes to learn from, but "
            f"{'one class has all probability' if used.any() else 'the mask law hides everything'}."
        )
    if not used.all():
        matrix = matrix[:, used]
    model = _seeded(clone(estimator), seed)
    check_takes_nan(model, matrix, label)
    extra: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
    if valid is not None:
        other, answer, other_weight = copies.draw(valid, count, noise)
        known = np.isin(answer, label)  # a class of one row may be in validation rows only
        if known.any():
            extra |= {"X_val": other[known][:, used], "y_val": answer[known]}
            if other_weight is not None:
                extra["sample_weight_val"] = other_weight[known]
            if model.get_params().get("early_stopping") == "auto":  # it would look at size instead
                model.set_params(early_stopping=True)
    model.fit(matrix, label, **extra)
    return model, used, count


def takes_validation(estimator: Any) -> bool:
    """Return true if ``fit`` takes rows to stop on; its own held-out rows copy others."""
    stops = estimator.get_params().get("early_stopping", True)
    return has_fit_parameter(estimator, "X_val") and stops is not False


def check_classifier(estimator: Any) -> None:
    """Refuse what is no scikit-learn classifier with probabilities."""
    needed = ("fit", "predict_proba", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needed):
        came = f"the class {estimator.__name__}" if isinstance(estimator, type) else None
        raise InputError(
            "estimator must be a scikit-learn classifier with predict_proba, such as "
            f"HistGradientBoostingClassifier(), but is {came or type(estimator).__name__}."
        )


def check_weights(estimator: Any) -> None:
    """Refuse probabilities as targets where ``fit`` cannot weight rows."""
    if not has_fit_parameter(estimator, "sample_weight"):
        raise InputError(
            "to learn a model's probabilities the estimator's fit must take sample_weight but "
            f"{type(estimator).__name__}'s does not; use HistGradientBoostingClassifier() or "
            'estimator="network".'
        )


def check_takes_nan(estimator: Any, matrix: NDArray[np.float32], label: NDArray[np.int64]) -> None:
    """Refuse a classifier that cannot take NaN, before the long fit.

    Its tags say that it can; where they do not (pipelines never say), a fit on a few rows tells.
    """
    try:
        if get_tags(estimator).input_tags.allow_nan:
            return
    except (AttributeError, TypeError):  # not quite scikit-learn's: the fit tells
        pass
    rows = np.concatenate([np.flatnonzero(label == c)[:_PROBE_ROWS] for c in np.unique(label)])
    few = matrix[rows]
    every = np.arange(0, len(few), 2)
    few[every, (every // 2) % few.shape[1]] = np.nan  # also where the mask law hides nothing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clone(estimator).fit(few, label[rows])
    except ValueError as error:
        if "nan" in str(error).lower():
            raise InputError(
                f"the estimator must take NaN for hidden values but {type(estimator).__name__} "
                "does not; use HistGradientBoostingClassifier() or put an imputer that marks what "
                "is missing before it, such as SimpleImputer(add_indicator=True)."
            ) from error


def check_copies(value: Any) -> None:
    """Refuse a number of masked copies of each row that is not a whole number above 0."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"mask_copies must be a whole number above 0 but is {value!r}.")


def _seeded(estimator: Any, seed: int) -> Any:
    """Set every random_state that is None, also of parts such as a pipeline's steps."""
    own = estimator.get_params()
    unset = [n for n in own if n.split("__")[-1] == "random_state" and own[n] is None]
    return estimator.set_params(**dict.fromkeys(unset, seed)) if unset else estimator


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
        return predict(self.estimator, self.used, hide(x, masks, index), classes)


@dataclass(frozen=True)
class Choice:
    """share : of the boosted trees in what is predicted. reason : why, a sentence's second half."""

    share: float
    reason: str


def grow(drawn: Copies, most: int, train: Data, valid: Data, seed: int) -> Trees | None:
    """Boosted trees on at most so many masked copies; None where they would take too long."""
    classes, columns = train.target.shape[1], train.x.shape[1]
    larger = max(train.rows, valid.rows)
    rows = larger * (classes if drawn.soft else 1)
    count = min(most, drawn.most(larger, classes), defaults.copies(rows, columns, classes))
    if count < 1 or not enough_to_learn(train, valid):
        return None
    return Trees(*learn(defaults.boosting(), drawn, count, train, valid, seed))


def enough_to_learn(train: Data, valid: Data) -> bool:
    """Return true if two classes have rows to learn from, and one of these has rows to stop on."""
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
