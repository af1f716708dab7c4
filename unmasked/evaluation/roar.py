"""`Roar`: a model retrained on an explanation's own masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from unmasked.errors import InputError
from unmasked.evaluation.evaluator import SEED_SHIFT, TableEvaluator
from unmasked.explainers.estimator import NetworkEstimator, Table, checkpoint_file
from unmasked.explanation.explanation import Explanation
from unmasked.training import Data, Settings, fit, methods

_REMARK = (
    "these are figures of a model retrained on this explanation's masks: it learns whatever the "
    "choice of features gives away, so it cannot see encoding; EvalX does."
)


class Roar(TableEvaluator, NetworkEstimator):
    """ROAR (Hooker et al., 2019): retrain on what the explanation shows, then predict.

    It cannot see encoding. A model trained on the explanation's own masks learns their code, so
    one feature chosen by class scores as well as the whole row.

    Parameters
    ----------
    predictor : network from what is shown to class logits, or a factory; None (default) for an
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
    >>> roar = Roar(training=Training(epochs=2), random_state=0)
    >>> roar.fit(rows.x, rows.y, masks=rows.truth).predict_proba(rows.x, rows.truth).shape
    (400, 2)
    """

    title = "ROAR"

    def fit(
        self,
        X: Table,
        y: Any = None,
        *,
        masks: Explanation | ArrayLike | None = None,
        validation: tuple[Table, Any, Explanation | ArrayLike] | None = None,
    ) -> Roar:
        """Learn p(y | what ``masks`` show of the training rows).

        Parameters
        ----------
        X : rows to learn from: a table or images, as in `RealX.fit`.
        y : labels (rows,) or class probabilities (rows, classes); leave out with ``model=``.
        masks : the explanation of the rows of X; without it everything is shown. A run that goes on
            from a checkpoint needs the same ones. Save an explanation that was made on a GPU:
            a cell near the threshold may fall on its other side the next time.
        validation : (X, y, masks) to validate on, instead of a share of the rows.
        """
        if validation is not None and not isinstance(validation, tuple | list):
            raise InputError(
                "validation in Roar.fit must be (X, y, masks) but is a "
                f"{type(validation).__name__}; give a share of the rows as Roar(validation=0.2)."
            )
        if validation is not None and len(validation) != 3:
            raise InputError(
                "validation in Roar.fit must be (X, y, masks) but has "
                f"{len(validation)} parts; give the masks of the validation rows too."
            )
        rows = None if validation is None else (validation[0], validation[1])
        train, valid, targets, seed = self._prepare(X, y, rows, self.model)
        shown = self._shown(masks, len(targets.probabilities))
        if validation is None:
            assert train.rows + valid.rows == len(shown)
            learned, held_out = shown[self.split_[0]], shown[self.split_[1]]
        else:
            learned, held_out = shown, self._shown(validation[2], valid.rows)
        trained = fit(
            methods.roar(self.masker_, self._predictor_network),
            Settings(seeds=(seed + SEED_SHIFT,)),
            _with(train, learned),
            _with(valid, held_out),
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "roar"),
            show=self.progress,
            title=self.title,
        )
        self.predictor_ = trained.predictors[0]
        self._learned(trained, targets)
        return self

    def _shown(self, masks: Explanation | ArrayLike | None, rows: int) -> NDArray[np.bool_]:
        if isinstance(masks, Explanation):
            self._check_names(masks)
        return self._masks(masks, np.empty((rows, 0)))

    def _predict(self, inputs: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        return self._probabilities(self.predictor_, inputs, masks)

    def _remarks(self, masks: NDArray[np.bool_]) -> list[str]:
        return [] if masks.all() else [_REMARK]


def _with(data: Data, masks: NDArray[np.bool_]) -> Data:
    return replace(data, masks=torch.from_numpy(masks).unsqueeze(0))
