"""Share what all evaluators do: masks in, scores beside their comparisons out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from unmasked.errors import InputError
from unmasked.explainers.estimator import MaskedEstimator, Table
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.images import unpacked
from unmasked.inputs.targets import Targets
from unmasked.masks.superpixels import Superpixels
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
from unmasked.plots import notebook

ROWS = {
    "explanation": "what the explanation shows",
    "everything": "everything shown",
    "random": "random masks of the same sizes",
    "nothing": "nothing shown",
}
METRICS = {
    "eauroc": "AUROC",
    "eacc": "accuracy",
    "eloglik": "log-likelihood",
    "kl": "KL from the model",
}


@dataclass(frozen=True, repr=False)
class Scores:
    """An explanation's fidelity under an evaluator, such as EVAL-X.

    Attributes
    ----------
    rows : for "explanation", "everything", "random" and "nothing", a dictionary of metrics
        ("eauroc", "eacc", "eloglik" in nats; "kl" where a model is explained), each an `Interval`
        from a bootstrap over rows.
    over_random : the explanation minus random masks of the same sizes, paired over rows.
    fraction : share of features shown.
    count : how many rows were judged.
    micro : whether the AUROC is the micro AUROC of several classes.
    remarks : sentences a reader should know before believing the figures.
    evaluator : who judged.
    """

    rows: dict[str, dict[str, Interval]]
    over_random: dict[str, Interval]
    fraction: float
    count: int
    micro: bool
    remarks: list[str] = field(default_factory=list)
    evaluator: str = "EVAL-X"

    def __getitem__(self, metric: str) -> Interval:
        """The explanation's own figure, such as ``scores["eauroc"]``."""
        return self.rows["explanation"][metric]

    def to_frame(self) -> pd.DataFrame:
        """One row per comparison, one column per metric."""
        return pd.DataFrame(
            {
                ROWS[name]: {metric: interval.value for metric, interval in row.items()}
                for name, row in self.rows.items()
            }
        ).T

    def figures(self, row: str) -> dict[str, dict[str, float]]:
        """The metrics of one row as plain values.

        Parameters
        ----------
        row : a key of ``rows``: "explanation", "everything", "random" or "nothing".
        """
        return {metric: interval.to_json() for metric, interval in self.rows[row].items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows": {name: self.figures(name) for name in self.rows},
            "over_random": {name: value.to_json() for name, value in self.over_random.items()},
            "fraction": self.fraction,
            "count": self.count,
            "auroc": "micro" if self.micro else "binary",
            "remarks": self.remarks,
            "evaluator": self.evaluator,
        }

    def _heads(self) -> list[str]:
        micro = " (micro)" if self.micro else ""
        return [METRICS[n] + (micro if n == "eauroc" else "") for n in self.rows["explanation"]]

    def _title(self) -> str:
        return (
            f"{self.evaluator} on {self.count:,} rows, {self.fraction:.0%} of the features shown; "
            "95% intervals"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the same table as printed."""
        names = list(self.rows["explanation"])
        rows = [[ROWS[row], *(str(found[n]) for n in names)] for row, found in self.rows.items()]
        return notebook.block(
            notebook.lines([self._title()]),
            notebook.table(["", *self._heads()], rows),
            notebook.lines(f"note: {remark}" for remark in self.remarks),
        )

    def __repr__(self) -> str:
        names = list(self.rows["explanation"])
        width = max(len(text) for text in ROWS.values())
        lines = [self._title(), " " * width + "".join(f"  {head:>24}" for head in self._heads())]
        for row, figures in self.rows.items():
            lines.append(f"{ROWS[row]:<{width}}" + "".join(f"  {figures[n]!s:>24}" for n in names))
        return "\n".join(lines + [f"note: {remark}" for remark in self.remarks])


# Training differs from an explainer of the same random_state, so the two never share a network.
SEED_SHIFT = 7_919
MEMBER_SHIFT = 104_729  # from one member's seed to the next
_RANDOM_DRAWS = 5  # draws of random masks that are averaged
_GOOD_AUROC = 0.6
_NEXT_TO_NOTHING = 0.03  # share of the uncertainty that is there with nothing shown


class Evaluator(ABC):
    """A classifier of what masks show: p(class | x_r) for the subset r that a mask leaves.

    Subclasses say how rows are read (`_inputs`), how many features these have (`_features`), what
    is predicted from what is shown (`_predict`) and what is true (`_judged`).
    """

    classes_: NDArray[Any]
    title: ClassVar[str]
    """Who judges, in the head of the scores."""

    def predict_proba(self, X: Table, masks: ArrayLike | None = None) -> NDArray[np.float64]:
        """p(class | what the masks show), (rows, classes).

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        masks : an `Explanation` of the rows, or 0/1 masks (rows, features), 1 = shown. None
            (default) shows everything.
        """
        inputs = self._inputs(X)
        return self._predict(inputs, self._masks(masks, inputs)).astype(np.float64)

    def predict(self, X: Table, masks: ArrayLike | None = None) -> NDArray[Any]:
        """The likeliest class given what the masks show.

        Parameters
        ----------
        X : rows, in the form that `fit` took.
        masks : an `Explanation` of the rows, or 0/1 masks (rows, features), 1 = shown. None
            (default) shows everything.
        """
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
        groups: ArrayLike | None = None,
    ) -> Scores:
        """Judge an explanation (or masks) of the rows of X.

        Returns AUROC, accuracy and log-likelihood, and KL where a model is explained. Each has
        a bootstrap interval, and stands beside the same with everything shown, with random masks of
        each row's own size, and with nothing shown. All of them see the same rows and resamples.

        Parameters
        ----------
        explanation : an `Explanation` of the rows, or 0/1 masks (rows, features), 1 = shown.
        X : the explained rows, in the form that `fit` took.
        y : their labels (rows,) or class probabilities (rows, classes). None (default) asks the
            model that came as ``model=``.
        bootstrap_draws : resamples behind each interval, at least 1; 1,000 by default.
        seed : of the random masks and of the resamples, 0 by default; the same seed repeats the
            figures.
        groups : (rows,) what belongs together, such as a patient's rows, which are then resampled
            together. None (default): each row stands alone.
        """
        if explanation is None or bootstrap_draws < 1:
            raise InputError(
                "an explanation (or masks) and at least 1 bootstrap draw are needed, but came as "
                f"{type(explanation).__name__} and {bootstrap_draws!r}."
            )
        X, y = unpacked(X, y, labels=getattr(self, "model", None) is None)
        inputs = self._inputs(X)
        if isinstance(explanation, Explanation):
            self._check_names(explanation)
        masks = self._masks(explanation, inputs)
        rows = len(masks)
        targets = self._judged(X, y, rows)
        together = None if groups is None else np.asarray(groups)
        if together is not None and together.shape != (rows,):
            raise InputError(
                f"groups must be {rows}, one for each row, but have shape {together.shape}."
            )
        remarks = self._remarks(masks)
        random = np.random.default_rng(seed)
        shown = {
            "explanation": [masks],
            "everything": [np.ones_like(masks)],
            "random": [same_size_masks(masks, random) for _ in range(_RANDOM_DRAWS)],
            "nothing": [np.zeros_like(masks)],
        }
        statistics: dict[str, Statistic] = {}
        for row, draws in shown.items():
            predicted = [self._predict(inputs, draw) for draw in draws]
            for metric, statistic in _statistics(predicted, targets).items():
                statistics[f"{row}/{metric}"] = statistic
        metric_names = [name.split("/")[1] for name in statistics if name.startswith("random/")]
        differences = {
            f"over_{other}/{metric}": (f"explanation/{metric}", f"{other}/{metric}")
            for other, metrics in (("random", metric_names), ("nothing", ["eloglik"]))
            for metric in metrics
        }
        found = bootstrap(
            statistics,
            rows,
            draws=bootstrap_draws,
            seed=seed,
            differences=differences,
            width=len(self.classes_),
            groups=together,
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
        return Scores(grouped, over_random, float(masks.mean()), rows, micro, remarks, self.title)

    # ------------------------------------------------------------------ what subclasses supply

    @abstractmethod
    def _inputs(self, X: Table) -> Any:
        """Rows in the form that `_predict` takes, checked."""

    @abstractmethod
    def _features(self, inputs: Any) -> int:
        """Return the number of features that a mask of these rows has."""

    @abstractmethod
    def _predict(self, inputs: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """p(class | what the masks show), (rows, classes)."""

    @abstractmethod
    def _judged(self, X: Table, y: Any, rows: int) -> Targets:
        """Return the targets that predictions for these rows are judged by."""

    def _names(self) -> list[str] | None:
        """The features' names, where the user gave any."""
        return None

    def _remarks(self, masks: NDArray[np.bool_]) -> list[str]:
        """Sentences to read before the figures of these masks."""
        return []

    def _check_names(self, explanation: Explanation) -> None:
        ours, theirs = self._names(), explanation.feature_names
        if ours is not None and len(ours) == len(theirs) and ours != theirs:
            which = next(i for i in range(len(ours)) if ours[i] != theirs[i])
            raise InputError(
                f"the explanation's feature {which + 1} is {theirs[which]!r} but the evaluator's "
                f"is {ours[which]!r}; fit both on the same columns in the same order."
            )

    def _shown_masks(self, explanation: Explanation) -> NDArray[np.bool_]:
        """An explanation's masks over this evaluator's features."""
        return explanation.masks

    def _masks(self, masks: Explanation | ArrayLike | None, inputs: Any) -> NDArray[np.bool_]:
        shape = len(inputs), self._features(inputs)
        if masks is None:
            return np.ones(shape, dtype=bool)
        shown = self._shown_masks(
            masks if isinstance(masks, Explanation) else Explanation(_plain(masks))
        )
        if shown.shape != shape:
            raise InputError(
                f"the masks must have shape {shape}, one row for each row and one "
                f"column for each feature, but have {shown.shape}."
            )
        return shown


class TableEvaluator(Evaluator, MaskedEstimator):
    """An evaluator that learned the columns of a table; it has the parameter ``model`` too."""

    model: Any

    def _inputs(self, X: Table) -> Any:
        return self._matrix(X)

    def _features(self, inputs: Any) -> int:
        return self._sizes[1]

    def _judged(self, X: Table, y: Any, rows: int) -> Targets:
        return self._targets(X, y, rows, self.model, fitting=False)

    def _shown_masks(self, explanation: Explanation) -> NDArray[np.bool_]:
        """With images the superpixels must be the same; an evaluator of pixels takes any."""
        own = self.masker_
        if explanation.pixels is None or not isinstance(own, Superpixels):
            return explanation.masks
        if np.array_equal(explanation.pixels, own.map):
            return explanation.masks
        if explanation.pixels.shape != own.map.shape:
            raise InputError(
                f"the explanation is of images of {explanation.pixels.shape} pixels but the "
                f"evaluator learned from images of {own.map.shape}; use images of one size."
            )
        if own.grid is None and own.labels is None:
            return explanation.pixel_masks().reshape(len(explanation), -1)
        raise InputError(
            "the explanation's superpixels are not the evaluator's; fit both with the same "
            "masker=Superpixels(…), or the evaluator without one: it then takes any."
        )

    def _names(self) -> list[str] | None:
        return list(self.columns_.features) if self._named else None


def _statistics(predicted: list[NDArray[Any]], targets: Targets) -> dict[str, Statistic]:
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


def _only_order(area: Interval, gain: Interval, nothing: Interval) -> list[str]:
    """A sentence when rows are well ranked by what carries next to no information.

    AUROC sees order alone: tiny differences between what the evaluator says of one mask and of
    another are enough, so a mere code in the choice of features can rank well. Its log-likelihood
    cannot gain from that.
    """
    if np.isnan(area.value):
        return ["the rows are all of one class, so there is no AUROC."]
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
