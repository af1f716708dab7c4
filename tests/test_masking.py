"""Every masker keeps the same promises: hidden is hidden, shown is shown, blends are linear."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from unmasked.errors import InputError
from unmasked.masks.maskers import Groups, Masker, Token, Zero

COLUMNS = 5
ALONE = (0, 1, 2, 3, 4)
TOGETHER = (0, 2, 0, 1, 2)  # out of order on purpose: columns of a group need not be neighbours

# masker, the feature that each column belongs to, the width of its output
MASKERS = {
    "token": (Token(), ALONE, 10),
    "zero": (Zero(), ALONE, 5),
    "groups of tokens": (Groups(TOGETHER, Token()), TOGETHER, 10),
    "groups of zeros": (Groups(TOGETHER, Zero()), TOGETHER, 5),
    "groups by default": (Groups(TOGETHER), TOGETHER, 10),
    "one group": (Groups([0] * 5, Zero()), (0,) * 5, 5),
}

contract = pytest.mark.parametrize(
    ("masker", "owner", "width"), MASKERS.values(), ids=MASKERS.keys()
)


def all_masks(features: int) -> Tensor:
    """Every mask over ``features`` features, (2^features, features)."""
    return torch.tensor(list(product([0.0, 1.0], repeat=features)))


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(seed))


@contract
def test_sizes_are_what_the_masker_says(masker: Masker, owner: tuple[int, ...], width: int) -> None:
    features = max(owner) + 1
    assert masker.features(COLUMNS) == features
    assert masker.width(COLUMNS) == width
    for dtype in (torch.float32, torch.float64):
        out = masker(rows(3, 0).to(dtype), torch.ones(3, features, dtype=dtype))
        assert out.shape == (3, width)
        assert out.dtype == dtype


@contract
@pytest.mark.parametrize("size", [1.0, 1e30])
def test_a_hidden_feature_cannot_change_any_output(
    masker: Masker, owner: tuple[int, ...], width: int, size: float
) -> None:
    """For every mask: replace what is hidden by anything finite and nothing moves at all."""
    masks = all_masks(max(owner) + 1)
    x = rows(len(masks), 1)
    other = rows(len(masks), 2) * size
    shown = masks[:, list(owner)].bool()  # (masks, columns)
    assert torch.equal(masker(x, masks), masker(torch.where(shown, x, other), masks))


@contract
def test_every_shown_value_reaches_the_output(
    masker: Masker, owner: tuple[int, ...], width: int
) -> None:
    """For every mask and column: moving a shown value moves the output of that row."""
    masks = all_masks(max(owner) + 1)
    x = rows(len(masks), 3)
    before = masker(x, masks)
    for column in range(COLUMNS):
        moved = x.clone()
        moved[:, column] += 1.0
        changed = (masker(moved, masks) != before).any(1)
        assert torch.equal(changed, masks[:, owner[column]].bool())


@contract
def test_shown_rows_keep_their_values(masker: Masker, owner: tuple[int, ...], width: int) -> None:
    """With everything shown, the first columns of the output are the row itself."""
    x = rows(4, 4)
    assert torch.equal(masker(x, torch.ones(4, max(owner) + 1))[:, :COLUMNS], x)


@contract
def test_relaxed_masks_blend_linearly(masker: Masker, owner: tuple[int, ...], width: int) -> None:
    """REBAR differentiates along the segment between two masks; it must be straight."""
    masks = all_masks(max(owner) + 1).double()
    here, there = masks, masks.flip(0).roll(1, 0)
    x = rows(len(masks), 5).double()
    for t in (0.25, 0.9):
        blend = masker(x, (1 - t) * here + t * there)
        # one product and one sum of numbers below 5 in double precision
        torch.testing.assert_close(
            blend, (1 - t) * masker(x, here) + t * masker(x, there), rtol=0, atol=1e-14
        )


@contract
def test_the_mask_gets_a_gradient(masker: Masker, owner: tuple[int, ...], width: int) -> None:
    """Every feature's mask moves the output, so that the relaxed gradient reaches the selector."""
    mask = torch.full((3, max(owner) + 1), 0.5, requires_grad=True)
    masker(rows(3, 6), mask).square().sum().backward()
    assert mask.grad is not None
    assert bool((mask.grad != 0).all())


def test_token_tells_a_hidden_value_from_a_shown_zero() -> None:
    """This is what the second half of a token is for; Zero cannot tell, as documented."""
    x, shown, hidden = torch.zeros(1, 3), torch.ones(1, 3), torch.zeros(1, 3)
    assert not torch.equal(Token()(x, shown), Token()(x, hidden))
    assert torch.equal(Zero()(x, shown), Zero()(x, hidden))


@pytest.mark.parametrize(
    ("index", "named"),
    [((0, 2, 2), "[0, 2]"), ((1, 2), "[1, 2]"), ((-1, 0), "[-1, 0]"), ((), "[]"), ((-1,), "[-1]")],
)
def test_group_numbers_with_gaps_are_refused_by_name(index: tuple[int, ...], named: str) -> None:
    with pytest.raises(InputError) as caught:
        Groups(index)
    assert named in str(caught.value)


def test_groups_for_other_columns_are_refused_by_number() -> None:
    with pytest.raises(InputError, match=r"\b5 columns.*\b7\b"):
        Groups(TOGETHER).features(7)
