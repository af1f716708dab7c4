"""`SubsetCollection`: a separately trained model for every subset of the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked import methods
from unmasked.engine import Settings, fit
from unmasked.engine.device import choose_device
from unmasked.engine.stack import Stack
from unmasked.errors import InputError
from unmasked.estimator import NetworkEstimator, Table, checkpoint_file
from unmasked.evaluation.collection import run_each, subset_numbers
from unmasked.evaluation.evaluator import SEED_SHIFT, TableEvaluator
from unmasked.masking import Masker
from unmasked.networks import Factory, build
from unmasked.storage import read_folder, write_folder

_MOST_FEATURES = 16


class SubsetCollection(TableEvaluator, NetworkEstimator):
    """One model for each of the 2^d subsets, the paper's check of EVAL-X; for few features.

    All models are trained as one stacked program. Model number n sees feature j when bit j of n
    is set, and is asked about the rows whose mask is its subset.

    Parameters
    ----------
    predictor, model, masker, groups, training, validation, batch_size, device, checkpoint,
    progress, random_state : as in `EvalX`.

    Examples
    --------
    >>> import numpy as np
    >>> from unmasked import MLP, Training
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> models = SubsetCollection(MLP((8,)), training=Training(epochs=2), random_state=0)
    >>> models.fit(x, x[:, 0] > 0).predict_proba(x, x > 0).shape
    (200, 2)
    """

    title = "Separate models"

    def fit(
        self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None
    ) -> SubsetCollection:
        """Train all models; arguments as in `RealX.fit`."""
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        features = self._sizes[1]
        if features > _MOST_FEATURES:
            raise InputError(
                f"a model for every subset needs at most {_MOST_FEATURES} features but there are "
                f"{features} (2^{features} models); use EvalX, or group columns with groups=… "
                "(pixels with a coarser Superpixels)."
            )
        trained = fit(
            methods.subsets(self.masker_, self._predictor_network),
            Settings(tuple(float(n) for n in range(2**features)), (seed + SEED_SHIFT,)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "subsets"),
            show=self.progress,
            title=f"{2**features:,} subsets",
        )
        self.stack_ = trained.stacks["predictor"].to(torch.device("cpu"))
        self._learned(trained, targets)
        return self

    def subset_model(self, mask: Any) -> nn.Module:
        """The model of one subset, given as a mask (features,), as an ordinary module."""
        check_is_fitted(self)
        shown = self._masks(np.asarray(mask).reshape(1, -1), np.empty((1, 0)))
        return self.stack_.module(int(subset_numbers(shown)[0]))

    def _predict(self, inputs: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        stack = self.stack_.to(choose_device(self.device))
        return run_each(stack, subset_numbers(masks), self.masker_, inputs, masks)

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "stack_")

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own."""
        check_is_fitted(self)
        write_folder(Path(folder), self._config(), self.stack_.state())

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> SubsetCollection:
        """Read what `save` wrote. A network or masker of your own must be passed again."""
        config, tensors = read_folder(Path(folder), "SubsetCollection")
        models = cls._unfitted(config, predictor, masker, device)
        width = models._sizes[2]
        one = build(models._predictor_network, width, len(models.classes_), 0)
        stack = Stack([one], torch.device("cpu"), torch.float32, torch.zeros(2, width))
        if tensors["flat"].shape[1:] != stack.flat.shape[1:]:
            raise InputError(
                f"the saved models have {tensors['flat'].shape[1]} parameters each but the "
                f"network given has {stack.flat.shape[1]}; pass the one that was trained."
            )
        stack.load(tensors)
        models.stack_ = stack
        return models
