"""The encoding test on tables: one boosted model, told whether a mask is the row's own.

h(y | x_v, v, |v|, c) learns from real pairs (x_i, e(x_i), c = 1) and shuffled pairs
(x_i, e(x_j), c = 0), of equal total weight. Shuffling makes the mask independent of x and y, so
with c = 0 it learns p(y | x_v), on masks of exactly this explainer. On held-out rows::

    nats = mean of log h(y_i | x_v, v, c = 1) − log h(y_i | x_v, v, c = 0),   v = e(x_i)

estimates E KL(p(y | x_v, e(x) = v) ‖ p(y | x_v)). Two separate models would differ for many other
reasons; one model differs only as far as c helps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import has_fit_parameter

from unmasked.errors import InputError
from unmasked.evaluation.boosted import check_classifier, check_takes_nan
from unmasked.evaluation.encoding.result import Encoding, judge, nothing_chosen
from unmasked.evaluation.encoding.rows import (
    Judged,
    Table,
    check_settings,
    copies_remark,
    in_time,
    other_rows,
    read_judged,
    read_table,
    sample,
    split,
    time_numbers,
)
from unmasked.explanation.explanation import Explanation

LEAST_PROBABILITY = 1e-6  # so that one row cannot decide
MOST_WEIGHT = 20.0
_SEEDS = 1_000_003  # between the seeds of one fold and of the next


def encoding_test(
    X: Any,
    y: Any,
    masks: Explanation | ArrayLike,
    *,
    groups: ArrayLike | None = None,
    times: Any = None,
    folds: int = 5,
    shuffles: int = 4,
    threshold: float = 0.02,
    estimator: Any = None,
    max_rows: int | None = 20_000,
    random_state: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Encoding:
    """Does the choice of features give y away? For tables.

    Parameters
    ----------
    X : (rows, features), a DataFrame or an array. Text, categories, truth values and dates are
        one feature each; missing values are values: a shown missing value is not a hidden one.
        **Only rows that neither the explainer nor the explained model was trained on.**
    y : (rows,) labels of two or more classes.
    masks : (rows, features), 1 = shown, or an `Explanation`.
    groups : (rows,) rows that belong together, such as a patient's; None (default) for none.
    times : (rows,) numbers or dates, instead of groups: rows near in time may be dependent. Folds
        are then periods, a row is given other rows' masks of about its own time only, and
        neighbours are resampled together.
    folds : models are fitted on all folds but one and judged on that one; 5 by default.
    shuffles : how many times each row is given another row's mask; 4 by default.
    threshold : nats that count as encoding; 0.02 by default.
    estimator : a scikit-learn classifier that takes NaN for hidden; boosting by default.
    max_rows : of more rows, 20,000 by default, a random sample is tested; None for all.
    random_state : seed of folds, shuffles, boosting and resamples; 0 by default.
    progress : called with (folds done, folds) after each; None (default) for nothing.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> x, y = random.normal(size=(600, 4)), random.integers(2, size=600)
    >>> code = np.eye(4, dtype=bool)[y]  # shows x1 for class 0, x2 for class 1
    >>> encoding_test(x, y, code).verdict
    'encodes'
    >>> encoding_test(x, y, random.random((600, 4)) < 0.5).nats < 0.02
    True
    """
    check_settings(folds, shuffles, threshold, random_state, max_rows)
    table = read_table(X)
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    shape = (table.values.shape[0], table.values.shape[1])
    if groups is not None and times is not None:
        raise InputError("groups keep rows together and times order them, but both came; give one.")
    judged = read_judged(masks, y, groups, shape, names, folds)
    order = None if times is None else time_numbers(times, shape[0])
    chosen = sample(judged, max_rows, folds, random_state)
    remarks = []
    if len(chosen) < len(judged):
        remarks.append(f"a random {len(chosen):,} of {len(judged):,} rows were tested.")
        table, judged = table.take(chosen), judged.take(chosen)
    if order is not None:
        judged = in_time(judged, order[chosen], folds)
    if (judged.masks == judged.masks[0]).all():
        return nothing_chosen(judged.masks[0], len(judged), judged.classes, threshold, remarks)
    remarks += copies_remark(table.values, judged)
    shown = judged.masks.any(0)  # a column that is NaN everywhere breaks some classifiers
    table = Table(table.values[:, shown], table.categorical[shown], table.gaps[shown])
    judged = replace(judged, masks=judged.masks[:, shown])
    model = _model(estimator, table, random_state)
    gains = np.zeros(len(judged))
    for number, (fit, held) in enumerate(split(judged, folds, random_state)):
        random = np.random.default_rng(random_state * _SEEDS + number)
        fitted, used = _fit(
            clone(model), table.take(fit), judged.take(fit), shuffles, random, given=estimator
        )
        gains[held] = _gains(fitted, used, table.take(held), judged.take(held))
        if progress is not None:
            progress(number + 1, folds)
    overlap = _overlap(table, judged, random_state)
    return judge(
        gains, judged.groups, overlap, judged.classes, threshold, random_state, remarks,
        neighbours=order is not None,
    )  # fmt: skip


def _model(estimator: Any, table: Table, seed: int) -> Any:
    """The classifier that is fitted in each fold; boosting unless one was given."""
    if estimator is not None:
        check_classifier(estimator)
        own = estimator.get_params()
        unset = [n for n in own if n.split("__")[-1] == "random_state" and own[n] is None]
        model = clone(estimator)
        return model.set_params(**dict.fromkeys(unset, seed)) if unset else model
    return _boosting(table, seed, max_iter=100, max_leaf_nodes=31)


def _boosting(table: Table, seed: int, *, extra: int = 1, **settings: Any) -> Any:
    """Early stopping would hold out copies of the rows it learns from, so there is none."""
    more = int(table.gaps.sum()) + 1 + extra  # columns after the features'
    return HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_bins=64,  # fine enough for thousands of rows, and faster than 255
        early_stopping=False,
        categorical_features=np.append(table.categorical, np.zeros(more, dtype=bool)),
        random_state=seed,
        **settings,
    )  # fmt: skip


def inputs(table: Table, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[x_v, v where x has missing numbers, |v|]: what is shown, NaN for hidden."""
    return np.column_stack(
        [np.where(masks, table.values, np.nan), masks[:, table.gaps], masks.sum(1)]
    )


