"""Compose the methods of the paper, and say what each maximises; nothing here computes steps.

What the predictor learns from is the whole difference between a method that can encode its
prediction in the choice of features and one that cannot.

* A predictor minimises −log q(y | x_m) on masks m from its own source. On masks drawn without
  looking at the row its optimum is p(y | x_r) for every subset r (REAL-X's predictor, EVAL-X).
* A selector maximises E_s[log q(y | x_s)] less what showing costs.

Targets are always class probabilities (…, classes); labels are one-hot rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmasked.masks.distributions import MaskLaw
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import ConcreteTopK, RebarBernoulli, Sampler, ScoreBernoulli
from unmasked.shapes import Float
from unmasked.training.method import (
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


def log_likelihood(
    logits: Float[Tensor, "*batch classes"], target: Float[Tensor, "*batch classes"]
) -> Float[Tensor, "*batch"]:
    """Σ_c target_c · log softmax(logits)_c for each row."""
    return (target * torch.log_softmax(logits, dim=-1)).sum(-1)
