"""Write predictions of each row, and draw a few rows as cards, chosen by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.evaluation import EvalX
from unmasked.explainers import RealX
from unmasked.explanation.explanation import Explanation
from unmasked.explanation.features import shown_texts
from unmasked.io.page import Chance, RowCard
from unmasked.plots.figures import shorten

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


_EXAMPLES = 10
_OF_A_KIND = 2
_FAR = 0.1  # difference of probabilities from which hidden features count as needed
_MOST_FEATURES = 12  # of a card
_MOST_CLASSES = 3
_VALUE_WIDTH, _NAME_WIDTH = 40, 48  # characters


def rule_text(predictions: Predictions) -> str:
    """State the rule by which the example rows were chosen."""
    kinds = "the surest"
    if predictions.labels is not None:
        kinds = "the surest that are right, the surest that are wrong"
    return (
        f"Two rows of each kind, of different predicted classes where there are any: {kinds}, the "
        "least sure, and those whose prediction hidden features would change most; the others by "
        "chance."
    )


def choose_examples(predictions: Predictions, seed: int) -> list[tuple[int, str]]:
    """Positions of rows and why they were chosen; the same for the same seed."""
    shown, everything = predictions.shown, predictions.everything
    rows = len(shown)
    ordered = np.sort(shown, axis=1)
    sure = ordered[:, -1]
    margin = sure - (ordered[:, -2] if shown.shape[1] > 1 else 0)
    moved = np.abs(shown - everything).max(1)
    kinds: list[tuple[str, NDArray[Any], NDArray[np.bool_]]] = []
    every = np.ones(rows, dtype=bool)
    if predictions.labels is None:
        kinds.append(("among the surest", -sure, every))
    else:
        right = predictions.predicted == predictions.labels
        kinds += [("sure and right", -sure, right), ("sure and wrong", -sure, ~right)]
    kinds.append(("hardly decided", margin, every))
    kinds.append(("hidden features matter", -moved, moved > _FAR))
    chosen: dict[int, str] = {}
    for reason, key, allowed in kinds:
        free = allowed.copy()
        free[list(chosen)] = False
        order = np.argsort(key, kind="stable")
        best = _of_several_classes(order[free[order]], shown.argmax(1))
        chosen |= dict.fromkeys(best, reason)
    for row in np.random.default_rng(seed).permutation(rows)[:_EXAMPLES].tolist():
        if len(chosen) < _EXAMPLES:
            chosen.setdefault(row, "by chance")
    return list(chosen.items())


def _of_several_classes(order: NDArray[np.int64], predicted: NDArray[np.int64]) -> list[int]:
    """The first rows of an order, each of another predicted class while there are such."""
    _, firsts = np.unique(predicted[order], return_index=True)
    places = [*np.sort(firsts).tolist(), *range(min(_OF_A_KIND, len(order)))]
    return [int(order[place]) for place in dict.fromkeys(places)][:_OF_A_KIND]


def row_cards(
    explanation: Explanation, predictions: Predictions, chosen: list[tuple[int, str]], target: str
) -> list[RowCard]:
    """A card for each of the chosen rows."""
    return [_card(explanation, predictions, row, reason, target) for row, reason in chosen]


def _card(
    explanation: Explanation, predictions: Predictions, row: int, reason: str, target: str
) -> RowCard:
    mask, chances = explanation.masks[row], explanation.probabilities[row]
    features = [i for i in np.argsort(-chances, kind="stable").tolist() if mask[i]]
    label = None if predictions.labels is None else str(predictions.labels[row])
    return RowCard(
        title=f"Row {explanation.index[row]}",
        reason=reason,
        outcome="" if label is None else f"{target} = {label}",
        right=None if label is None else bool(predictions.predicted[row] == label),
        shown=[_named_value(explanation, row, i) for i in features[:_MOST_FEATURES]],
        more=max(0, len(features) - _MOST_FEATURES),
        hidden=len(mask) - len(features),
        chances=_chances(predictions, row, label),
    )


def _named_value(explanation: Explanation, row: int, feature: int) -> tuple[str, str]:
    name = shorten(explanation.feature_names[feature], _NAME_WIDTH)
    if explanation.values is None:
        return name, ""
    (text,) = explanation.values.texts(feature, np.array([row]))
    return name, shorten(text, _VALUE_WIDTH)


def _chances(predictions: Predictions, row: int, label: str | None) -> list[Chance]:
    """The likeliest classes, and the true one: from what is shown and from everything."""
    shown, everything = predictions.shown[row], predictions.everything[row]
    classes = np.argsort(-shown, kind="stable")[:_MOST_CLASSES].tolist()
    others = [int(everything.argmax())]
    others += [i for i, name in enumerate(predictions.classes) if name == label]
    classes += [i for i in dict.fromkeys(others) if i not in classes]
    return [
        Chance(
            shorten(predictions.classes[i], _VALUE_WIDTH),
            float(shown[i]),
            float(everything[i]),
            predictions.classes[i] == label,
        )
        for i in classes
    ]
