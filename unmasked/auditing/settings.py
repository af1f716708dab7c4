"""Keep the options of an audit in one place: `AuditSettings`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from unmasked.errors import InputError
from unmasked.masks.distributions import Bernoulli, MaskLaw, UniformSize
from unmasked.training import Training


@dataclass(frozen=True)
class AuditSettings:
    """Options of an audit: its evaluators, folds, thresholds and sample sizes.

    Parameters
    ----------
    evaluator : masks that EVAL-X learns from: "every-size" (default) or the paper's "bernoulli"
        (p = ½).
    learner : "auto" (default) is what `EvalX` takes where nothing is asked for: networks, boosted
        trees or both, as validation rows decide. "network" is one plain network. "boosting" is
        several times faster and less exact.
    folds : evaluators learn from all folds but one and judge that one; 3 by default.
    seeds : how many evaluators each fold has, 2 by default; their mean judges, their spread says
        how surely.
    encoding_folds : folds of the encoding test, which has models of its own; 5 by default.
    threshold : nats in the choice of features that count as encoding; 0.02 by default.
    sample : rows for which the best masks are searched, at most; 300 by default.
    curve_rows : rows that curves are drawn from, at most; 1,000 by default.
    max_rows : of more rows, a random sample is judged; 50,000 by default.
    max_train : rows that an evaluator learns from, at most; 20,000 by default.
    random_draws : draws of random masks that are averaged; 3 by default.
    bootstrap_draws : resamples behind each interval; 1,000 by default.
    gallery : rows shown one by one in the report, at most; 80 by default.
    training : how the networks are trained; None (default) for the evaluator's own options.
    """

    evaluator: Literal["every-size", "bernoulli"] = "every-size"
    learner: Literal["auto", "network", "boosting"] = "auto"
    folds: int = 3
    seeds: int = 2
    encoding_folds: int = 5
    threshold: float = 0.02
    sample: int = 300
    curve_rows: int = 1000
    max_rows: int = 50_000
    max_train: int = 20_000
    random_draws: int = 3
    bootstrap_draws: int = 1000
    gallery: int = 80
    training: Training | None = None

    def __post_init__(self) -> None:
        for name, choices in (
            ("evaluator", ("every-size", "bernoulli")),
            ("learner", ("auto", "network", "boosting")),
        ):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} must be {' or '.join(choices)} but is {getattr(self, name)!r}."
                )
        least = {
            "folds": 2, "seeds": 2, "encoding_folds": 2, "sample": 1, "curve_rows": 1,
            "max_rows": 50, "max_train": 50, "random_draws": 1, "bootstrap_draws": 1, "gallery": 0,
        }  # fmt: skip
        for name, lowest in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise InputError(
                    f"{name} must be a whole number from {lowest} up but is {value!r}."
                )
        if not isinstance(self.threshold, int | float) or not 0 < self.threshold < 10:
            raise InputError(
                f"threshold must be a number of nats above 0 but is {self.threshold!r}."
            )

    @property
    def law(self) -> MaskLaw:
        """The random masks that evaluators learn from."""
        return UniformSize() if self.evaluator == "every-size" else Bernoulli(0.5)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {k: v for k, v in asdict(self).items() if k != "training"}
