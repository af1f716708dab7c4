"""Superpixels over every inner masker, against loops over batch, channel, line and column."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from small_images import Paint
from small_tables import assert_one_sentence, quick, rows
from torch import Tensor

from unmasked import Blur, Groups, ImageMean, InputError, Superpixels, Token, Zero
from unmasked.masks.maskers import Masker
from unmasked.masks.superpixels import Fill
from unmasked.training.checkpoint import fingerprint

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Loud(Token):
    """A user's own kind of token, which says of every number, not of every pixel, what is hidden.

    It must be asked itself, and not be taken for a `Token`.
    """

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([x * mask, 3 * mask - 1], dim=-1)


@dataclass(frozen=True)
class Negative(Fill):
    """A user's own filling: the image's negative."""

    def filled(self, images: Tensor) -> Tensor:
        return -images


def no_grid(lines: int, columns: int) -> list[list[int]]:
    return [[i * columns + j for j in range(columns)] for i in range(lines)]


# How superpixels are asked for, and the feature of each pixel, written down.
MAPS: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "even": (
        {"grid": (2, 3)},
        [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5], [3, 3, 4, 4, 5, 5]],
    ),
    "uneven": (
        {"grid": (3, 2)},
        [*[[0, 0, 0, 1, 1]] * 3, *[[2, 2, 2, 3, 3]] * 2, *[[4, 4, 4, 5, 5]] * 2],
    ),
    "one number": ({"grid": 2}, [[0, 0, 0, 1, 1, 1]] * 2 + [[2, 2, 2, 3, 3, 3]] * 2),
    "every pixel": ({}, no_grid(3, 4)),
    "labels": (
        {"labels": [[2, 2, 0, 1], [2, 0, 0, 1], [3, 3, 3, 1]]},
        [[2, 2, 0, 1], [2, 0, 0, 1], [3, 3, 3, 1]],
    ),
}
INNER: list[Masker] = [
    Token(), Zero(), Blur(1.5), ImageMean(), Paint(), Loud(), Negative()
]  # fmt: skip

each_map = pytest.mark.parametrize(("asked", "cells"), MAPS.values(), ids=MAPS.keys())
each_inner = pytest.mark.parametrize("inner", INNER, ids=repr)
each_count = pytest.mark.parametrize("channels", [1, 3])


def mirrored(place: int, length: int) -> int:
    """Where a place beyond the edge lies: the edge pixel itself is not repeated."""
    while not 0 <= place < length:
        place = -place if place < 0 else 2 * (length - 1) - place
    return place


def blurred(line: list[float], sigma: float) -> list[float]:
    """One line, each pixel a weighted mean of its neighbours within three sigma."""
    reach = min(max(1, round(3 * sigma)), len(line) - 1)
    steps = range(-reach, reach + 1)
    weight = {s: math.exp(-0.5 * (s / sigma) ** 2) for s in steps}
    total = sum(weight.values())
    return [
        sum(weight[s] / total * line[mirrored(i + s, len(line))] for s in steps)
        for i in range(len(line))
    ]


def blurred_image(image: list[list[float]], sigma: float) -> list[list[float]]:
    """First down, then across."""
    down = [blurred(list(column), sigma) for column in zip(*image, strict=True)]
    return [blurred(list(line), sigma) for line in zip(*down, strict=True)]


def hidden_by_hand(inner: Masker, image: list[list[float]]) -> list[list[float]]:
    """What one channel looks like where it is hidden."""
    flat = [value for line in image for value in line]
    if isinstance(inner, Blur):
        return blurred_image(image, inner.sigma)
    if isinstance(inner, Negative):
        return [[-value for value in line] for line in image]
    value = {ImageMean: math.fsum(flat) / len(flat), Paint: 7.0}.get(type(inner), 0.0)
    return [[value] * len(line) for line in image]


def by_hand(
    inner: Masker, cells: list[list[int]], images: NDArray[Any], mask: NDArray[Any]
) -> NDArray[Any]:
    """What is shown of images (batch, channels, height, width), as an array of the same form."""
    batch, channels, height, width = images.shape
    extra = {Token: 1, Loud: channels}.get(type(inner), 0)
    result = np.empty((batch, channels + extra, height, width))
    for b in range(batch):
        for c in range(channels):
            hidden = hidden_by_hand(inner, images[b, c].tolist())
            for i in range(height):
                for j in range(width):
                    m = mask[b, cells[i][j]]
                    result[b, c, i, j] = images[b, c, i, j] * m + hidden[i][j] * (1 - m)
        for c in range(extra):
            for i in range(height):
                for j in range(width):
                    m = mask[b, cells[i][j]]
                    result[b, channels + c, i, j] = 3 * m - 1 if isinstance(inner, Loud) else m
    return result


def example(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int, batch: int = 3
) -> tuple[Superpixels, Tensor, Tensor]:
    """A bound masker, rows (batch, channels · height · width) and masks between 0 and 1."""
    height, width = len(cells), len(cells[0])
    masker = Superpixels(**asked, masker=inner).bound((channels, height, width))
    source = torch.Generator().manual_seed(channels)
    x = torch.randn(batch, channels * height * width, generator=source, dtype=torch.float64)
    mask = torch.rand(batch, np.max(cells) + 1, generator=source, dtype=torch.float64)
    return masker, x, mask


# ---------------------------------------------------------------------- what is shown


@each_count
@each_inner
@each_map
def test_masking_is_a_loop_over_pixels(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int
) -> None:
    """Masks of zeros and ones, and relaxed ones, which blend."""
    masker, x, relaxed = example(asked, cells, inner, channels)
    images = x.reshape(len(x), channels, len(cells), len(cells[0])).numpy()
    for mask in (relaxed, (relaxed > 0.5).double(), (relaxed <= 0.5).double()):
        shown = masker(x, mask).reshape(len(x), *masker.shown_shape)
        expected = by_hand(inner, cells, images, mask.numpy())
        # at most 50 products of numbers below 8, each rounded by 1e-16 of itself
        np.testing.assert_allclose(shown, expected, rtol=0, atol=1e-13)


@each_count
@each_inner
@each_map
def test_sizes_and_names_are_what_the_masker_says(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int
) -> None:
    masker, x, mask = example(asked, cells, inner, channels)
    pixels, features = np.size(cells), np.max(cells) + 1
    assert masker.map.tolist() == cells
    assert masker.features(channels * pixels) == features
    assert len(set(masker.names)) == len(masker.names) == features
    assert masker.index == tuple(np.ravel(cells).tolist() * channels)
    extra = {Token: 1, Loud: channels}.get(type(inner), 0)
    assert masker.shown_shape == (channels + extra, len(cells), len(cells[0]))
    assert masker.width(channels * pixels) == (channels + extra) * pixels
    for dtype in (torch.float32, torch.float64):
        shown = masker(x.to(dtype), mask.to(dtype))
        assert shown.shape == (len(x), masker.width(channels * pixels))
        assert shown.dtype == dtype


def test_names_say_line_and_column() -> None:
    assert Superpixels((2, 3)).bound((1, 4, 6)).names == (
        "r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2"
    )  # fmt: skip
    assert Superpixels().bound((3, 1, 2)).names == ("r0c0", "r0c1")
    assert Superpixels(labels=[[0, 1], [1, 1]]).names == ("region 0", "region 1")


@each_count
@each_inner
@each_map
def test_what_is_shown_is_exact(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int
) -> None:
    """Beside a pixel of 10⁸, too, in single precision: no rounding of hidden values comes in."""
    masker, x, mask = example(asked, cells, inner, channels)
    x = x.float()
    x[:, -1] = 1e8
    everything = masker(x, torch.ones(mask.shape))
    assert torch.equal(everything[:, : x.shape[1]], x)
    shown = (mask > 0.5).float()
    spread = shown[:, list(masker.index)] == 1
    assert torch.equal(masker(x, shown)[:, : x.shape[1]][spread], x[spread])


@each_count
@pytest.mark.parametrize("inner", [Token(), Zero(), Paint(), Loud()], ids=repr)
@each_map
def test_a_hidden_superpixel_cannot_change_any_output(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int
) -> None:
    masker, x, relaxed = example(asked, cells, inner, channels)
    mask = (relaxed > 0.5).double()
    hidden = mask[:, list(masker.index)] == 0
    assert hidden.any()
    assert torch.equal(masker(torch.where(hidden, -9 * x, x), mask), masker(x, mask))


@each_count
@each_map
def test_a_token_tells_a_hidden_pixel_from_a_zero_once_for_all_channels(
    asked: dict[str, Any], cells: list[list[int]], channels: int
) -> None:
    masker, x, mask = example(asked, cells, Token(), channels)
    shown = masker(0 * x, mask)
    assert torch.equal(shown[:, x.shape[1] :], mask[:, np.ravel(cells)])
    assert shown.shape[1] == x.shape[1] + np.size(cells)


@each_inner
@each_map
def test_relaxed_masks_blend_linearly(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker
) -> None:
    masker, x, here = example(asked, cells, inner, 3)
    there = here.flip(0).roll(1, 1)
    for t in (0.25, 0.9):
        blend = masker(x, (1 - t) * here + t * there)
        straight = (1 - t) * masker(x, here) + t * masker(x, there)
        # a product and a sum of numbers below 20 in double precision
        torch.testing.assert_close(blend, straight, rtol=0, atol=1e-13)


@each_count
@each_inner
@each_map
def test_gradients_flow_to_mask_and_image(
    asked: dict[str, Any], cells: list[list[int]], inner: Masker, channels: int
) -> None:
    masker, x, mask = example(asked, cells, inner, channels, batch=1)
    inputs = (x.requires_grad_(), mask.requires_grad_())
    assert torch.autograd.gradcheck(masker, inputs, fast_mode=True)
    (gradient,) = torch.autograd.grad(masker(x, mask).square().sum(), mask)
    assert bool((gradient != 0).all()), "a superpixel that a selector could never learn about"


# ---------------------------------------------------------------------- cells

lengths = st.integers(1, 20)


@settings(deadline=None)
@given(st.data(), lengths, lengths, st.integers(1, 4))
def test_cells_cover_the_image_and_differ_by_at_most_one_line_and_column(
    draw: st.DataObject, height: int, width: int, channels: int
) -> None:
    grid = draw.draw(st.integers(1, height)), draw.draw(st.integers(1, width))
    masker = Superpixels(grid).bound((channels, height, width))
    found, names = masker.map, masker.names
    assert found.shape == (height, width)
    sides = []
    for feature in range(grid[0] * grid[1]):
        lines, columns = np.nonzero(found == feature)
        sides.append((np.ptp(lines) + 1, np.ptp(columns) + 1))
        assert len(lines) == sides[-1][0] * sides[-1][1], "a cell is a full rectangle"
        assert names[feature] == f"r{feature // grid[1]}c{feature % grid[1]}"
    assert found.max() == grid[0] * grid[1] - 1
    for axis in (0, 1):
        assert np.ptp([side[axis] for side in sides]) <= 1
    # in reading order: to the right and down, numbers never fall
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=1) >= 0).all()


# ---------------------------------------------------------------------- what hidden pixels are


@pytest.mark.parametrize("size", [(7, 5), (1, 9), (6, 1), (1, 1), (2, 2), (30, 31)])
@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.5, 40])
def test_a_blur_is_scipys(size: tuple[int, int], sigma: float) -> None:
    """Mirrored edges, also where three sigma reach over the whole image and beyond."""
    source = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, *size, dtype=torch.float64, generator=source)
    expected = images.numpy()
    for axis in (2, 3):
        reach = min(max(1, round(3 * sigma)), expected.shape[axis] - 1)
        expected = gaussian_filter1d(expected, sigma, axis, mode="mirror", radius=reach)
    # two means of at most 61 numbers below 5
    np.testing.assert_allclose(Blur(sigma).filled(images), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("fill", [Blur(0.2), Blur(2), Blur(100), ImageMean()], ids=repr)
@pytest.mark.parametrize("size", [(7, 5), (1, 3), (1, 1)])
def test_filling_keeps_a_constant_image_constant(fill: Fill, size: tuple[int, int]) -> None:
    value = torch.tensor([3.0, -250.0], dtype=torch.float64).reshape(1, 2, 1, 1)
    images = value.expand(4, 2, *size)
    # weights that add up to one, within the rounding of a dozen of them
    torch.testing.assert_close(fill.filled(images), images, rtol=1e-14, atol=0)


def test_a_blur_mixes_neither_images_nor_channels() -> None:
    images = torch.zeros(3, 2, 6, 6, dtype=torch.float64)
    images[1, 0, 2, 3] = 1.0
    filled = Blur(1.0).filled(images)
    assert filled[1, 0].sum() > 0.5
    filled[1, 0] = 0.0
    assert not filled.any()


def test_the_mean_is_each_images_and_channels_own() -> None:
    images = torch.arange(24.0).reshape(2, 3, 2, 2)
    means = ImageMean().filled(images)[:, :, 1, 0]
    assert means.tolist() == [[1.5, 5.5, 9.5], [13.5, 17.5, 21.5]]


def test_a_wider_blur_is_smoother() -> None:
    images = torch.randn(1, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    spread = [float(Blur(sigma).filled(images).std()) for sigma in (0.5, 1.0, 2.0, 4.0)]
    assert spread == sorted(spread, reverse=True)


# ---------------------------------------------------------------------- the same, and not the same

SAME = {
    "grid": "Superpixels((3, 2))",
    "none": "Superpixels()",
    "labels": "Superpixels(labels=np.arange(12).reshape(3, 4) // 2)",
    "swapped": "Superpixels(labels=np.arange(12).reshape(3, 4)[::-1] // 2)",
    "blur": "Superpixels(2, masker=Blur(2))",
    "wider": "Superpixels(2, masker=Blur(3))",
    "mean": "Superpixels(2, masker=ImageMean())",
    "zero": "Superpixels(2, masker=Zero())",
    "token": "Superpixels(2)",
    "bound": "Superpixels(2).bound((1, 4, 4))",
    "channels": "Superpixels(2).bound((3, 4, 4))",
    "larger": "Superpixels(2).bound((1, 8, 8))",
}
SCRIPT = """
import json, sys
import numpy as np
from unmasked.masks.maskers import Zero
from unmasked.masks.superpixels import Blur, ImageMean, Superpixels
print(json.dumps([repr(eval(text)) for text in json.loads(sys.argv[1])]))
"""


def make(name: str) -> Superpixels:
    made: Superpixels = eval(SAME[name])
    return made


def test_equal_means_made_alike() -> None:
    """A checkpoint remembers what the masker says of itself."""
    for name in SAME:
        assert make(name) == make(name)
        assert hash(make(name)) == hash(make(name))
        assert [other for other in SAME if make(other) == make(name)] == [name]
    assert len({fingerprint(repr(make(name)), []) for name in SAME}) == len(SAME)
    assert Superpixels(2) == Superpixels((2, 2)) == Superpixels([2, np.int64(2)])  # type: ignore[arg-type]
    assert Superpixels(2, masker=Blur(2)) == Superpixels(2, masker=Blur(np.float32(2)))  # type: ignore[arg-type]
    assert Superpixels(2, masker=Paint(1.0)) != Superpixels(2, masker=Paint(2.0))
    assert Superpixels(2) != "Superpixels(2)"


def test_another_process_says_the_same() -> None:
    """A run that is resumed knows its masker again, however Python hashes there."""
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    shown = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(SAME.values()))],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout) == [repr(make(name)) for name in SAME]


@pytest.mark.parametrize("name", SAME)
def test_copies_are_equal_and_work(name: str) -> None:
    masker = make(name)
    size = (3, 4) if masker.labels is not None else (4, 4)
    bound = masker if masker.shape is not None else masker.bound((1, *size))
    channels, height, width = bound.shape or (0, 0, 0)
    x = torch.arange(2.0 * channels * height * width).reshape(2, -1)
    mask = torch.linspace(0, 1, 2 * len(bound.names)).reshape(2, -1)
    shown = bound(x, mask)
    for other in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert other == bound
        assert torch.equal(other(x, mask), shown)


def test_a_label_map_is_copied() -> None:
    labels = np.array([[0, 1], [0, 1]])
    masker = Superpixels(labels=labels)
    labels[:] = 0
    assert masker.bound((1, 2, 2)).map.tolist() == [[0, 1], [0, 1]]
    assert masker == Superpixels(labels=torch.tensor([[0, 1], [0, 1]]))


def test_the_map_is_brought_to_a_device_once() -> None:
    """A captured step cannot copy from the host."""
    masker = Superpixels(2).bound((1, 4, 4))
    device = torch.device("cpu")
    assert masker._map_on(device) is masker._map_on(device)


def test_binding_does_not_change_the_masker_it_came_from() -> None:
    masker = Superpixels(2)
    small, large = masker.bound((1, 4, 4)), masker.bound((3, 8, 8))
    assert masker.shape is None
    assert (small.features(16), large.features(192)) == (4, 4)
    assert (small.shape, large.shape) == ((1, 4, 4), (3, 8, 8))
    assert large.bound((1, 4, 4)) == small


# ---------------------------------------------------------------------- one sentence

X, Y = rows(40)
SIX = Superpixels((2, 3)).bound((1, 4, 6))
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "a map of another size": (
        lambda: Superpixels(labels=[[0, 1], [0, 1]]).bound((1, 4, 6)),
        "the images' size 4 × 6 but is 2 × 2; make it for these images",
    ),
    "gaps in the labels": (
        lambda: Superpixels(labels=[[0, 2], [2, 5]]),
        r"0, 1, 2, … without gaps but are \[0, 2, 5\]",
    ),
    "labels from one": (
        lambda: Superpixels(labels=[[1, 2], [2, 1]]),
        r"without gaps but are \[1, 2\]",
    ),
    "labels below zero": (
        lambda: Superpixels(labels=[[-1, 0], [1, 0]]),
        r"without gaps but are \[-1, 0, 1\]",
    ),
    "no labels": (
        lambda: Superpixels(labels=np.zeros((0, 3), int)),
        r"without gaps but are \[\]",
    ),
    "labels that are no whole numbers": (
        lambda: Superpixels(labels=[[0.0, 1.0]]),
        r"whole numbers but has shape \(1, 2\) and type float64",
    ),
    "labels with channels": (
        lambda: Superpixels(labels=np.zeros((1, 2, 3), int)),
        r"\(height, width\) of whole numbers but has shape \(1, 2, 3\)",
    ),
    "labels of lines of different lengths": (
        lambda: Superpixels(labels=[[0, 1], [0]]),
        r"\(height, width\) of whole numbers but its lines differ in length",
    ),
    "more cells than lines": (
        lambda: Superpixels((5, 2)).bound((1, 4, 6)),
        "a grid of 5 × 2 cells .*but the images are 4 × 6; use a coarser grid",
    ),
    "more cells than columns": (
        lambda: Superpixels((2, 7)).bound((3, 4, 6)),
        "a grid of 2 × 7 cells .*but the images are 4 × 6; use a coarser grid",
    ),
    "no cells": (lambda: Superpixels(0), "a whole number above 0 .* but is 0"),
    "no columns": (lambda: Superpixels((3, 0)), r"above 0 or a pair .* but is \(3, 0\)"),
    "cells below zero": (lambda: Superpixels(-2), "above 0 .* but is -2"),
    "half a cell": (lambda: Superpixels(2.5), "a whole number .* but is 2.5"),  # type: ignore[arg-type]
    "true": (lambda: Superpixels(True), "a whole number .* but is True"),
    "three numbers": (lambda: Superpixels((1, 2, 3)), r"pair \(lines, columns\) but is \(1, 2, 3"),  # type: ignore[arg-type]
    "text": (lambda: Superpixels("2x2"), r"pair \(lines, columns\) but is '2x2'"),  # type: ignore[arg-type]
    "grid and labels": (
        lambda: Superpixels(2, labels=[[0, 1]]),
        "either grid or labels .* but both came",
    ),
    "superpixels in superpixels": (
        lambda: Superpixels(2, masker=Superpixels(4)),
        r"must hide single pixels but is Superpixels\(grid=\(4, 4\)",
    ),
    "groups in superpixels": (
        lambda: Superpixels(2, masker=Groups([0] * 500)),
        r"must hide single pixels but is Groups\(index=\(0, 0",
    ),
    "a class as masker": (
        lambda: Superpixels(2, masker=Zero),  # type: ignore[arg-type]
        "must hide single pixels but is <class",
    ),
    "a masker of fewer features": (
        lambda: Superpixels(2, masker=Halves()).bound((1, 4, 4)),
        r"each of the 16 numbers of an image but Halves\(.*\) has 8 features",
    ),
    "a shape without channels": (
        lambda: Superpixels(2).bound((4, 4)),
        r"\(channels, height, width\) but is \(4, 4\)",
    ),
    "a shape of no lines": (
        lambda: Superpixels().bound((1, 0, 4)),
        r"\(channels, height, width\) but is \(1, 0, 4\)",
    ),
    "a shape at once": (
        lambda: Superpixels(9, shape=(1, 4, 4)),
        "a grid of 9 × 9 cells .*but the images are 4 × 4",
    ),
    "features of unknown images": (lambda: Superpixels(2).features(64), "know the images' size"),
    "names of unknown images": (lambda: Superpixels(2).names, "know the images' size; fit on"),
    "map of unknown images": (lambda: Superpixels(labels=[[0, 1]]).map, "know the images' size"),
    "masks of unknown images": (
        lambda: Superpixels(2)(torch.ones(1, 16), torch.ones(1, 4)),
        r"know the images' size; .*Superpixels\(…\).bound\(\(channels, height, width\)\)",
    ),
    "rows of another length": (
        lambda: SIX.features(25),
        "images of 1 × 4 × 6 are rows of 24 numbers, but rows of 25 came",
    ),
    "rows of another width": (lambda: SIX.width(48), "rows of 24 numbers, but rows of 48 came"),
    "a blur of nothing": (lambda: Blur(0), "sigma must be .* above 0 but is 0"),
    "a blur below zero": (lambda: Blur(-1.5), "above 0 but is -1.5"),
    "an endless blur": (lambda: Blur(float("inf")), "above 0 but is inf"),
    "a blur of no number": (lambda: Blur(float("nan")), "above 0 but is nan"),
    "a blur of text": (lambda: Blur("wide"), "above 0 but is 'wide'"),  # type: ignore[arg-type]
    "a blur of a table": (
        lambda: quick(masker=Blur(2)).fit(X, Y),
        r"Blur is for images \(rows, channels, height, width\), but a table came; use Token",
    ),
    "the mean of a table": (
        lambda: quick(masker=ImageMean()).fit(X, Y),
        "ImageMean is for images .*, but a table came",
    ),
    "superpixels of a table": (
        lambda: quick(masker=Superpixels(2)).fit(X, Y),
        "Superpixels is for images .*, but a table came",
    ),
    "a blur of rows": (
        lambda: Blur(2)(torch.ones(2, 4), torch.ones(2, 4)),
        "Blur is for images .*, but a table came",
    ),
    "a blur in groups": (
        lambda: quick(masker=Blur(2), groups={"both": [0, 1]}).fit(X, Y),
        "Blur is for images .*, but a table came",
    ),
}


@dataclass(frozen=True)
class Halves(Paint):
    """A masker of pairs of numbers."""

    def features(self, columns: int) -> int:
        return columns // 2


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)
    assert str(caught.value).endswith(".")
