"""`ExactPosterior`: the evaluator that needs no training, where the truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import validate_data

from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import check_correlation
from unmasked.errors import InputError
from unmasked.evaluation.evaluator import Evaluator
from unmasked.explainers.estimator import Table
from unmasked.inputs.targets import Targets, as_array, read_targets


class ExactPosterior(Evaluator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The exact P(y | what is shown) of a synthetic set: what EVAL-X becomes at its optimum.

    It needs no fit. Its rows are those of `synthetic`, as drawn: not standardised, x1 … x11
    first. Its figures are the best that any evaluator can give, up to the luck of the rows.

    Parameters
    ----------
    name : "S1", "S2", "S3" or "Syn1" … "Syn6".
    correlation : of any two features, as `synthetic` drew them; at least 0, below 1.

    Examples
    --------
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> shown = ExactPosterior("S3").predict_proba(rows.x, rows.truth)[:, 1]
    >>> bool(np.allclose(shown, rows.probability))  # nothing else matters
    True
    """

    title = "The exact posterior"
    classes_ = np.array([0, 1])

    def __init__(self, name: str, *, correlation: float = 0.0) -> None:
        self.name = name
        self.correlation = correlation

    def fit(self, X: Table, y: Any = None) -> ExactPosterior:
        """Nothing is learned; the number of columns is remembered and checked from then on.

        Parameters
        ----------
        X : rows of `synthetic`, (rows, columns).
        y : not used; None by default.
        """
        self._rows(X, reset=True)
        return self

    def _inputs(self, X: Table) -> NDArray[np.float64]:
        return self._rows(X, reset=False)

    def _rows(self, X: Table, *, reset: bool) -> NDArray[np.float64]:
        """Raw features (rows, ≥ 11)."""
        check_correlation(self.correlation)
        values: NDArray[np.float64] = validate_data(
            self, as_array(X), reset=reset, dtype=np.float64, ensure_all_finite=False
        )
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise InputError(
                f"X must hold the finite features of {self.name} but row {row} has "
                f"{values[row, column]} in column {column + 1}; drop these rows."
            )
        return values

    def _features(self, inputs: NDArray[np.float64]) -> int:
        return inputs.shape[1]

    def _predict(
        self, inputs: NDArray[np.float64], masks: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        one = posterior(self.name, inputs, masks, correlation=self.correlation)  # (rows,)
        return np.stack([1 - one, one], axis=1)

    def _judged(self, X: Table, y: Any, rows: int) -> Targets:
        if y is None:
            raise InputError(
                "evaluate requires y but it is None; give labels 0 and 1 or a matrix of "
                "probabilities."
            )
        return read_targets(y, rows, self.classes_, fitting=False)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags
