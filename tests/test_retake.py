"""Images as if they were taken again: what `Retake` does, against what can be worked out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_tables import assert_one_sentence
from torch import Tensor

from unmasked import InputError, Retake

CHANCES = 8
DOWN, RIGHT, TURN, ZOOM, CONTRAST, BRIGHTNESS = range(6)


def chances(rows: int = 1, **at: float) -> Tensor:
    """Uniform numbers that change nothing, but for those that are named."""
    u = torch.full((rows, CHANCES), 0.5, dtype=torch.float64)
    for name, value in at.items():
        u[:, globals()[name]] = value
    return u


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def taken(images: Tensor, u: Tensor, **most: float) -> Tensor:
    """With nothing changed that is not named."""
    still = {"shift": 0, "turn": 0, "zoom": 0, "contrast": 0, "brightness": 0}
    return Retake(**{**still, **most})(images, u)


@pytest.mark.parametrize("size", [(5, 3), (8, 8), (7, 12)])
def test_chances_in_the_middle_change_nothing(size: tuple[int, int]) -> None:
    images = noise(4, 2, *size)
    torch.testing.assert_close(Retake()(images, chances(4)), images)


@pytest.mark.parametrize(("down", "right"), [(1, 0), (0, 1), (-2, 3), (2, -1)])
def test_whole_pixels_are_moved_as_they_are(down: int, right: int) -> None:
    """A new pixel is the old one ``down`` and ``right`` of it, zeros coming in."""
    height, width, most = 8, 10, 0.5
    images = noise(3, 2, height, width)
    u = chances(3, DOWN=(1 + down / (most * height)) / 2, RIGHT=(1 + right / (most * width)) / 2)
    expected = torch.zeros_like(images)
    lines, columns = range(height), range(width)
    for i in lines:
        for j in columns:
            if i + down in lines and j + right in columns:
                expected[:, :, i, j] = images[:, :, i + down, j + right]
    torch.testing.assert_close(taken(images, u, shift=most), expected)


@pytest.mark.parametrize("quarters", [-2, -1, 0, 1])
def test_quarter_turns_of_a_square(quarters: int) -> None:
    images = noise(2, 3, 6, 6)
    found = taken(images, chances(2, TURN=(1 + quarters / 2) / 2), turn=180)
    torch.testing.assert_close(found, torch.rot90(images, quarters, (2, 3)))


def test_a_turn_keeps_distances_where_height_and_width_differ() -> None:
    """A marked pixel four right of the middle comes to lie four above or below it."""
    images = torch.zeros(1, 1, 11, 23, dtype=torch.float64)
    images[0, 0, 5, 15] = 1.0
    found = taken(images, chances(TURN=0.75), turn=180)
    assert torch.nonzero(found > 0.5)[:, 2:].tolist() in ([[1, 11]], [[9, 11]])
    assert float(found.max()) == pytest.approx(1)
    half = taken(images, chances(TURN=0.75), turn=90)  # 45°: between pixels
    line, column = torch.meshgrid(torch.arange(11.0), torch.arange(23.0), indexing="ij")
    weight = half[0, 0] / half.sum()
    middle = torch.stack([(weight * (line - 5)).sum(), (weight * (column - 11)).sum()])
    # straight lines between pixels move the centre of a single one by less than half a pixel
    assert float(middle.norm()) == pytest.approx(4, abs=0.5)
    assert float(middle[0].abs()) == pytest.approx(float(middle[1].abs()), abs=0.5)


@pytest.mark.parametrize("chance", [0.0, 0.25, 0.5, 0.9])
def test_zoom_changes_a_slope(chance: float) -> None:
    """Straight lines are read exactly: nearer by s, a slope is 1 / s of what it was."""
    most, side = 0.5, 31
    ramp = torch.arange(side, dtype=torch.float64) - side // 2
    images = ramp.expand(1, 1, side, side)
    factor = (1 + most) ** (2 * chance - 1)
    found = taken(images, chances(ZOOM=chance), zoom=most)[0, 0, 10:21, 10:21]
    torch.testing.assert_close(found, ramp[10:21].expand(11, 11) / factor)


@pytest.mark.parametrize("size", [(7, 11), (12, 6), (1, 5)])
def test_all_at_once_is_the_formula(size: tuple[int, int]) -> None:
    """c · x(R p / s + t) + b pixel by pixel, with straight lines between pixels."""
    height, width = size
    how = Retake(0.2, 40, 0.5, 0.3, 0.7)
    images = noise(6, 2, height, width)
    u = torch.rand(6, CHANCES, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = how(images, u)
    for row, image in enumerate(images):
        c = [2 * float(value) - 1 for value in u[row]]
        angle, s = math.radians(how.turn) * c[TURN], (1 + how.zoom) ** c[ZOOM]
        for i in range(height):
            for j in range(width):
                y, x = i - (height - 1) / 2, j - (width - 1) / 2
                old_x = (math.cos(angle) * x - math.sin(angle) * y) / s + how.shift * width * c[
                    RIGHT
                ]
                old_y = (math.sin(angle) * x + math.cos(angle) * y) / s + how.shift * height * c[
                    DOWN
                ]
                value = between(image, old_y + (height - 1) / 2, old_x + (width - 1) / 2)
                value = (1 + how.contrast * c[CONTRAST]) * value + how.brightness * c[BRIGHTNESS]
                torch.testing.assert_close(found[row, :, i, j], value)


def between(image: Tensor, line: float, column: float) -> Tensor:
    """(channels,) at a place between pixels; outside there are zeros."""
    result = torch.zeros(image.shape[0], dtype=image.dtype)
    for i in (math.floor(line), math.floor(line) + 1):
        for j in (math.floor(column), math.floor(column) + 1):
            if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
                result += (1 - abs(line - i)) * (1 - abs(column - j)) * image[:, i, j]
    return result


def test_light_is_a_factor_and_a_sum() -> None:
    images = noise(1, 2, 4, 5)
    u = chances(CONTRAST=0.9, BRIGHTNESS=0.1)
    found = taken(images, u, contrast=0.3, brightness=0.5)
    torch.testing.assert_close(found, (1 + 0.8 * 0.3) * images - 0.8 * 0.5)


@pytest.mark.parametrize("name", ["shift", "turn", "zoom", "contrast", "brightness"])
def test_each_part_can_be_left_out(name: str) -> None:
    """What is 0 changes nothing, whatever its chances; what is not changes something."""
    images, u = noise(3, 1, 9, 9), chances(3)
    own = {"shift": [DOWN, RIGHT], "turn": [TURN], "zoom": [ZOOM]}
    own |= {"contrast": [CONTRAST], "brightness": [BRIGHTNESS]}
    u[:, own[name]] = 0.85
    torch.testing.assert_close(Retake(**{name: 0.0})(images, u), images)
    assert not torch.allclose(Retake()(images, u), images, atol=1e-3)


def test_images_are_changed_apart_and_alike_over_channels() -> None:
    one = noise(1, 1, 8, 8)
    u = torch.rand(5, CHANCES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = Retake()(one.expand(5, 3, 8, 8), u)
    for row in range(5):
        alone = Retake()(one, u[row : row + 1])
        torch.testing.assert_close(together[row], alone[0].expand(3, 8, 8))
    assert len({round(float(image.sum()), 9) for image in together}) == 5


def test_other_chances_are_not_used() -> None:
    images = noise(4, 1, 6, 6)
    u = torch.rand(4, CHANCES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    other = torch.cat([u[:, :6], 1 - u[:, 6:]], 1)
    assert torch.equal(Retake()(images, u), Retake()(images, other))


def test_what_is_drawn_is_even() -> None:
    """Over many draws neither side is favoured: gain − 1, what is added, log-zoom, turns and shifts
    have mean 0.

    A number evenly drawn from −a to a has standard deviation a / √3; beyond five standard errors
    of a mean of 4,000 comes once in 10⁶.
    """
    rows, side = 4000, 15
    u = torch.rand(rows, CHANCES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    flat = torch.ones(rows, 1, side, side, dtype=torch.float64)
    error = 5 / math.sqrt(3 * rows)
    assert abs(float((taken(flat, u, contrast=0.4) - 1).mean())) < 0.4 * error
    assert abs(float((taken(flat, u, brightness=0.4) - 1).mean())) < 0.4 * error
    ramp = (torch.arange(side, dtype=torch.float64) - side // 2).expand(rows, 1, side, side)
    slope = taken(ramp, u, zoom=0.3)[:, 0, 7, 8]
    assert abs(float(slope.log().mean())) < math.log(1.3) * error
    assert float(slope.min()) > 1 / 1.3 - 1e-9
    assert float(slope.max()) < 1.3 + 1e-9
    moved = taken(ramp, u, shift=0.2)[:, 0, 7, 7]  # the old place of the middle, right of it
    assert abs(float(moved.mean())) < 0.2 * side * error
    lines = taken(ramp.mT, u, shift=0.2)[:, 0, 7, 7]
    assert abs(float(lines.mean())) < 0.2 * side * error
    tilt = torch.asin(taken(ramp, u, turn=30)[:, 0, 6, 7])  # one above the middle: sin of the turn
    assert abs(float(tilt.mean())) < math.radians(30) * error
    assert float(tilt.abs().max()) < math.radians(30) + 1e-9


def test_equal_ones_are_written_alike() -> None:
    """A checkpoint knows its run by what is written."""
    assert repr(Retake(shift=0, turn=np.float32(8))) == repr(Retake(shift=0.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_places_are_exact_where_pixels_are_not(dtype: torch.dtype) -> None:
    """Half precision is rounded once, at the end: these pixels are whole numbers."""
    ramp = (torch.arange(33.0) - 16).expand(2, 1, 33, 33)
    u = torch.rand(2, CHANCES, generator=torch.Generator().manual_seed(6))
    coarse, fine = (Retake()(ramp.to(kind), u) for kind in (dtype, torch.float32))
    assert coarse.dtype == dtype
    assert torch.equal(coarse, fine.to(dtype))


def test_single_precision_and_uniform_numbers_of_either() -> None:
    images = noise(2, 1, 6, 6).float()
    u = torch.rand(2, CHANCES, generator=torch.Generator().manual_seed(3))
    found = Retake()(images, u)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, Retake()(images, u.double()))


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "a shift beyond the image": (lambda: Retake(shift=1.5), "shift must be .* 0 to 1 but is 1.5"),
    "a turn back": (lambda: Retake(turn=-3), "turn must be a number from 0 to 180 but is -3"),
    "no number": (lambda: Retake(zoom=math.nan), "zoom must be a number from 0 to 1 but is nan"),
    "yes": (lambda: Retake(contrast=True), "contrast must be a number .* but is True"),
    "endless light": (lambda: Retake(brightness=math.inf), "brightness must be .* at least 0 but"),
    "too much light": (lambda: Retake(brightness=10**400), "brightness must be .* at least 0 but"),
    "a word": (lambda: Retake(turn="8"), "turn must be a number .* but is '8'"),  # type: ignore[arg-type]
    "a table": (
        lambda: Retake()(torch.zeros(3, 4), torch.zeros(3, CHANCES)),
        r"Retake changes images .* but rows of shape \(3, 4\) came",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)
