"""Samplers that ask about 0/1 masks alone, against exhaustive enumeration.

Where a sampler's noise can be enumerated, its mean gradient is the exact one to rounding.
Elsewhere the mean of many draws must agree with it in standard errors, one false alarm in a million
coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from small_runs import FAST, SIX, TINY, train
from small_tables import assert_one_sentence, quick, rows
from torch import Tensor
from torch.nn.functional import softplus

from unmasked import RealX, Zero
from unmasked.errors import InputError
from unmasked.masks.binary_samplers import ArmsBernoulli, DisarmBernoulli, LocalExpectation
from unmasked.masks.distributions import Bernoulli, UniformSize
from unmasked.masks.maskers import Token
from unmasked.masks.samplers import (
    BernoulliSampler,
    ConcreteTopK,
    Draw,
    RebarBernoulli,
    Sampler,
    ScoreBernoulli,
    log_probability,
)
from unmasked.reproduce.recipes import preset
from unmasked.training import Settings, methods
from unmasked.training.stack import over_leading

DRAWS = 100_000
SAMPLERS: dict[str, BernoulliSampler] = {
    "DisARM": DisarmBernoulli(),
    "ARMS, 2": ArmsBernoulli(2),
    "ARMS, 4": ArmsBernoulli(4),
    "ARMS, 3, Dirichlet": ArmsBernoulli(3, "dirichlet"),
    "ARMS, 4, Dirichlet": ArmsBernoulli(4, "dirichlet"),
    "leave one out": ArmsBernoulli(3, "independent"),
    "local expectation": LocalExpectation(),
    "local expectation, 3 flips": LocalExpectation(3),
    "local expectation, 1 flip": LocalExpectation(1),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
coupled = {name: own for name, own in SAMPLERS.items() if not isinstance(own, LocalExpectation)}
each_coupled = pytest.mark.parametrize("sampler", coupled.values(), ids=coupled.keys())
LOGITS = {
    "moderate": [0.3, -1.0, 2.0, 0.0],
    "saturated": [6.0, -6.0, 0.5, -6.0],
    "all shown": [6.0, 6.0, 6.0, 6.0],
    "all at one half": [0.0, 0.0, 0.0],
    "equal": [-1.3, -1.3, -1.3, -1.3, -1.3],
}
at_logits = pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS.keys())
Value = Callable[[Tensor], Tensor]


def network_value(masks: Tensor) -> Tensor:
    """log q(y | x_s) of one row under a fixed small network: nonlinear, far from additive."""
    features, source = masks.shape[-1], torch.Generator().manual_seed(7)
    first = 1.5 * torch.randn(features, 8, dtype=torch.float64, generator=source)
    second = torch.randn(8, 3, dtype=torch.float64, generator=source)
    hidden = torch.tanh((masks.double() - 0.4) @ first)
    return torch.log_softmax(hidden @ second, -1)[..., 1].to(masks.dtype)


def parity(masks: Tensor) -> Tensor:
    """Nothing but an interaction of all features, and far from zero."""
    return (masks.sum(-1) % 2) - 5.0


each_value = pytest.mark.parametrize("value", [network_value, parity])


def every_mask(features: int) -> Tensor:
    return torch.tensor(list(product([0.0, 1.0], repeat=features)), dtype=torch.float64)


def exact_gradient(logits: list[float], value: Value = network_value) -> Tensor:
    """∇ Σ_s p(s) h(s) over all masks."""
    a = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    masks = every_mask(len(logits))
    log_p = (masks * a - softplus(a)).sum(1)
    (gradient,) = torch.autograd.grad((log_p.exp() * value(masks)).sum(), a)
    return gradient


def gradients(sampler: Sampler, logits: list[float], u: Tensor, value: Value) -> Tensor:
    """One estimate for each row of noise u, (rows, features)."""
    a = torch.tensor(logits, dtype=torch.float64).repeat(u.shape[1], 1).requires_grad_()
    (gradient,) = torch.autograd.grad(sampler(a, value, u, 0.1, -2.0).sum(), a)
    return gradient


def noise(sampler: Sampler, features: int, count: int, seed: int = 0) -> Tensor:
    draws, width = sampler.noise_shape(features)
    source = torch.Generator().manual_seed(seed)
    return torch.rand(draws, count, width, dtype=torch.float64, generator=source)


# ---------------------------------------------------------------------- unbiased gradients


@each_sampler
@at_logits
@each_value
def test_the_gradient_is_unbiased(
    sampler: BernoulliSampler, logits: list[float], value: Value
) -> None:
    samples = gradients(sampler, logits, noise(sampler, len(logits), DRAWS), value)
    error = samples.std(0) / math.sqrt(DRAWS)
    assert bool((error > 0).all())
    assert ((samples.mean(0) - exact_gradient(logits, value)).abs() / error).max() < norm.isf(5e-7)


EIGHTHS = [1 / 8, 1 / 2, 3 / 4]  # probabilities; with a grid of noise in steps of 1/8, all of it


def cells(*per_feature: list[tuple[float, ...]]) -> Tensor:
    """All combinations of what each feature's noise may be: (draws, combinations, features)."""
    combined = list(product(*per_feature))
    return torch.tensor(combined, dtype=torch.float64).movedim(2, 0)


