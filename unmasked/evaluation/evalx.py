"""`EvalX`: how well does what an explanation shows predict y, for a model that cannot be told?"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked import methods
from unmasked.columns import GroupSpec
from unmasked.engine import Settings, Training, fit
from unmasked.engine.progress import Show
from unmasked.errors import CoverageWarning, InputError
from unmasked.estimator import MaskedEstimator, Table, checkpoint_file, restore_network
from unmasked.evaluation.scores import Scores
from unmasked.explanation import Explanation
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.metrics import (
    Interval,
    Statistic,
    auroc_statistic,
    average_statistic,
    bootstrap,
    hits,
    kl_divergences,
    log_likelihoods,
    mean_statistic,
)
from unmasked.networks import Factory
from unmasked.storage import (
    law_from,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)
from unmasked.targets import Targets

_RANDOM_DRAWS = 5  # draws of random masks that are averaged
_MANY_OUTSIDE = 0.01  # share of rows outside the trained sizes that calls for a warning
_GOOD_AUROC = 0.6
_NEXT_TO_NOTHING = 0.03  # share of the uncertainty that is there with nothing shown
# Training differs from an explainer of the same random_state, so the two never share a network.
_SEED_SHIFT = 7_919


class EvalX(MaskedEstimator):
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
            Settings(seeds=(seed + _SEED_SHIFT,)),
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

    def predict_proba(self, X: Table, masks: ArrayLike | None = None) -> NDArray[np.float64]:
        """p(class | what the masks show), (rows, classes); without masks, everything is shown."""
        matrix = self._matrix(X)
        return self._predict(matrix, self._masks(masks, len(matrix))).astype(np.float64)

    def predict(self, X: Table, masks: ArrayLike | None = None) -> NDArray[Any]:
        """The likeliest class given what the masks show."""
        likeliest = self.predict_proba(X, masks).argmax(1)  # checks that it is fitted
        return self.classes_[likeliest]

    def evaluate(
        self,
        explanation: Explanation | ArrayLike,
        X: Table,
        y: Any = None,
        *,
        bootstrap_draws: int = 1000,
        seed: int = 0,
    ) -> Scores:
        """Judge an explanation (or masks) of the rows of X.

        Returns AUROC, accuracy and log-likelihood (KL too where a model is explained), each with
        a bootstrap interval, beside the same with everything shown, with random masks of each
        row's own size, and with nothing shown. All of them see the same rows and resamples.
        """
        if explanation is None or bootstrap_draws < 1:
            raise InputError(
                "an explanation (or masks) and at least 1 bootstrap draw are needed, but came as "
                f"{type(explanation).__name__} and {bootstrap_draws!r}."
            )
        table = self._read(X, reset=False)
        matrix = self.columns_.matrix(table)
        if isinstance(explanation, Explanation):
            self._check_names(explanation)
        masks = self._masks(explanation, len(matrix))
        targets = self._targets(X, y, len(table), self.model, fitting=False)
        remarks = self._coverage(masks)
        random = np.random.default_rng(seed)
        shown = {
            "explanation": [masks],
            "everything": [np.ones_like(masks)],
            "random": [same_size_masks(masks, random) for _ in range(_RANDOM_DRAWS)],
            "nothing": [np.zeros_like(masks)],
        }
        statistics: dict[str, Statistic] = {}
        for row, draws in shown.items():
            predicted = [self._predict(matrix, draw) for draw in draws]
            for metric, statistic in self._statistics(predicted, targets).items():
                statistics[f"{row}/{metric}"] = statistic
        metric_names = [name.split("/")[1] for name in statistics if name.startswith("random/")]
        differences = {
            f"over_{other}/{metric}": (f"explanation/{metric}", f"{other}/{metric}")
            for other, metrics in (("random", metric_names), ("nothing", ["eloglik"]))
            for metric in metrics
        }
        found = bootstrap(
            statistics,
            len(matrix),
            draws=bootstrap_draws,
            seed=seed,
            differences=differences,
            width=len(self.classes_),
        )
        grouped: dict[str, dict[str, Interval]] = {}
        for name, interval in found.items():
            row, metric = name.split("/")
            grouped.setdefault(row, {})[metric] = interval
        over_random, over_nothing = grouped.pop("over_random"), grouped.pop("over_nothing")
        remarks += _only_order(
            grouped["explanation"]["eauroc"], over_nothing["eloglik"], grouped["nothing"]["eloglik"]
        )
        micro = len(self.classes_) > 2
        return Scores(grouped, over_random, float(masks.mean()), len(matrix), micro, remarks)

    # ------------------------------------------------------------------ the work behind it

    def _predict(self, matrix: NDArray[np.float32], masks: NDArray[Any]) -> NDArray[Any]:
        return self._probabilities(self.predictor_, matrix, masks)

    def _statistics(self, predicted: list[NDArray[Any]], targets: Targets) -> dict[str, Statistic]:
        label, target = targets.likeliest, targets.probabilities
        loglik = np.mean([log_likelihoods(p, target) for p in predicted], axis=0)
        correct = np.mean([hits(p, label) for p in predicted], axis=0)
        result = {
            "eauroc": average_statistic([auroc_statistic(p, label) for p in predicted]),
            "eacc": mean_statistic(correct),
            "eloglik": mean_statistic(loglik),
        }
        if targets.soft:
            kl = np.mean([kl_divergences(p, target) for p in predicted], axis=0)
            result["kl"] = mean_statistic(kl)
        return result

    def _masks(self, masks: Explanation | ArrayLike | None, rows: int) -> NDArray[np.bool_]:
        features = self._sizes[1]
        if masks is None:
            return np.ones((rows, features), dtype=bool)
        shown = (masks if isinstance(masks, Explanation) else Explanation(_plain(masks))).masks
        if shown.shape != (rows, features):
            raise InputError(
                f"the masks must have shape ({rows}, {features}), one row for each row and one "
                f"column for each feature, but have {shown.shape}."
            )
        return shown

    def _check_names(self, explanation: Explanation) -> None:
        ours, theirs = list(self.columns_.features), explanation.feature_names
        if len(ours) == len(theirs) and ours != theirs and self._named:
            which = next(i for i in range(len(ours)) if ours[i] != theirs[i])
            raise InputError(
                f"the explanation's feature {which + 1} is {theirs[which]!r} but the evaluator's "
                f"is {ours[which]!r}; fit both on the same columns in the same order."
            )

    def _coverage(self, masks: NDArray[np.bool_]) -> list[str]:
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


def _only_order(area: Interval, gain: Interval, nothing: Interval) -> list[str]:
    """A sentence when rows are well ranked by what carries next to no information.

    AUROC sees order alone: tiny differences between what the evaluator says of one mask and of
    another are enough, so a mere code in the choice of features can rank well. Its log-likelihood
    cannot gain from that.
    """
    if area.low <= _GOOD_AUROC or gain.low > _NEXT_TO_NOTHING * abs(nothing.value):
        return []
    return [
        f"the AUROC of {area.value:.3f} should not be relied on: what is shown adds only "
        f"{gain.value:.3f} nats to nothing shown, so the order of rows may come from the choice "
        "of features rather than from their values."
    ]


def same_size_masks(masks: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
    """For each row a random mask that shows exactly as many features as the row's own."""
    order = random.random(masks.shape).argsort(1).argsort(1)
    return order < masks.sum(1, keepdims=True)


def _plain(masks: Any) -> Any:
    return masks.detach().cpu().numpy() if hasattr(masks, "detach") else masks
