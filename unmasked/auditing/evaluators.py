"""Train the evaluators of an audit on other rows than they judge; ROAR and others beside them.

The audited rows are cut into folds; the evaluators of a fold learn from the other folds (or from
training rows of the user's own), so no row is judged by a model that has seen it. Where rows have
times, a fold is a period.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.store import Store
from unmasked.errors import DataWarning, InputError
from unmasked.evaluation import EvalX, PostHoc
from unmasked.evaluation.boosted import hide
from unmasked.evaluation.periods import cut_in_time
from unmasked.explainers.estimator import DEFAULT_PREDICTOR
from unmasked.inputs.table import Columns

if TYPE_CHECKING:
    from unmasked.evaluation.encoding import Encoding


def encoding_of(
    X: Any,
    label: NDArray[np.int64],
    masks: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
    times: NDArray[np.int64] | None,
    settings: AuditSettings,
    seed: int,
) -> Encoding:
    """Measure what the masks tell of the label beyond the values shown, by the encoding test."""
    from unmasked.evaluation.encoding import encoding_test

    return encoding_test(
        X,
        label,
        masks,
        groups=groups,
        times=times,
        folds=settings.encoding_folds,
        threshold=settings.threshold,
        random_state=seed,
    )


def of_prediction(found: Encoding) -> Encoding:
    """Reword the result's reason for a test in which y was the model's likeliest class."""
    return replace(found, reason=found.reason.replace("about y", "about the model's prediction"))


def enough_predicted(
    predicted: NDArray[np.int64], settings: AuditSettings
) -> NDArray[np.int64] | None:
    """Rows whose predicted class is that of a row in every fold; None where that is one class.

    A class that a model hardly ever predicts cannot be cross-fitted. Leaving out its rows makes no
    honest choice look like a code: what is independent of the prediction given the values shown is
    so among some of the predictions too.
    """
    often = np.bincount(predicted) >= settings.encoding_folds
    return np.flatnonzero(often[predicted]) if often.sum() >= 2 else None


def kept_encoding(store: Store, name: str, make: Callable[[], Encoding]) -> Encoding:
    """Read an encoding test's result back from the store, or run the test and keep its result."""
    from unmasked.evaluation.encoding import Encoding

    def plain() -> dict[str, Any]:
        made = make()
        values = {field.name: getattr(made, field.name) for field in fields(made)}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in values.items()}

    found = store.values(name, plain)
    return Encoding(**{**found, "gains": np.asarray(found["gains"])})


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
        """Return the number of seeds: the networks of a lone evaluator, or else the evaluators."""
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
    """Return true if several networks alone predict: each is a seed then, else the evaluator is."""
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


ROAR_BLIND = (
    "ROAR retrains a model on the explanation's own masks, so it learns whatever the choice of "
    "features gives away: it cannot see encoding, and a code scores as well as an honest choice."
)
POSTHOC_BLIND = (
    "Post-hoc accuracy feeds masked rows to a model that never saw any, so it mixes what is shown "
    "with how the model extrapolates."
)
NO_MODEL = "There are no post-hoc figures: they need the explained model, and none was given."


def matrix_of(X: Any) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """A table (a DataFrame) as numbers (rows, columns) and the feature of each column."""
    with quiet():
        columns = Columns.learn(X)
        return columns.matrix(X), columns.index


def roar(
    matrix: NDArray[np.float32],
    index: tuple[int, ...],
    label: NDArray[np.int64],
    classes: int,
    masks: NDArray[np.bool_],
    folds: list[Fold],
    seed: int,
) -> NDArray[np.float64]:
    """Boosting retrained on the masks of the other folds, (rows, classes) for all rows."""
    result = np.zeros((len(label), classes))
    for fold in folds:
        rows = np.concatenate([fold.learn, fold.stop])
        learned = hide(matrix[rows], masks[rows], index)
        used = ~np.isnan(learned).all(0)
        if not used.any():  # nothing is shown: the class shares are all there is
            result[fold.judge] = np.bincount(label[rows], minlength=classes) / len(rows)
            continue
        model = HistGradientBoostingClassifier(
            max_iter=60, max_bins=64, early_stopping=False, random_state=seed
        )
        model.fit(learned[:, used], label[rows])
        asked = hide(matrix[fold.judge], masks[fold.judge], index)[:, used]
        known = np.asarray(model.classes_, dtype=np.int64)
        result[np.ix_(fold.judge, known)] = model.predict_proba(asked)
    return result


class Model:
    """The explained model, asked about masked rows; hidden values are means or modes."""

    def __init__(self, model: Any, X: Any, classes: NDArray[Any]) -> None:
        with quiet():
            self._posthoc = PostHoc(model=model, progress=False).fit(X)
        own = [str(label) for label in self._posthoc.classes_.tolist()]
        ours = [str(label) for label in classes.tolist()]
        if not hasattr(model, "classes_") and len(own) == len(ours):
            own = ours  # it does not name its classes: they are ours, in order
        unknown = [label for label in ours if label not in own]
        if unknown:
            raise InputError(
                f"the model knows the classes {', '.join(own[:10])} but y holds {unknown[0]!r}; "
                "give the model that was explained."
            )
        self._places = [own.index(label) for label in ours]

    def predict(self, X: Any, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(rows, classes) in the order of our classes."""
        parts = []
        for start in range(0, len(masks), 8192):
            rows = np.arange(start, min(start + 8192, len(masks)))
            with quiet():
                parts.append(self._posthoc.predict_proba(take(X, rows), masks[rows]))
        found: NDArray[np.float64] = np.concatenate(parts)[:, self._places]
        return found
