"""The two objectives, each for one setting.

* The random-mask objective, shared by REAL-X's predictor and EVAL-X: on masks drawn without
  looking at the row, minimise −log q(y | x_r). Its optimum is p(y | x_r) for every subset r.
* The selector objective: maximise E_s[value(s)] − λ · (fraction shown), where the value is
  log q(y | x_s) under a predictor that gets no gradient from it.

Targets are always class probabilities (batch, classes); labels are one-hot rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unmasked.masking import Masker
from unmasked.samplers import Sampler, Value
from unmasked.shapes import Float

Network = Callable[[Tensor], Tensor]


def log_likelihood(
    logits: Float[Tensor, "batch classes"], target: Float[Tensor, "batch classes"]
) -> Float[Tensor, " batch"]:
    """Σ_c target_c · log softmax(logits)_c for each row."""
    return (target * torch.log_softmax(logits, dim=-1)).sum(-1)


def random_mask_loss(
    predictor: Network,
    masker: Masker,
    x: Float[Tensor, "batch columns"],
    target: Float[Tensor, "batch classes"],
    mask: Float[Tensor, "batch features"],
) -> Float[Tensor, ""]:
    """−mean log q(target | x_mask)."""
    return -log_likelihood(predictor(masker(x, mask)), target).mean()


def shown_value(
    predictor: Network,
    masker: Masker,
    x: Float[Tensor, "batch columns"],
    target: Float[Tensor, "batch classes"],
) -> Value:
    """The value log q(target | x_s) as a function of masks (draws, batch, features).

    All draws go through the predictor as one batch of draws × batch rows. The predictor that is
    passed in must hold detached parameters: the selector's loss is not the predictor's business.
    """

    def value(masks: Tensor) -> Tensor:
        draws, batch, features = masks.shape
        rows = x.expand(draws, *x.shape).reshape(draws * batch, x.shape[-1])
        logits = predictor(masker(rows, masks.reshape(draws * batch, features)))
        return log_likelihood(
            logits, target.expand(draws, *target.shape).reshape(draws * batch, -1)
        ).reshape(draws, batch)

    return value


def selector_loss(
    logits: Float[Tensor, "batch features"],
    value: Value,
    sampler: Sampler,
    noise: Float[Tensor, "batch noise"],
    sparsity: float | Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """−mean[value(s)] + λ · mean fraction shown; the fraction's expectation is exact.

    λ multiplies the *fraction* of features (E[fraction] = mean σ(logits)), not their count.
    """
    return -sampler(logits, value, noise).mean() + sparsity * torch.sigmoid(logits).mean()


def selection(logits: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
    """The one definition of a mask at test time: shown when its probability exceeds ½."""
    return (logits > 0).to(logits.dtype)
