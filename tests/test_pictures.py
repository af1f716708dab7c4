"""Selections over images: exact values, sizes, and marks that every eye can tell."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

from unmasked import InputError
from unmasked.plots.overlays import HIDDEN, MARK, enlargement, only_shown, overlay, png, to_rgb

INK = (230, 159, 0)  # MARK
SLATE = (103, 117, 138)  # HIDDEN


def grey(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


# ---------------------------------------------------------------------- an image as RGB


def test_own_range_becomes_0_to_255() -> None:
    rgb = to_rgb(np.array([[-1.0, 0.0], [0.5, 3.0]]))
    assert rgb.dtype == np.uint8
    assert rgb.tolist() == [grey(0, 64), grey(96, 255)]


def test_limits_replace_the_range_and_cut_what_is_beyond() -> None:
    assert to_rgb(np.array([[-5, 0, 1, 2, 9]]), limits=(0, 2)).tolist() == [
        grey(0, 0, 128, 255, 255)
    ]


@pytest.mark.parametrize("value", [0, 7, -2.5, 1e300])
@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3), (3, 2, 3)])
def test_one_value_is_mid_grey(value: float, shape: tuple[int, ...]) -> None:
    rgb = to_rgb(np.full(shape, value))
    assert rgb.shape == (2, 3, 3)
    assert (rgb == 128).all()


def test_three_channels_share_one_range_and_keep_their_place() -> None:
    image = np.zeros((3, 2, 2))
    image[0, 0, 0], image[1, 0, 1], image[2, 1, 0] = 4, 2, 1
    assert to_rgb(image).tolist() == [[[255, 0, 0], [0, 128, 0]], [[0, 0, 64], [0, 0, 0]]]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.int64, np.float16, np.float64])
def test_every_kind_of_number(kind: Any) -> None:
    assert to_rgb(np.array([[0, 1]], dtype=kind)).tolist() == [grey(0, 255)]


def test_the_widest_integers_and_floats_do_not_overflow() -> None:
    assert to_rgb(np.array([[-128, 127]], dtype=np.int8)).tolist() == [grey(0, 255)]
    assert to_rgb(np.array([[-1.7e308, 0, 1.7e308]])).tolist() == [grey(0, 128, 255)]


def test_the_image_is_not_changed() -> None:
    image = np.arange(6.0).reshape(2, 3)
    shown = np.ones((2, 3))
    for draw in (to_rgb, lambda x: overlay(x, shown), lambda x: only_shown(x, shown)):
        draw(image)[:] = 0
    assert image.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (shown == 1).all()


# ---------------------------------------------------------------------- selections


def test_overlay_value_by_value() -> None:
    """Black, white and grey pixels; the middle one of a 3 × 3 region is tinted, the rest rim."""
    image = np.full((5, 5), 100)
    image[2, 2], image[0, 0], image[4, 4] = 200, 0, 255
    shown = np.zeros((5, 5), dtype=bool)
    shown[1:4, 1:4] = True
    rgb = overlay(image, shown, limits=(0, 255), strength=0.25, factor=1)
    expected = np.repeat(image[..., None], 3, -1)
    expected[1:4, 1:4] = INK
    expected[2, 2] = (208, 190, 150)  # ¾ · 200 + ¼ · ink, rounded to even: 207.5, 189.75, 150
    np.testing.assert_array_equal(rgb, expected)


def test_probabilities_tint_in_proportion_and_outline_above_one_half() -> None:
    rgb = overlay(np.zeros((1, 4)), np.array([[0, 0.2, 0.5, 0.51]]), limits=(0, 1), factor=1)
    assert rgb.tolist() == [[[0, 0, 0], [23, 16, 0], [58, 40, 0], list(INK)]]


def test_a_single_pixel_of_a_digit_is_a_ring_of_ink_around_its_value() -> None:
    """28 × 28 becomes 224 × 224: blocks of 8, a rim of 2 inside, nothing outside."""
    image = np.zeros((28, 28))
    image[3, 5] = 1
    shown = np.zeros((28, 28), dtype=bool)
    shown[3, 5] = True
    rgb = overlay(image, shown)
    assert rgb.shape == (224, 224, 3)
    block = rgb[24:32, 40:48]
    assert (block[2:6, 2:6] == (242, 207, 128)).all()  # half white, half ink
    block = block.copy()
    block[2:6, 2:6] = INK
    assert (block == INK).all()
    rgb[24:32, 40:48] = 0
    assert not rgb.any()


def test_the_rim_closes_at_the_edge_in_corners_and_around_holes() -> None:
    """Shown pixels as drawn: '#' is rim, 'o' inside; '.' is not shown."""
    drawing = [
        "######..",
        "#oooo#..",
        "#oooo#..",
        "#o######",
        "#o#.#oo#",
        "#o###oo#",
        "#oooooo#",
        "########",
    ]
    cells = np.array([list(line) for line in drawing])
    rgb = overlay(np.zeros((8, 8)), cells != ".", limits=(0, 1), factor=1, strength=1 / 3)
    seen = np.full((8, 8), "?")
    for letter, colour in {"#": INK, "o": (77, 53, 0), ".": (0, 0, 0)}.items():
        seen[(rgb == colour).all(-1)] = letter
    assert ["".join(line) for line in seen] == drawing


def _eroded(shown: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """By definition: all pixels within ``width``, diagonals too, exist and are shown."""
    height, across = shown.shape
    inside = np.zeros_like(shown)
    for i in range(width, height - width):
        for j in range(width, across - width):
            inside[i, j] = shown[i - width : i + width + 1, j - width : j + width + 1].all()
    return inside


@settings(max_examples=60, deadline=None)
@given(
    masks=st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(lambda s: arrays(bool, s)),
    factor=st.sampled_from([1, 2, 4, 8, 12]),
    channels=st.sampled_from([1, 3]),
)
def test_overlay_is_its_definition(masks: NDArray[np.bool_], factor: int, channels: int) -> None:
    image = np.random.default_rng(masks.size).integers(0, 256, (channels, *masks.shape))
    large = np.kron(to_rgb(image), np.ones((factor, factor, 1)))
    shown = np.kron(masks, np.ones((factor, factor), dtype=bool))
    inside = _eroded(shown, max(1, factor // 4))
    expected = np.where(inside[..., None], np.rint(0.5 * large + 0.5 * np.array(INK)), large)
    expected[shown & ~inside] = INK
    result = overlay(image, masks, factor=factor)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, expected)

    kept = only_shown(image, masks, factor=factor)
    np.testing.assert_array_equal(kept, np.where(shown[..., None], large, SLATE))


@pytest.mark.parametrize(
    ("height", "width", "factor"),
    [(28, 28, 8), (1, 1, 224), (63, 63, 4), (64, 64, 1), (10, 64, 1), (64, 10, 1), (128, 128, 1),
     (300, 200, 1), (32, 28, 7)],
)  # fmt: skip
def test_only_tiny_images_are_enlarged_by_whole_factors(
    height: int, width: int, factor: int
) -> None:
    assert enlargement(height, width) == factor
    image, shown = np.zeros((height, width)), np.zeros((height, width))
    assert overlay(image, shown).shape == (factor * height, factor * width, 3)
    assert only_shown(image, shown).shape == (factor * height, factor * width, 3)
    assert to_rgb(image).shape == (height, width, 3)


def test_a_superpixel_of_an_xray_has_a_rim_of_one_pixel() -> None:
    shown = np.zeros((128, 128), dtype=bool)
    shown[8:16, 24:32] = True
    rgb = overlay(np.full((128, 128), 90), shown, limits=(0, 255))
    rim = (rgb == INK).all(-1)
    assert rim.sum() == 8 * 8 - 6 * 6
    assert not rim[~shown].any()
    assert (rgb[~shown] == 90).all()


def test_only_shown_cuts_at_one_half() -> None:
    rgb = only_shown(np.array([[0, 1, 2]]), np.array([[0.5, 0.6, 1]]), factor=1)
    assert rgb.tolist() == [[list(SLATE), *grey(128, 255)]]
    other = only_shown(np.array([[0, 1]]), np.array([[0, 1]]), hidden="white", factor=1)
    assert other.tolist() == [grey(255, 255)]


def test_colours_are_the_callers() -> None:
    shown = np.ones((1, 1))
    assert overlay(np.zeros((1, 1)), shown, colour="#102030", factor=1).tolist() == [[[16, 32, 48]]]
    assert (int(MARK[1:3], 16), int(MARK[3:5], 16), int(MARK[5:], 16)) == INK
    assert (int(HIDDEN[1:3], 16), int(HIDDEN[3:5], 16), int(HIDDEN[5:], 16)) == SLATE


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "usual": np.eye(3),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue cones": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


def lab(rgb: NDArray[Any], eye: NDArray[Any]) -> NDArray[Any]:
    """(pixels, 3) values from 0 to 255 -> CIELAB as this eye sees them."""
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175],
         [0.019334, 0.119192, 0.950304]]
    )  # fmt: skip
    xyz = np.clip(linear @ eye.T, 0, 1) @ to_xyz.T / to_xyz.sum(1)
    root = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


@pytest.mark.parametrize("eye", VISION.values(), ids=VISION.keys())
def test_marks_differ_from_every_grey_for_every_eye(eye: NDArray[Any]) -> None:
    """ΔE of 2.3 can just be told; 20 is told at a glance, also in small pictures."""
    greys = np.arange(256)[None]
    plain = to_rgb(greys, limits=(0, 255))[0]
    everything = np.ones((3, 256))
    tinted = overlay(np.repeat(greys, 3, 0), everything, limits=(0, 255), factor=1)[1, 1:-1]
    distance = np.linalg.norm(lab(tinted, eye) - lab(plain[1:-1], eye), axis=1)
    assert distance.min() > 20
    rim = np.linalg.norm(lab(np.array([INK]), eye) - lab(plain, eye), axis=1)
    assert rim.min() > 40


# ---------------------------------------------------------------------- PNG


def test_png_comes_back_as_it_went() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for picture in (rgb, rgb[::-1], rgb.transpose(1, 0, 2)):  # also where memory is not in order
        with Image.open(io.BytesIO(png(picture))) as read:
            assert (read.format, read.mode, read.info) == ("PNG", "RGB", {})
            np.testing.assert_array_equal(np.asarray(read), picture)


def test_png_is_the_same_each_time_and_has_no_metadata() -> None:
    rgb = overlay(np.eye(28), np.eye(28))
    data = png(rgb)
    assert data == png(rgb.copy())
    kinds, place = [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        kinds.append(data[place + 4 : place + 8])
        place += 12 + length
    assert set(kinds) == {b"IHDR", b"IDAT", b"IEND"}


# ---------------------------------------------------------------------- what is refused

SQUARE = np.zeros((4, 4))
HOLE = np.array([[0, np.nan], [np.inf, 1]])


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((5, 1, 4, 4)), r"shape \(5, 1, 4, 4\), which is a batch; pass one image"),
        (np.zeros((1, 1, 4, 4)), r"which is a batch; pass one image of it, such as images\[0\]"),
        (np.zeros((2, 4, 4)), r"1 or 3 channels but has 2 of shape \(2, 4, 4\); pass 1 or 3"),
        (np.zeros((4, 5, 3)), r"has 4 of shape \(4, 5, 3\); move them first with np.moveaxis"),
        (np.zeros(16), r"shape \(16,\); reshape it"),
        (np.float64(3), r"shape \(\); reshape it"),
        (np.zeros((0, 4)), r"no pixels \(shape \(0, 4\)\)"),
        (HOLE, "finite numbers but has 2 NaN or infinite of 4 values"),
        (np.array([["a", "b"]]), "must hold numbers but holds <U1"),
        (np.array([[None, 1]]), "must hold numbers but holds object"),
        (np.array([[1j]]), "must hold numbers but holds complex128"),
    ],
)
def test_images_that_do_not_fit_are_refused(image: Any, words: str) -> None:
    for draw in (to_rgb, lambda x: overlay(x, SQUARE), lambda x: only_shown(x, SQUARE)):
        with pytest.raises(InputError, match=words) as caught:
            draw(image)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (np.zeros((4, 5)), r"height and width \(4, 4\) but has shape \(4, 5\); pass one value"),
        (np.zeros(16), r"has shape \(16,\); use mask.reshape\(4, 4\)"),
        (np.zeros((1, 4, 4)), r"has shape \(1, 4, 4\); use mask.reshape\(4, 4\)"),
        (np.zeros((2, 4, 4)), r"has shape \(2, 4, 4\); pass one value"),
        (SQUARE + 2, "from 0 to 1 but holds 2; cut it"),
        (SQUARE - 0.5, "from 0 to 1 but holds -0.5"),
        (SQUARE * np.nan, "from 0 to 1 but holds nan"),
        (SQUARE.astype(str), "true or false but holds <U32"),
    ],
)
def test_masks_that_do_not_fit_are_refused(shown: Any, words: str) -> None:
    for draw in (overlay, only_shown):
        with pytest.raises(InputError, match=words) as caught:
            draw(SQUARE, shown)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limits": (1, 1)}, r"low < high but are \(1, 1\)"),
        ({"limits": (2, 1)}, "low < high"),
        ({"limits": (0, np.nan)}, "low < high"),
        ({"limits": (-np.inf, 1)}, "low < high"),
        ({"factor": 0}, "whole number from 1 but is 0"),
        ({"factor": 1.5}, "whole number from 1 but is 1.5"),
        ({"strength": 1.1}, "from 0 to 1 but is 1.1"),
        ({"strength": np.nan}, "from 0 to 1 but is nan"),
        ({"colour": "orangish"}, "matplotlib knows but is 'orangish'"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        overlay(SQUARE, SQUARE, **changes)


@pytest.mark.parametrize(
    "rgb",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3)),
     np.zeros((0, 4, 3), np.uint8)],
)  # fmt: skip
def test_what_is_no_picture_has_no_png(rgb: Any) -> None:
    with pytest.raises(InputError, match=r"must be \(height, width, 3\) of uint8"):
        png(rgb)
