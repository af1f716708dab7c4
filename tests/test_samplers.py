"""REBAR's gradient against exhaustive enumeration, in standard errors.

Four features have sixteen masks, so ∇ E[h(s)] is known exactly; the mean of many draws of the
estimator must agree with it within four of its own standard errors in each coordinate.
"""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from scipy.stats import kstest, logistic, norm
from torch import Tensor

from unmasked.errors import InputError
from unmasked.samplers import RebarBernoulli

FEATURES = 4
DRAWS = 200_000
LOGITS = {
    "moderate": [0.3, -1.0, 2.0, 0.0],
    "saturated": [6.0, -6.0, 0.5, -6.0],
    "all shown": [6.0, 6.0, 6.0, 6.0],
}
at_logits = pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS.keys())


def network_value(masks: Tensor) -> Tensor:
    """log q(y | x_s) of one row under a fixed small network: nonlinear, far from additive."""
    source = torch.Generator().manual_seed(7)
    first = 1.5 * torch.randn(2 * FEATURES, 8, dtype=torch.float64, generator=source)
    second = torch.randn(8, 3, dtype=torch.float64, generator=source)
    x = torch.tensor([1.2, -0.7, 0.4, 2.0], dtype=torch.float64)
    hidden = torch.tanh(torch.cat([x * masks, masks], -1) @ first)
    return torch.log_softmax(hidden @ second, -1)[..., 1]


def exact_gradient(logits: list[float]) -> Tensor:
    """∇ Σ_s p(s) h(s) over all sixteen masks."""
    a = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=FEATURES)), dtype=torch.float64)
    log_p = (masks * a - torch.nn.functional.softplus(a)).sum(1)
    (log_p.exp() * network_value(masks)).sum().backward()
    assert a.grad is not None
    return a.grad


def repeated(logits: list[float]) -> Tensor:
    """The same logits for every draw, each row with a gradient of its own."""
    return torch.tensor(logits, dtype=torch.float64).repeat(DRAWS, 1).requires_grad_()


def noise(sampler: RebarBernoulli, seed: int, count: int = DRAWS) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.rand(count, sampler.noise_width(FEATURES), dtype=torch.float64, generator=source)


def rebar_gradients(logits: list[float], temperature: float, seed: int) -> Tensor:
    """One estimate for each draw, (DRAWS, FEATURES)."""
    sampler, a = RebarBernoulli(temperature), repeated(logits)
    sampler(a, network_value, noise(sampler, seed)).sum().backward()
    assert a.grad is not None
    return a.grad


