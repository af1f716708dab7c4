"""Share what explainers with a price λ have in common; `BaseX` and `Invase`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unmasked.errors import InputError
from unmasked.explainers.base import Explainer
from unmasked.explainers.estimator import Table
from unmasked.explainers.path import check_sparsity, sparsity_path
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.table import GroupSpec
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import RebarBernoulli, Sampler, ScoreBernoulli
from unmasked.networks.tables import Factory
from unmasked.training import Method, Training, methods
from unmasked.training.progress import Show


class Priced(Explainer):
    """Base of `RealX`, `BaseX` and `Invase`: independent selections, at a price."""

    def __init__(
        self,
        sparsity: float | Sequence[float] | str = "auto",
        *,
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
        self.sparsity = sparsity
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
        check_sparsity(self.sparsity)

    def _levels(self) -> tuple[float, ...]:
        return sparsity_path(self.sparsity, self._sizes[1])

    @property
    def _sampler(self) -> Sampler:
        return RebarBernoulli()

    @property
    def sparsity_(self) -> float:
        """The chosen λ."""
        return self._setting(None).level

    def trained_sparsity(self, sparsity: float | None = None) -> float:
        """The λ of the trained path that is meant; without one, the chosen λ.

        Parameters
        ----------
        sparsity : a λ of the trained path, as it is printed; None (default) for the chosen one.
        """
        return float(self._setting(sparsity).level)

    def explain(
        self, X: Table, *, sparsity: float | None = None, k: int | None = None
    ) -> Explanation:
        """Select features for each row, in batches of ``batch_size``.

        Where `RealX` searches, ``k`` searches for the best k of each row, whatever ``choice_`` is:
        that choice may give something away.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        sparsity : another λ of the trained path; None (default) for the chosen one.
        k : show exactly so many features of each row; not with ``sparsity``. None (default) shows
            what pays its price.
        """
        if k is None:
            return self._explain(X, sparsity)
        if sparsity is not None:
            raise InputError(f"either sparsity or k says how much to show; leave out k={k!r}.")
        return self._of_size(X, k)

    def _of_size(self, X: Table, k: int) -> Explanation:
        return self._explain(X, None).top(k)

    def predict_proba(
        self, X: Table, *, sparsity: float | None = None, everything: bool = False
    ) -> NDArray[np.float64]:
        """Class probabilities from the shown features alone, under the explainer's predictor.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        sparsity : another λ of the trained path; None (default) for the chosen one.
        everything : predict from all features instead; False by default.
        """
        return self._predict_proba(X, sparsity, everything=everything)


class BaseX(Priced):
    """BASE-X, the paper's control: REAL-X, but its predictor learns from the selector's masks.

    Selector and predictor climb the same log q(y | x_s) − λ · (fraction shown) together, so the
    *choice* of features can come to carry the prediction. For comparison, not for use: judge it
    with `EvalX`.

    Attributes and promises are those of `RealX`. There is no ``mask_law`` and no
    ``predictor_first``, which a joint method cannot have.

    Parameters
    ----------
    sparsity : λ, the price in nats of showing every feature: a number, a list, or "auto" (default)
        for a path of six, as in `RealX`.
    choose : rule that keeps one λ of a path, by default "one-standard-error", as in `RealX`.
    tolerance : accuracy that two of these rules may give up, 0.05 by default, as in `RealX`.
    model : explain this model instead of the data; None (default) for the data.
    selector : network from rows to one logit per feature, or a factory; None (default) for an
        `MLP`.
    predictor : network from what is shown to class logits, or a factory; None (default) for an
        `MLP`.
    masker, groups, training : what hides features, columns that go together, options of training.
        Each is None by default, as in `RealX`.
    restarts : how often to train each λ, to keep the best; once by default.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Examples
    --------
    >>> from unmasked import Training
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = BaseX(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "BASE-X"

    def _method(self) -> Method:
        return methods.base_x(
            self.masker_, self._predictor_network, self._selector_network, self._sampler
        )


class Invase(Priced):
    """INVASE (Yoon et al., 2019): joint training with score-function gradients.

    The gradient's variance is lowered by subtracting the log-likelihood of a third network that
    sees everything and is trained alongside. Like `BaseX` it can encode its prediction in the
    choice of features: judge it with `EvalX`.

    Attributes and promises are those of `BaseX`. Probabilities are computed from logits
    throughout; the released code's log(p + 1e-8) fails with NaN on current software.

    Parameters
    ----------
    sparsity : λ, the price in nats of showing every feature: a number, a list, or "auto" (default)
        for a path of six, as in `RealX`.
    choose : rule that keeps one λ of a path, by default "one-standard-error", as in `RealX`.
    tolerance : accuracy that two of these rules may give up, 0.05 by default, as in `RealX`.
    model : explain this model instead of the data; None (default) for the data.
    selector : network from rows to one logit per feature, or a factory; None (default) for an
        `MLP`.
    predictor : network from what is shown to class logits, or a factory; None (default) for an
        `MLP`.
    masker, groups, training : what hides features, columns that go together, options of training.
        Each is None by default, as in `RealX`.
    restarts : how often to train each λ, to keep the best; once by default.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Examples
    --------
    >>> from unmasked import Training
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = Invase(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "INVASE"

    @property
    def _sampler(self) -> Sampler:
        return ScoreBernoulli()

    def _method(self) -> Method:
        return methods.invase(self.masker_, self._predictor_network, self._selector_network)
