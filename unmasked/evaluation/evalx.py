"""`EvalX`: how well does what an explanation shows predict y, for a model that cannot be told?"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from unmasked.checks import is_whole
from unmasked.errors import CoverageWarning, InputError, InterruptedWarning
from unmasked.evaluation import boosted
from unmasked.evaluation.evaluator import MEMBER_SHIFT, SEED_SHIFT, TableEvaluator, same_size_masks
from unmasked.explainers import defaults
from unmasked.explainers.estimator import Table, check_batch_size, checkpoint_file, restore_network
from unmasked.explainers.saving import (
    CLASSIFIER,
    classifier_bytes,
    classifier_from,
    law_from,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)
from unmasked.inputs.table import Columns, GroupSpec
from unmasked.inputs.targets import Targets
from unmasked.masks.distributions import MaskLaw, UniformSize
from unmasked.masks.maskers import Masker, Token
from unmasked.networks.tables import Factory, set_inputs
from unmasked.training import Data, Settings, Training, fit, methods
from unmasked.training.progress import Show

__all__ = ["EvalX", "same_size_masks"]

_MANY_OUTSIDE = 0.01  # share of rows outside the trained sizes that calls for a warning


class EvalX(TableEvaluator):
    """EVAL-X: a classifier of what is shown, trained on random masks and never on explanations.

    At its optimum it is p(y | x_r) for every subset r of the features, and nothing that an
    explainer encodes in its *choice* of features can help it.

    On a table, several networks learn, then boosted trees; validation rows decide which predict, or
    how much of each. ``reason_`` says what came of it.

    Parameters
    ----------
    predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``, instead of what
        is best on tables; then networks alone learn.
    estimator : "auto" (default): networks and boosted trees, whichever predict validation rows
        better, or their mean; for tables under the default masker and mask law. "network":
        networks alone. Or instead of networks a scikit-learn classifier that takes NaN for hidden
        values, such as ``HistGradientBoostingClassifier()``. A clone learns from masked copies of
        the standardised rows, and stops on validation rows if its fit takes ``X_val``; if not, they
        are learned from too. ``masker``, ``training``, ``device``, ``checkpoint`` and
        ``progress`` are for networks.
    mask_copies : how many copies of each row, each with a random mask of its own, an estimator
        learns from; fewer, with a warning, where all together exceed 2,000,000 rows or
        100,000,000 numbers.
    model : evaluate explanations of this model instead of the data, as in `RealX`.
    members : how many networks, trained as one program with seeds of their own; the evaluator is
        the mean of their probabilities, which is nearer to p(y | x_r) than any of them. None:
        four of the default network, two for wide tables, one of any other.
    mask_law : `UniformSize` (default: masks of every size) or the paper's `Bernoulli(0.5)`.
    training : options, see `Training`. The default network has options of its own, so that with
        ``Training(epochs=…)`` only their number of epochs changes.
    masker, groups : what hides features, columns that go together, as in `RealX`.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Attributes
    ----------
    picked_ : "network", "boosting" (trees, or the estimator that was asked for) or "both"; reason_
    says what it is and why. share_ : how much of a prediction is the estimator's, from 0 to 1.
    doubt_ : how much of it is the class shares instead, prior_, where validation rows say that it
    is too sure, as with few rows and many columns.
    predictors_ : the networks, one for each member (predictor_ is the first); none if share_ is 1.
    estimator_ : the classifier (its classes are the numbers of ours), used_ : the columns that
    it knows, copies_ : how many copies of each row it learned from; none of it if share_ is 0.
    sizes_ : smallest and largest number of shown features in training.
    columns_, classes_, n_features_in_, feature_names_in_, history_, interrupted_ : as in `RealX`.

    Examples
    --------
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> evaluator = EvalX(training=Training(epochs=2), random_state=0).fit(rows.x, rows.y)
    >>> scores = evaluator.evaluate(rows.truth, rows.x, rows.y, bootstrap_draws=50)
    >>> list(scores.rows)
    ['explanation', 'everything', 'random', 'nothing']
    """

    title = "EVAL-X"
    _of_table = False

    def __init__(
        self,
        predictor: nn.Module | Factory | None = None,
        *,
        estimator: Any = "auto",
        model: Any = None,
        members: int | None = None,
        mask_law: MaskLaw | None = None,
        mask_copies: int = 30,
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
        self.estimator = estimator
        self.model = model
        self.members = members
        self.mask_law = mask_law
        self.mask_copies = mask_copies
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
        """Learn p(y | x_r) for random subsets r.

        Parameters
        ----------
        X : rows to learn from: a table or images, as in `RealX.fit`.
        y : labels (rows,) or class probabilities (rows, classes); leave out with ``model=``.
        validation : (X_valid, y_valid) to validate on. None (default) holds out a share of the
            rows.
        """
        self._check_estimator()
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        self._forget()
        if self._asked_estimator is None:
            self._fit_networks(train, valid, targets, seed + SEED_SHIFT)
        else:
            held_out = validation is None
            self._fit_estimator(train, valid, held_out, targets.soft, seed + SEED_SHIFT)
        self.sizes_ = self._law.sizes(self._sizes[1])
        self.soft_ = targets.soft
        return self

    def _forget(self) -> None:
        """Remove the attributes that an earlier fit left."""
        for name in ("predictors_", "estimator_", "used_", "copies_", "prior_"):
            self.__dict__.pop(name, None)

    def _fit_networks(self, train: Data, valid: Data, targets: Targets, seed: int) -> None:
        members = self._members
        trained = fit(
            methods.eval_x(self.masker_, self._law, self._predictor_network),
            Settings(seeds=tuple(seed + MEMBER_SHIFT * i for i in range(members))),
            train,
            valid,
            self._training(train.rows),
            device=self.device,
            path=checkpoint_file(self.checkpoint, "evalx"),
            show=self.progress,
            title=self.title,
        )
        self.predictors_ = trained.predictors
        self._learned(trained, targets)
        self._picked(0.0, "")
        if self._compares and not self.interrupted_:
            asked = boosted.Asked.of(valid, self._sizes[1], self._law, seed)
            self._try_trees(train, valid, asked, targets.soft, seed)
            self.prior_ = train.target.mean(0).double().numpy()
            self.doubt_ = asked.doubt(self._predict, self.prior_)
            if self.doubt_:
                self.reason_ += f"; too sure by itself, so {self.doubt_:.0%} are the class shares"

    def _try_trees(
        self, train: Data, valid: Data, asked: boosted.Asked, soft: bool, seed: int
    ) -> None:
        """Boosted trees beside the networks; Ctrl-C leaves the networks as they are."""
        start = time.perf_counter()
        try:
            choice, trees = self._compared(train, valid, asked, soft, seed)
        except KeyboardInterrupt:
            self.interrupted_ = True
            warnings.warn(
                "training was interrupted while boosted trees learned; the networks are kept.",
                InterruptedWarning,
                stacklevel=4,
            )
            return
        self.seconds_ += time.perf_counter() - start
        if trees is not None and choice.share:
            self.estimator_, self.used_ = trees.estimator, trees.used
            self.copies_ = trees.count
        self._picked(choice.share, choice.reason)
        if choice.share == 1:
            del self.predictors_

    def _compared(
        self, train: Data, valid: Data, asked: boosted.Asked, soft: bool, seed: int
    ) -> tuple[boosted.Choice, boosted.Trees | None]:
        features, classes = self._sizes[1], len(self.classes_)
        drawn = boosted.Copies(self._law, self.columns_.index, features, soft)
        trees = boosted.grow(drawn, self.mask_copies, train, valid, seed)
        if trees is None:
            return boosted.Choice(
                0.0, "boosted trees would take too long, or have too little to learn"
            ), None
        choice = asked.trees(
            self._by_networks,
            lambda x, masks: trees.predict(x, masks, self.columns_.index, classes),
        )
        return choice, trees

    def _picked(self, share: float, why: str) -> None:
        """Keep what predicts, and say it."""
        self.share_, self.doubt_ = share, 0.0
        self.picked_ = "both" if 0 < share < 1 else "boosting" if share else "network"
        own = getattr(self, "predictors_", [])
        name = "a network" if len(own) == 1 else f"the mean of {len(own)} networks"
        what = {
            "network": name,
            "boosting": type(getattr(self, "estimator_", None)).__name__
            if not own
            else "boosted trees",
            "both": f"{name} and boosted trees (weights {1 - share:g} and {share:g})",
        }[self.picked_]
        self.reason_ = f"{what}; {why}" if why else what

    def _fit_estimator(
        self, train: Data, valid: Data, held_out: bool, soft: bool, seed: int
    ) -> None:
        """``held_out``: the validation rows come from X, so they may be learned from."""
        asked = self._asked_estimator
        if soft:
            boosted.check_weights(asked)
        stops = boosted.takes_validation(asked)
        if held_out and not stops:
            train = Data(torch.cat([train.x, valid.x]), torch.cat([train.target, valid.target]))
        drawn = boosted.Copies(self._law, self.columns_.index, self._sizes[1], soft)
        start = time.perf_counter()
        estimator, used, count = boosted.learn(
            asked, drawn, self.mask_copies, train, valid if stops else None, seed
        )
        self.estimator_, self.used_, self.copies_ = estimator, used, count
        self.history_, self.interrupted_ = [], False
        self.seconds_ = time.perf_counter() - start
        self._picked(1.0, "")

    # ------------------------------------------------------------------ the work behind it

    def _predict(self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]) -> NDArray[Any]:
        own = self._learned_answer(inputs, masks)
        return boosted.mixed(own, self.prior_, self.doubt_) if self.doubt_ else own

    def _learned_answer(
        self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]
    ) -> NDArray[Any]:
        if self.share_ == 0:
            return self._by_networks(inputs, masks)
        trees = self._by_estimator(inputs, masks)
        if self.share_ == 1:
            return trees
        return boosted.mixed(self._by_networks(inputs, masks), trees, self.share_)

    def _by_networks(self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]) -> NDArray[Any]:
        members = [self._probabilities(own, inputs, masks) for own in self.predictors_]
        return members[0] if len(members) == 1 else np.mean(members, axis=0)

    def _by_estimator(self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]) -> NDArray[Any]:
        check_batch_size(self.batch_size)
        parts = []
        for start in range(0, len(inputs), self.batch_size):
            rows = slice(start, start + self.batch_size)
            masked = boosted.hide(inputs[rows], masks[rows], self.columns_.index)
            parts.append(boosted.predict(self.estimator_, self.used_, masked, len(self.classes_)))
        return np.concatenate(parts)

    @property
    def _asked_estimator(self) -> Any:
        """The classifier that was asked for; None for networks, alone or beside trees."""
        return None if isinstance(self.estimator, str) else self.estimator

    @property
    def _compares(self) -> bool:
        """Return true if boosted trees are tried: on tables, if nothing else was asked for."""
        return self.estimator == "auto" and self._by_default and type(self._law) is UniformSize

    @property
    def _by_default(self) -> bool:
        """Return true if the networks are of the recipe for tables: no predictor was asked for."""
        return self.predictor is None and type(self._masker) is Token and self._of_table

    @property
    def _predictor(self) -> nn.Module | Factory:
        return self._recipe[0] if self._by_default else super()._predictor

    @property
    def _members(self) -> int:
        if self.members is not None:
            return int(self.members)
        return self._recipe[1] if self._by_default else 1

    def _training(self, rows: int) -> Training | None:
        """Return how the networks learn from so many rows."""
        recipe = self._by_default and self._predictor == defaults.NETWORK
        return defaults.training(self.training, rows) if recipe else self._options

    def _learn(self, table: Any) -> None:
        self._of_table = isinstance(table, pd.DataFrame)
        self._recipe: tuple[Factory, int] = defaults.NETWORK, defaults.MEMBERS  # looks for bins
        super()._learn(table)
        if isinstance(self.columns_, Columns):
            columns, numeric = len(self.columns_.index), self.columns_.numeric
            self._recipe = defaults.networks(set_inputs(defaults.NETWORK, columns, numeric))

    def _check_estimator(self) -> None:
        whole = is_whole(self.members)
        if self.members is not None and (not whole or self.members < 1):
            raise InputError(
                f"members must be a whole number above 0, or None, but is {self.members!r}."
            )
        if isinstance(self.estimator, str) and self.estimator not in ("auto", "network"):
            raise InputError(
                'estimator must be "auto", "network" or a scikit-learn classifier but is '
                f"{self.estimator!r}."
            )
        boosted.check_copies(self.mask_copies)
        if self._asked_estimator is None:
            return
        for name in ("predictor", "masker"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"either estimator or {name} can be given but both came; leave out {name}, "
                    "as an estimator is the predictor and takes NaN for hidden values."
                )
        if self.members not in (None, 1):
            raise InputError(
                f"either estimator or members can be given but both came; leave out members="
                f"{self.members!r}, as only networks are averaged."
            )
        boosted.check_classifier(self._asked_estimator)

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
        return hasattr(self, "share_")

    @property
    def predictor_(self) -> nn.Module:
        """The network; of several members, the first."""
        return self.predictors_[0]

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        Boosted trees, or another estimator, are written beside them as ``estimator.skops``.

        Parameters
        ----------
        folder : where to write: a new or empty folder, or one with an earlier save of its kind,
            which is replaced.
        """
        check_is_fitted(self)
        config = {**self._config(), "sizes": list(self.sizes_)}
        config |= {"share": self.share_, "doubt": self.doubt_, "reason": self.reason_}
        tensors: dict[str, Tensor] = {}
        if self.doubt_:
            tensors["prior"] = torch.from_numpy(self.prior_)
        files = {}
        if self.share_ < 1:
            for i, network in enumerate(self.predictors_):
                tensors |= weights_of(network, f"predictor.{i}")
            config["members"] = len(self.predictors_)
        else:
            config["predictor"] = None
        if self.share_ > 0:
            config |= {"mask_copies": self.mask_copies, "copies": self.copies_}
            files[CLASSIFIER] = classifier_bytes(self.estimator_)
            tensors["used"] = torch.from_numpy(self.used_)
        write_folder(Path(folder), config, tensors, files)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> EvalX:
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
        config, tensors = read_folder(Path(folder), "EvalX")
        network = config["predictor"]
        evaluator = cls(
            predictor=None if network is None else network_from(network, predictor, "predictor"),
            mask_law=law_from(config["mask_law"]),
            batch_size=config["batch_size"],
            device=device,
        )
        evaluator._restore(config, masker)
        evaluator.sizes_ = tuple(config["sizes"])
        evaluator.share_ = config.get("share", 1.0 if network is None else 0.0)
        if network is not None:
            evaluator.members = config["members"]
            evaluator._restore_networks(tensors)
        if evaluator.share_ > 0:
            evaluator.estimator_ = classifier_from(Path(folder))
            evaluator.mask_copies, evaluator.copies_ = config["mask_copies"], config["copies"]
            evaluator.used_ = tensors["used"].numpy()
        if network is None:
            evaluator.estimator = clone(evaluator.estimator_)
        evaluator._picked(evaluator.share_, "")
        evaluator.reason_ = config.get("reason", evaluator.reason_)
        evaluator.doubt_ = config.get("doubt", 0.0)
        if evaluator.doubt_:
            evaluator.prior_ = tensors["prior"].numpy()
        return evaluator

    def _restore_networks(self, tensors: dict[str, Tensor]) -> None:
        width, classes = self._sizes[2], len(self.classes_)
        self.predictors_ = [
            restore_network(self._predictor_network, width, classes, tensors, f"predictor.{i}")
            for i in range(self._members)
        ]
