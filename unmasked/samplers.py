"""Samplers: from a selector's logits to masks, and a gradient back through them.

A sampler is a function of (logits, value, noise). It returns, for each row, a number that equals
the value of the sampled mask and whose gradient with respect to the logits is the sampler's
estimate of ∇ E[value(s)].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unmasked.errors import InputError
from unmasked.shapes import Float

_SATURATED = 40.0  # beyond it a slope below 5e-18 would only make slow denormal numbers

Value = Callable[[Tensor], Tensor]
"""Masks (draws, batch, features) -> values (draws, batch), such as log q(y | x_s)."""


class Sampler(ABC):
    """Draws masks and carries a gradient back."""

    @abstractmethod
    def noise_width(self, features: int) -> int:
        """How many uniform numbers one row takes."""

    @abstractmethod
    def __call__(
        self,
        logits: Float[Tensor, "batch features"],
        value: Value,
        noise: Float[Tensor, "batch noise"],
    ) -> Float[Tensor, " batch"]:
        """Return value(s) with the estimator's gradient attached."""


@dataclass(frozen=True)
class RebarBernoulli(Sampler):
    """Independent Bernoulli selections with the REBAR gradient (Tucker et al., 2017).

    With logit a, u and v uniform and σ the logistic function::

        z  = a + logit(u)                       s = 1(z > 0)   so P(s = 1) = σ(a)
        z̃  ~ z | s, from v:  s = 1:  softplus(logit(v) + softplus(a))
                             s = 0: -softplus(logit(v) + softplus(-a))
        ĝ  = [h(s) - h(σ(z̃/τ))] ∇ log p(s) + ∇ h(σ(z/τ)) - ∇ h(σ(z̃/τ))

    where h is the value. E[ĝ] = ∇ E[h(s)] for every τ: the relaxed terms change the variance only.
    They lower it where |h| is large beside its differences; near h = 0 a small τ can raise it.
    The paper fixes τ = 0.1.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(
                f"the temperature must be above 0 but is {self.temperature}; the paper's is 0.1."
            )

    def noise_width(self, features: int) -> int:
        return 2 * features

    def draw(
        self, logits: Float[Tensor, "batch features"], noise: Float[Tensor, "batch noise"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The mask s and the relaxed σ(z/τ), σ(z̃/τ), each (batch, features)."""
        tiny = torch.finfo(logits.dtype).eps
        u, v = torch.logit(noise.clamp(tiny, 1 - tiny)).chunk(2, dim=-1)
        z = logits + u
        mask = (z > 0).to(logits.dtype)
        coupled = torch.where(
            z > 0, softplus(v + softplus(logits)), -softplus(v + softplus(-logits))
        )
        return (
            mask,
            torch.sigmoid((z / self.temperature).clamp(-_SATURATED, _SATURATED)),
            torch.sigmoid((coupled / self.temperature).clamp(-_SATURATED, _SATURATED)),
        )

    def __call__(
        self,
        logits: Float[Tensor, "batch features"],
        value: Value,
        noise: Float[Tensor, "batch noise"],
    ) -> Float[Tensor, " batch"]:
        mask, relaxed, coupled = self.draw(logits, noise)
        with torch.no_grad():
            h_mask = value(mask.detach().unsqueeze(0))[0]
        h_relaxed, h_coupled = value(torch.stack([relaxed, coupled]))  # (2, batch, features)
        log_p = (mask.detach() * logits - softplus(logits)).sum(-1)
        carrier = (h_mask - h_coupled).detach() * log_p + h_relaxed - h_coupled
        return h_mask + carrier - carrier.detach()
