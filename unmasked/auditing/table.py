"""The audited table, checked: which rows, which labels, which rows belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.judges import take
from unmasked.columns import Columns
from unmasked.data.tables import check_columns
from unmasked.errors import InputError
from unmasked.evaluation.encoding.rows import group_numbers, time_numbers
from unmasked.evaluation.periods import cut_in_time
from unmasked.targets import as_array, model_targets, read_targets

_LEAST_ROWS = 20


@dataclass(frozen=True)
class AuditTable:
    """Rows to audit.

    X : as the user gave it, frame : the same with names, (rows, features); label : (rows,) class
    numbers, classes : what they stand for, ids : the rows' labels, groups : (rows,) or None,
    times : (rows,) numbers in the order of time, or None.
    """

    X: Any
    frame: pd.DataFrame
    named: bool
    label: NDArray[np.int64]
    classes: NDArray[Any]
    ids: pd.Index
    groups: NDArray[np.int64] | None
    times: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: NDArray[np.int64]) -> AuditTable:
        """Some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        times = None if self.times is None else self.times[rows]
        return AuditTable(
            take(self.X, rows), self.frame.iloc[rows], self.named, self.label[rows],
            self.classes, self.ids[rows], groups, times,
        )  # fmt: skip


@dataclass(frozen=True)
class Learning:
    """Rows that evaluators learn from instead of the audited ones.

    X : (rows, features), label : (rows,) class numbers, times : (rows,) in order, or None.
    """

    X: pd.DataFrame
    label: NDArray[np.int64]
    times: NDArray[np.int64] | None = None


def read_rows(
    X: Any, y: Any, *, model: Any = None, ids: Any = None, groups: Any = None, times: Any = None
) -> AuditTable:
    """Check a table, its labels, and what else is known of its rows."""
    frame, named = named_frame(X)
    if len(frame) < _LEAST_ROWS:
        raise InputError(
            f"the table has {len(frame)} rows but an audit needs at least {_LEAST_ROWS}; give "
            "more rows."
        )
    Columns.learn(frame)  # what is remarkable about the columns is said here, once
    rows = len(frame)
    if y is None and model is None:
        raise InputError("y says what is to be predicted but is None; give labels or model=….")
    targets = model_targets(model, X, rows) if y is None else read_targets(y, rows)
    if y is not None and targets.soft:
        raise InputError(
            "y must hold one label for each row but holds a table of probabilities; give the "
            "labels, or leave out y and give model=… to audit against the model's own classes."
        )
    label = targets.likeliest
    present = np.unique(label)
    if y is None and len(present) < 2:
        raise InputError(
            "the model must predict at least two classes on these rows but predicts one only; "
            "give y, or other rows."
        )
    label = np.searchsorted(present, label)  # a class that a model never predicts is none here
    index = frame.index if ids is None else pd.Index(as_array(ids))
    if len(index) != rows:
        raise InputError(f"ids must label each of the {rows:,} rows but has {len(index):,} labels.")
    if ids is not None and not index.is_unique:
        raise InputError(
            f"ids must label each row but {index[index.duplicated()][0]!r} comes twice; give "
            "labels that differ."
        )
    if groups is not None and times is not None:
        raise InputError("groups keep rows together and times order them, but both came; give one.")
    return AuditTable(
        X if hasattr(X, "iloc") else as_array(X),
        frame, named, label, targets.classes[present], index,
        None if groups is None else group_numbers(groups, rows),
        None if times is None else time_numbers(times, rows),
    )  # fmt: skip


def named_frame(X: Any) -> tuple[pd.DataFrame, bool]:
    """X (rows, features) as a table with text for names, and whether the user named them."""
    if isinstance(X, pd.DataFrame):
        frame = X.rename(columns=str)
        twice = frame.columns[frame.columns.duplicated()]
        if len(twice):
            raise InputError(f"the column {twice[0]!r} comes twice; rename or drop one.")
        return frame, True
    values = as_array(X)
    if values.ndim != 2:
        raise InputError(f"X must be a table (rows, features) but came with shape {values.shape}.")
    names = [f"x{i + 1}" for i in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    return (frame.infer_objects() if values.dtype == object else frame), False


def check_classes(table: AuditTable, *folds: int) -> None:
    """Each class needs a row in each fold; what lies outside of any period, two classes."""
    least = max(folds)
    counts = np.bincount(table.label, minlength=len(table.classes))
    if counts.min() < least:
        which = int(counts.argmin())
        raise InputError(
            f"each class needs at least {least} audited rows, one for each fold, but class "
            f"{str(table.classes[which])!r} has {counts[which]}; give more rows or merge classes."
        )
    if table.groups is not None and len(np.unique(table.groups)) < least:
        raise InputError(
            f"there must be at least {least} groups, one for each fold, but there are "
            f"{len(np.unique(table.groups))}; give finer groups."
        )
    if table.times is not None:
        _check_times(table.times, table.label, folds)


def _check_times(
    times: NDArray[np.int64], label: NDArray[np.int64], folds: tuple[int, ...]
) -> None:
    least, different = max(folds), len(np.unique(times))
    if different < least:
        raise InputError(
            f"the audited rows must be of at least {least} different times, one for each fold, but "
            f"are of {different}; give finer times."
        )
    for count in folds:
        period = cut_in_time(times, count)
        if any(len(np.unique(label[period != number])) < 2 for number in range(count)):
            raise InputError(
                f"cut into {count} periods by time, the rows outside of each must hold at least "
                "two classes but some hold one only; give rows of a longer time."
            )


def check_learning(learning: Learning) -> None:
    """Evaluators need some rows, of two classes."""
    rows, classes = len(learning.label), len(np.unique(learning.label))
    if rows < _LEAST_ROWS or classes < 2:
        raise InputError(
            f"the evaluators need at least {_LEAST_ROWS} rows of two classes to learn from but the "
            f"rows that are left to them are {rows} of {classes}; give more, or let the audited "
            "rows be cross-fitted (rest='drop', --rest drop)."
        )


def read_training(train: Any, table: AuditTable, model: Any = None) -> Learning:
    """Training rows of the user's own for the evaluators, with our class numbers.

    model : says what they are labelled, where the audited rows have no labels of their own.
    """
    if not isinstance(train, tuple | list) or len(train) != 2:
        raise InputError(
            "train must be a pair (X_train, y_train) of rows for the evaluators to learn from but "
            f"is a {type(train).__name__}."
        )
    frame, named = named_frame(train[0])
    own = list(table.frame.columns)
    if named and table.named and set(frame.columns) == set(own):
        frame = frame[own]
    if list(frame.columns) != own:
        raise InputError(
            f"the training rows must have the audited table's {len(own)} columns but have "
            f"{frame.shape[1]}: {', '.join(map(str, frame.columns[:5]))}, …; give the same columns."
        )
    check_columns(frame)
    y = train[1]
    if y is None and model is not None:
        asked = frame if table.named else as_array(train[0])
        predicted = model_targets(model, asked, len(frame))
        y = predicted.classes[predicted.likeliest]
    return Learning(frame, read_targets(y, len(frame), table.classes, fitting=False).likeliest)
