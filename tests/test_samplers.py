"""The samplers' gradients against exhaustive enumeration, in standard errors.

Four features have sixteen masks, so ∇ E[h(s)] is known exactly; the mean of many draws of an
unbiased estimator must agree with it within four of its own standard errors in each coordinate.
The Concrete sampler is biased on purpose: its gradient is that of its own relaxed objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from scipy.stats import kstest, logistic, norm
from torch import Tensor

from unmasked.errors import InputError
from unmasked.masks.samplers import (
    ConcreteTopK,
    RebarBernoulli,
    Sampler,
    ScoreBernoulli,
    log_probability,
)

FEATURES = 4
DRAWS = 200_000
LOGITS = {
    "moderate": [0.3, -1.0, 2.0, 0.0],
    "saturated": [6.0, -6.0, 0.5, -6.0],
    "all shown": [6.0, 6.0, 6.0, 6.0],
}
at_logits = pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS.keys())
BERNOULLI = {"REBAR": RebarBernoulli(), "score function": ScoreBernoulli()}
each_bernoulli = pytest.mark.parametrize("sampler", BERNOULLI.values(), ids=BERNOULLI.keys())
ALL = {
    **BERNOULLI,
    "Concrete": ConcreteTopK(2),
    "soft Concrete": ConcreteTopK(3, 0.7),
    "Concrete at 1": ConcreteTopK(3, 1.0),
}
each_sampler = pytest.mark.parametrize("sampler", ALL.values(), ids=ALL.keys())
EVERY_MASK = torch.tensor(list(product([0.0, 1.0], repeat=FEATURES)), dtype=torch.float64)


def network_value(masks: Tensor) -> Tensor:
    """log q(y | x_s) of one row under a fixed small network: nonlinear, far from additive."""
    source = torch.Generator().manual_seed(7)
    first = 1.5 * torch.randn(2 * FEATURES, 8, dtype=torch.float64, generator=source)
    second = torch.randn(8, 3, dtype=torch.float64, generator=source)
    x = torch.tensor([1.2, -0.7, 0.4, 2.0], dtype=torch.float64)
    hidden = torch.tanh(torch.cat([x * masks, masks], -1) @ first)
    return torch.log_softmax(hidden @ second, -1)[..., 1]


EVERYTHING = float(network_value(EVERY_MASK[-1:]))  # log q(y | all of x), INVASE's baseline


def exact_gradient(logits: list[float]) -> Tensor:
    """∇ Σ_s p(s) h(s) over all sixteen masks."""
    a = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    log_p = (EVERY_MASK * a - torch.nn.functional.softplus(a)).sum(1)
    (log_p.exp() * network_value(EVERY_MASK)).sum().backward()
    assert a.grad is not None
    return a.grad


def exact_gradient_of_k_draws(logits: list[float], k: int) -> Tensor:
    """∇ E[h(s)] where s shows what k independent one-of-d draws name: all dᵏ of them."""
    a = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(a, -1)
    picks = torch.tensor(list(product(range(FEATURES), repeat=k)))  # (dᵏ, k)
    masks = torch.zeros(len(picks), FEATURES, dtype=torch.float64).scatter_(1, picks, 1.0)
    (p[picks].prod(1) * network_value(masks)).sum().backward()
    assert a.grad is not None
    return a.grad


def repeated(logits: list[float], count: int = DRAWS) -> Tensor:
    """The same logits for every draw, each row with a gradient of its own."""
    return torch.tensor(logits, dtype=torch.float64).repeat(count, 1).requires_grad_()


def noise(sampler: Sampler, seed: int, count: int = DRAWS, features: int = FEATURES) -> Tensor:
    draws, width = sampler.noise_shape(features)
    source = torch.Generator().manual_seed(seed)
    return torch.rand(draws, count, width, dtype=torch.float64, generator=source)


def level_of(sampler: Sampler) -> float:
    """A price, or the largest k."""
    return float(sampler.largest) if isinstance(sampler, ConcreteTopK) else 0.3


def gradients(
    sampler: Sampler,
    logits: list[float],
    seed: int,
    *,
    baseline: float = 0.0,
    value: Callable[[Tensor], Tensor] = network_value,
) -> Tensor:
    """One estimate for each draw, (DRAWS, FEATURES)."""
    a = repeated(logits)
    sampler(a, value, noise(sampler, seed), level_of(sampler), baseline).sum().backward()
    assert a.grad is not None
    return a.grad


def standard_errors_off(samples: Tensor, truth: Tensor) -> Tensor:
    error = samples.std(0) / math.sqrt(len(samples))
    assert bool((error > 0).all())
    return (samples.mean(0) - truth).abs() / error


# ---------------------------------------------------------------------- unbiased gradients


@at_logits
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_the_rebar_gradient_is_unbiased(logits: list[float], temperature: float) -> None:
    """For every temperature, also where features are nearly certain."""
    samples = gradients(RebarBernoulli(temperature), logits, seed=0)
    assert standard_errors_off(samples, exact_gradient(logits)).max() < 4


@at_logits
@pytest.mark.parametrize("baseline", [0.0, EVERYTHING, -10.0])
def test_the_score_function_gradient_is_unbiased_with_any_baseline(
    logits: list[float], baseline: float
) -> None:
    samples = gradients(ScoreBernoulli(), logits, seed=1, baseline=baseline)
    assert standard_errors_off(samples, exact_gradient(logits)).max() < 4


@at_logits
def test_a_baseline_leaves_the_expected_gradient_unchanged(logits: list[float]) -> None:
    """Exactly, not only in the mean of draws: Σ_s p(s) b ∇ log p(s) = 0.

    All sixteen masks weighted by their probability, through the sampler's own carrier.
    """
    found = []
    for baseline in (0.0, EVERYTHING, -10.0):
        a = repeated(logits, len(EVERY_MASK))
        weight = log_probability(a.detach(), EVERY_MASK).exp()
        draw = ScoreBernoulli().draw(a, noise(ScoreBernoulli(), 0, len(EVERY_MASK)), 0.0)
        value = network_value(EVERY_MASK) - baseline
        carrier = ScoreBernoulli().carrier(
            a, draw._replace(mask=EVERY_MASK), value, value.new_zeros(0, len(value))
        )
        (gradient,) = torch.autograd.grad((weight * carrier).sum(), a)
        found.append(gradient.sum(0))
    for one in found:  # sums of sixteen numbers of at most 10
        torch.testing.assert_close(one, exact_gradient(logits), rtol=0, atol=1e-14)


@at_logits
def test_what_everything_says_is_a_baseline_that_lowers_the_variance(logits: list[float]) -> None:
    """INVASE's b = log q(y | all of x). Measured share of the variance that is left here:
    0.63 (moderate), 0.75 (saturated), 0.60 (all shown); 0.02 to 0.07 for values lower by 10.
    """

    def lower(masks: Tensor) -> Tensor:
        return network_value(masks) - 10

    plain = gradients(ScoreBernoulli(), logits, seed=1)
    with_baseline = gradients(ScoreBernoulli(), logits, seed=1, baseline=EVERYTHING)
    assert with_baseline.var(0).sum() < 0.8 * plain.var(0).sum()
    plain = gradients(ScoreBernoulli(), logits, seed=1, value=lower)
    with_baseline = gradients(
        ScoreBernoulli(), logits, seed=1, value=lower, baseline=EVERYTHING - 10
    )
    assert with_baseline.var(0).sum() < 0.1 * plain.var(0).sum()


@at_logits
def test_rebars_variance_is_below_the_score_functions(logits: list[float]) -> None:
    """Both are unbiased; REBAR at temperature 1 is quieter (measured: 0.66, 0.11, 0.70)."""
    plain = gradients(ScoreBernoulli(), logits, seed=1)
    ours = gradients(RebarBernoulli(1.0), logits, seed=2)
    assert ours.var(0).sum() < 0.8 * plain.var(0).sum()


def test_the_papers_temperature_is_quieter_where_values_are_far_from_zero() -> None:
    """At τ = 0.1 the relaxed slopes are steep, and REBAR wins only where |h| is large.

    A log-likelihood shifted by −10 (a poor predictor of a long row) is such a case: the plain
    estimator's variance grows with h², REBAR's does not.
    """
    logits = LOGITS["moderate"]
    plain = gradients(ScoreBernoulli(), logits, seed=1, value=lambda m: network_value(m) - 10)
    ours = gradients(RebarBernoulli(0.1), logits, seed=2)
    assert ours.var(0).sum() < 0.1 * plain.var(0).sum()


@each_sampler
def test_a_constant_added_to_value_and_baseline_changes_no_gradient(sampler: Sampler) -> None:
    """Draw by draw, not only in the mean."""
    found = []
    for shift in (0.0, -10.0):
        a, u = repeated(LOGITS["moderate"], 500), noise(sampler, 9, 500)
        value = sampler(
            a, lambda m, shift=shift: network_value(m) + shift, u, level_of(sampler), shift
        )
        found.append(torch.autograd.grad(value.sum(), a)[0])
    # a difference of numbers of about 10, times slopes of about 10, in double precision
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


def test_rebar_needs_no_baseline() -> None:
    """h(s) and h(σ(z̃/τ)) shift together: a constant changes nothing, draw by draw."""
    sampler, found = RebarBernoulli(), []
    for baseline in (0.0, -10.0):
        a, u = repeated(LOGITS["moderate"], 500), noise(sampler, 9, 500)
        value = sampler(a, network_value, u, 0.0, baseline)
        found.append(torch.autograd.grad(value.sum(), a)[0])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- the relaxed gradient


def relaxed_objective(logits: Tensor, u: Tensor, temperature: float) -> Tensor:
    """Mean of h(max_j softmax((logits + g_j) / τ)) over rows, written again from the formula."""
    draws = [torch.softmax((logits - torch.log(-torch.log(own))) / temperature, -1) for own in u]
    mask = draws[0]
    for other in draws[1:]:
        mask = torch.maximum(mask, other)
    return network_value(mask).mean()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_concrete_gradient_is_that_of_its_own_relaxed_objective(k: int) -> None:
    """Central differences of the Monte Carlo mean under the same noise, 2,000 rows.

    A step δ = 1e-5 is wrong by δ²/6 · |h'''| in its slope, and h''' of slopes 1/τ = 2 stays far
    below 1e3, and by rounding / δ = 1e-11; a kink (two draws equal in a feature) has probability
    of order δ and would show as a much larger difference. Hence 1e-7.
    """
    temperature, step = 0.5, 1e-5
    sampler = ConcreteTopK(k, temperature)
    a = torch.tensor(LOGITS["moderate"], dtype=torch.float64, requires_grad=True)
    u = noise(sampler, 3, 2000)
    sampler(a.expand(2000, FEATURES), network_value, u, float(k)).mean().backward()
    assert a.grad is not None
    with torch.no_grad():
        by_hand = [
            (
                relaxed_objective(a + step * unit, u, temperature)
                - relaxed_objective(a - step * unit, u, temperature)
            )
            / (2 * step)
            for unit in torch.eye(FEATURES, dtype=torch.float64)
        ]
    torch.testing.assert_close(a.grad, torch.stack(by_hand), rtol=0, atol=1e-7)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_concrete_gradient_is_biased_and_less_so_at_a_low_temperature(k: int) -> None:
    """Against all dᵏ outcomes of k one-of-d draws, whose gradient it stands in for.

    Measured distance from the exact gradient (of length 0.59 to 0.79): 0.20 to 0.24 at τ = 0.5,
    0.045 to 0.055 at τ = 0.1; its standard error (0.003 and 0.008) is far below.
    """
    exact = exact_gradient_of_k_draws(LOGITS["moderate"], k)
    off = {}
    for temperature in (2.0, 0.5, 0.1):
        samples = gradients(ConcreteTopK(k, temperature), LOGITS["moderate"], seed=3)
        error = float((samples.std(0) / math.sqrt(DRAWS)).norm())
        off[temperature] = (float((samples.mean(0) - exact).norm()), error)
    assert standard_errors_off(samples, exact).max() > 4  # still there at τ = 0.1
    for warm, cold in ((2.0, 0.5), (0.5, 0.1)):
        difference = off[warm][0] - off[cold][0]
        assert difference > 4 * math.hypot(off[warm][1], off[cold][1])
    assert off[0.1][0] < off[0.5][0] / 2


# ---------------------------------------------------------------------- what a call gives


@each_sampler
def test_the_returned_number_is_the_value_of_the_mask(sampler: Sampler) -> None:
    a, u = repeated(LOGITS["moderate"], 500), noise(sampler, 3, 500)
    mask = sampler.draw(a, u, level_of(sampler)).mask
    result = sampler(a, network_value, u, level_of(sampler), -2.0)
    # adding and removing the carrier rounds once each, on numbers of about 10
    torch.testing.assert_close(result, network_value(mask), rtol=0, atol=1e-13)


@each_sampler
def test_the_value_sees_the_mask_and_then_the_others(sampler: Sampler) -> None:
    """REBAR asks for two more masks, in one pass; the score function and Concrete for none."""
    seen: list[tuple[int, ...]] = []

    def value(masks: Tensor) -> Tensor:
        seen.append(tuple(masks.shape))
        return network_value(masks)

    sampler(repeated(LOGITS["moderate"], 5), value, noise(sampler, 4, 5), level_of(sampler))
    others = [(2, 5, FEATURES)] if isinstance(sampler, RebarBernoulli) else []
    assert seen == [(1, 5, FEATURES), *others]


@each_bernoulli
def test_the_gradient_of_a_hard_mask_does_not_pass_through_its_value(sampler: Sampler) -> None:
    """A predictor learns from the mask; the selector learns from the carrier alone."""
    a = repeated(LOGITS["moderate"], 5)
    draw = sampler.draw(a, noise(sampler, 4, 5), 0.0)
    assert not draw.mask.requires_grad
    assert set(draw.mask.unique().tolist()) <= {0.0, 1.0}


@each_sampler
def test_a_row_does_not_feel_the_other_rows(sampler: Sampler) -> None:
    u = noise(sampler, 11, 6)
    a = torch.randn(6, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    level = level_of(sampler)
    together, alone = sampler.draw(a, u, level), sampler.draw(a[2:3], u[:, 2:3], level)
    assert torch.equal(together.mask[2:3], alone.mask)
    assert torch.equal(together.others[:, 2:3], alone.others)


# ---------------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("logit", [-2.0, 0.0, 3.0])
def test_the_coupled_variable_has_the_law_of_z_given_s(logit: float) -> None:
    """z ~ Logistic(logit) cut at 0; Kolmogorov–Smirnov, one false alarm in a million seeds."""
    sampler = RebarBernoulli(1.0)  # at temperature 1 the relaxed mask is σ(z), easily undone
    a = torch.full((20_000, FEATURES), logit, dtype=torch.float64)
    mask, (relaxed, coupled) = sampler.draw(a, noise(sampler, 5, 20_000), 0.0)
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
    u[:, ::7] = 0.0
    u[1, ::11] = 1 - torch.finfo(dtype).eps
    mask, (relaxed, coupled) = sampler.draw(a, u, 0.0)
    assert torch.equal(relaxed > 0.5, mask.bool())
    assert torch.equal(coupled > 0.5, mask.bool())


@each_bernoulli
def test_a_mask_shows_a_feature_with_its_probability(sampler: Sampler) -> None:
    a = torch.tensor(LOGITS["moderate"], dtype=torch.float64)
    mask = sampler.draw(a.repeat(DRAWS, 1), noise(sampler, 8), 0.0).mask
    p = torch.sigmoid(a)
    z = (mask.mean(0) - p) / (p * (1 - p) / DRAWS).sqrt()
    assert z.abs().max() < norm.isf(1e-6)


def test_the_largest_entry_of_a_concrete_draw_is_a_feature_with_its_softmax_probability() -> None:
    sampler, a = ConcreteTopK(1), torch.tensor(LOGITS["moderate"], dtype=torch.float64)
    mask = sampler.draw(a.repeat(DRAWS, 1), noise(sampler, 8), 1.0).mask
    named = torch.nn.functional.one_hot(mask.argmax(1), FEATURES).double().mean(0)
    p = torch.softmax(a, -1)
    z = (named - p) / (p * (1 - p) / DRAWS).sqrt()
    assert z.abs().max() < norm.isf(1e-6)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_relaxed_mask_lies_between_0_and_1_and_shows_no_more_than_k(
    k: int, temperature: float
) -> None:
    """Each draw sums to 1, so their maximum to at most k; at 1/d each where τ is large."""
    sampler = ConcreteTopK(k, temperature)
    mask = sampler.draw(repeated(LOGITS["moderate"], 1000), noise(sampler, 2, 1000), float(k)).mask
    assert mask.shape == (1000, FEATURES)
    assert bool(((mask >= 0) & (mask <= 1)).all())
    rounding = 1e-14  # of a softmax and a sum of a few numbers below 1
    assert float(mask.detach().sum(1).max()) <= k + rounding
    assert float(mask.detach().sum(1).min()) >= 1 - rounding


@pytest.mark.parametrize("k", [1, 2, 3])
def test_draws_beyond_k_are_blanked(k: int) -> None:
    """Value and gradient for k do not depend on how many draws other settings need."""
    found = []
    for largest in (k, 3, 7):
        sampler, a = ConcreteTopK(largest, 0.5), repeated(LOGITS["moderate"], 50)
        u = noise(ConcreteTopK(7), 12, 50)[:largest]
        result = sampler(a, network_value, u, torch.tensor(float(k), dtype=torch.float64))
        found.append((result.detach(), torch.autograd.grad(result.sum(), a)[0]))
    for value, gradient in found[1:]:
        assert torch.equal(value, found[0][0])
        assert torch.equal(gradient, found[0][1])


# ---------------------------------------------------------------------- cost, price, selection


@each_bernoulli
@pytest.mark.parametrize("price", [0.0, 0.7])
def test_the_cost_is_the_price_of_the_expected_fraction(sampler: Sampler, price: float) -> None:
    """λ · E[fraction], exactly: the sum over all masks; twice the features cost the same."""
    logits = torch.tensor([LOGITS["moderate"], LOGITS["saturated"]], dtype=torch.float64)
    by_hand = [
        (log_probability(own.expand(16, -1), EVERY_MASK).exp() * EVERY_MASK.mean(1)).sum()
        for own in logits
    ]
    cost = sampler.cost(logits, price)
    torch.testing.assert_close(cost, price * torch.stack(by_hand).mean(), rtol=0, atol=1e-15)
    torch.testing.assert_close(sampler.cost(torch.cat([logits, logits], 1), price), cost)
    torch.testing.assert_close(sampler.cost(logits, 2 * price), 2 * cost)
    fraction = torch.tensor(0.25, dtype=torch.float64)
    assert float(sampler.price(fraction, price)) == price / 4


def test_the_cost_of_showing_everything_for_sure_is_the_price() -> None:
    sure = torch.full((2, 3), 60.0, dtype=torch.float64)
    assert float(ScoreBernoulli().cost(sure, 0.7)) == pytest.approx(0.7)
    assert float(ScoreBernoulli().cost(-sure, 0.7)) == pytest.approx(0.0, abs=1e-25)


def test_k_features_cost_nothing_but_are_k() -> None:
    sampler, logits = ConcreteTopK(3), torch.zeros(2, FEATURES, dtype=torch.float64)
    assert float(sampler.cost(logits, 3.0)) == 0
    assert float(sampler.price(torch.tensor(0.75), 3.0)) == 0


@each_bernoulli
def test_a_feature_is_selected_when_its_probability_exceeds_a_half(sampler: Sampler) -> None:
    logits = torch.tensor([[-torch.inf, -3.0, -1e-30, 0.0, 1e-30, 3.0, torch.inf]])
    expected = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]])
    assert torch.equal(sampler.select(logits, 0.1), expected)


TIES = {
    "all different": ([0.1, 0.4, 0.3, 0.2], [1, 2, 3, 0]),
    "all equal": ([0.5, 0.5, 0.5, 0.5], [0, 1, 2, 3]),
    "two pairs": ([0.1, 0.7, 0.1, 0.7], [1, 3, 0, 2]),
    "both zeros": ([-0.0, 0.0, -1.0, 0.0], [0, 1, 3, 2]),
    "one ruled out": ([-math.inf, 0.0, -5.0, 0.0], [1, 3, 2, 0]),
    "all but one ruled out": ([-math.inf, -math.inf, -5.0, -math.inf], [2, 0, 1, 3]),
}


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize(("logits", "order"), TIES.values(), ids=TIES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_k_are_shown_and_of_equal_ones_the_first(
    logits: list[float], order: list[int], k: int, dtype: torch.dtype
) -> None:
    shown = ConcreteTopK(4).select(torch.tensor([logits], dtype=dtype), float(k))
    assert torch.nonzero(shown[0]).flatten().tolist() == sorted(order[:k])
    assert shown.dtype == dtype


def test_exactly_k_are_shown_in_a_wide_row_with_many_ties() -> None:
    """Unstable sorts keep the order of short rows only."""
    logits = torch.zeros(5, 2000, dtype=torch.float32)
    logits[:, ::3] = 1.0
    for k in (1, 600, 900, 2000):
        shown = ConcreteTopK(2000).select(logits, float(k))
        assert shown.sum(1).tolist() == [k] * 5
        expected = sorted(range(2000), key=lambda j: (-logits[0, j].item(), j))[:k]
        assert torch.nonzero(shown[0]).flatten().tolist() == sorted(expected)


# ---------------------------------------------------------------------- the edges


@each_sampler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4, "both"])
@pytest.mark.parametrize("edge", [0.0, 0.5, "largest"])
def test_extremes_stay_finite(
    sampler: Sampler, dtype: torch.dtype, logit: float | str, edge: float | str
) -> None:
    """Saturated logits and the first and last number of a uniform generator."""
    at = 1 - torch.finfo(dtype).eps / 2 if edge == "largest" else float(edge)
    both = torch.tensor([1e4, -1e4] * (FEATURES // 2), dtype=dtype)
    a = (both if logit == "both" else torch.full((FEATURES,), float(logit), dtype=dtype)).repeat(
        3, 1
    )
    a.requires_grad_()
    u = torch.full_like(noise(sampler, 0, 3), at, dtype=dtype)
    level = level_of(sampler)
    result = sampler(a, lambda masks: network_value(masks.double()).to(dtype), u, level, -1.0)
    (result.sum() + sampler.cost(a, level)).backward()
    assert bool(result.isfinite().all())
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())
    assert bool((sampler.draw(a, u, level).mask >= 0).all())


@pytest.mark.parametrize("make", [RebarBernoulli, lambda t: ConcreteTopK(2, t)])
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_bad_temperature_is_refused_by_value(
    make: Callable[[float], Sampler], temperature: float
) -> None:
    with pytest.raises(InputError, match=f"is {temperature}"):
        make(temperature)


@pytest.mark.parametrize("largest", [0, -3])
def test_no_draws_are_refused_by_value(largest: int) -> None:
    with pytest.raises(InputError, match=f"k must be .* but is {largest}"):
        ConcreteTopK(largest)


def concrete_as_written(logits: Tensor, u: Tensor, k: float, temperature: float) -> Tensor:
    """max over the first k draws of softmax((logits + Gumbel) / τ), all by autograd."""
    gumbel = -torch.log(-torch.log(u))
    return torch.softmax((logits + gumbel) / temperature, dim=-1)[: int(k)].amax(0)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("k", [1.0, 3.0, 7.0])
def test_the_concrete_pass_by_hand_is_the_formula(temperature: float, k: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(20, 11, dtype=torch.float64, requires_grad=True)
    u = torch.rand(7, 20, 11, dtype=torch.float64)
    weights = torch.randn(20, 11, dtype=torch.float64)
    mask = ConcreteTopK(7, temperature).draw(logits, u, torch.tensor(k)).mask
    expected = concrete_as_written(logits, u, k, temperature)
    torch.testing.assert_close(mask, expected, rtol=0, atol=1e-13)
    found, wanted = (torch.autograd.grad((weights * m).sum(), logits)[0] for m in (mask, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_the_concrete_pass_maps_over_settings_of_different_k() -> None:
    torch.manual_seed(1)
    sampler, ks = ConcreteTopK(7, 1.0), torch.tensor([1.0, 3.0, 5.0, 7.0])
    logits = torch.randn(4, 20, 11, dtype=torch.float64, requires_grad=True)
    u = torch.rand(7, 20, 11, dtype=torch.float64)
    weights = torch.randn(20, 11, dtype=torch.float64)
    mask = torch.vmap(lambda a, k: sampler.draw(a, u, k).mask)(logits, ks)
    found = torch.autograd.grad((weights * mask).sum(), logits)[0]
    for i, k in enumerate(ks):
        expected = concrete_as_written(logits[i], u, float(k), 1.0)
        torch.testing.assert_close(mask[i], expected, rtol=0, atol=1e-13)
        wanted = torch.autograd.grad((weights * expected).sum(), logits)[0][i]
        torch.testing.assert_close(found[i], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_noise_of_zero_and_hopeless_logits_give_numbers(temperature: float) -> None:
    """A uniform number can be 0, and then the only logit worth anything may be the one it hits."""
    logits = torch.tensor([[0.0, -500.0, -500.0]], requires_grad=True)
    u = torch.tensor([[[0.0, 0.5, 0.5]], [[0.0, 0.0, 0.0]]])
    mask = ConcreteTopK(2, temperature).draw(logits, u, torch.tensor(2.0)).mask
    gradient = torch.autograd.grad(mask.sum(), logits)[0]
    assert torch.isfinite(mask).all()
    assert torch.isfinite(gradient).all()