def score_function_gradients(logits: list[float], seed: int, shift: float = 0.0) -> Tensor:
    """The plain estimator [h(s) + shift] ∇ log p(s), to compare the variance with."""
    a = torch.tensor(logits, dtype=torch.float64)
    u = torch.rand(
        DRAWS, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    s = (u < torch.sigmoid(a)).double()
    return (network_value(s) + shift)[:, None] * (s - torch.sigmoid(a))


def standard_errors_off(samples: Tensor, truth: Tensor) -> Tensor:
    error = samples.std(0) / math.sqrt(len(samples))
    assert bool((error > 0).all())
    return (samples.mean(0) - truth).abs() / error


@at_logits
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_the_gradient_is_unbiased(logits: list[float], temperature: float) -> None:
    """For every temperature, also where features are nearly certain."""
    samples = rebar_gradients(logits, temperature, seed=0)
    assert standard_errors_off(samples, exact_gradient(logits)).max() < 4


@at_logits
def test_the_variance_is_below_the_plain_estimator(logits: list[float]) -> None:
    """Both are unbiased; REBAR at temperature 1 is quieter. The plain one is checked too."""
    plain = score_function_gradients(logits, seed=1)
    assert standard_errors_off(plain, exact_gradient(logits)).max() < 4
    ours = rebar_gradients(logits, 1.0, seed=2)
    assert ours.var(0).sum() < 0.8 * plain.var(0).sum()


def test_the_papers_temperature_is_quieter_where_values_are_far_from_zero() -> None:
    """At τ = 0.1 the relaxed slopes are steep, and REBAR wins only where |h| is large.

    A log-likelihood shifted by −10 (a poor predictor of a long row) is such a case: the plain
    estimator's variance grows with h², REBAR's does not.
    """
    logits = LOGITS["moderate"]
    plain = score_function_gradients(logits, seed=1, shift=-10)
    assert rebar_gradients(logits, 0.1, seed=2).var(0).sum() < 0.1 * plain.var(0).sum()


def test_a_constant_added_to_the_value_changes_no_gradient() -> None:
    """h(s) and h(σ(z̃/τ)) shift together, draw by draw, not only in the mean."""
    sampler = RebarBernoulli()
    gradients = []
    for shift in (0.0, -10.0):
        a = torch.tensor([LOGITS["moderate"]] * 500, dtype=torch.float64, requires_grad=True)
        value = sampler(a, lambda m, shift=shift: network_value(m) + shift, noise(sampler, 9, 500))
        gradients.append(torch.autograd.grad(value.sum(), a)[0])
    # a difference of numbers of about 10, times slopes of about 10, in double precision
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


def test_the_returned_number_is_the_value_of_the_mask() -> None:
    sampler = RebarBernoulli()
    a = torch.tensor([LOGITS["moderate"]] * 500, dtype=torch.float64, requires_grad=True)
    u = noise(sampler, 3, 500)
    mask, _, _ = sampler.draw(a, u)
    # adding and removing the carrier rounds once each, on numbers of about 10
    torch.testing.assert_close(
        sampler(a, network_value, u).detach(), network_value(mask), rtol=0, atol=1e-13
    )


def test_the_value_sees_no_more_than_masks_and_relaxed_masks() -> None:
    """One pass with the 0/1 mask, without gradient, and one with both relaxed masks."""
    seen: list[tuple[tuple[int, ...], bool]] = []

    def value(masks: Tensor) -> Tensor:
        seen.append((tuple(masks.shape), torch.is_grad_enabled()))
        return network_value(masks)

    sampler = RebarBernoulli()
    a = torch.zeros(5, FEATURES, dtype=torch.float64, requires_grad=True)
    sampler(a, value, noise(sampler, 4, 5))
    assert seen == [((1, 5, FEATURES), False), ((2, 5, FEATURES), True)]


@pytest.mark.parametrize("logit", [-2.0, 0.0, 3.0])
def test_the_coupled_variable_has_the_law_of_z_given_s(logit: float) -> None:
    """z ~ Logistic(logit) cut at 0; Kolmogorov–Smirnov, one false alarm in a million seeds."""
    sampler = RebarBernoulli(1.0)  # at temperature 1 the relaxed mask is σ(z), easily undone
    a = torch.full((20_000, FEATURES), logit, dtype=torch.float64)
    mask, relaxed, coupled = sampler.draw(a, noise(sampler, 5, 20_000))
    shown = mask.bool()
    below = float(logistic.cdf(0, loc=logit))  # P(s = 0)
    for name, z in (("z", torch.logit(relaxed)), ("coupled", torch.logit(coupled))):
        up = kstest(z[shown], lambda t: (logistic.cdf(t, loc=logit) - below) / (1 - below))
        down = kstest(z[~shown], lambda t: logistic.cdf(t, loc=logit) / below)
        assert up.pvalue > 1e-6, name
        assert down.pvalue > 1e-6, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_relaxed_masks_agree_with_the_mask(dtype: torch.dtype, temperature: float) -> None:
    """σ(z/τ) and σ(z̃/τ) exceed ½ exactly where s = 1, also at the edges of the noise."""
    sampler = RebarBernoulli(temperature)
    a = torch.linspace(-30, 30, 4000, dtype=dtype).reshape(-1, FEATURES)
    u = noise(sampler, 6, len(a)).to(dtype)
    u[::7, :] = 0.0
    u[::11, FEATURES:] = 1 - torch.finfo(dtype).eps
    mask, relaxed, coupled = sampler.draw(a, u)
    assert torch.equal(relaxed > 0.5, mask.bool())
    assert torch.equal(coupled > 0.5, mask.bool())


def test_a_mask_shows_a_feature_with_its_probability() -> None:
    sampler = RebarBernoulli()
    a = torch.tensor(LOGITS["moderate"], dtype=torch.float64)
    mask, _, _ = sampler.draw(a.repeat(DRAWS, 1), noise(sampler, 8))
    p = torch.sigmoid(a)
    z = (mask.mean(0) - p) / (p * (1 - p) / DRAWS).sqrt()
    assert z.abs().max() < norm.isf(1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4])
@pytest.mark.parametrize("edge", [0.0, 0.5, "largest"])
def test_extremes_stay_finite(dtype: torch.dtype, logit: float, edge: float | str) -> None:
    """Saturated logits and the first and last number of a uniform generator."""
    at = 1 - torch.finfo(dtype).eps / 2 if edge == "largest" else float(edge)
    sampler = RebarBernoulli()
    a = torch.full((3, FEATURES), logit, dtype=dtype, requires_grad=True)
    u = torch.full((3, sampler.noise_width(FEATURES)), at, dtype=dtype)
    result = sampler(a, lambda masks: network_value(masks.double()).to(dtype), u)
    result.sum().backward()
    assert bool(result.isfinite().all())
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_bad_temperature_is_refused_by_value(temperature: float) -> None:
    with pytest.raises(InputError, match=f"is {temperature}"):
        RebarBernoulli(temperature)
