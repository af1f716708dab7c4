"""Mask laws draw what they promise: checked against the exact probability of every mask.

Each statistical test is seeded and would raise a false alarm once in a million seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare
from torch import Tensor

from unmasked.errors import InputError
from unmasked.masks.distributions import Bernoulli, MaskLaw, UniformSize

FALSE_ALARM = 1e-6
Exact = Callable[[int, int], float]
"""(size, features) -> probability of that size."""


def bernoulli_size(p: float) -> Exact:
    return lambda size, features: comb(features, size) * p**size * (1 - p) ** (features - size)


LAWS: dict[str, tuple[MaskLaw, Exact]] = {
    "bernoulli": (Bernoulli(), bernoulli_size(0.5)),
    "bernoulli 0.2": (Bernoulli(0.2), bernoulli_size(0.2)),
    "nothing shown": (Bernoulli(0.0), bernoulli_size(0.0)),
    "everything shown": (Bernoulli(1.0), bernoulli_size(1.0)),
    "uniform size": (UniformSize(), lambda size, features: 1 / (features + 1)),
}
contract = pytest.mark.parametrize(("law", "exact"), LAWS.values(), ids=LAWS.keys())


def draw(law: MaskLaw, features: int, count: int, seed: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return law(torch.rand(count, law.noise_width(features), generator=source), features)


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square over what is possible; what is impossible must not occur once."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        expected = counts.sum() * probabilities[possible]
        assert expected.min() > 5, "too few draws for a chi-square test"
        assert chisquare(counts[possible], expected).pvalue > FALSE_ALARM


@contract
def test_masks_are_zeros_and_ones_of_the_right_shape(law: MaskLaw, exact: Exact) -> None:
    for dtype in (torch.float32, torch.float64):
        noise = torch.rand(
            50, law.noise_width(7), dtype=dtype, generator=torch.Generator().manual_seed(0)
        )
        mask = law(noise, 7)
        assert mask.shape == (50, 7)
        assert mask.dtype == dtype
        assert bool(((mask == 0) | (mask == 1)).all())


@contract
def test_a_mask_is_a_function_of_its_own_noise_alone(law: MaskLaw, exact: Exact) -> None:
    """Neither the neighbours in the batch nor torch's random state take part."""
    noise = torch.rand(40, law.noise_width(6), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    together = law(noise, 6)
    assert torch.equal(torch.get_rng_state(), state)
    alone = torch.cat([law(row[None], 6) for row in noise.flip(0)]).flip(0)
    assert torch.equal(together, alone)


@contract
def test_every_mask_has_its_exact_probability(law: MaskLaw, exact: Exact) -> None:
    """All 16 masks of 4 features: so also every set of one size is equally likely."""
    features = 4
    masks = draw(law, features, 40_000, seed=2)
    number = (masks @ torch.tensor([8.0, 4.0, 2.0, 1.0])).long()
    counts = torch.bincount(number, minlength=16).numpy()
    sizes = [sum(mask) for mask in product([0, 1], repeat=features)]
    probabilities = np.array([exact(k, features) / comb(features, k) for k in sizes])
    assert probabilities.sum() == pytest.approx(1)
    assert_frequencies(counts, probabilities)


@contract
def test_sizes_follow_the_exact_law(law: MaskLaw, exact: Exact) -> None:
    features, count = 12, 40_000
    sizes = draw(law, features, count, seed=3).sum(1).long()
    counts = torch.bincount(sizes, minlength=features + 1).numpy()
    probabilities = np.array([exact(k, features) for k in range(features + 1)])
    rare = (probabilities > 0) & (probabilities * count <= 50)  # a chi-square needs a few of each
    assert_frequencies(
        np.append(counts[~rare], counts[rare].sum()),
        np.append(probabilities[~rare], probabilities[rare].sum()),
    )


@contract
@pytest.mark.parametrize("features", [1, 4, 12, 784])
def test_stated_sizes_cover_nearly_all_draws(law: MaskLaw, exact: Exact, features: int) -> None:
    """An evaluator calls a size outside of these unseen, so few draws may lie outside."""
    low, high = law.sizes(features)
    assert 0 <= low <= high <= features
    if isinstance(law, Bernoulli):  # exact(k, 784) would overflow a float
        inside = binom.cdf(high, features, law.p) - binom.cdf(low - 1, features, law.p)
    else:
        inside = sum(exact(k, features) for k in range(low, high + 1))
    assert inside >= 0.998
    seen = draw(law, features, 4000, seed=4).sum(1)
    covered = ((seen >= low) & (seen <= high)).double().mean()
    # at least 0.999 are inside; 5 standard errors of a share of 0.999 in 4,000 draws are 0.0025
    assert covered >= 0.999 - 0.0025


def test_stated_sizes_are_not_everything() -> None:
    """Coin-flip masks of 784 features hold about 392 ± 14: far from none and from all."""
    low, high = Bernoulli(0.5).sizes(784)
    spread = 14.0  # √(784 · ½ · ½)
    assert 392 - 4 * spread < low < 392 < high < 392 + 4 * spread
    assert UniformSize().sizes(784) == (0, 784)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_bad_probability_is_refused_by_value(p: float) -> None:
    with pytest.raises(InputError) as caught:
        Bernoulli(p)
    assert f"p={p}" in str(caught.value)
