"""Who judges: evaluators of other rows than those they judge, several seeds of each.

The audited rows are cut into folds; the evaluators of a fold learn from the other folds (or from
training rows of the user's own), so no row is judged by a model that has seen it. Where rows have
times, a fold is a period.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

from unmasked.auditing.settings import AuditSettings
from unmasked.errors import DataWarning, InputError
from unmasked.estimator import DEFAULT_PREDICTOR
from unmasked.evaluation import EvalX
from unmasked.evaluation.periods import cut_in_time

_VALIDATION_PARTS = 5  # one part in five of what is learned from is held out to stop on
_MASK_COPIES = 20
_BATCH = 8192


@dataclass(frozen=True)
class Fold:
    """Positions: rows to learn from, to stop on and to judge, (rows,) each."""

    learn: NDArray[np.int64]
    stop: NDArray[np.int64]
    judge: NDArray[np.int64]


def folds_of(
    label: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    count: int,
    most: int,
    seed: int,
    times: NDArray[np.int64] | None = None,
) -> list[Fold]:
    """Cut rows into folds with classes in proportion, groups whole; at most ``most`` learn.

    With times, the folds are periods of about as many rows.
    """
    result = []
    parts = _split(label, groups, count, seed) if times is None else _periods(times, count)
    for number, (rest, judged) in enumerate(parts):
        learn, stop = learn_and_stop(label, groups, rest, most, seed + number, times)
        result.append(Fold(learn, stop, np.sort(judged)))
    return result


def learn_and_stop(
    label: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    rows: NDArray[np.int64],
    most: int,
    seed: int,
    times: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide rows to learn from into learning and stopping; of too many, a sample.

    With times, the latest of them are to stop on.
    """
    if len(rows) > most:
        rows = np.random.default_rng((seed, 5)).permutation(rows)[:most]
    if times is not None and len(np.unique(times[rows])) >= _VALIDATION_PARTS:
        *_, (learn, stop) = _periods(times[rows], _VALIDATION_PARTS)
        return np.sort(rows[learn]), np.sort(rows[stop])
    inner = None if groups is None else groups[rows]
    enough = inner is None or len(np.unique(inner)) >= _VALIDATION_PARTS
    parts = _split(label[rows], inner if enough else None, _VALIDATION_PARTS, seed)
    learn, stop = next(iter(parts))
    return np.sort(rows[learn]), np.sort(rows[stop])


def _periods(
    times: NDArray[np.int64], count: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(all other rows, the rows of the period), the earliest period first."""
    period = cut_in_time(times, count)
    for number in range(count):
        yield np.flatnonzero(period != number), np.flatnonzero(period == number)


def _split(
    label: NDArray[np.int64], groups: NDArray[np.int64] | None, count: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    rows = np.zeros((len(label), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class of fewer rows than folds
        if groups is None:
            yield from StratifiedKFold(count, shuffle=True, random_state=seed).split(rows, label)
        else:
            try:
                yield from StratifiedGroupKFold(count, shuffle=True, random_state=seed).split(
                    rows, label, groups
                )
            except ValueError:  # a class that lies in few groups
                yield from GroupKFold(count).split(rows, label, groups)


class Judge:
    """Evaluators of several seeds that learned from the same rows, and the rows they judge."""

    def __init__(self, evaluators: list[EvalX], classes: int, X: Any) -> None:
        self._evaluators = evaluators
        self._classes = classes
        with quiet():
            self._inputs = evaluators[0]._inputs(X)  # all learned the same columns
        self.sizes = evaluators[0].sizes_

    @property
    def seeds(self) -> int:
        """How many evaluators there are."""
        first = self._evaluators[0]
        return len(first.predictors_) if _several(first) else len(self._evaluators)

    def predict(
        self, masks: NDArray[np.bool_], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """p(class | what the masks show), (seeds, masks, classes); ``rows`` says of which row."""
        result = np.zeros((self.seeds, len(masks), self._classes))
        for start in range(0, len(masks), _BATCH):
            part = slice(start, start + _BATCH)
            inputs = self._inputs[part] if rows is None else self._inputs[rows[part]]
            for seed, predicted in enumerate(self._each(inputs, masks[part])):
                known = np.asarray(self._evaluators[0].classes_, dtype=np.int64)
                result[seed, part][:, known] = predicted
        return result

    def mean(
        self, masks: NDArray[np.bool_], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """The mean over seeds, (masks, classes)."""
        found: NDArray[np.float64] = self.predict(masks, rows).mean(0)
        return found

    def _each(self, inputs: Any, masks: NDArray[np.bool_]) -> Iterator[NDArray[Any]]:
        for evaluator in self._evaluators:
            if _several(evaluator):
                for network in evaluator.predictors_:
                    yield evaluator._probabilities(network, inputs, masks)
            else:
                yield evaluator._predict(inputs, masks)


def _several(evaluator: EvalX) -> bool:
    """Whether its networks are the seeds; beside trees, an evaluator is a seed of its own."""
    return evaluator.picked_ == "network" and len(evaluator.predictors_) > 1


def train_judge(
    learn: tuple[Any, NDArray[np.int64]],
    stop: tuple[Any, NDArray[np.int64]],
    judged: Any,
    classes: int,
    settings: AuditSettings,
    *,
    seed: int,
    checkpoint: Path | None = None,
) -> Judge:
    """Train the evaluators of a fold. ``learn`` and ``stop`` are (X, class numbers)."""
    if len(np.unique(learn[1])) < 2:
        raise InputError(
            "the rows that evaluators learn from must hold at least two classes but hold one; "
            "give more rows, or groups or times that are not of one class each."
        )
    made = _made(settings, seed, checkpoint)
    known = np.isin(stop[1], learn[1])  # a rare class may be in rows to stop on only
    with quiet():
        valid = take(stop[0], np.flatnonzero(known)), stop[1][known]
        for evaluator in made:
            evaluator.fit(learn[0], learn[1], validation=valid)
            if evaluator.interrupted_:  # a half-trained evaluator must not judge anyone
                raise KeyboardInterrupt
        return Judge(made, classes, judged)


def _made(settings: AuditSettings, seed: int, checkpoint: Path | None) -> list[EvalX]:
    """The evaluators of a fold, untrained: one of several networks, or one for each seed."""
    options: dict[str, Any] = {"mask_law": settings.law, "device": "cpu", "progress": False}
    networks: dict[str, Any] = {"training": settings.training, "checkpoint": checkpoint}
    if settings.learner == "network":
        plain: dict[str, Any] = {"predictor": DEFAULT_PREDICTOR, "members": settings.seeds}
        return [EvalX(**plain, random_state=seed, **networks, **options)]
    if settings.learner == "boosting":
        trees = HistGradientBoostingClassifier(max_iter=300, max_bins=64)
        options |= {"estimator": trees, "mask_copies": _MASK_COPIES}
    else:
        options |= {"members": 1, **networks}
    seeds = range(settings.seeds)
    return [EvalX(random_state=seed + 1000 * i, **_apart(options, i)) for i in seeds]


def _apart(options: dict[str, Any], number: int) -> dict[str, Any]:
    """The options of one of several evaluators: each has checkpoints of its own."""
    folder = options.get("checkpoint")
    return options if folder is None else {**options, "checkpoint": folder / f"seed-{number}"}


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small gain little from a second thread, and lose tenfold where it must wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def take(X: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of a table or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


class quiet(warnings.catch_warnings):
    """Hides remarks on columns of a fold: what holds for the whole table is said once."""

    def __enter__(self) -> Any:
        found = super().__enter__()
        warnings.simplefilter("ignore", DataWarning)
        return found
