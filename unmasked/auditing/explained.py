"""The explained model: read from a file, held against the table's columns, asked for predictions.

A file of skops is checked before it is loaded: only classes of scikit-learn, numpy and scipy are.
A pickle (joblib's too) can run any code while it loads, so it is loaded only when the user says
that the file can be trusted.
"""

from __future__ import annotations

import warnings
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.exceptions import InconsistentVersionWarning

from unmasked.columns import nearest
from unmasked.errors import DataWarning, InputError, SavedError
from unmasked.storage import read_skops

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