@pytest.mark.parametrize(
    ("sampler", "steps"),
    [
        (DisarmBernoulli(), 8),
        (LocalExpectation(), 8),
        (ArmsBernoulli(2), 8),
        (ArmsBernoulli(3), 8),
        (ArmsBernoulli(4), 2),
    ],
    ids=str,
)
@each_value
def test_the_mean_over_all_noise_is_the_exact_gradient(
    sampler: BernoulliSampler, steps: int, value: Value
) -> None:
    """Masks change at multiples of 1/8 alone, so one number of each cell stands for all of it."""
    logits = [math.log(p / (1 - p)) for p in EIGHTHS]
    where = [(i + 0.5) / steps for i in range(steps)]
    own: list[tuple[float, ...]] = [(u,) for u in where]
    if isinstance(sampler, ArmsBernoulli):
        orders = permutations([i / sampler.draws for i in range(sampler.draws)])
        own = [(u, *order) for order in orders for u in where]
    found = []
    for first in own:  # a third at a time keeps memory small
        samples = gradients(sampler, logits, cells([first], own, own), value)
        found.append(samples.mean(0))
    mean = torch.stack(found).mean(0)
    # sums of up to 10^5 numbers of order 1, in double precision
    torch.testing.assert_close(mean, exact_gradient(logits, value), rtol=0, atol=1e-12)


@each_coupled
def test_every_mask_shows_a_feature_with_its_probability(sampler: BernoulliSampler) -> None:
    """Also where p is exactly ½, and independently of the other features of that mask."""
    a = torch.tensor([0.0, -2.0, 3.0, 0.7], dtype=torch.float64)
    draw = sampler.draw(a.expand(DRAWS, -1), noise(sampler, 4, DRAWS), 0.0)
    p, sure = torch.sigmoid(a), norm.isf(1e-6)
    for mask in (draw.mask, *draw.others):
        z = (mask.mean(0) - p) / (p * (1 - p) / DRAWS).sqrt()
        assert z.abs().max() < sure
        standard = (mask - p) / (p * (1 - p)).sqrt()
        correlation = standard.T @ standard / DRAWS
        assert correlation.fill_diagonal_(0).abs().max() < sure / math.sqrt(DRAWS)


@pytest.mark.parametrize("coupling", ["systematic", "dirichlet"])
@pytest.mark.parametrize("draws", [2, 3, 8])
def test_the_shrinkage_is_that_of_the_mean_correlation(draws: int, coupling: str) -> None:
    """Of all pairs of masks; ρ = 1 - 1/shrinkage is known to about 1/√draws of noise."""
    sampler = ArmsBernoulli(draws, coupling)
    a = torch.tensor([0.0, -0.5, 0.5, 1.2, -2.5, 4.0], dtype=torch.float64)
    draw = sampler.draw(a.expand(DRAWS, -1), noise(sampler, 6, DRAWS), 0.0)
    p = torch.sigmoid(a)
    z = (torch.cat([draw.mask.unsqueeze(0), draw.others]) - p) / (p * (1 - p)).sqrt()
    pairs = (z.sum(0) ** 2 - (z**2).sum(0)) / (draws * (draws - 1))  # (rows, features)
    rho = 1 - 1 / sampler.shrinkage(a.unsqueeze(0))[0]
    error = pairs.std(0) / math.sqrt(DRAWS) + 1e-12
    assert ((pairs.mean(0) - rho) / error).abs().max() < norm.isf(1e-6)
    assert bool((rho < 0).all())


