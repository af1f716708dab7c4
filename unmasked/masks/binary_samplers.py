"""Samplers that ask about 0/1 masks alone, which a predictor of masked rows has seen.

All are unbiased for ∇ E[h(s)], h the value of a mask, and none sends a gradient through h. With
logits a, p = σ(a) and independent features, what they estimate is, for feature j::

    ∂ E[h(s)] / ∂ a_j = p_j (1 - p_j) E[h(s with j shown) - h(s with j hidden)]
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.masks.samplers import BernoulliSampler, Draw, Level
from unmasked.shapes import Float


class _Coupled(BernoulliSampler):
    """K masks of one law, coupled so that they differ more than independent ones; others of them.

    Each is Bernoulli(p) by itself; only what one says of another is chosen. Let ρ_j be the mean
    correlation of feature j between two of the K. What feature j of one mask is expected to be
    where another is known is linear in that one's feature j, as both are 0 or 1, so::

        ĝ_j = Σ_k (h_k - mean of all h) s_kj / ((K - 1) (1 - ρ_j))        E[ĝ] = ∇ E[h(s)]

    With ρ = 0 each mask has the mean of the others as its baseline; with ρ < 0 the masks are asked
    further apart, and the estimate is scaled down. A constant added to h changes nothing.
    """

    @abstractmethod
    def shrinkage(self, logits: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """1 / (1 - ρ), between ½ and 1."""

    def carrier(
        self,
        logits: Float[Tensor, "batch features"],
        draw: Draw,
        value: Float[Tensor, " batch"],
        others: Float[Tensor, "draws batch"],
    ) -> Float[Tensor, " batch"]:
        values = torch.cat([value.unsqueeze(0), others])  # (K, batch)
        masks = torch.cat([draw.mask.unsqueeze(0), draw.others])  # (K, batch, features)
        apart = (values - values.mean(0)).detach() / (len(values) - 1)
        direction = torch.einsum("kb,kbf->bf", apart, masks) * self.shrinkage(logits.detach())
        return (direction * logits).sum(-1)


@dataclass(frozen=True)
class DisarmBernoulli(_Coupled):
    """Two masks that mirror each other (DisARM, Dong et al., 2020; U2G, Yin et al., 2020).

    ::

        s = 1(u < p)    s' = 1(1 - u < p)
        ĝ_j = ½ (h(s) - h(s')) (s_j - s'_j) σ(|a_j|)
    """

    def noise_shape(self, features: int) -> tuple[int, int]:
        return 1, features

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        p, hidden = torch.sigmoid(logits), torch.sigmoid(-logits)
        # 1 - u < p, where neither 1 - u nor 1 - p is rounded
        both = torch.stack([noise[0] < p, noise[0] > hidden]).to(logits.dtype)
        return Draw(both[0], both[1:])

    def shrinkage(self, logits: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.sigmoid(logits.abs())


@dataclass(frozen=True)
class ArmsBernoulli(_Coupled):
    """K masks that keep away from each other (ARMS, Dimitriev and Zhou, 2021).

    With q the smaller one of p and 1 - p, a feature takes its rarer state in mask k where u_k < q:

    "dirichlet" : (1 - d_k)^(K-1) = u_k with d from Dirichlet(1, …, 1), as in ARMS. Then
        P(u_k < q, u_l < q) = max(2 q^(1/(K-1)) - 1, 0)^(K-1).
    "systematic" : u_k = (π(k) + v) / K, π a random order of 0, …, K - 1 for each feature and v
        uniform: K q masks have the rarer state, rounded up or down by chance. No law of K masks
        has a lower mean correlation.
    "independent" : u_k are independent (the leave-one-out baseline, "RLOO").

    For K = 2 the first two are `DisarmBernoulli`.
    """

    draws: int = 4
    coupling: str = "systematic"

    def __post_init__(self) -> None:
        if not is_whole(self.draws) or self.draws < 2:
            raise InputError(f"draws must be a whole number above 1 but is {self.draws!r}.")
        if self.coupling not in _COUPLINGS:
            raise InputError(
                f"coupling must be one of {', '.join(_COUPLINGS)} but is {self.coupling!r}."
            )

    def noise_shape(self, features: int) -> tuple[int, int]:
        return self.draws + (self.coupling == "systematic"), features

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        rare = self._uniform(noise) < torch.sigmoid(-logits.abs())  # (K, batch, features)
        masks = (rare ^ (logits > 0)).to(logits.dtype)
        return Draw(masks[0], masks[1:])

    def _uniform(
        self, noise: Float[Tensor, "draws batch features"]
    ) -> Float[Tensor, "masks batch features"]:
        """K uniform numbers for each feature, coupled."""
        if self.coupling == "independent":
            return noise
        if self.coupling == "systematic":
            order = noise[1:].argsort(0).argsort(0).to(noise.dtype)
            return (order + noise[0]) / self.draws
        tiny = torch.finfo(noise.dtype).tiny
        spread = -torch.log(noise.clamp_min(tiny))  # exponential: their shares are Dirichlet's
        total = spread.sum(0).clamp_min(tiny)
        return (1 - spread / total) ** (self.draws - 1)

    def shrinkage(self, logits: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        if self.coupling == "independent":
            return torch.ones_like(logits)
        size, others = logits.abs(), self.draws - 1
        most = torch.sigmoid(size)  # 1 - q
        if self.coupling == "dirichlet":  # ρ = (P(both) - q²) / (q (1 - q)), P(both) / q below
            root = torch.exp(softplus(size) / others)  # q^(-1/(K-1))
            return most / (1 - (2 - root).clamp_min(0) ** others)
        q = torch.sigmoid(-size)
        expected = self.draws * q
        rest = expected - torch.floor(expected)
        rounding = rest * (1 - rest) / (expected * most).clamp_min(torch.finfo(q.dtype).tiny)
        return torch.where(expected < 1, most, others / (self.draws - rounding))


_COUPLINGS = ("dirichlet", "systematic", "independent")


@dataclass(frozen=True)
class LocalExpectation(BernoulliSampler):
    """One mask, and the same with one feature flipped, for each feature (Titsias, 2015).

    The expectation over each feature given the others is exact; only the others are drawn::

        ĝ_j = p_j (1 - p_j) (h(s with j shown) - h(s with j hidden))

    flips : how many features of a row are flipped, at most; None flips each. Where there are more
        features, they are drawn in proportion to w_j = p_j (1 - p_j), by equal steps from a random
        start: one that is as good as decided is seldom asked about. Each flip then counts
        Σ w / flips instead of w_j.
    """

    flips: int | None = None

    def __post_init__(self) -> None:
        if self.flips is not None and (not is_whole(self.flips) or self.flips < 1):
            raise InputError(f"flips must be a whole number above 0 or None but is {self.flips!r}.")

    def noise_shape(self, features: int) -> tuple[int, int]:
        return 1, features + (not self._flips_each(features))

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        features = logits.shape[-1]
        mask = (noise[0, :, :features] < torch.sigmoid(logits)).to(logits.dtype)
        if self._flips_each(features):
            one = torch.eye(features, dtype=mask.dtype, device=mask.device).unsqueeze(1)
        else:
            one = self._chosen(_spread(logits.detach()), noise[0, :, features:])
        return Draw(mask, (mask - one).abs())  # (flips, batch, features)

    def _flips_each(self, features: int) -> bool:
        return self.flips is None or self.flips >= features

    def _chosen(
        self, weight: Float[Tensor, "batch features"], start: Float[Tensor, "batch 1"]
    ) -> Float[Tensor, "flips batch features"]:
        """1 for the feature of each flip: that in whose stretch of Σ w the step falls."""
        assert self.flips is not None
        steps = torch.arange(self.flips, dtype=weight.dtype, device=weight.device)
        end = weight.cumsum(-1).cummax(-1).values  # a sum in parallel may round downwards
        where = (steps.reshape(-1, 1, 1) + start) / self.flips * end[:, -1:]  # (flips, batch, 1)
        passed = (where >= end).to(weight.dtype)  # 1 … 1 0 … 0: all stretches before
        before = torch.cat([torch.ones_like(where), passed[..., :-1]], -1)
        return before - passed

    def carrier(
        self,
        logits: Float[Tensor, "batch features"],
        draw: Draw,
        value: Float[Tensor, " batch"],
        others: Float[Tensor, "draws batch"],
    ) -> Float[Tensor, " batch"]:
        weight = _spread(logits.detach())
        if not self._flips_each(logits.shape[-1]):
            weight = weight.sum(-1, keepdim=True) / len(draw.others)
        # shown less hidden is what was drawn less what was flipped, in one sign or the other
        turned = draw.mask - draw.others  # (draws, batch, features): ±1 where flipped
        gain = torch.einsum("nb,nbf->bf", value - others.detach(), turned)
        return (weight * gain * logits).sum(-1)


def _spread(logits: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
    """p (1 - p), exact also where p is nearly 0 or 1."""
    return torch.sigmoid(logits) * torch.sigmoid(-logits)
