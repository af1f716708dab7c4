"""`L2X`: exactly k features per row, the predictor trained on relaxed selections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.explainers.base import Explainer
from unmasked.explainers.estimator import Table
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.table import GroupSpec
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import ConcreteTopK, Sampler
from unmasked.networks.tables import Factory
from unmasked.training import Method, Training, methods
from unmasked.training.progress import Show


class L2X(Explainer):
    """L2X (Chen et al., 2018): for each row exactly k features.

    Trained through the maximum of k Concrete draws, which selector and predictor climb together;
    explains with the k largest logits, never more. Like `BaseX` it can encode its prediction in
    the choice of features: judge it with `EvalX`.

    Parameters
    ----------
    k : how many features to show, 1 by default. A list trains the whole path as one program and
        keeps the setting chosen by ``choose``.
    temperature : of the Concrete draws, above 0; 0.1 by default.
    choose, tolerance, model, selector, predictor, masker, groups : as in `BaseX`.
    training, restarts : as in `BaseX`.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Attributes
    ----------
    k_ : the chosen k. path_ : a DataFrame, one row per k, on validation rows. Others as in `RealX`.

    Examples
    --------
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = L2X(k=3, training=Training(epochs=2), random_state=0)
    >>> set(explainer.fit(rows.x, rows.y).explain(rows.x).masks.sum(1).tolist())
    {3}
    """

    title = "L2X"

    def __init__(
        self,
        k: int | Sequence[int] = 1,
        *,
        temperature: float = 0.1,
        choose: str = "one-standard-error",
        tolerance: float = 0.05,
        model: Any = None,
        selector: nn.Module | Factory | None = None,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        training: Training | None = None,
        restarts: int = 1,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.temperature = temperature
        self.choose = choose
        self.tolerance = tolerance
        self.model = model
        self.selector = selector
        self.predictor = predictor
        self.masker = masker
        self.groups = groups
        self.training = training
        self.restarts = restarts
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def _check_levels(self) -> None:
        check_k(self.k)

    def _levels(self) -> tuple[float, ...]:
        return tuple(float(k) for k in check_k(self.k, self._sizes[1]))

    @property
    def _sampler(self) -> Sampler:
        return ConcreteTopK(max(check_k(self.k)), self.temperature)

    def _method(self) -> Method:
        return methods.l2x(
            self.masker_,
            self._predictor_network,
            self._selector_network,
            max(check_k(self.k)),
            self.temperature,
        )

    @property
    def k_(self) -> int:
        """The chosen k."""
        return int(self._setting(None).level)

    def explain(self, X: Table, *, k: int | None = None) -> Explanation:
        """Select k features for each row: one forward pass, in batches of ``batch_size``.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        k : another k of the trained path; None (default) for the chosen one.
        """
        return self._explain(X, k)

    def predict_proba(self, X: Table, *, k: int | None = None) -> NDArray[np.float64]:
        """Class probabilities from the shown features alone, under the explainer's predictor.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        k : another k of the trained path; None (default) for the chosen one.
        """
        return self._predict_proba(X, k)

    def _parameters(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    @classmethod
    def _from_parameters(cls, config: dict[str, Any]) -> dict[str, Any]:
        return {"k": [int(s["level"]) for s in config["settings"]], **config["parameters"]}


def check_k(k: Any, features: int | None = None) -> tuple[int, ...]:
    """k as given, a whole number or a list of different ones, at most as many as features.

    >>> check_k([1, 4], features=11)
    (1, 4)
    """
    values = list(k) if isinstance(k, list | tuple | range | np.ndarray) else [k]
    for value in values:
        whole = is_whole(value)
        if not whole or value < 1:
            raise InputError(f"k must be a whole number above 0 but is {value!r}.")
        if features is not None and value > features:
            raise InputError(
                f"k must be at most the number of features, {features}, but is {value}."
            )
    if not values or len(set(values)) < len(values):
        raise InputError(f"k must list different whole numbers but is {values}.")
    return tuple(int(value) for value in values)