def test_no_coupling_keeps_masks_further_apart_than_the_systematic_one() -> None:
    a = torch.linspace(-6, 6, 101, dtype=torch.float64).unsqueeze(0)
    for draws in (2, 3, 4, 8):
        best = ArmsBernoulli(draws).shrinkage(a)
        other = ArmsBernoulli(draws, "dirichlet").shrinkage(a)
        assert bool((best <= other + 1e-12).all())
        assert bool((best >= (draws - 1) / draws - 1e-12).all())  # K masks cannot be further apart
    for same in (ArmsBernoulli(2), ArmsBernoulli(2, "dirichlet")):
        torch.testing.assert_close(same.shrinkage(a), DisarmBernoulli().shrinkage(a))


def test_disarm_is_its_formula() -> None:
    a = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64)
    u = noise(DisarmBernoulli(), 4, 500)
    one, other = (u[0] < torch.sigmoid(a)).double(), (1 - u[0] < torch.sigmoid(a)).double()
    gain = 0.5 * (network_value(one) - network_value(other)).unsqueeze(1)
    by_hand = gain * (one - other) * torch.sigmoid(a.abs())
    found = gradients(DisarmBernoulli(), a.tolist(), u, network_value)
    torch.testing.assert_close(found, by_hand, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------- variance


def second_moment(logits: list[float], value: Value, sampler: BernoulliSampler) -> Tensor:
    """E ĝ² of each feature, exactly: each mask through the sampler's own carrier, weighted."""
    a = torch.tensor(logits, dtype=torch.float64).repeat(2 ** len(logits), 1).requires_grad_()
    masks = every_mask(len(logits))
    weight = log_probability(a.detach(), masks).exp()
    others = masks.new_zeros(0, *masks.shape)
    if isinstance(sampler, LocalExpectation):
        others = (masks - torch.eye(len(logits), dtype=masks.dtype).unsqueeze(1)).abs()
    carrier = sampler.carrier(a, Draw(masks, others), value(masks), value(others))
    (gradient,) = torch.autograd.grad(carrier.sum(), a)
    return (weight.unsqueeze(1) * gradient**2).sum(0)


@at_logits
@each_value
@pytest.mark.parametrize("baseline", [0.0, -1.0, -5.0])
def test_local_expectation_is_never_louder_than_the_score_function(
    logits: list[float], value: Value, baseline: float
) -> None:
    """Rao and Blackwell: ĝ_j is the score function's expectation given the other features.

    Exactly and for each feature, whatever the baseline; means are equal, so second moments will do.
    """
    local = second_moment(logits, value, LocalExpectation())
    score = second_moment(logits, lambda masks: value(masks) - baseline, ScoreBernoulli())
    assert bool((local <= score + 1e-14).all())
    assert local.sum() < score.sum()


def test_an_additive_value_leaves_local_expectation_no_variance() -> None:
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    u = noise(LocalExpectation(), 4, 100)
    found = gradients(LocalExpectation(), LOGITS["moderate"], u, lambda masks: masks @ weights)
    expected = exact_gradient(LOGITS["moderate"], lambda masks: masks @ weights)
    torch.testing.assert_close(found, expected.expand(100, -1), rtol=0, atol=1e-13)


# ---------------------------------------------------------------------- what a call gives


@each_sampler
def test_a_constant_added_to_the_value_changes_no_gradient(sampler: BernoulliSampler) -> None:
    u = noise(sampler, 4, 500)
    plain = gradients(sampler, LOGITS["moderate"], u, network_value)
    shifted = gradients(sampler, LOGITS["moderate"], u, lambda masks: network_value(masks) - 10)
    torch.testing.assert_close(plain, shifted, rtol=0, atol=1e-12)


@each_sampler
def test_only_masks_of_0_and_1_are_asked_about(sampler: BernoulliSampler) -> None:
    asked: list[Tensor] = []

    def value(masks: Tensor) -> Tensor:
        asked.append(masks)
        return network_value(masks)

    gradients(sampler, LOGITS["moderate"], noise(sampler, 4, 50), value)
    assert {float(v) for masks in asked for v in masks.unique()} == {0.0, 1.0}
    assert not any(masks.requires_grad for masks in asked)
    flips = getattr(sampler, "flips", None) or 4  # features
    others = flips if isinstance(sampler, LocalExpectation) else getattr(sampler, "draws", 2) - 1
    assert [tuple(masks.shape) for masks in asked] == [(1, 50, 4), (others, 50, 4)]


@each_sampler
def test_a_row_does_not_feel_the_other_rows(sampler: BernoulliSampler) -> None:
    u = noise(sampler, 4, 6)
    a = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together, alone = sampler.draw(a, u, 0.1), sampler.draw(a[2:3], u[:, 2:3], 0.1)
    assert torch.equal(together.mask[2:3], alone.mask)
    assert torch.equal(together.others[:, 2:3], alone.others)


@pytest.mark.parametrize("flips", [None, 1, 3, 4, 10])
def test_each_question_of_local_expectation_flips_one_feature(flips: int | None) -> None:
    sampler = LocalExpectation(flips)
    a = torch.randn(200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draw = sampler.draw(a, noise(sampler, 4, 200), 0.1)
    assert bool(((draw.mask - draw.others).abs().sum(-1) == 1).all())
    if flips not in (1, 3):  # each feature once
        assert len(draw.others) == 4
        assert bool(((draw.mask - draw.others).abs().sum(0) == 1).all())


def test_flips_go_to_features_in_proportion_to_how_undecided_they_are() -> None:
    """Equal steps: each feature gets its share of the flips, rounded up or down."""
    a = torch.tensor([[0.0, 1.0, -3.0, 8.0, 0.2, -0.4, 2.0]], dtype=torch.float64)
    sampler, p = LocalExpectation(5), torch.sigmoid(a)
    share = 5 * p * (1 - p) / (p * (1 - p)).sum()
    draw = sampler.draw(a.expand(2000, -1), noise(sampler, 7, 2000), 0.1)
    count = (draw.mask - draw.others).abs().sum(0)  # (rows, features)
    rounding = 1e-9
    assert bool((count >= torch.floor(share - rounding)).all())
    assert bool((count <= torch.ceil(share + rounding)).all())


# ---------------------------------------------------------------------- the edges


@each_sampler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4, "both"])
@pytest.mark.parametrize("edge", [0.0, 0.5, "largest"])
def test_extremes_stay_finite(
    sampler: BernoulliSampler, dtype: torch.dtype, logit: float | str, edge: float | str
) -> None:
    """Saturated logits, p of exactly ½, and the first and last number of a generator."""
    at = 1 - torch.finfo(dtype).eps / 2 if edge == "largest" else float(edge)
    both = [1e4, -1e4, 1e4, -1e4] if logit == "both" else [float(logit)] * 4
    a = torch.tensor([both] * 3, dtype=dtype, requires_grad=True)
    u = torch.full_like(noise(sampler, 4, 3), at, dtype=dtype)
    result = sampler(a, network_value, u, 0.3, -1.0)
    (gradient,) = torch.autograd.grad(result.sum() + sampler.cost(a, 0.3), a)
    assert bool(result.isfinite().all())
    assert bool(gradient.isfinite().all())
    draw = sampler.draw(a, u, 0.3)
    asked = torch.cat([draw.mask.unsqueeze(0), draw.others]).detach()
    assert set(asked.unique().tolist()) <= {0.0, 1.0}
    if abs(both[0]) > 40 and isinstance(sampler, ArmsBernoulli | DisarmBernoulli) and at == 0.5:
        assert bool((asked == (a > 0)).all())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ArmsBernoulli(1), "above 1 but is 1"),
        (lambda: ArmsBernoulli(4, "gauss"), "independent but is 'gauss'"),
        (lambda: LocalExpectation(0), "above 0 or None but is 0"),
        (lambda: LocalExpectation(True), "above 0 or None but is True"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_value(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- in the engine


@each_sampler
def test_a_sampler_maps_over_worlds_and_settings(sampler: BernoulliSampler) -> None:
    """Each setting's masks and gradient are those that it has alone."""
    source = torch.Generator().manual_seed(2)
    a = torch.randn(2, 3, 7, 4, dtype=torch.float64, generator=source).requires_grad_()
    u = torch.stack([noise(sampler, 4, 7, seed) for seed in (3, 4)])  # one of each world
    levels = torch.tensor([[0.0, 0.1, 0.3]], dtype=torch.float64)
    draw = over_leading(sampler.draw, 2, a, u.unsqueeze(1), levels)
    values = network_value(draw.mask), network_value(draw.others)
    carrier = over_leading(sampler.carrier, 2, a, draw, *values)
    (found,) = torch.autograd.grad(carrier.sum(), a)
    for world, setting in product(range(2), range(3)):
        alone = a.detach()[world, setting].requires_grad_()
        own = sampler.draw(alone, u[world], 0.1)
        assert torch.equal(draw.mask[world, setting], own.mask)
        assert torch.equal(draw.others[world, setting], own.others)
        one = sampler.carrier(alone, own, network_value(own.mask), network_value(own.others))
        (wanted,) = torch.autograd.grad(one.sum(), alone)
        torch.testing.assert_close(found[world, setting], wanted, rtol=0, atol=1e-12)


@each_sampler
def test_stacked_equals_separate(sampler: BernoulliSampler) -> None:
    """Six settings in one program as each by itself, in double precision."""
    method = methods.real_x(Token(), Bernoulli(), TINY, TINY, sampler)
    together = train(method, SIX, FAST)
    for number, (seed, level) in enumerate(product(SIX.seeds, SIX.levels)):
        alone = train(method, Settings((level,), (seed,)), FAST)
        assert together.scores[number] == pytest.approx(alone.scores[0], abs=1e-10)
        one, other = together.selectors[number].state_dict(), alone.selectors[0].state_dict()
        for key, weights in one.items():
            torch.testing.assert_close(weights, other[key], rtol=0, atol=1e-10)


# ---------------------------------------------------------------------- of RealX


@each_sampler
def test_real_x_learns_by_any_of_them_and_is_saved_with_it(
    sampler: BernoulliSampler, tmp_path: Path
) -> None:
    x, y = rows(80)
    fitted = quick(search=False, sampler=sampler, sparsity=[0.01, 0.3]).fit(x, y)
    assert fitted.choice_ is None
    fitted.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert loaded.sampler == sampler
    assert np.array_equal(loaded.explain(x).masks, fitted.explain(x).masks)
    copy = clone(fitted)
    assert copy.get_params()["sampler"] == sampler
    again = copy.fit(x, y).explain(x)
    assert np.array_equal(again.probabilities, fitted.explain(x).probabilities)


def test_the_sampler_moves_the_selector() -> None:
    x, y = rows(80)
    found = [
        quick(search=False, sampler=sampler).fit(x, y).explain(x).probabilities
        for sampler in (RebarBernoulli(), LocalExpectation())
    ]
    assert not np.array_equal(*found)


class Own(ScoreBernoulli):
    """A user's sampler."""


def test_a_sampler_of_ones_own_trains_and_is_not_needed_for_explaining(tmp_path: Path) -> None:
    x, y = rows(80)
    fitted = quick(search=False, sampler=Own()).fit(x, y)
    fitted.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert loaded.sampler is None
    assert np.array_equal(loaded.explain(x).masks, fitted.explain(x).masks)


@pytest.mark.parametrize("sampler", [ConcreteTopK(2), "arms", ArmsBernoulli])
def test_what_is_no_sampler_at_a_price_is_refused(sampler: Any) -> None:
    with pytest.raises(InputError, match="sampler must be a BernoulliSampler") as caught:
        quick(search=False, sampler=sampler).fit(*rows(80))
    assert_one_sentence(caught.value)


def test_a_sampler_asks_for_gradients() -> None:
    """So nothing is searched for by itself, and both together are refused."""
    x, y = rows(80)
    explainer = RealX(
        0.1, sampler=ArmsBernoulli(), training=FAST, progress=False, device="cpu", random_state=0
    )
    assert explainer.fit(x, y).choice_ is None
    with pytest.raises(InputError, match="came with sampler=ArmsBernoulli") as caught:
        explainer.set_params(search=True).fit(x, y)
    assert_one_sentence(caught.value)


def test_the_papers_explainer_is_the_papers_preset() -> None:
    """The same parts as REAL-X has in `unmasked reproduce synthetic --preset paper`."""
    recipe, explainer = preset("paper"), RealX.paper()
    wanted = recipe.method("REAL-X")
    found = methods.real_x(
        explainer.masker,
        explainer.mask_law,
        explainer.predictor,
        explainer.selector,
        explainer.sampler,
    )
    assert found.selector == wanted.selector
    assert found.learners == wanted.learners
    assert isinstance(found.masker, Zero)
    assert explainer.training == recipe.training
    assert (explainer.choose, explainer.search) == (recipe.rule, False)
    assert found.selector is not None
    assert found.selector.sampler == RebarBernoulli(0.1)
    assert not found.predictor_first


def test_the_papers_settings_can_be_replaced() -> None:
    x, y = rows(80)
    law = UniformSize()
    explainer = RealX.paper(
        sparsity=0.1, training=FAST, mask_law=law, progress=False, device="cpu", random_state=0
    )
    assert explainer.mask_law is law
    assert explainer.fit(x, y).explain(x).masks.shape == (80, 4)
