"""Check the audited table, and read the explained model from its file.

A file of skops is checked before it is loaded: only classes of scikit-learn, numpy and scipy are.
A pickle (joblib's too) can run any code while it loads, so it is loaded only when the user says
that the file can be trusted.
"""

from __future__ import annotations

import warnings
import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import InconsistentVersionWarning

from unmasked.auditing.evaluators import take
from unmasked.errors import DataWarning, InputError, SavedError
from unmasked.evaluation.encoding.rows import group_numbers, time_numbers
from unmasked.evaluation.periods import cut_in_time
from unmasked.explainers.saving import read_skops
from unmasked.inputs.table import Columns, nearest
from unmasked.inputs.targets import as_array, model_targets, read_targets
from unmasked.io.tables import check_columns

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


_ANY_CODE = "--trust-model (trust=True) loads it all the same, but only do that to your own files"


def load_model(path: str | Path, *, trust: bool = False) -> Any:
    """A fitted scikit-learn model or Pipeline from a file of skops, joblib or pickle.

    trust : the file is the user's own, and may hold any code: without it pickles are refused, and
    so are classes of other packages in a file of skops.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"the model {path} is not a file; check the path.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = _loaded(path, trust)
    for warning in caught:
        if isinstance(warning.message, InconsistentVersionWarning):
            warnings.warn(
                f"the model {path} was saved with scikit-learn "
                f"{warning.message.original_sklearn_version} and read with "
                f"{warning.message.current_sklearn_version}; its predictions may differ.",
                DataWarning,
                stacklevel=2,
            )
            break
    if not hasattr(model, "predict_proba"):
        raise InputError(
            f"the model in {path} must have predict_proba but is a {type(model).__name__}, which "
            "has none; give a classifier, if need be inside scikit-learn's CalibratedClassifierCV."
        )
    return model


def _loaded(path: Path, trust: bool) -> Any:
    if _is_skops(path):
        return read_skops(path, "reading a model", trust=trust, advice=_ANY_CODE)
    if not trust:
        raise SavedError(
            f"{path} is no file of skops; if it is a pickle, loading it can run any code, so save "
            f"the model with skops.io.dump instead, or say that you trust the file: {_ANY_CODE}."
        )
    try:
        return import_module("joblib").load(path)  # reads plain pickles too
    except Exception as error:  # a pickle can fail in any way
        raise SavedError(
            f"{path} cannot be read as a pickle or joblib file ({_first_words(error)}); use the "
            "versions that it was saved with."
        ) from error


def _is_skops(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "schema.json" in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


class ExplainedModel:
    """A model with ``predict_proba``, given its own columns in its own order.

    What scikit-learn says when it cannot predict becomes one sentence.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names = names_of(model)
        if hasattr(model, "classes_"):
            self.classes_ = model.classes_

    def predict_proba(self, X: Any) -> Any:
        """(rows, classes)."""
        if isinstance(X, pd.DataFrame) and self._names is not None:
            X = X.rename(columns=str)[self._names]
        try:
            return self._model.predict_proba(X)
        except Exception as error:  # pipelines hold anybody's parts
            raise InputError(
                f"the model ({type(self._model).__name__}) cannot predict these rows "
                f"({_first_words(error)}); give the fitted model and the columns that it was "
                "fitted on."
            ) from error


def explained(model: Any, features: list[str], named: bool) -> Any:
    """The model as the audit asks it, once its columns are the table's.

    features : the table's columns, ``named`` where the user named them. Functions and torch modules
    have no columns of their own and stay as they are.
    """
    if model is None or not hasattr(model, "predict_proba"):
        return model
    names, width = names_of(model), getattr(model, "n_features_in_", None)
    if named and names is not None:
        missing = [name for name in names if name not in features]
        more = [name for name in features if name not in names]
        if missing:
            raise InputError(
                f"the model was fitted on the column {missing[0]!r}, which is not among the "
                f"table's {len(features)} features; {nearest(missing[0], features)}"
            )
        if more:
            raise InputError(
                f"the model was fitted on {len(names)} columns without {more[0]!r}, which is among "
                f"the table's {len(features)} features; leave it out (--drop)."
            )
    elif width is not None and width != len(features):
        raise InputError(
            f"the model was fitted on {width} columns but the table has {len(features)} features; "
            "give the columns that it was fitted on."
        )
    return ExplainedModel(model)


def names_of(model: Any) -> list[str] | None:
    """The columns that a model was fitted on, where it knows their names."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _first_words(error: Exception) -> str:
    """The first sentence of what another library says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].split(". ")[0].rstrip(".") if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
