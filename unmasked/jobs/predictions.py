"""What is predicted for each explained row, from what is shown and from everything; its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.evaluation import EvalX
from unmasked.explainers import RealX
from unmasked.explanation import Explanation
from unmasked.featurevalues import shown_texts

PREDICTIONS, EXPLANATIONS = "predictions.csv", "explanations.csv"
_ROWS_AT_ONCE = 20_000  # of whose values texts are held in memory
_OWN = "REAL-X's own predictor"


@dataclass(frozen=True)
class Predictions:
    """Class probabilities of the explained rows.

    Attributes
    ----------
    classes : the classes as text.
    shown, everything : (rows, classes), from what is shown and from all features.
    predictor : who predicts, in words.
    labels : each row's class as text, where it is known.
    """

    classes: list[str]
    shown: NDArray[np.float32]
    everything: NDArray[np.float32]
    predictor: str
    labels: NDArray[np.object_] | None

    @property
    def predicted(self) -> NDArray[np.object_]:
        """The likeliest class from what is shown, (rows,)."""
        return np.array(self.classes, dtype=object)[self.shown.argmax(1)]


def predict(
    explainer: RealX,
    evaluator: EvalX | None,
    explanation: Explanation,
    X: pd.DataFrame,
    y: pd.Series | None = None,
    *,
    sparsity: float | None = None,
) -> Predictions:
    """Predict by EVAL-X, which learned apart from the explainer; without one by the explainer."""
    if evaluator is not None:
        shown = evaluator.predict_proba(X, explanation.masks)
        everything = evaluator.predict_proba(X)
    else:
        shown = explainer.predict_proba(X, sparsity=sparsity)
        everything = explainer.predict_proba(X, sparsity=sparsity, everything=True)
    return Predictions(
        [str(label) for label in explainer.classes_],
        shown.astype(np.float32),
        everything.astype(np.float32),
        _OWN if evaluator is None else evaluator.title,
        None if y is None else _label_texts(y, explainer.classes_),
    )


def _label_texts(y: pd.Series, classes: NDArray[Any]) -> NDArray[np.object_]:
    """Labels as the classes are written, so that 1.0 is the class 1."""
    codes = pd.Index(classes).get_indexer(pd.Index(y))
    texts = [str(classes[i]) if i >= 0 else str(v) for i, v in zip(codes, y, strict=True)]
    return np.array(texts, dtype=object)


def write_predictions(folder: Path, explanation: Explanation, predictions: Predictions) -> None:
    """``predictions.csv``: each class's probabilities, the likeliest class, and the label."""
    columns: dict[str, Any] = {
        f"{name}_{label}": values[:, i]
        for name, values in (("shown", predictions.shown), ("everything", predictions.everything))
        for i, label in enumerate(predictions.classes)
    }
    columns["predicted"] = predictions.predicted
    if predictions.labels is not None:
        columns["label"] = predictions.labels
    frame = pd.DataFrame(columns, index=explanation.index)
    frame.to_csv(folder / PREDICTIONS, index_label="row", float_format="%.5g")


def write_explanations(folder: Path, explanation: Explanation, predictions: Predictions) -> None:
    """``explanations.csv``: a line for each row that can be read out to somebody."""
    with open(folder / EXPLANATIONS, "w", encoding="utf-8", newline="") as file:
        for start in range(0, max(1, len(explanation)), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            frame = _readable(explanation[rows], predictions, rows)
            frame.to_csv(file, index_label="row", header=not start, float_format="%.5g")


def _readable(explanation: Explanation, predictions: Predictions, rows: slice) -> pd.DataFrame:
    texts = shown_texts(
        explanation.masks,
        explanation.probabilities,
        explanation.feature_names,
        explanation.values,
        exact=True,
    )
    likeliest = predictions.shown[rows].argmax(1)
    positions = np.arange(len(explanation))
    columns: dict[str, Any] = {
        "size": explanation.sizes,
        "shown": ["; ".join(features) or "nothing" for features in texts],
        "predicted": predictions.predicted[rows],
        "probability": predictions.shown[rows][positions, likeliest],
        "probability_everything": predictions.everything[rows][positions, likeliest],
    }
    if predictions.labels is not None:
        columns["label"] = predictions.labels[rows]
    return pd.DataFrame(columns, index=explanation.index)
