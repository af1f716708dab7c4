"""Read the targets to explain: labels of any kind, or a model's probabilities.

Both become class probabilities (rows, classes); a label is a one-hot row.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from unmasked.checks import check_labels
from unmasked.errors import InputError

_SUM_TOLERANCE = 1e-3

_BATCH = 1024  # rows that a torch model is asked for at once


@dataclass(frozen=True)
class Targets:
    """Targets of some rows.

    probabilities : (rows, classes), classes : (classes,), soft : whether they came as a model's
    probabilities, so that the model is explained and not the data.
    """

    probabilities: NDArray[np.float32]
    classes: NDArray[Any]
    soft: bool

    @property
    def likeliest(self) -> NDArray[np.int64]:
        """The number of the label, or of the model's likeliest class, (rows,)."""
        return self.probabilities.argmax(1).astype(np.int64)


def read_targets(
    y: Any, rows: int, classes: NDArray[Any] | None = None, *, fitting: bool = True
) -> Targets:
    """Labels or a probability matrix as targets; ``classes`` are the fitted ones, if any."""
    values = as_array(y)
    if values.shape[:1] != (rows,):
        came = "a single value" if values.ndim == 0 else f"{values.shape[0]:,} values"
        raise InputError(f"y must have one value for each of the {rows:,} rows but has {came}.")
    if values.ndim == 2 and values.shape[1] > 1:
        probabilities = check_probabilities(values, "y")
        if classes is None:
            classes = np.arange(values.shape[1])
        if len(classes) != values.shape[1]:
            raise InputError(
                f"y must have {len(classes)} columns of probabilities, one for each class, but "
                f"has {values.shape[1]}."
            )
        return Targets(probabilities, classes, soft=True)
    values = _labels(values)
    if fitting or classes is None:
        check_labels(values, "y")
        classes, codes = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            only = classes.tolist()[0]
            raise InputError(
                f"y must have at least two classes but has one class only ({only!r}); "
                "there is nothing to explain."
            )
    else:
        codes = codes_of(values, classes)
    one_hot = np.zeros((rows, len(classes)), dtype=np.float32)
    one_hot[np.arange(rows), codes] = 1
    return Targets(one_hot, classes, soft=False)


def model_targets(model: Any, X: Any, rows: int) -> Targets:
    """Ask a model for its probabilities: any ``predict_proba``, or any callable."""
    ask = getattr(model, "predict_proba", None)
    if ask is None:
        if not callable(model):
            raise InputError(
                "model must have predict_proba or be callable, but is "
                f"{type(model).__name__}; wrap it in a function that returns probabilities."
            )
        ask = _module_call(model) if _is_module(model) else model
    values = _numeric(as_array(ask(X)), "the model's output")
    if values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1):
        flat = values.ravel()
        values = np.stack([1 - flat, flat], axis=1)  # P(second class) alone
    if values.ndim != 2 or len(values) != rows:
        raise InputError(
            f"the model must return probabilities of shape ({rows}, classes) but returned "
            f"{values.shape}."
        )
    probabilities = check_probabilities(values, "the model's output")
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) != values.shape[1]:
        classes = np.arange(values.shape[1])
    return Targets(probabilities, np.asarray(classes), soft=True)


def check_probabilities(values: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Rows of probabilities that sum to 1, or one clear sentence."""
    numbers = _numeric(values, what)
    if not np.isfinite(numbers).all():
        raise InputError(f"{what} must hold probabilities but holds NaN or infinite values.")
    if (numbers < -_SUM_TOLERANCE).any() or (numbers > 1 + _SUM_TOLERANCE).any():
        wrong = numbers[(numbers < -_SUM_TOLERANCE) | (numbers > 1 + _SUM_TOLERANCE)][0]
        raise InputError(
            f"{what} must hold probabilities between 0 and 1 but holds {wrong:.4g}; "
            "apply a softmax if these are scores."
        )
    total = numbers.sum(1)
    off = np.abs(total - 1) > _SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"{what} must hold probabilities that sum to 1 in each row, but row {row} sums to "
            f"{total[row]:.4g}; normalise them."
        )
    numbers = np.clip(numbers, 0, 1)
    return (numbers / numbers.sum(1, keepdims=True)).astype(np.float32)


def _numeric(values: NDArray[Any], what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must hold probabilities, but holds text.") from error


def as_array(values: Any) -> NDArray[Any]:
    """numpy from numpy, pandas, torch or lists, without copying where possible."""
    if hasattr(values, "detach"):
        return np.asarray(values.detach().cpu().numpy())
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
        return np.asarray(values.astype(values.cat.categories.dtype))
    return np.asarray(values)


def codes_of(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The position of each label among the fitted classes."""
    lookup = {label: code for code, label in enumerate(classes.tolist())}
    unknown = [label for label in values.tolist() if label not in lookup]
    if unknown:
        raise InputError(
            f"y must hold the classes seen in fit, {classes.tolist()}, but holds {unknown[0]!r}."
        )
    return np.array([lookup[label] for label in values.tolist()], dtype=np.int64)


def _labels(values: NDArray[Any]) -> NDArray[Any]:
    values = column_or_1d(values, warn=True)
    missing = pd.isna(pd.Series(values))
    if missing.any():
        raise InputError(
            f"y has {int(missing.sum()):,} missing labels (NaN or None); drop these rows."
        )
    if values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise InputError("y has infinite values (inf); drop these rows.")
    if values.dtype == object:
        values = _plain_labels(values)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater")
        check_classification_targets(values)  # how many there are is for `check_labels` to judge
    return values


def _plain_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Object labels as strings or numbers, so that classes sort and survive saving."""
    texts = sum(isinstance(value, str) for value in values)
    if texts == len(values):
        return values.astype(str)
    plain = None if texts else _array_or_none(values.tolist())
    if plain is None or plain.dtype.kind not in "biuf" or plain.ndim != 1:
        other = next(value for value in values if not isinstance(value, str))
        raise InputError(
            "y must hold one kind of label, numbers or text, but holds "
            f"{'text and ' if texts else ''}{other!r}; convert all of them to text."
        )
    return plain


def _array_or_none(values: list[Any]) -> NDArray[Any] | None:
    try:
        return np.array(values)
    except ValueError:
        return None


def _is_module(model: Any) -> bool:
    from torch import nn

    return isinstance(model, nn.Module)


def _module_call(model: Any) -> Any:
    import torch

    def ask(X: Any) -> NDArray[Any]:
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad():
                # astype copies: pandas hands out arrays that must not be written to
                rows = as_array(X)
                values = [
                    as_array(model(torch.from_numpy(rows[i : i + _BATCH].astype(np.float32))))
                    for i in range(0, max(1, len(rows)), _BATCH)
                ]
        finally:
            model.train(was_training)
        return np.concatenate(values)

    return ask
