"""Samplers: from a selector's logits to masks, and a gradient back through them.

A sampler draws masks from logits and noise, says what its *carrier* is (a number per row whose
gradient is the part of the estimate of ∇ E[value(s)] that does not flow through the value of the
sampled mask itself), what showing costs, and which mask it stands for at test time.

Every setting has a *level*: the price λ for Bernoulli samplers, the number k for `ConcreteTopK`.
Here are the paper's; those that ask about 0/1 masks alone are in `binary_samplers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from unmasked.errors import InputError
from unmasked.shapes import Float

_SATURATED = 40.0  # beyond it a slope below 5e-18 would only make slow denormal numbers

Value = Callable[[Tensor], Tensor]
"""Masks (draws, batch, features) -> values (draws, batch), such as log q(y | x_s)."""
Level = float | Float[Tensor, ""]


class Draw(NamedTuple):
    """Masks that a sampler drew for one batch, for the predictor and for the carrier.

    mask : (batch, features), what a predictor that learns from the selector's masks is shown.
    others : (draws, batch, features), further masks whose values the carrier needs; draws may be 0.
    """

    mask: Tensor
    others: Tensor


class Sampler(ABC):
    """Draws masks and carries a gradient back."""

    level_name = "sparsity"
    """What a level is called: "sparsity" (λ) or "k"."""

    def named(self, level: float) -> dict[str, int | float]:
        """A level under its name, as results and explanations carry it."""
        return {self.level_name: level}

    @abstractmethod
    def noise_shape(self, features: int) -> tuple[int, int]:
        """(draws, width): one row takes draws × width uniform numbers."""

    @abstractmethod
    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        """Masks for each row."""

    def carrier(
        self,
        logits: Float[Tensor, "batch features"],
        draw: Draw,
        value: Float[Tensor, " batch"],
        others: Float[Tensor, "draws batch"],
    ) -> Float[Tensor, " batch"]:
        """The part of the gradient's estimate that the mask's own value does not carry.

        ``value`` (of the mask, without gradient) and ``others`` are values less a baseline that
        does not depend on the mask.
        """
        return torch.zeros_like(value)

    @abstractmethod
    def cost(self, logits: Float[Tensor, "batch features"], level: Level) -> Float[Tensor, ""]:
        """Return the cost of showing features in training, in nats: an exact mean over masks."""

    @abstractmethod
    def price(self, fraction: Float[Tensor, ""], level: Level) -> Float[Tensor, ""]:
        """Return the cost of showing this fraction of the features at test time, in nats."""

    @abstractmethod
    def select(
        self, logits: Float[Tensor, "batch features"], level: Level
    ) -> Float[Tensor, "batch features"]:
        """The one definition of a mask at test time."""

    def __call__(
        self,
        logits: Float[Tensor, "batch features"],
        value: Value,
        noise: Float[Tensor, "draws batch width"],
        level: Level = 0.0,
        baseline: Float[Tensor, " batch"] | float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return value(s) with the estimator's gradient attached."""
        draw = self.draw(logits, noise, level)
        own = value(draw.mask.unsqueeze(0))[0]
        others = value(draw.others) if draw.others.shape[0] else own.new_zeros(0, *own.shape)
        carrier = self.carrier(logits, draw, own.detach() - baseline, others - baseline)
        return own + carrier - carrier.detach()


class BernoulliSampler(Sampler):
    """Independent selections, P(s = 1) = σ(logit); λ times the *fraction* shown is charged."""

    def cost(self, logits: Float[Tensor, "batch features"], level: Level) -> Float[Tensor, ""]:
        return level * torch.sigmoid(logits).mean()  # λ · E[fraction]: exact

    def price(self, fraction: Float[Tensor, ""], level: Level) -> Float[Tensor, ""]:
        return level * fraction

    @final  # a saved selector is read without knowing what trained it
    def select(
        self, logits: Float[Tensor, "batch features"], level: Level
    ) -> Float[Tensor, "batch features"]:
        return (logits > 0).to(logits.dtype)  # shown when its probability exceeds ½


def log_probability(
    logits: Float[Tensor, "batch features"], mask: Float[Tensor, "batch features"]
) -> Float[Tensor, " batch"]:
    """log p(mask) under independent Bernoulli(σ(logits)), from logits: it never overflows."""
    return (mask * logits - softplus(logits)).sum(-1)


@dataclass(frozen=True)
class RebarBernoulli(BernoulliSampler):
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
        _check_temperature(self.temperature)

    def noise_shape(self, features: int) -> tuple[int, int]:
        return 2, features

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        """The mask s, and the relaxed σ(z/τ) and σ(z̃/τ)."""
        tiny = torch.finfo(logits.dtype).eps
        u, v = torch.logit(noise, tiny).unbind(0)
        z = logits + u
        mask = (z > 0).to(logits.dtype)
        sign = 2 * mask - 1  # the case s = 0 is the other one with the signs of a and z̃ turned
        coupled = sign * softplus(v + softplus(sign * logits))
        # (2, batch, features)
        relaxed = (torch.stack([z, coupled]) / self.temperature).clamp(-_SATURATED, _SATURATED)
        return Draw(mask, torch.sigmoid(relaxed))

    def carrier(
        self,
        logits: Float[Tensor, "batch features"],
        draw: Draw,
        value: Float[Tensor, " batch"],
        others: Float[Tensor, "draws batch"],
    ) -> Float[Tensor, " batch"]:
        relaxed, coupled = others.unbind(0)
        return (value - coupled.detach()) * log_probability(logits, draw.mask) + relaxed - coupled


