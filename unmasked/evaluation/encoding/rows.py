"""Check the encoding test's input and turn it into numbers; draw its folds and its shuffles.

A shuffle gives each row another row's mask. It runs within the rows a model is fitted on, so that
no held-out mask takes part, and never within a group, whose rows may have each other's masks.
Where rows have times, folds are periods, and a row is given a mask of its own season: what a mask
says about the time alone is then the same for its own and for another's, and is no code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.evaluation.periods import Blocks, blocks_of
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.table import is_categorical, measured
from unmasked.inputs.targets import as_array, read_targets
from unmasked.io.tables import as_times

_MOST_CATEGORIES = 60  # the rarest beyond share one code; boosting takes one for each bin
_MANY_COPIES = 0.01


@dataclass(frozen=True)
class Table:
    """Rows as numbers: a category's code, NaN where a number is missing.

    values : (rows, features), categorical : (features,) which hold codes,
    gaps : (features,) which have missing numbers, so that NaN alone does not say "hidden".
    """

    values: NDArray[np.float64]
    categorical: NDArray[np.bool_]
    gaps: NDArray[np.bool_]

    def take(self, rows: NDArray[Any]) -> Table:
        return Table(self.values[rows], self.categorical, self.gaps)


@dataclass(frozen=True)
class Judged:
    """One explanation's rows: masks (rows, features), class numbers and groups (rows,).

    blocks : where rows have times, their periods, seasons and stretches; the groups are then the
    stretches.
    """

    masks: NDArray[np.bool_]
    label: NDArray[np.int64]
    classes: int
    groups: NDArray[np.int64]
    grouped: bool
    blocks: Blocks | None = None

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: NDArray[Any]) -> Judged:
        return Judged(
            self.masks[rows], self.label[rows], self.classes, self.groups[rows], self.grouped,
            None if self.blocks is None else self.blocks.take(rows),
        )  # fmt: skip


def read_table(X: Any) -> Table:
    """A DataFrame or an array (rows, features); text, categories and truth values become codes.

    Dates become days, and numbers that are written as text what they say.
    """
    frame = X if isinstance(X, pd.DataFrame) else _frame(as_array(X))
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise InputError(f"X must have rows and features but has shape {frame.shape}.")
    columns, categorical = [], []
    for position, name in enumerate(frame.columns):
        column = frame.iloc[:, position]
        numbers = measured(str(name), column)
        kind = numbers is None and is_categorical(column)
        categorical.append(kind)
        if numbers is None:
            numbers = _codes(column) if kind else _numbers(str(name), column)
        columns.append(numbers)
    values = np.stack(columns, axis=1)
    return Table(values, np.array(categorical), np.asarray(np.isnan(values).any(0)))


def read_judged(
    masks: Explanation | ArrayLike,
    y: Any,
    groups: ArrayLike | None,
    shape: tuple[int, int],
    names: list[str] | None,
    folds: int,
) -> Judged:
    """Check masks, labels and groups against rows and features of the table."""
    explanation = masks if isinstance(masks, Explanation) else Explanation(as_array(_values(masks)))
    shown = explanation.masks
    given = isinstance(masks, Explanation)
    if shown.shape != shape:
        raise InputError(
            f"the masks must have one row for each of the {shape[0]:,} rows of X and one column "
            f"for each of its {shape[1]:,} features, but have {shown.shape[0]:,} rows and "
            f"{shown.shape[1]:,} columns."
        )
    if given and names is not None and explanation.feature_names != names:
        which = next(i for i, name in enumerate(names) if explanation.feature_names[i] != name)
        own = [f"x{i + 1}" for i in range(shape[1])]
        if explanation.feature_names != own:
            raise InputError(
                f"the explanation's feature {which + 1} is {explanation.feature_names[which]!r} "
                f"but X's is {names[which]!r}; give the columns in the explanation's order."
            )
    targets = read_targets(y, shape[0])
    if targets.soft:
        raise InputError(
            "y must hold one label for each row but holds a table of probabilities; give the "
            "labels, or a model's likeliest classes to test what the choice says about those."
        )
    label = targets.likeliest
    counts = np.bincount(label)
    if counts.min() < folds:
        least = int(counts.argmin())
        raise InputError(
            f"each class must have at least {folds} rows, one for each fold, but class "
            f"{targets.classes.tolist()[least]!r} has {counts[least]}; give more rows, merge "
            "classes or ask for fewer folds."
        )
    return Judged(shown, label, len(counts), *_groups(groups, shape[0], folds))


def check_settings(
    folds: Any, shuffles: Any, threshold: Any, random_state: Any, max_rows: Any
) -> None:
    """Numbers of the test's own arguments."""
    least = {"folds": (folds, 2), "shuffles": (shuffles, 1), "random_state": (random_state, 0)}
    if max_rows is not None:
        least["max_rows"] = (max_rows, 50)
    for name, (value, lowest) in least.items():
        whole = is_whole(value)
        if not whole or value < lowest:
            raise InputError(f"{name} must be a whole number from {lowest} up but is {value!r}.")
    if not isinstance(threshold, int | float) or not 0 < threshold < 10:
        raise InputError(f"threshold must be a number of nats above 0 but is {threshold!r}.")


