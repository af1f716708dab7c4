"""`EvalX`: how well does what an explanation shows predict y, for a model that cannot be told?"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked import methods
from unmasked.columns import GroupSpec
from unmasked.engine import Settings, Training, fit
from unmasked.engine.progress import Show
from unmasked.errors import CoverageWarning
from unmasked.estimator import Table, checkpoint_file, restore_network
from unmasked.evaluation.evaluator import SEED_SHIFT, TableEvaluator, same_size_masks
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.networks import Factory
from unmasked.storage import (
    law_from,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)

__all__ = ["EvalX", "same_size_masks"]

_MANY_OUTSIDE = 0.01  # share of rows outside the trained sizes that calls for a warning


class EvalX(TableEvaluator):
    """EVAL-X: a classifier of what is shown, trained on random masks and never on explanations.

    At its optimum it is p(y | x_r) for every subset r of the features, and nothing that an
    explainer encodes in its *choice* of features can help it.

    Parameters
    ----------
    predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``.
    model : evaluate explanations of this model instead of the data, as in `RealX`.
    mask_law : `UniformSize` (default: masks of every size) or the paper's `Bernoulli(0.5)`.
    masker, groups, training, validation, batch_size, device, checkpoint, progress, random_state :
        as in `RealX`.

    Attributes
    ----------
    predictor_ : the network. sizes_ : smallest and largest number of shown features it knows.
    columns_, classes_, n_features_in_, feature_names_in_, history_, interrupted_ : as in `RealX`.

    Examples
    --------
    >>> from unmasked.data import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> evaluator = EvalX(training=Training(epochs=2), random_state=0).fit(rows.x, rows.y)
    >>> scores = evaluator.evaluate(rows.truth, rows.x, rows.y, bootstrap_draws=50)
    >>> list(scores.rows)
    ['explanation', 'everything', 'random', 'nothing']
    """

    _title = "EVAL-X"

    def __init__(
        self,
        predictor: nn.Module | Factory | None = None,
        *,
        model: Any = None,
        mask_law: MaskLaw | None = None,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        training: Training | None = None,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.predictor = predictor
        self.model = model
        self.mask_law = mask_law
        self.masker = masker
        self.groups = groups
        self.training = training
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None) -> EvalX:
        """Learn p(y | x_r) for random subsets r; arguments as in `RealX.fit`."""
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        trained = fit(
            methods.eval_x(self.masker_, self._law, self._predictor),
            Settings(seeds=(seed + SEED_SHIFT,)),
            train,
            valid,
            self.training,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "evalx"),
            show=self.progress,
            title="EVAL-X",
        )
        self.predictor_ = trained.predictors[0]
        self.sizes_ = self._law.sizes(self._sizes[1])
        self.soft_ = targets.soft
        self.history_, self.interrupted_ = trained.history, trained.interrupted
        self.seconds_ = trained.seconds
        return self

    # ------------------------------------------------------------------ the work behind it

    def _predict(self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]) -> NDArray[Any]:
        return self._probabilities(self.predictor_, inputs, masks)

    def _remarks(self, masks: NDArray[np.bool_]) -> list[str]:
        """A sentence, also warned, when masks are of sizes that training did not show."""
        sizes = masks.sum(1)
        low, high = self.sizes_
        outside = float(((sizes < low) | (sizes > high)).mean())
        if outside <= _MANY_OUTSIDE:
            return []
        text = (
            f"{outside:.0%} of the masks show {sizes.min()} to {sizes.max()} of "
            f"{masks.shape[1]} features, but this evaluator was trained on masks that show {low} "
            f"to {high}: its figures are extrapolation, so use EvalX(mask_law=UniformSize())."
        )
        warnings.warn(text, CoverageWarning, stacklevel=3)
        return [text]

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "predictor_")

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own."""
        check_is_fitted(self)
        config = {**self._config(), "sizes": list(self.sizes_)}
        write_folder(Path(folder), config, weights_of(self.predictor_, "predictor"))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> EvalX:
        """Read what `save` wrote. A network or masker of your own must be passed again."""
        config, tensors = read_folder(Path(folder), "EvalX")
        evaluator = cls(
            predictor=network_from(config["predictor"], predictor, "predictor"),
            mask_law=law_from(config["mask_law"]),
            batch_size=config["batch_size"],
            device=device,
        )
        evaluator._restore(config, masker)
        evaluator.sizes_ = tuple(config["sizes"])
        width = evaluator._sizes[2]
        evaluator.predictor_ = restore_network(
            evaluator.predictor, width, len(evaluator.classes_), tensors, "predictor"
        )
        return evaluator
