"""Train a separate model for every subset of the features: `SubsetCollection`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked.errors import InputError
from unmasked.evaluation.evaluator import SEED_SHIFT, TableEvaluator
from unmasked.explainers.estimator import NetworkEstimator, Table, checkpoint_file
from unmasked.explainers.saving import read_folder, write_folder
from unmasked.masks.maskers import Masker
from unmasked.networks.tables import Factory, build
from unmasked.training import Settings, fit, methods
from unmasked.training.device import choose_device
from unmasked.training.stack import Stack

_MOST_FEATURES = 16


class SubsetCollection(TableEvaluator, NetworkEstimator):
    """One model for each of the 2^d subsets, the paper's check of EVAL-X; for few features.

    All models are trained as one stacked program. Model number n sees feature j when bit j of n
    is set, and is asked about the rows whose mask is its subset.

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
        """Train all models.

        Parameters
        ----------
        X : rows to learn from: a table or images, as in `RealX.fit`.
        y : labels (rows,) or class probabilities (rows, classes); leave out with ``model=``.
        validation : (X_valid, y_valid) to validate on. None (default) holds out a share of the
            rows.
        """
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
        """The model of one subset, as an ordinary module.

        Parameters
        ----------
        mask : (features,), 1 = shown: the subset.
        """
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
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        Parameters
        ----------
        folder : where to write: a new or empty folder, or one with an earlier save of its kind,
            which is replaced.
        """
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
        """Read what `save` wrote. A network or masker of your own must be passed again.

        Parameters
        ----------
        folder : where `save` wrote.
        predictor : a network of your own, or its factory, as the constructor took it. None
            (default) takes the saved kind.
        masker : a masker of your own, as the constructor took it. None (default) takes the saved
            one.
        device : where it computes from now on: "auto" (default), the first CUDA device or else the
            CPU; or "cpu", "cuda", …
        """
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


_NUMBERS = 2**26  # inputs held at once


def subset_numbers(masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of the subset that each mask (…, features) shows: bit j is feature j.

    >>> subset_numbers(np.array([[True, False, True]])).tolist()
    [5]
    """
    numbers: NDArray[np.int64] = masks.astype(np.int64) @ (1 << np.arange(masks.shape[-1]))
    return numbers


@torch.no_grad()
def run_each(
    stack: Stack,
    networks: NDArray[np.int64],
    masker: Masker,
    x: NDArray[Any],
    masks: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Class probabilities (rows, classes), each row by the network ``networks[row]`` of a stack.

    Rows of one network are brought together and padded to equal length, so that all networks run
    as one batch.
    """
    device = stack.flat.device
    used, place, counts = np.unique(networks, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    within = np.arange(len(order)) - np.repeat(starts, counts)  # position among its network's rows
    result = np.empty((len(networks), 0))
    whole = {**stack.weights(), **stack.buffers}
    size = max(1, _NUMBERS // max(1, int(counts.max()) * x.shape[1]))
    for first in range(0, len(used), size):
        group = slice(first, min(first + size, len(used)))
        inside = (place[order] >= group.start) & (place[order] < group.stop)
        rows, slot = order[inside], within[inside]
        number = place[rows] - group.start
        shape = (group.stop - group.start, int(counts[group].max()))
        part = torch.as_tensor(x[rows], dtype=stack.flat.dtype, device=device)
        mask = torch.as_tensor(masks[rows], dtype=stack.flat.dtype, device=device)
        shown = masker(part, mask)
        where = torch.from_numpy(number * shape[1] + slot).to(device)
        padded = shown.new_zeros(shape[0] * shape[1], shown.shape[1])
        padded[where] = shown
        own = torch.from_numpy(used[group]).to(device)
        weights = {name: value[own] for name, value in whole.items()}
        logits = stack.forward_with(weights, padded.reshape(*shape, -1))
        probabilities = torch.softmax(logits.reshape(len(padded), -1)[where].double(), -1)
        if not result.shape[1]:
            result = np.empty((len(networks), probabilities.shape[1]))
        result[rows] = probabilities.cpu().numpy()
        stack.forget()  # each group has a shape of its own
    return result