def sample(judged: Judged, most: int | None, folds: int, seed: int) -> NDArray[np.int64]:
    """Positions of the rows to test, in order: all, or about ``most``, whole groups together."""
    everything = np.arange(len(judged))
    if most is None or len(judged) <= most:
        return everything
    random = np.random.default_rng((seed, 2))
    _, which, size = np.unique(judged.groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(size))
    kept = np.zeros(len(size), dtype=bool)
    kept[order[np.cumsum(size[order]) <= most]] = True
    kept[order[0]] = True
    chosen = everything[kept[which]]
    counts = np.bincount(judged.label[chosen], minlength=judged.classes)
    if counts.min() < folds:
        raise InputError(
            f"among {len(chosen):,} rows drawn from {len(judged):,} the rarest class has "
            f"{counts.min()}, fewer than one for each of the {folds} folds; raise max_rows."
        )
    return chosen


def split(judged: Judged, folds: int, seed: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """(rows to fit on, rows held out) of each fold, classes even, groups whole; or periods."""
    label = judged.label
    if judged.blocks is not None:
        for number in range(folds):
            held = judged.blocks.period == number
            yield np.flatnonzero(~held), np.flatnonzero(held)
    elif judged.grouped:
        whole = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        yield from whole.split(label, label, judged.groups)
    else:
        yield from StratifiedKFold(folds, shuffle=True, random_state=seed).split(label, label)


def in_time(judged: Judged, times: NDArray[np.int64], folds: int) -> Judged:
    """Add periods, seasons and stretches, which become the groups; times : (rows,) in order."""
    blocks = blocks_of(times, folds)
    for number in range(folds):
        if len(np.unique(judged.label[blocks.period != number])) < 2:
            raise InputError(
                f"the rows of any {folds - 1} of {folds} periods must hold at least two classes "
                "but some hold one only; give rows of a longer time, or leave out the times."
            )
    return replace(judged, groups=blocks.stretch, blocks=blocks)


def other_rows(judged: Judged, random: np.random.Generator) -> NDArray[np.int64]:
    """For each row the row whose mask it is given: one of its season, where rows have times."""
    if judged.blocks is None:
        return shuffled(judged.groups, random)
    giver = np.empty(len(judged), dtype=np.int64)
    for season in np.unique(judged.blocks.season):
        rows = np.flatnonzero(judged.blocks.season == season)
        giver[rows] = rows[shuffled(judged.groups[rows], random)]
    return giver


def shuffled(groups: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """For each row the row whose mask it is given: a permutation without fixed points.

    Rows are put in a random order with groups together and moved on by a random number of places,
    at least the largest group and at most all but it: so nobody gets a mask of his own group
    (unless one group has more than half of all rows, where that cannot be).
    """
    rows = len(groups)
    values, which, size = np.unique(groups, return_inverse=True, return_counts=True)
    place = random.permutation(len(values))
    order = np.lexsort((random.random(rows), place[which]))
    largest = int(size.max())
    apart = 2 * largest <= rows
    step = int(random.integers(largest, rows - largest + 1)) if apart else rows // 2
    giver = np.empty(rows, dtype=np.int64)
    giver[order] = np.roll(order, step)
    return giver


def copies_remark(table: NDArray[Any], judged: Judged) -> list[str]:
    """A sentence where rows repeat others, which then lie on both sides of a fold."""
    if judged.grouped:
        return []
    repeated = pd.DataFrame(np.column_stack([table, judged.masks])).duplicated().mean()
    if repeated <= _MANY_COPIES:
        return []
    return [
        f"{repeated:.0%} of the rows repeat another row and its mask; if they are the same case, "
        "give groups, or the test learns them by heart."
    ]


def _values(masks: Any) -> Any:
    return masks.to_numpy() if isinstance(masks, pd.DataFrame) else masks


def _frame(values: NDArray[Any]) -> pd.DataFrame:
    if values.ndim != 2:
        raise InputError(f"X must be a table (rows, features) but has shape {values.shape}.")
    frame = pd.DataFrame(values)
    return frame.infer_objects() if values.dtype == object else frame


def _codes(column: pd.Series[Any]) -> NDArray[np.float64]:
    """The number of each value by how often it comes; missing is a value like any other."""
    text = column.astype(object).where(column.notna(), None).map(_text)
    order = text.value_counts(sort=False)
    names = sorted(order.index, key=lambda name: (-int(order[name]), name))
    code = {name: float(min(i, _MOST_CATEGORIES - 1)) for i, name in enumerate(names)}
    return text.map(code).to_numpy(dtype=np.float64)


def _text(value: Any) -> str:
    return "missing" if value is None else f"= {value}"


def _numbers(name: str, column: pd.Series[Any]) -> NDArray[np.float64]:
    try:
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"column {name!r} must hold numbers, text, categories or truth values but is "
            f"{column.dtype}; convert it."
        ) from error
    if np.isinf(numbers).any():
        raise InputError(
            f"column {name!r} has {int(np.isinf(numbers).sum()):,} infinite values (inf); replace "
            "them by large numbers or drop these rows."
        )
    return numbers


def group_numbers(groups: ArrayLike, rows: int) -> NDArray[np.int64]:
    """A number for each row's group, 0, 1, …; refuses groups that do not fit the rows."""
    values = as_array(groups)
    if values.shape != (rows,):
        raise InputError(
            f"groups must have one value for each of the {rows:,} rows but has shape "
            f"{values.shape}."
        )
    if pd.isna(pd.Series(values)).any():
        raise InputError("groups must not have missing values; give such rows groups of their own.")
    return pd.factorize(values)[0].astype(np.int64)


def time_numbers(times: Any, rows: int) -> NDArray[np.int64]:
    """A number for each row's time, 0, 1, … in their order; numbers, dates or text of dates."""
    values = times if isinstance(times, pd.Series) else pd.Series(as_array(times))
    if values.shape != (rows,):
        raise InputError(
            f"times must have one value for each of the {rows:,} rows but has shape {values.shape}."
        )
    if values.isna().any():
        raise InputError("times must not have missing values; drop such rows.")
    ranks: NDArray[Any] = as_times(values, "times").rank(method="dense").to_numpy()
    return ranks.astype(np.int64) - 1


def _groups(groups: ArrayLike | None, rows: int, folds: int) -> tuple[NDArray[np.int64], bool]:
    if groups is None:
        return np.arange(rows), False
    codes = group_numbers(groups, rows)
    count = len(np.unique(codes))
    if count < folds:
        raise InputError(
            f"there must be at least {folds} groups, one for each fold, but there are "
            f"{count}; give finer groups or ask for fewer folds."
        )
    return codes, True
