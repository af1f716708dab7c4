"""What `benchmarks/tables.py` compares RealX with: SHAP, LIME, boosting, its own predictor."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from tables_data import codes, is_text

from unmasked import RealX
from unmasked.explainers.search.screen import PartPredictor
from unmasked.explainers.search.values import SetPredictor
from unmasked.metrics import log_likelihoods
from unmasked.training.device import choose_device

ROUNDS = 1000  # trees at most where validation rows stop
_NUMBERS = 2**27  # held at once while many sets are asked about
_CATEGORIES = 255  # that boosting takes in one column


class Own:
    """An explainer's own predictor on some rows: what it says from any set of features."""

    def __init__(self, explainer: RealX, X: pd.DataFrame) -> None:
        self.explainer, self.matrix = explainer, explainer._matrix(X)
        self.predictor = explainer.settings_[explainer.chosen_].predictor
        self.features = explainer._sizes[1]

    def first(self, rows: int) -> Own:
        """The same for the first rows alone."""
        own = copy(self)
        own.matrix = self.matrix[:rows]
        return own

    def probabilities(self, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(rows, classes) from what the masks show."""
        return self.explainer._probabilities(self.predictor, self.matrix, masks)

    def everything(self) -> NDArray[np.float64]:
        """(rows, classes) from all features."""
        return self.probabilities(np.ones((len(self.matrix), self.features), dtype=bool))

    def one_more(self, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(rows, features, classes): each with one more feature than the masks show."""
        if not isinstance(self.predictor, PartPredictor):
            return self._by_masks(masks)
        part = self.predictor.part
        kept, columns = list(part.features), list(part.columns)
        more = self._by_terms(self.predictor.predictor, self.matrix[:, columns], masks[:, kept])
        now = self.probabilities(masks)
        answers = np.repeat(now[:, None], self.features, axis=1)  # a dropped feature adds nothing
        answers[:, kept] = more
        return answers

    @torch.no_grad()
    def _by_terms(
        self, predictor: SetPredictor, matrix: NDArray[np.float32], masks: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        device = choose_device(self.explainer.device)
        predictor.to(device)
        found = []
        for part in _parts(len(matrix), _NUMBERS // (predictor.width * predictor.features)):
            terms = predictor.terms(torch.from_numpy(matrix[part]).to(device))
            shown = torch.from_numpy(masks[part]).to(terms)
            sums = torch.einsum("mrfn,rf->mrn", terms, shown)
            hidden = (1 - shown)[None, :, :, None]
            tried = (sums[:, :, None] + hidden * terms).flatten(1, 2)
            answers = predictor.read(tried)
            found.append(answers.view(-1, predictor.features, answers.shape[1]).cpu().numpy())
        predictor.to("cpu")
        return np.concatenate(found)

    def _by_masks(self, masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        width = self.matrix.shape[1]
        more = np.eye(self.features, dtype=bool)
        found = []
        for part in _parts(len(self.matrix), _NUMBERS // (8 * width * self.features)):
            tried = (masks[part, None] | more).reshape(-1, self.features)
            rows = np.repeat(self.matrix[part], self.features, axis=0)
            answers = self.explainer._probabilities(self.predictor, rows, tried)
            found.append(answers.reshape(-1, self.features, answers.shape[1]))
        return np.concatenate(found)


def _parts(rows: int, size: int) -> list[slice]:
    return [slice(i, i + max(1, size)) for i in range(0, rows, max(1, size))]


def trees(x: NDArray[np.float64], y: NDArray[np.int64], seed: int) -> Any:
    """Boosted trees as they come."""
    return HistGradientBoostingClassifier(random_state=seed).fit(x, y)


@dataclass(frozen=True, eq=False)
class OfFrames:
    """A model of codes that takes rows of the table as they come."""

    model: Any
    table: pd.DataFrame

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """(rows, classes) of what it learned from."""
        return self.model.predict_proba(codes(X, self.table))


def tree_shap(model: Any, x: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
    """|SHAP values| (rows, features): of the predicted class, and the mean over classes."""
    with warnings.catch_warnings():  # its import calls what newer matplotlib is about to drop
        warnings.simplefilter("ignore")
        import shap

        values = np.abs(shap.TreeExplainer(model).shap_values(x, check_additivity=False))
    if values.ndim == 2:
        return {"only": values.astype(np.float32)}
    likeliest = model.predict_proba(x).argmax(1)
    return {
        "predicted": values[np.arange(len(x)), :, likeliest].astype(np.float32),
        "mean": values.mean(2).astype(np.float32),
    }


def lime_values(
    model: Any, x: NDArray[np.float64], rows: NDArray[np.float64], texts: Sequence[int], seed: int
) -> NDArray[np.float64]:
    """|LIME's weights| (rows, features) of the predicted class, from 5,000 samples a row.

    x : what the model learned from. Missing values become the median, as LIME takes none.
    """
    from lime.lime_tabular import LimeTabularExplainer

    middle = np.nan_to_num(np.nanmedian(x, axis=0))
    x, rows = (np.where(np.isnan(part), middle, part) for part in (x, rows))
    explainer = LimeTabularExplainer(
        x, categorical_features=list(texts) or None, random_state=seed, feature_selection="none"
    )
    values = np.zeros(rows.shape)
    likeliest = model.predict_proba(rows).argmax(1)
    for i, (row, label) in enumerate(zip(rows, likeliest, strict=True)):
        found = explainer.explain_instance(
            row, model.predict_proba, labels=(label,), num_features=x.shape[1]
        )
        for feature, weight in found.as_map()[label]:
            values[i, feature] = abs(weight)
    return values


def tuned_trees(X: pd.DataFrame, y: NDArray[np.int64], seed: int) -> Any:
    """Boosted trees whose rate, leaves and penalty are the best of eight on validation rows.

    These rows, a fifth, stop the training too. Categories of a column are taken as such.
    """
    one, other, y_one, y_other = train_test_split(
        X, y, test_size=0.2, stratify=y, random_state=seed
    )
    best, kept = -np.inf, None
    for rate, leaves, penalty in product((0.03, 0.1), (7, 31), (0.0, 10.0)):
        model = HistGradientBoostingClassifier(
            learning_rate=rate,
            max_leaf_nodes=leaves,
            l2_regularization=penalty,
            max_iter=ROUNDS,
            early_stopping=True,
            n_iter_no_change=20,
            categorical_features="from_dtype",
            random_state=seed,
        ).fit(one, y_one, X_val=other, y_val=y_other)
        found = loglik(model.predict_proba(other), y_other)
        if found > best:
            best, kept = found, model
    return kept


def as_categories(X: pd.DataFrame) -> pd.DataFrame:
    """Columns of text as categories, at most as many as boosting takes; others as numbers."""
    columns = {}
    for name in X.columns:
        if not is_text(X[name]):
            columns[name] = X[name].astype(np.float64)
            continue
        text = X[name].astype("string")
        usual = text.value_counts().index[: _CATEGORIES - 1]
        known = text.where(text.isin(usual) | text.isna(), "other").astype(object)
        columns[name] = known.where(known.notna(), np.nan).astype("category")
    return pd.DataFrame(columns)


def loglik(predicted: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """The mean log-likelihood of classes 0 … n − 1."""
    return float(log_likelihoods(predicted, np.eye(predicted.shape[1])[y]).mean())
