"""Explanations of images: pixels, drawings, what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from small_images import CELLS, RIGHT, only
from small_tables import assert_one_sentence

from unmasked import Explanation, InputError

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- explanations of images

MASKS = np.array([[1, 0, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
CHANCES = np.array([[0.9, 0.1, 0.2, 0.6], [0.3, 0.7, 0.8, 0.9], [0.6, 0.4, 0.3, 0.2]])
MAP = np.array([[0, 0, 1, 1, 1], [0, 2, 2, 3, 3]])


def explanation(**changes: Any) -> Explanation:
    values: dict[str, Any] = {
        "masks": MASKS,
        "probabilities": CHANCES,
        "index": ["a", "b", "c"],
        "pixels": MAP,
    }
    return Explanation(**{**values, **changes})


def assert_pixels(one: Explanation) -> None:
    assert one.pixels is not None
    assert one.pixels.dtype == np.int64
    np.testing.assert_array_equal(one.pixels, MAP)


def test_pixels_survive_cutting_topping_and_saving(tmp_path: Path) -> None:
    one = explanation()
    for part in (one[1:], one[[2, 0]], one[np.array([True, False, True])], one[[]], one.top(2)):
        assert_pixels(part)
    assert one[[2, 0]].pixel_masks().shape == (2, 2, 5)
    one.save(tmp_path / "explanation.npz")
    loaded = Explanation.load(tmp_path / "explanation.npz")
    assert_pixels(loaded)
    np.testing.assert_array_equal(loaded.pixel_masks(), one.pixel_masks())
    table = explanation(pixels=None)
    table.save(tmp_path / "table.npz")
    assert Explanation.load(tmp_path / "table.npz").pixels is None


def test_pixel_masks_are_the_superpixels_spread_out() -> None:
    found = explanation().pixel_masks()
    assert found.dtype == bool
    for b in range(3):
        for i in range(2):
            for j in range(5):
                assert found[b, i, j] == MASKS[b, MAP[i, j]]
    topped = explanation().top(1)
    assert topped.pixel_masks()[0].astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_the_callers_map_is_copied() -> None:
    cells = MAP.copy()
    one = explanation(pixels=cells)
    cells[:] = 0
    assert_pixels(one)


def test_how_often_each_pixel_is_shown_is_drawn() -> None:
    ax = explanation().plot()
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), MASKS.mean(0)[MAP])
    assert image.get_clim() == (0, 1)
    assert ax.get_title() == "how often shown"
    assert len(ax.figure.axes) == 2, "the picture and its scale"
    empty = explanation()[[]].plot()
    assert not np.asarray(empty.get_images()[0].get_array()).any()


def test_a_rows_probabilities_are_drawn_on_the_axes_given() -> None:
    ax = Figure().subplots()
    assert explanation().plot(1, ax) is ax
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), CHANCES[1][MAP], rtol=1e-6)  # float32
    assert ax.get_title() == "image b"
    assert explanation().plot(-1).get_title() == "image c"


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_a_selection_is_drawn_over_its_image(channels: int | None) -> None:
    """Hidden pixels keep their grey, shown ones are tinted: red above blue."""
    grey = np.linspace(0, 1, 64).reshape(8, 8)
    image = grey if channels is None else np.stack([grey] * channels)
    one = Explanation(only(RIGHT, 2), pixels=CELLS.bound((1, 8, 8)).map)
    ax = Figure().subplots()
    assert one.plot(1, ax, image=image) is ax
    (drawn,) = ax.get_images()
    picture = np.asarray(drawn.get_array()).astype(int)
    factor = picture.shape[0] // 8
    assert picture.shape == (8 * factor, 8 * factor, 3)
    centre = picture[factor // 2 :: factor, factor // 2 :: factor]  # (8, 8, 3)
    shown = one.pixel_masks()[1]
    expected = np.rint(255 * grey).astype(int)
    for i in range(8):
        for j in range(8):
            if shown[i, j]:
                assert centre[i, j, 0] > centre[i, j, 2]
            else:
                assert centre[i, j].tolist() == [expected[i, j]] * 3
    assert ax.get_title() == "image 1"
    assert len(ax.figure.axes) == 1


def test_another_row_is_drawn_with_its_own_selection() -> None:
    image = np.zeros((1, 8, 8))
    one = Explanation(np.eye(4)[:2], pixels=CELLS.bound((1, 8, 8)).map)
    pictures = [np.asarray(one.plot(i, image=image).get_images()[0].get_array()) for i in (0, 1)]
    assert not np.array_equal(*pictures)
    np.testing.assert_array_equal(pictures[0], pictures[1][:, ::-1])


WRONGLY: dict[str, tuple[Callable[[], Any], str]] = {
    "an image of another size": (
        lambda: explanation().plot(0, image=np.zeros((1, 3, 5))),
        r"must be 2 × 5 pixels, .* but came with shape \(1, 3, 5\)",
    ),
    "an image of two channels": (
        lambda: explanation().plot(0, image=np.zeros((2, 2, 5))),
        "1 or 3 channels but has 2",
    ),
    "a row that is not there": (lambda: explanation().plot(3), "between 0 and 2 but is 3"),
    "an image of a table": (
        lambda: explanation(pixels=None).plot(0, image=np.zeros((1, 2, 5))),
        "for explanations of images, but this one is of a table",
    ),
    "pixels of a table": (
        lambda: explanation(pixels=None).pixel_masks(),
        "of a table, not of images",
    ),
    "a map of too many features": (
        lambda: explanation(pixels=MAP + 1),
        "from 0 to 3 but go from 1 to 4",
    ),
    "a map below zero": (lambda: explanation(pixels=MAP - 1), "from 0 to 3 but go from -1 to 2"),
    "a map of fractions": (
        lambda: explanation(pixels=MAP / 2),
        r"of feature numbers but has shape \(2, 5\) and type float64",
    ),
    "a map with channels": (
        lambda: explanation(pixels=MAP[None]),
        r"\(height, width\) of feature numbers but has shape \(1, 2, 5\)",
    ),
}


@pytest.mark.parametrize("case", WRONGLY)
def test_what_does_not_fit_an_explanation_is_refused_in_one_sentence(case: str) -> None:
    ask, words = WRONGLY[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


def test_an_image_needs_a_row() -> None:
    with pytest.raises(InputError, match="row") as caught:
        explanation().plot(image=np.zeros((1, 2, 5)))
    assert_one_sentence(caught.value)
