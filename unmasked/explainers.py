"""`RealX`: learn to select features, with a predictor that never sees the selector's masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from unmasked.choosing import RULES, Candidate, choose
from unmasked.columns import GroupSpec
from unmasked.engine import Data, Method, Settings, Training, fit
from unmasked.engine.progress import Show
from unmasked.errors import InputError
from unmasked.estimator import MaskedEstimator, Table, checkpoint_file, restore_network
from unmasked.explanation import Explanation
from unmasked.masking import Masker
from unmasked.masklaws import Bernoulli, MaskLaw
from unmasked.metrics import hits, log_likelihoods
from unmasked.networks import MLP, Factory
from unmasked.sparsity import check_sparsity, sparsity_path
from unmasked.storage import (
    law_from,
    network_config,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)

DEFAULT_SELECTOR = MLP((200, 200, 200))


@dataclass(frozen=True)
class Fitted:
    """The networks of one λ."""

    sparsity: float
    selector: nn.Module
    predictor: nn.Module


class RealX(TransformerMixin, MaskedEstimator):  # type: ignore[misc]
    """REAL-X: for each row, the few features that the prediction rests on, in one forward pass.

    A selector network gives each feature a probability of being shown. It maximises
    log q(y | what is shown) − λ · (fraction shown), where the predictor q is trained on *random*
    masks only: it cannot learn a code hidden in the choice of features.

    Parameters
    ----------
    sparsity : λ, the price in nats of showing every feature. A number; a list, which trains the
        whole path as one program and keeps the setting chosen by ``choose``; or "auto", a path of
        six values that scales with the number of features.
    choose : how to choose from a path, on validation rows: "one-standard-error" (the sparsest
        within one standard error of the best log-likelihood), "accuracy" (the largest), or
        "tolerance" (the sparsest within ``tolerance`` of the accuracy of a model that sees
        everything, which is trained too).
    model : explain this model instead of the data: any object with ``predict_proba``, or any
        callable from rows to probabilities. Then ``fit(X)`` needs no y.
    selector, predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``. The
        selector maps standardised rows to one logit per feature; the predictor maps the masker's
        output to one logit per class.
    predictor_first : finish the predictor, then train the selector ("REAL-X-STEP"); by default
        both move in every step, as in the paper's Algorithm 1.
    masker : `Token` (default) or `Zero`, or one of your own.
    groups : columns shown or hidden together, as ``{"name": [columns]}`` or a list of lists.
    mask_law : the predictor's random masks: `UniformSize` (default) or the paper's `Bernoulli`.
    training : options, see `Training`.
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
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        mask_law: MaskLaw | None = None,
        training: Training | None = None,
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
        self.masker = masker
        self.groups = groups
        self.mask_law = mask_law
        self.training = training
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    # ------------------------------------------------------------------ learning

    def fit(self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None) -> RealX:
        """Learn to explain y (or the model) on the rows of X.

        Parameters
        ----------
        X : DataFrame, array or tensor, (rows, columns). Text columns count as one feature each.
        y : labels of any kind, or a model's probabilities (rows, classes).
        validation : (X, y) to validate on, instead of a share of the rows.
        """
        if self.choose not in RULES:
            raise InputError(f"choose must be one of {', '.join(RULES)} but is {self.choose!r}.")
        check_sparsity(self.sparsity)
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        _, features, _ = self._sizes
        method = Method(
            masker=self.masker_,
            law=self._law,
            predictor=self._predictor,
            selector=self._selector,
            predictor_first=self.predictor_first,
        )
        sparsities = sparsity_path(self.sparsity, features)
        trained = fit(
            method,
            Settings(sparsities, (seed,)),
            train,
            valid,
            self.training,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "realx"),
            show=self.progress,
            title="REAL-X",
        )
        self.settings_ = [
            Fitted(
                sparsity, trained.selectors[i], trained.predictors[0 if self.predictor_first else i]
            )
            for i, sparsity in enumerate(sparsities)
        ]
        self.soft_ = targets.soft
        self.history_ = trained.history
        self.interrupted_ = trained.interrupted
        self.seconds_ = trained.seconds
        self._choose(method, train, valid, trained.epochs, seed)
        return self

    def _choose(
        self, method: Method, train: Data, valid: Data, epochs: list[int], seed: int
    ) -> None:
        """Judge every λ on validation rows and keep one by the stated rule."""
        full = None
        if self.choose == "tolerance" and len(self.settings_) > 1:
            full = self._full_accuracy(method, train, valid, seed)
        x, target = valid.x.numpy(), valid.target.numpy()
        candidates = []
        for setting in self.settings_:
            masks = self._run(setting.selector, x) > 0
            predicted = self._probabilities(setting.predictor, x, masks)
            candidates.append(
                Candidate(
                    setting.sparsity,
                    float(masks.mean()),
                    float(hits(predicted, target.argmax(1)).mean()),
                    log_likelihoods(predicted, target),
                )
            )
        chosen, reason = 0, "the only setting"
        if len(candidates) > 1:
            chosen, reason = choose(
                candidates, self.choose, tolerance=self.tolerance, full_accuracy=full
            )
        self.chosen_, self.reason_ = chosen, reason
        self.full_accuracy_ = full
        self.path_ = pd.DataFrame(
            {
                "sparsity": [c.sparsity for c in candidates],
                "fraction": [c.fraction for c in candidates],
                "loglik": [c.loglik for c in candidates],
                "accuracy": [c.accuracy for c in candidates],
                "epoch": [int(e) for e in epochs],
                "chosen": [i == chosen for i in range(len(candidates))],
            }
        )

    def _full_accuracy(self, method: Method, train: Data, valid: Data, seed: int) -> float:
        """Validation accuracy of a model of its own that always sees everything ("FULL")."""
        full = Method(method.masker, Bernoulli(1.0), method.predictor)
        trained = fit(
            full,
            Settings((0.0,), (seed,)),
            train,
            valid,
            self.training,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "full"),
            show=self.progress,
            title="FULL",
        )
        x, target = valid.x.numpy(), valid.target.numpy()
        everything = np.ones((len(x), self._sizes[1]), dtype=bool)
        predicted = self._probabilities(trained.predictors[0], x, everything)
        return float(hits(predicted, target.argmax(1)).mean())

    # ------------------------------------------------------------------ explaining

    def explain(self, X: Table, *, sparsity: float | None = None) -> Explanation:
        """Select features for each row: one forward pass, in batches of ``batch_size``.

        ``sparsity`` picks another λ of the trained path.
        """
        table = self._read(X, reset=False)
        setting = self._setting(sparsity)
        logits = self._run(setting.selector, self.columns_.matrix(table)).astype(np.float64)
        index = table.index.to_numpy() if isinstance(X, pd.DataFrame) else None
        return Explanation(
            logits > 0,
            1 / (1 + np.exp(-np.clip(logits, -500, 500))),
            self.columns_.features,
            index,
            {"method": "REAL-X", "sparsity": setting.sparsity},
        )

    def predict_proba(self, X: Table, *, sparsity: float | None = None) -> NDArray[np.float64]:
        """Class probabilities from the shown features alone, under the explainer's predictor."""
        matrix = self._matrix(X)
        setting = self._setting(sparsity)
        masks = self._run(setting.selector, matrix) > 0
        return self._probabilities(setting.predictor, matrix, masks).astype(np.float64)

    def predict(self, X: Table) -> NDArray[Any]:
        """The likeliest class from the shown features alone."""
        likeliest = self.predict_proba(X).argmax(1)  # checks that the explainer is fitted
        return self.classes_[likeliest]

    def transform(self, X: Table) -> Any:
        """The shown values: the rows with NaN wherever the explanation hides a column."""
        table = self._read(X, reset=False)
        explanation = self.explain(X)
        hidden = ~explanation.masks[:, list(self.columns_.feature_of)]
        shown = table.mask(pd.DataFrame(hidden, index=table.index, columns=table.columns))
        return shown if isinstance(X, pd.DataFrame) else shown.to_numpy(dtype=np.float64)

    @property
    def sparsity_(self) -> float:
        """The chosen λ."""
        return self._setting(None).sparsity

    @property
    def selector_(self) -> nn.Module:
        """The chosen selector: standardised rows -> one logit per feature."""
        return self._setting(None).selector

    @property
    def predictor_(self) -> nn.Module:
        """The predictor that the chosen selector was judged with."""
        return self._setting(None).predictor

    def _setting(self, sparsity: float | None) -> Fitted:
        check_is_fitted(self)
        if sparsity is None:
            return self.settings_[self.chosen_]
        for setting in self.settings_:
            if setting.sparsity == sparsity:
                return setting
        raise InputError(
            f"sparsity must be one of the trained {[s.sparsity for s in self.settings_]} but is "
            f"{sparsity!r}."
        )

    @property
    def _selector(self) -> nn.Module | Factory:
        """The selector to build."""
        return DEFAULT_SELECTOR if self.selector is None else self.selector

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "settings_")

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own."""
        check_is_fitted(self)
        predictors: list[nn.Module] = []
        for setting in self.settings_:
            if not any(setting.predictor is known for known in predictors):
                predictors.append(setting.predictor)
        tensors: dict[str, Tensor] = {}
        for i, setting in enumerate(self.settings_):
            tensors |= weights_of(setting.selector, f"selector.{i}")
        for i, predictor in enumerate(predictors):
            tensors |= weights_of(predictor, f"predictor.{i}")
        config = {
            **self._config(),
            "selector": network_config(self._selector),
            "predictor_first": self.predictor_first,
            "settings": [
                {
                    "sparsity": s.sparsity,
                    "predictor": next(i for i, p in enumerate(predictors) if p is s.predictor),
                }
                for s in self.settings_
            ],
            "chosen": self.chosen_,
            "reason": self.reason_,
            "path": self.path_.to_dict("records"),
            "choose": self.choose,
            "tolerance": self.tolerance,
            "full_accuracy": self.full_accuracy_,
        }
        write_folder(Path(folder), config, tensors)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        selector: nn.Module | Factory | None = None,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> RealX:
        """Read what `save` wrote. Networks and maskers of your own must be passed again."""
        config, tensors = read_folder(Path(folder), "RealX")
        explainer = cls(
            sparsity=[s["sparsity"] for s in config["settings"]],
            choose=config["choose"],
            tolerance=config["tolerance"],
            selector=network_from(config["selector"], selector, "selector"),
            predictor=network_from(config["predictor"], predictor, "predictor"),
            predictor_first=config["predictor_first"],
            mask_law=law_from(config["mask_law"]),
            batch_size=config["batch_size"],
            device=device,
        )
        explainer._restore(config, masker)
        columns, features, width = explainer._sizes
        predictors = [
            restore_network(
                explainer.predictor, width, len(explainer.classes_), tensors, f"predictor.{i}"
            )
            for i in range(1 + max(s["predictor"] for s in config["settings"]))
        ]
        explainer.settings_ = [
            Fitted(
                s["sparsity"],
                restore_network(explainer.selector, columns, features, tensors, f"selector.{i}"),
                predictors[s["predictor"]],
            )
            for i, s in enumerate(config["settings"])
        ]
        explainer.chosen_, explainer.reason_ = config["chosen"], config["reason"]
        explainer.full_accuracy_ = config["full_accuracy"]
        explainer.path_ = pd.DataFrame(config["path"])
        return explainer
