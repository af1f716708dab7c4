"""Masks in patches: what `Patches` draws, against what can be worked out.

Each statistical test is seeded and would raise a false alarm once in a million seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from small_images import CELLS, X, Y
from small_tables import assert_one_sentence, quick, quick_evaluator
from torch import Tensor

from unmasked import EvalX, InputError, Patches, RealX, Superpixels
from unmasked.explainers.saving import law_config, law_from

FALSE_ALARM = 1e-6


def noise_of(law: Patches, cells: int, count: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.rand(count, law.noise_width(cells), generator=source, dtype=torch.float64)


def by_hand(noise: Tensor, law: Patches) -> Tensor:
    """One mask (cells,) from its noise: means over windows, and the k lowest."""
    assert isinstance(law.grid, tuple)
    assert law.widths is not None
    lines, columns = law.grid
    cells = lines * columns
    ground = noise[:cells].reshape(lines, columns)
    width = law.widths[int(noise[cells + 1] * len(law.widths))]
    reach = range(-(width // 2), width // 2 + 1)
    smooth = [
        sum(float(ground[(i + a) % lines, (j + b) % columns]) for a in reach for b in reach)
        for i in range(lines)
        for j in range(columns)
    ]
    shown = sorted(range(cells), key=smooth.__getitem__)[: int(noise[cells] * (cells + 1))]
    mask = torch.zeros(cells, dtype=noise.dtype)
    mask[shown] = 1
    return mask


@pytest.mark.parametrize("grid", [(6, 6), (6, 9), (7, 4)])
def test_masks_are_the_lowest_cells_of_a_landscape(grid: tuple[int, int]) -> None:
    law, cells = Patches(grid), grid[0] * grid[1]
    noise = noise_of(law, cells, 60)
    expected = torch.stack([by_hand(row, law) for row in noise])
    assert torch.equal(law(noise, cells), expected)


def test_a_mask_is_a_function_of_its_own_noise_alone() -> None:
    law = Patches(5)
    assert law.widths == (1, 3)
    noise = noise_of(law, 25, 40).float()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    together = law(noise, 25)
    assert together.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), state)
    alone = torch.cat([law(row[None], 25) for row in noise.flip(0)]).flip(0)
    assert torch.equal(together, alone)


def test_windows_wrap_around() -> None:
    """The same landscape, moved, is the same patches, moved: no cell is at an edge."""
    law = Patches((6, 8))
    noise = noise_of(law, 48, 50)
    masks = law(noise, 48).reshape(-1, 6, 8)
    ground = noise[:, :48].reshape(-1, 6, 8).roll((2, -3), (1, 2)).flatten(1)
    moved = law(torch.cat([ground, noise[:, 48:]], 1), 48).reshape(-1, 6, 8)
    assert torch.equal(moved, masks.roll((2, -3), (1, 2)))


@pytest.mark.parametrize("widths", [(1,), (3,), (1, 3)])
def test_every_size_comes_equally_often(widths: tuple[int, ...]) -> None:
    law = Patches((4, 5), widths)
    sizes = law(noise_of(law, 20, 40_000, seed=1), 20).sum(1).long()
    assert chisquare(torch.bincount(sizes, minlength=21).numpy()).pvalue > FALSE_ALARM
    assert law.sizes(20) == (0, 20)


def test_scattered_masks_of_a_size_are_all_equally_likely() -> None:
    law = Patches(2, (1,))
    masks = law(noise_of(law, 4, 40_000, seed=2), 4)
    number = (masks @ torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=torch.float64)).long()
    counts = torch.bincount(number, minlength=16).numpy()
    sizes = [sum(mask) for mask in product([0, 1], repeat=4)]
    expected = counts.sum() * np.array([1 / (5 * comb(4, k)) for k in sizes])
    assert chisquare(counts, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("width", [1, 3, 5])
def test_every_cell_is_shown_equally_often(width: int) -> None:
    """Half of the time: E[k] / cells. Beyond 5.5 standard errors one of 42 cells comes once in 10⁶
    seeds."""
    law, count = Patches((6, 7), (width,)), 20_000
    shares = law(noise_of(law, 42, count, seed=3), 42).mean(0)
    assert float((shares - 0.5).abs().max()) < 5.5 * sqrt(0.25 / count)


def together(masks: Tensor) -> Tensor:
    """For each mask (rows, side, side): of shown cells' neighbours, the share that is shown."""
    return (masks * masks.roll(1, 2)).sum((1, 2)) / masks.sum((1, 2))


@pytest.mark.parametrize("size", [8, 20, 40])
def test_wider_windows_show_what_lies_together(size: int) -> None:
    """Scattered, a neighbour of a shown cell is shown with (k − 1) / (cells − 1)."""
    found = []
    for width in (1, 3, 5):
        law = Patches(8, (width,))
        noise = noise_of(law, 64, 2000, seed=4)
        noise[:, 64] = (size + 0.5) / 65
        found.append(together(law(noise, 64).reshape(-1, 8, 8)))
    error = 5 * float(found[0].std()) / sqrt(2000)
    assert abs(float(found[0].mean()) - (size - 1) / 63) < error
    scattered, narrow, wide = (float(one.mean()) for one in found)
    assert narrow > scattered + 5 * error
    assert wide > narrow + error


def test_widths_come_equally_often() -> None:
    """The choice between them is one uniform number, each third of it a width."""
    law = Patches(6)
    assert law.widths == (1, 3, 5)
    noise = noise_of(law, 36, 30)
    for number, width in enumerate(law.widths):
        noise[:, 37] = (number + 0.999) / 3
        alone = Patches(6, (width,))
        assert torch.equal(law(noise, 36), alone(noise, 36))


def test_it_is_saved(tmp_path: Path) -> None:
    law = Patches((2, 2), (1,))
    assert law_from(law_config(law)) == law
    fitted = quick(masker=CELLS, mask_law=law).fit(X, Y)
    fitted.save(tmp_path / "model")
    assert RealX.load(tmp_path / "model", device="cpu").mask_law == law
    judge = quick_evaluator(masker=CELLS, mask_law=law).fit(X, Y)
    judge.save(tmp_path / "judge")
    loaded = EvalX.load(tmp_path / "judge", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), judge.predict_proba(X))


def test_equal_ones_are_equal() -> None:
    assert Patches(4) == Patches((4, 4)) == Patches((4, 4), (1, 3))
    assert repr(Patches(4)) == repr(Patches((4, 4), (1, 3)))


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no grid": (lambda: Patches(0), "grid must be .* above 0 or a pair .* but is 0"),
    "half a grid": (lambda: Patches((3, -1)), "grid must be .* but is \\(3, -1\\)"),
    "even": (lambda: Patches(8, (2,)), "widths must be odd .* 1 to 7, .* but are \\(2,\\)"),
    "as wide as the grid": (lambda: Patches((5, 9), (1, 5)), "widths must be odd .* 1 to 4,"),
    "none": (lambda: Patches(4, ()), "widths must be odd .* but are \\(\\)"),
    "another grid": (
        lambda: quick(masker=Superpixels(2), mask_law=Patches((3, 3), (1,))).fit(X, Y),
        "grid of 3 × 3 cells, but there are 4 features; give it the grid",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)