def _told(table: Table, masks: NDArray[np.bool_], c: float) -> NDArray[np.float64]:
    """`inputs` and c."""
    return np.column_stack([inputs(table, masks), np.full(len(masks), c)])


def _fit(
    model: Any,
    table: Table,
    judged: Judged,
    shuffles: int,
    random: np.random.Generator,
    given: Any,
) -> tuple[Any, NDArray[np.bool_]]:
    """Fit on the real and the shuffled pairs of these rows; also the columns that it was given."""
    real = _told(table, judged.masks, 1)
    others = [_told(table, judged.masks[other_rows(judged, random)], 0) for _ in range(shuffles)]
    weighted = has_fit_parameter(model, "sample_weight")
    reals = 1 if weighted else shuffles  # without weights, as many real pairs as shuffled ones
    matrix = np.concatenate([*([real] * reals), *others])
    label = np.tile(judged.label, reals + shuffles)
    used: NDArray[np.bool_] = ~np.isnan(matrix).all(0)
    matrix = matrix[:, used]
    if given is None:
        model.set_params(categorical_features=model.categorical_features[used])
    else:
        check_takes_nan(model, matrix, label)
    weight = np.repeat([1.0, 1 / shuffles], [len(real), len(real) * shuffles])
    model.fit(matrix, label, **({"sample_weight": weight} if weighted else {}))
    return model, used


def _gains(
    model: Any, used: NDArray[np.bool_], table: Table, judged: Judged
) -> NDArray[np.float64]:
    """log h(y | c = 1) − log h(y | c = 0) of held-out real pairs, (rows,)."""
    rows = np.arange(len(judged))
    logs = []
    for c in (1, 0):
        asked = _told(table, judged.masks, c)[:, used]
        full = np.zeros((len(judged), judged.classes))
        full[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(asked)
        logs.append(np.log(np.maximum(full[rows, judged.label], LEAST_PROBABILITY)))
    result: NDArray[np.float64] = logs[0] - logs[1]
    return result


def _overlap(table: Table, judged: Judged, seed: int) -> float:
    """Estimate how well shuffled pairs cover the real ones, between 0 and 1.

    A classifier of two halves, each judged by the other's, says how probable ρ(x_v, v) it is that
    a pair is real. Shuffled pairs weighted by ρ / (1 − ρ) look like real ones; their effective
    share is (Σw)² / (m Σw²).
    """
    random = np.random.default_rng((seed, 3))
    half = _halves(judged.groups, random)
    weights = []
    for side in (0, 1):
        pairs = []
        for rows in (np.flatnonzero(half == side), np.flatnonzero(half != side)):
            own, part = judged.take(rows), table.take(rows)
            given = own.masks[other_rows(own, random)]
            pairs.append((inputs(part, own.masks), inputs(part, given)))
        (real, other), (_, asked) = pairs
        matrix = np.concatenate([real, other])
        used = ~np.isnan(matrix).all(0)
        model = _boosting(table, seed, extra=0, max_iter=30, max_leaf_nodes=8)
        model.set_params(categorical_features=model.categorical_features[used])
        model.fit(matrix[:, used], np.repeat([1, 0], len(real)))
        weights.append(odds(model.predict_proba(asked[:, used])[:, 1]))
    return share(np.concatenate(weights))


def odds(rho: NDArray[Any]) -> NDArray[np.float64]:
    """Weights ρ / (1 − ρ), cut at 20, scaled to a mean of 1."""
    raw = np.minimum(rho / np.maximum(1 - rho, 1e-9), MOST_WEIGHT).astype(np.float64)
    result: NDArray[np.float64] = raw / max(float(raw.mean()), 1e-12)
    return result


def share(weights: NDArray[np.float64]) -> float:
    """The effective share (Σw)² / (m Σw²) of m weights."""
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


def _halves(groups: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """0 or 1 for each row, whole groups, about as many groups of each."""
    values, which = np.unique(groups, return_inverse=True)
    side = random.permutation(len(values)) % 2
    result: NDArray[np.int64] = side[which]
    return result