@dataclass(frozen=True)
class ScoreBernoulli(BernoulliSampler):
    """Independent Bernoulli selections with the score-function gradient (REINFORCE).

    ::

        ĝ = [h(s) − b] ∇ log p(s)

    E[ĝ] = ∇ E[h(s)] for every baseline b that does not depend on s, since E[∇ log p(s)] = 0;
    INVASE's is b = log q(y | all of x).
    """

    def noise_shape(self, features: int) -> tuple[int, int]:
        return 1, features

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        mask = (noise[0] < torch.sigmoid(logits)).to(logits.dtype)
        return Draw(mask, mask.new_zeros(0, *mask.shape))

    def carrier(
        self,
        logits: Float[Tensor, "batch features"],
        draw: Draw,
        value: Float[Tensor, " batch"],
        others: Float[Tensor, "draws batch"],
    ) -> Float[Tensor, " batch"]:
        return value * log_probability(logits, draw.mask)


@dataclass(frozen=True)
class ConcreteTopK(Sampler):
    """The maximum of k Concrete (relaxed one-of-d) draws, reparameterised; the level is k.

    With Gumbel noise g and temperature τ::

        c_j = softmax((logits + g_j) / τ)   for j = 1 … k        mask = max_j c_j

    Its gradient is the exact one of the *relaxed* objective, which differs from that of k features
    shown or hidden outright: biased, the less so the smaller τ. At test time exactly the k
    largest logits are shown; of equal ones the first.

    ``largest`` is the largest k among the settings: so many draws are made and those beyond a
    setting's own k are blanked, so that settings of different k are one program.
    """

    largest: int
    temperature: float = 0.1
    level_name = "k"

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)
        if self.largest < 1:
            raise InputError(f"k must be a whole number above 0 but is {self.largest}.")

    def named(self, level: float) -> dict[str, int | float]:
        return {self.level_name: int(level)}

    def noise_shape(self, features: int) -> tuple[int, int]:
        return self.largest, features

    def draw(
        self,
        logits: Float[Tensor, "batch features"],
        noise: Float[Tensor, "draws batch width"],
        level: Level,
    ) -> Draw:
        if torch.compiler.is_compiling():  # the compiler joins the passes by itself
            concrete = _concrete(logits, noise, self.temperature)
            mask = torch.where(_number(concrete) < level, concrete, 0.0).max(0).values
        else:
            how_many = torch.as_tensor(level, device=logits.device)
            mask, *_ = _LargestOfConcrete.apply(  # type: ignore[no-untyped-call]
                logits, noise, how_many, self.temperature
            )
        return Draw(mask, mask.new_zeros(0, *mask.shape))

    def cost(self, logits: Float[Tensor, "batch features"], level: Level) -> Float[Tensor, ""]:
        return logits.new_zeros(())

    def price(self, fraction: Float[Tensor, ""], level: Level) -> Float[Tensor, ""]:
        return torch.zeros_like(fraction)

    def select(
        self, logits: Float[Tensor, "batch features"], level: Level
    ) -> Float[Tensor, "batch features"]:
        order = torch.argsort(logits, dim=-1, descending=True, stable=True)
        return (torch.argsort(order, dim=-1) < level).to(logits.dtype)


def _concrete(
    logits: Float[Tensor, "batch features"],
    noise: Float[Tensor, "draws batch features"],
    temperature: float,
) -> Float[Tensor, "draws batch features"]:
    """softmax((logits + Gumbel noise) / τ)."""
    tiny, eps = torch.finfo(logits.dtype).tiny, torch.finfo(logits.dtype).eps
    minus_gumbel = torch.log(-torch.log(noise.clamp(tiny, 1 - eps)))
    slope = 1 / temperature
    return torch.softmax(torch.add(slope * logits, minus_gumbel, alpha=-slope), dim=-1)


def _number(draws: Tensor) -> Tensor:
    """0, 1, … for the draws, (draws, 1, 1)."""
    return torch.arange(draws.shape[0], device=draws.device).reshape(-1, 1, 1)


class _LargestOfConcrete(torch.autograd.Function):
    """max_i c_i over the first ``level`` Concrete draws c_i, in few passes over all draws.

    The draws are the largest numbers of the whole method: 200 of 784 pixels for 1,000 images are
    0.6 GB. At τ = 1, with Gumbel noise −log(−log u), they are c_ij ∝ e^{logit_j} / −log u_ij.
    With g the gradient of the maximum and i(j) the draw that is largest at j, the gradient is::

        (g_j c_{i(j) j} − Σ_i c_ij s_i) / τ        s_i = Σ_{j: i(j) = i} g_j c_ij
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        logits: Tensor, noise: Tensor, level: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        if temperature == 1:
            weight = -torch.exp(logits - logits.amax(-1, keepdim=True))
            concrete = weight / torch.log(noise)  # where the noise is 0, 0
            tiny = torch.finfo(logits.dtype).tiny  # all of a draw may be 0
            total = concrete.sum(-1, keepdim=True).clamp_min(tiny)  # (draws, batch, 1)
            concrete = concrete / torch.where(_number(noise) < level, total, torch.inf)
        else:
            concrete = _concrete(logits, noise, temperature)
            concrete = torch.where(_number(noise) < level, concrete, 0.0)
        largest, which = concrete.max(0)
        return largest, which, concrete

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        ctx.temperature = inputs[3]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None
        largest, which, concrete = ctx.saved_tensors
        through = gradient * largest  # (batch, features)
        shares = torch.zeros_like(concrete[..., 0]).movedim(0, -1)  # (batch, draws)
        shares = shares.scatter_add(-1, which, through)
        joint = torch.einsum("bi,ibj->bj", shares, concrete)
        return (through - joint) / ctx.temperature, None, None, None


def _check_temperature(temperature: float) -> None:
    if not isinstance(temperature, int | float) or not temperature > 0:
        raise InputError(
            f"the temperature must be above 0 but is {temperature}; the paper's is 0.1."
        )
