"""`EvalX`: how well does what an explanation shows predict y, for a model that cannot be told?"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from unmasked import methods
from unmasked.checks import is_whole
from unmasked.columns import GroupSpec
from unmasked.engine import Data, Settings, Training, fit
from unmasked.engine.progress import Show
from unmasked.errors import CoverageWarning, InputError
from unmasked.estimator import Table, check_batch_size, checkpoint_file, restore_network
from unmasked.evaluation import copies
from unmasked.evaluation.evaluator import (
    MEMBER_SHIFT,
    SEED_SHIFT,
    TableEvaluator,
    same_size_masks,
)
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.networks import Factory
from unmasked.storage import (
    CLASSIFIER,
    classifier_bytes,
    classifier_from,
    law_from,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)
from unmasked.targets import Targets

__all__ = ["EvalX", "same_size_masks"]

_MANY_OUTSIDE = 0.01  # share of rows outside the trained sizes that calls for a warning


class EvalX(TableEvaluator):
    """EVAL-X: a classifier of what is shown, trained on random masks and never on explanations.

    At its optimum it is p(y | x_r) for every subset r of the features, and nothing that an
    explainer encodes in its *choice* of features can help it.

    Parameters
    ----------
    predictor : a ``torch.nn.Module`` or a factory ``(inputs, outputs) -> Module``.
    estimator : instead of a network, a scikit-learn classifier that takes NaN for hidden values,
        such as ``HistGradientBoostingClassifier()``. A clone learns from masked copies of the
        standardised rows, and stops on validation rows if its fit takes ``X_val``; if not, they
        are learned from too. ``masker``, ``training``, ``device``, ``checkpoint`` and
        ``progress`` are for networks.
    mask_copies : how many copies of each row, each with a random mask of its own, an estimator
        learns from; fewer, with a warning, where all together exceed 2,000,000 rows or
        100,000,000 numbers.
    model : evaluate explanations of this model instead of the data, as in `RealX`.
    members : how many networks, trained as one program with seeds of their own; the evaluator is
        the mean of their probabilities, which is nearer to p(y | x_r) than any of them.
    mask_law : `UniformSize` (default: masks of every size) or the paper's `Bernoulli(0.5)`.
    masker, groups, training, validation, batch_size, device, checkpoint, progress, random_state :
        as in `RealX`.

    Attributes
    ----------
    predictors_ : the networks, one for each member (predictor_ is the first).
    estimator_ : or the classifier (its classes are the numbers of ours), used_ : the columns that
    it knows, copies_ : how many copies of each row it learned from.
    sizes_ : smallest and largest number of shown features in training.
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

    title = "EVAL-X"

    def __init__(
        self,
        predictor: nn.Module | Factory | None = None,
        *,
        estimator: Any = None,
        model: Any = None,
        members: int = 1,
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
        """Learn p(y | x_r) for random subsets r; arguments as in `RealX.fit`."""
        self._check_estimator()
        whole = is_whole(self.members)
        if not whole or self.members < 1:
            raise InputError(f"members must be a whole number above 0 but is {self.members!r}.")
        train, valid, targets, seed = self._prepare(X, y, validation, self.model)
        if self.estimator is None:
            self._fit_network(train, valid, targets, seed + SEED_SHIFT)
        else:
            held_out = validation is None
            self._fit_estimator(train, valid, held_out, targets.soft, seed + SEED_SHIFT)
        self.sizes_ = self._law.sizes(self._sizes[1])
        self.soft_ = targets.soft
        return self

    def _fit_network(self, train: Data, valid: Data, targets: Targets, seed: int) -> None:
        trained = fit(
            methods.eval_x(self.masker_, self._law, self._predictor_network),
            Settings(seeds=tuple(seed + MEMBER_SHIFT * i for i in range(self.members))),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "evalx"),
            show=self.progress,
            title=self.title,
        )
        self.__dict__.pop("estimator_", None)  # of an earlier fit
        self.predictors_ = trained.predictors
        self._learned(trained, targets)

    def _fit_estimator(
        self, train: Data, valid: Data, held_out: bool, soft: bool, seed: int
    ) -> None:
        """``held_out``: the validation rows come from X, so they may be learned from."""
        if soft:
            copies.check_weights(self.estimator)
        stops = copies.takes_validation(self.estimator)
        if held_out and not stops:
            train = Data(torch.cat([train.x, valid.x]), torch.cat([train.target, valid.target]))
        drawn = copies.Copies(self._law, self.columns_.index, self._sizes[1], soft)
        start = time.perf_counter()
        estimator, used, count = copies.learn(
            self.estimator, drawn, self.mask_copies, train, valid if stops else None, seed
        )
        self.__dict__.pop("predictors_", None)  # of an earlier fit
        self.estimator_, self.used_, self.copies_ = estimator, used, count
        self.history_, self.interrupted_ = [], False
        self.seconds_ = time.perf_counter() - start

    # ------------------------------------------------------------------ the work behind it

    def _predict(self, inputs: NDArray[np.float32], masks: NDArray[np.bool_]) -> NDArray[Any]:
        if not hasattr(self, "estimator_"):
            members = [self._probabilities(own, inputs, masks) for own in self.predictors_]
            return members[0] if len(members) == 1 else np.mean(members, axis=0)
        check_batch_size(self.batch_size)
        parts = []
        for start in range(0, len(inputs), self.batch_size):
            rows = slice(start, start + self.batch_size)
            masked = copies.hide(inputs[rows], masks[rows], self.columns_.index)
            parts.append(copies.predict(self.estimator_, self.used_, masked, len(self.classes_)))
        return np.concatenate(parts)

    def _check_estimator(self) -> None:
        if self.estimator is None:
            return
        for name in ("predictor", "masker"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"either estimator or {name} can be given but both came; leave out {name}, "
                    "as an estimator is the predictor and takes NaN for hidden values."
                )
        if self.members != 1:
            raise InputError(
                f"either estimator or members can be given but both came; leave out members="
                f"{self.members!r}, as only networks are averaged."
            )
        copies.check_classifier(self.estimator)
        copies.check_copies(self.mask_copies)

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
        return hasattr(self, "predictors_") or hasattr(self, "estimator_")

    @property
    def predictor_(self) -> nn.Module:
        """The network; of several members, the first."""
        return self.predictors_[0]

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        An estimator is written beside them as ``estimator.skops``, for which the package skops
        must be installed.
        """
        check_is_fitted(self)
        config = {**self._config(), "sizes": list(self.sizes_)}
        if not hasattr(self, "estimator_"):
            tensors: dict[str, Tensor] = {}
            for i, network in enumerate(self.predictors_):
                tensors |= weights_of(network, f"predictor.{i}")
            write_folder(Path(folder), {**config, "members": len(self.predictors_)}, tensors)
            return
        config |= {"predictor": None, "mask_copies": self.mask_copies, "copies": self.copies_}
        content = classifier_bytes(self.estimator_)
        used = torch.from_numpy(self.used_)
        write_folder(Path(folder), config, {"used": used}, {CLASSIFIER: content})

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
        network = config["predictor"]
        evaluator = cls(
            predictor=None if network is None else network_from(network, predictor, "predictor"),
            mask_law=law_from(config["mask_law"]),
            batch_size=config["batch_size"],
            device=device,
        )
        evaluator._restore(config, masker)
        evaluator.sizes_ = tuple(config["sizes"])
        if network is not None:
            evaluator.members = config["members"]
            width, classes = evaluator._sizes[2], len(evaluator.classes_)
            network = evaluator._predictor_network
            evaluator.predictors_ = [
                restore_network(network, width, classes, tensors, f"predictor.{i}")
                for i in range(evaluator.members)
            ]
            return evaluator
        evaluator.estimator_ = classifier_from(Path(folder))
        evaluator.estimator = clone(evaluator.estimator_)
        evaluator.mask_copies, evaluator.copies_ = config["mask_copies"], config["copies"]
        evaluator.used_ = tensors["used"].numpy()
        return evaluator
