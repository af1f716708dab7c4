"""The paper's methods as compositions of parts; nothing here computes.

What the predictor learns from is the whole difference between a method that can encode its
prediction in the choice of features and one that cannot.
"""

from __future__ import annotations

from unmasked.engine.method import (
    Everything,
    Exchanged,
    Given,
    Learner,
    Method,
    Network,
    Random,
    Selected,
    Selector,
    Subset,
)
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.samplers import ConcreteTopK, RebarBernoulli, Sampler, ScoreBernoulli


def real_x(
    masker: Masker,
    law: MaskLaw,
    predictor: Network,
    selector: Network,
    sampler: Sampler | None = None,
    *,
    predictor_first: bool = False,
    exchange: bool = False,
) -> Method:
    """REAL-X; with ``predictor_first`` REAL-X-STEP.

    With ``exchange`` half of the rows are hidden by what the selector draws for other rows; with
    both, the predictor learns from random masks alone before the selector starts.
    """
    return Method(
        masker,
        {"predictor": Learner(predictor, Exchanged(law) if exchange else Random(law))},
        Selector(selector, sampler or RebarBernoulli()),
        predictor_first,
    )


def base_x(
    masker: Masker, predictor: Network, selector: Network, sampler: Sampler | None = None
) -> Method:
    """BASE-X: REAL-X but for the masks that its predictor learns from."""
    return Method(
        masker,
        {"predictor": Learner(predictor, Selected())},
        Selector(selector, sampler or RebarBernoulli()),
    )


def invase(masker: Masker, predictor: Network, selector: Network) -> Method:
    """INVASE: score-function gradients, less the log-likelihood of a model that sees everything."""
    return Method(
        masker,
        {
            "predictor": Learner(predictor, Selected()),
            "baseline": Learner(predictor, Everything()),
        },
        Selector(selector, ScoreBernoulli(), baseline="baseline"),
    )


def l2x(
    masker: Masker, predictor: Network, selector: Network, largest: int, temperature: float = 0.1
) -> Method:
    """L2X: exactly k features, trained through the maximum of k Concrete draws."""
    return Method(
        masker,
        {"predictor": Learner(predictor, Selected())},
        Selector(selector, ConcreteTopK(largest, temperature)),
    )


def eval_x(masker: Masker, law: MaskLaw, predictor: Network) -> Method:
    """EVAL-X: a predictor on random masks and nothing else."""
    return Method(masker, {"predictor": Learner(predictor, Random(law))})


def full(masker: Masker, predictor: Network) -> Method:
    """FULL: a predictor that always sees everything."""
    return Method(masker, {"predictor": Learner(predictor, Everything())})


def roar(masker: Masker, predictor: Network) -> Method:
    """ROAR: a predictor retrained on an explanation's own masks, one for each level."""
    return Method(masker, {"predictor": Learner(predictor, Given())})


def subsets(masker: Masker, predictor: Network) -> Method:
    """One predictor for each subset of the features; the level is the subset's number."""
    return Method(masker, {"predictor": Learner(predictor, Subset())})
