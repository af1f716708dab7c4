"""`Full`: the reference that always shows everything."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import TransformerMixin

from unmasked.explainers.estimator import NetworkEstimator, Table, checkpoint_file
from unmasked.explanation.explanation import Explanation
from unmasked.masks.superpixels import Superpixels
from unmasked.training import Settings, fit, methods


class Full(TransformerMixin, NetworkEstimator):  # type: ignore[misc]
    """FULL: a predictor on every feature, with the interface of an explainer.

    Its explanations show everything. What the others' accuracy is to be compared with.

    Parameters
    ----------
    predictor : network from all features to class logits, or a factory; None (default) for an
        `MLP`.
    model : learn from this model's probabilities; None (default) learns from y.
    masker, groups, training : what hides features, columns that go together, options of training.
        Each is None by default, as in `RealX`.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Examples
    --------
    >>> from unmasked import Training
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> full = Full(training=Training(epochs=2), random_state=0).fit(rows.x, rows.y)
    >>> full.explain(rows.x).fraction
    1.0
    """

    title = "FULL"

    def fit(self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None) -> Self:
        """Learn p(y | x).

        Parameters
        ----------
        X : rows to learn from: a table or images, as in `RealX.fit`.
        y : labels (rows,) or class probabilities (rows, classes); leave out with ``model=``.
        validation : (X_valid, y_valid) to validate on. None (default) holds out a share of the
            rows.
        """
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        trained = fit(
            methods.full(self.masker_, self._predictor_network),
            Settings(seeds=(seed,)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "full"),
            show=self.progress,
            title=self.title,
        )
        self.predictor_ = trained.predictors[0]
        self._learned(trained, targets)
        return self

    def explain(self, X: Table) -> Explanation:
        """Everything, for each row.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        table = self._read(X, reset=False)
        self.columns_.matrix(table)  # refuses values that cannot be shown
        shape = (len(table), self._sizes[1])
        index = X.index.to_numpy() if isinstance(X, pd.DataFrame) else None
        everything = np.ones(shape, dtype=bool)
        return Explanation(
            everything,
            everything.astype(np.float64),
            self.columns_.features,
            index,
            {"method": self.title},
            self.masker_.map if isinstance(self.masker_, Superpixels) else None,
        )

    def predict_proba(self, X: Table) -> NDArray[np.float64]:
        """Class probabilities from everything.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        matrix = self._matrix(X)
        everything = np.ones((len(matrix), self._sizes[1]), dtype=bool)
        return self._probabilities(self.predictor_, matrix, everything).astype(np.float64)

    def predict(self, X: Table) -> NDArray[Any]:
        """The likeliest class from everything.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        likeliest = self.predict_proba(X).argmax(1)  # checks that it is fitted
        return self.classes_[likeliest]

    def transform(self, X: Table) -> Any:
        """The rows as they are: nothing is hidden.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        table = self._read(X, reset=False)
        self.columns_.matrix(table)  # refuses values that cannot be shown
        if isinstance(table, np.ndarray) or isinstance(X, pd.DataFrame):
            return table
        return table.to_numpy(dtype=np.float64)
