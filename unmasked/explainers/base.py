"""Share what all explainers do: fit a path of settings, choose one, explain, save."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.explainers.estimator import MaskedEstimator, Table, checkpoint_file, restore_network
from unmasked.explainers.novelty import Reach
from unmasked.explainers.path import OF_FULL, RULES, Candidate, choose
from unmasked.explainers.saving import (
    law_from,
    network_config,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)
from unmasked.explanation.explanation import Explanation
from unmasked.explanation.features import FeatureValues
from unmasked.inputs.images import ForImages, Pixels
from unmasked.inputs.table import Columns
from unmasked.inputs.targets import Targets
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import Sampler
from unmasked.masks.superpixels import Superpixels
from unmasked.networks.tables import MLP, Factory
from unmasked.training import Data, Method, Settings, fit, methods, restart_seeds

DEFAULT_SELECTOR = MLP((200, 200, 200))


def check_restarts(restarts: Any) -> None:
    """Refuse what is no number of restarts."""
    whole = is_whole(restarts)
    if not whole or restarts < 1:
        raise InputError(f"restarts must be a whole number above 0 but is {restarts!r}.")


@dataclass(frozen=True)
class Fitted:
    """The networks of one setting; ``level`` is its λ or k."""

    level: float
    selector: nn.Module
    predictor: nn.Module

    @property
    def sparsity(self) -> float:
        """The level, where it is a price λ."""
        return self.level


class Explainer(TransformerMixin, MaskedEstimator):  # type: ignore[misc]
    """Base of the explainers that learn to select.

    A subclass says which method it is (`_method`) and which levels to train (`_levels`).
    """

    title: ClassVar[str]
    """The method's name in the paper."""
    settings_: list[Fitted]
    chosen_: int
    reason_: str
    path_: pd.DataFrame
    full_accuracy_: float | None
    reach_: Reach | None

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def _method(self) -> Method:
        """The method as data, once the columns are known."""

    @abstractmethod
    def _levels(self) -> tuple[float, ...]:
        """The levels to train, once the columns are known."""

    @abstractmethod
    def _check_levels(self) -> None:
        """Refuse levels that cannot be, before any work."""

    @property
    @abstractmethod
    def _sampler(self) -> Sampler:
        """Draws masks in training, and defines the mask at test time."""

    @property
    def _predictor_first(self) -> bool:
        return False

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None) -> Self:
        """Learn what to show.

        Parameters
        ----------
        X : DataFrame, array or tensor (rows, columns); numbers, text, categories, booleans, dates.
            Images come as (rows, channels, height, width).
        y : labels (rows,), or a matrix of class probabilities (rows, classes) to explain whatever
            gave them; leave out with ``model=``.
        validation : (X_valid, y_valid) instead of holding rows out (y_valid None with ``model=``).
        """
        self._check_levels()
        if self.choose not in RULES:
            raise InputError(f"choose must be one of {', '.join(RULES)} but is {self.choose!r}.")
        check_restarts(self.restarts)
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        epochs = self._train(train, valid, targets, seed)
        self._choose(self._method(), train, valid, epochs, seed)
        self.reach_ = None
        if isinstance(self.columns_, Columns):
            self.reach_ = Reach.learn(train.x.numpy(), valid.x.numpy())
        return self

    def _train(self, train: Data, valid: Data, targets: Targets, seed: int) -> list[int]:
        """Learn ``settings_``, one for each level; the best epoch of each."""
        method, levels = self._method(), self._levels()
        trained = fit(
            method,
            Settings(levels, restart_seeds(seed, self.restarts)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, type(self).__name__.lower()),
            show=self.progress,
            title=self.title,
        )
        (kept,) = trained.best_restarts(self.restarts, len(levels)).tolist()
        self.settings_ = [
            Fitted(
                level,
                trained.selectors[number],
                # finished first, a predictor is the same for all levels: one module, saved once
                trained.predictors[number - i if self._predictor_first else number],
            )
            for i, (level, number) in enumerate(zip(levels, kept, strict=True))
        ]
        self._learned(trained, targets)
        return [int(trained.epochs[number]) for number in kept]

    def _again(
        self, train: Data, valid: Data, level: float, seeds: Sequence[int], fitted: Explainer
    ) -> list[nn.Module]:
        """Selectors of one level, trained as ``fitted`` was but with other seeds."""
        name, which = type(self).__name__.lower(), crc32(repr(tuple(seeds)).encode())
        trained = fit(
            self._method(),
            Settings((level,), tuple(seeds)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, f"{name}-stability-{which:08x}"),
            show=self.progress,
            title=f"{self.title}, {len(seeds)} seeds",
            whole=True,
        )
        return trained.selectors

    def _choose(
        self, method: Method, train: Data, valid: Data, epochs: list[int], seed: int
    ) -> None:
        """Judge every setting on validation rows and keep one by the stated rule."""
        full = None
        if self.choose in OF_FULL and len(self.settings_) > 1:
            full = self._full_accuracy(method, train, valid, seed)
        candidates = self._candidates(valid)
        chosen, reason = 0, "the only setting"
        if len(candidates) > 1:
            chosen, reason = choose(
                candidates, self.choose, tolerance=self.tolerance, full_accuracy=full
            )
        self.chosen_, self.reason_ = chosen, reason
        self.full_accuracy_ = full
        name = self._sampler.level_name
        self.path_ = pd.DataFrame(
            {
                name: [self._sampler.named(c.sparsity)[name] for c in candidates],
                "fraction": [c.fraction for c in candidates],
                "loglik": [c.loglik for c in candidates],
                "accuracy": [c.accuracy for c in candidates],
                "balanced_accuracy": [c.balanced_accuracy for c in candidates],
                "epoch": [int(e) for e in epochs],
                "chosen": [i == chosen for i in range(len(candidates))],
            }
        )

    def _candidates(self, valid: Data) -> list[Candidate]:
        """Every setting as validation rows see it."""
        x, target = valid.x.numpy(), valid.target.numpy()
        return [self._judged(setting, x, target) for setting in self.settings_]

    def _judged(
        self, setting: Fitted, x: NDArray[np.float32], target: NDArray[np.float32]
    ) -> Candidate:
        """A setting as its own predictor sees it on rows, with test-time masks."""
        masks = self._select(self._run(setting.selector, x), setting)
        predicted = self._probabilities(setting.predictor, x, masks)
        return Candidate.judged(setting.level, masks, predicted, target)

    def _full_accuracy(self, method: Method, train: Data, valid: Data, seed: int) -> float:
        """Validation accuracy of a model of its own that always sees everything ("FULL").

        By the measure of the rule. It has as many passes as the selector; with as many as the
        predictor its balanced accuracy on films was the same (two seeds).
        """
        trained = fit(
            methods.full(method.masker, self._predictor_network),
            Settings((0.0,), (seed,)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "full"),
            show=self.progress,
            title="FULL",
            whole=True,  # half a model would lower the bar
        )
        return self._accuracy_of(trained.predictors[0], valid)

    def _accuracy_of(self, predictor: nn.Module, valid: Data) -> float:
        """By the measure of the rule, with everything shown."""
        x, target = valid.x.numpy(), valid.target.numpy()
        everything = np.ones((len(x), self._sizes[1]), dtype=bool)
        predicted = self._probabilities(predictor, x, everything)
        full = Candidate.judged(0.0, everything, predicted, target)
        return full.balanced_accuracy if self.choose == "balanced" else full.accuracy

    # ------------------------------------------------------------------ explaining

    def _select(self, logits: NDArray[Any], setting: Fitted) -> NDArray[np.bool_]:
        """The mask at test time, (rows, features), by the sampler's one definition."""
        masks = self._sampler.select(torch.from_numpy(logits), setting.level)
        return masks.numpy().astype(bool)

    def _explain(self, X: Table, level: float | None) -> Explanation:
        table = self._read(X, reset=False)
        setting = self._setting(level)
        logits = self._run(setting.selector, self.columns_.matrix(table))
        index = X.index.to_numpy() if isinstance(X, pd.DataFrame) else None
        images = self.masker_.map if isinstance(self.masker_, Superpixels) else None
        return Explanation(
            self._select(logits, setting),
            torch.sigmoid(torch.from_numpy(logits)).numpy(),
            self.columns_.features,
            index,
            {"method": self.title, **self._sampler.named(setting.level)},
            images,
            self._values(X),
        )

    def _values(self, X: Table) -> FeatureValues | None:
        """The explained rows' values, where a table with named columns came."""
        if not (isinstance(X, pd.DataFrame) and isinstance(self.columns_, Columns)):
            return None
        return FeatureValues.of(X, self.columns_.feature_of)

    def _predict_proba(
        self, X: Table, level: float | None, *, everything: bool = False
    ) -> NDArray[np.float64]:
        matrix = self._matrix(X)
        setting = self._setting(level)
        if everything:
            masks = np.ones((len(matrix), self._sizes[1]), dtype=bool)
        else:
            masks = self._select(self._run(setting.selector, matrix), setting)
        return self._probabilities(setting.predictor, matrix, masks).astype(np.float64)

    @abstractmethod
    def explain(self, X: Table) -> Explanation:
        """Select features for each row: one forward pass, in batches of ``batch_size``.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """

    @abstractmethod
    def predict_proba(self, X: Table) -> NDArray[np.float64]:
        """Class probabilities from the shown features alone, under the explainer's predictor.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """

    def familiarity(self, X: Table) -> NDArray[np.float64]:
        """Return each row's familiarity, (rows,): the share of held-out rows that lie as far out.

        Of rows like those learned from, at most a share α has a familiarity of α or less. Below
        0.01 call a row outside, and its explanation a guess.

        Parameters
        ----------
        X : rows of a table, in the form that `fit` took.
        """
        matrix = self._matrix(X)
        if self.reach_ is None:
            raise InputError(
                "familiarity is known for tables, and for explainers fitted by this version; fit "
                "again on a table."
            )
        return self.reach_.familiarity(matrix)

    def predict(self, X: Table) -> NDArray[Any]:
        """The likeliest class from the shown features alone.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        likeliest = self.predict_proba(X).argmax(1)  # checks that the explainer is fitted
        return self.classes_[likeliest]

    def transform(self, X: Table) -> Any:
        """The shown values: the rows with NaN wherever the explanation hides a column.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        """
        table = self._read(X, reset=False)
        explanation = self.explain(X)
        if isinstance(self.masker_, Superpixels):
            shown_pixels = explanation.masks[:, self.masker_.map][:, None]  # (rows, 1, h, w)
            return np.where(shown_pixels, table, np.float32("nan"))
        assert isinstance(self.columns_, Columns)
        hidden = ~explanation.masks[:, list(self.columns_.feature_of)]
        shown = table.mask(pd.DataFrame(hidden, index=table.index, columns=table.columns))
        return shown if isinstance(X, pd.DataFrame) else shown.to_numpy(dtype=np.float64)

    @property
    def selector_(self) -> nn.Module:
        """The chosen selector: standardised rows -> one logit per feature."""
        return self._setting(None).selector

    @property
    def predictor_(self) -> nn.Module:
        """The predictor that the chosen selector was judged with."""
        return self._setting(None).predictor

    def _setting(self, level: float | None) -> Fitted:
        check_is_fitted(self)
        if level is None:
            return self.settings_[self.chosen_]
        number = isinstance(level, int | float | np.number) and not isinstance(level, bool)
        if number:
            nearest = min(self.settings_, key=lambda setting: abs(setting.level - level))
            if math.isclose(nearest.level, level, rel_tol=1e-5):  # as it is printed will do
                return nearest
        name = self._sampler.level_name
        raise InputError(
            f"{name} must be one of the trained "
            f"{[self._sampler.named(s.level)[name] for s in self.settings_]} but is {level!r}."
        )

    @property
    def _selector(self) -> nn.Module | Factory:
        """The selector as it was asked for."""
        return DEFAULT_SELECTOR if self.selector is None else self.selector

    def _asked_selector(self) -> nn.Module | Factory | None:
        """The selector to train; None where none was."""
        return self._selector

    @property
    def _selector_network(self) -> nn.Module | Factory:
        """The selector to build, from whole rows."""
        if not isinstance(self.columns_, Pixels):
            return self._selector
        regions = self.masker_.map if isinstance(self.masker_, Superpixels) else None
        return ForImages(self._selector, self.columns_.shape, regions)

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "settings_")

    # ------------------------------------------------------------------ on disk

    def _parameters(self) -> dict[str, Any]:
        """Parameters of this class alone, as plain values."""
        return {}

    @classmethod
    def _from_parameters(cls, config: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `_parameters` and of the levels: arguments of the constructor."""
        return {"sparsity": [s["level"] for s in config["settings"]]}

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        Parameters
        ----------
        folder : where to write: a new or empty folder, or one with an earlier save of its kind,
            which is replaced.
        """
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
        if self.reach_ is not None:
            tensors |= self.reach_.tensors()
        asked = self._asked_selector()
        config = {
            **self._config(),
            "selector": None if asked is None else network_config(asked),
            "settings": [
                {
                    "level": s.level,
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
            "parameters": self._parameters(),
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
    ) -> Self:
        """Read what `save` wrote. Networks and maskers of your own must be passed again.

        Parameters
        ----------
        folder : where `save` wrote.
        selector, predictor : networks of your own, or their factories, as the constructor took
            them. None (default) takes the saved kinds.
        masker : a masker of your own, as the constructor took it. None (default) takes the saved
            one.
        device : where it computes from now on: "auto" (default), the first CUDA device or else the
            CPU; or "cpu", "cuda", …
        """
        config, tensors = read_folder(Path(folder), cls.__name__)
        explainer = cls(
            choose=config["choose"],
            tolerance=config["tolerance"],
            selector=network_from(config["selector"], selector, "selector")
            if config["selector"]
            else None,
            predictor=network_from(config["predictor"], predictor, "predictor"),
            batch_size=config["batch_size"],
            device=device,
            **cls._from_parameters(config),
        )
        if "mask_law" in explainer.get_params():
            explainer.set_params(mask_law=law_from(config["mask_law"]))
        explainer._restore(config, masker)
        explainer.settings_ = explainer._restored(config["settings"], tensors)
        explainer.chosen_, explainer.reason_ = config["chosen"], config["reason"]
        explainer.full_accuracy_ = config["full_accuracy"]
        explainer.path_ = pd.DataFrame(config["path"])
        explainer.reach_ = Reach.from_tensors(tensors)
        return explainer

    def _restored(self, settings: list[dict[str, Any]], tensors: dict[str, Tensor]) -> list[Fitted]:
        """The saved networks of all settings."""
        columns, features, width = self._sizes
        classes = len(self.classes_)
        predictors = [
            restore_network(self._predictor_network, width, classes, tensors, f"predictor.{i}")
            for i in range(1 + max(s["predictor"] for s in settings))
        ]
        return [
            Fitted(
                s["level"],
                restore_network(
                    self._selector_network, columns, features, tensors, f"selector.{i}"
                ),
                predictors[s["predictor"]],
            )
            for i, s in enumerate(settings)
        ]
