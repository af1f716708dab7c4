"""`RealX`: learn to select features, with a predictor whose masks know nothing about the row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unmasked import methods
from unmasked.columns import GroupSpec
from unmasked.engine import Method, Training
from unmasked.engine.progress import Show
from unmasked.explainers.priced import Priced
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.networks import Factory


class RealX(Priced):
    """REAL-X: for each row, the few features that the prediction rests on, in one forward pass.

    A selector network gives each feature a probability of being shown. It maximises
    log q(y | what is shown) − λ · (fraction shown), where the predictor q is trained on masks that
    know nothing about the row, by default *random* ones: it cannot learn a code hidden in the
    choice of features.

    Parameters
    ----------
    sparsity : λ, the price in nats of showing every feature. A number; a list, which trains the
        whole path as one program and keeps the setting chosen by ``choose``; or "auto", a path of
        six values that scales with the number of features.
    choose : how to choose from a path, on validation rows: "one-standard-error" (the sparsest
        within one standard error of the best log-likelihood), "accuracy" (the largest),
        "tolerance" (the sparsest within ``tolerance`` of the accuracy of a model that sees
        everything, which is trained too), or "balanced" (the same by balanced accuracy, among
        settings that show something in most rows).
    model : explain this model instead of the data: any object with ``predict_proba``, or any
        callable from rows to probabilities. Then ``fit(X)`` needs no y.
    selector, predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``. The
        selector maps standardised rows to one logit per feature; the predictor maps the masker's
        output to one logit per class.
    predictor_first : finish the predictor, then train the selector ("REAL-X-STEP"); by default
        both move in every step, as in the paper's Algorithm 1. With ``exchange`` it first learns
        from random masks alone, then goes on beside the selector.
    exchange : half of the predictor's rows are hidden by what the selector draws for *another*
        row, the others by random masks. No mask knows the row that it is put on, so the predictor
        still cannot learn a code, but it meets selections as sparse and as shaped as the
        selector's, which are rare among random masks of many features. Each λ then has a
        predictor of its own, and the selector must be without BatchNorm.
    masker : `Token` (default) or `Zero`, or one of your own.
    groups : columns shown or hidden together, as ``{"name": [columns]}`` or a list of lists.
    mask_law : the predictor's random masks: `UniformSize` (default), the paper's `Bernoulli`, or
        for superpixels of a grid `Patches`.
    training : options, see `Training`.
    restarts : how often to train each setting, from other seeds, all in one program; the one with
        the best objective on validation rows is kept. A selector can settle in a selection that
        no small change improves; three restarts cost three times as much.
    validation : share of rows held out for stopping and choosing.
    batch_size : rows explained at once; bounds memory.
    device : "auto", "cpu", "cuda", …
    checkpoint : a folder; a killed fit that is called again continues from there.
    progress : True, False or "auto".
    random_state : an int makes the result repeatable on the same machine.

    Attributes
    ----------
    sparsity_ : the chosen λ. path_ : a DataFrame, one row per λ, on validation rows.
    selector_, predictor_ : the chosen networks. columns_ : names and statistics of the columns.
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn. history_ : training curves.
    interrupted_ : whether Ctrl-C ended training early.

    Examples
    --------
    >>> from unmasked.data import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> explainer = RealX(sparsity=0.1, training=Training(epochs=2), random_state=0)
    >>> explainer.fit(rows.x, rows.y).explain(rows.x).masks.shape
    (400, 11)
    """

    title = "REAL-X"

    def __init__(
        self,
        sparsity: float | Sequence[float] | str = "auto",
        *,
        choose: str = "one-standard-error",
        tolerance: float = 0.05,
        model: Any = None,
        selector: nn.Module | Factory | None = None,
        predictor: nn.Module | Factory | None = None,
        predictor_first: bool = False,
        exchange: bool = False,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        mask_law: MaskLaw | None = None,
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
        self.predictor_first = predictor_first
        self.exchange = exchange
        self.masker = masker
        self.groups = groups
        self.mask_law = mask_law
        self.training = training
        self.restarts = restarts
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def _method(self) -> Method:
        return methods.real_x(
            self.masker_,
            self._law,
            self._predictor_network,
            self._selector_network,
            self._sampler,
            predictor_first=self.predictor_first,
            exchange=self.exchange,
        )

    @property
    def _predictor_first(self) -> bool:
        return self.predictor_first and not self.exchange

    def _parameters(self) -> dict[str, Any]:
        return {"predictor_first": self.predictor_first, "exchange": self.exchange}

    @classmethod
    def _from_parameters(cls, config: dict[str, Any]) -> dict[str, Any]:
        return {**super()._from_parameters(config), **config["parameters"]}
