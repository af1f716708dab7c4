"""Phantoms: what is drawn is what is said, and only the ratio says anything about the label.

Tolerances are in standard errors: of an AUROC without information, √((n + 1) / (12 n₀ n₁)).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.special import expit

from unmasked.data import Phantom, phantom, truth_of_superpixels
from unmasked.errors import InputError
from unmasked.metrics import auroc
from unmasked.superpixels import Superpixels

MANY = 4000


@pytest.fixture(scope="module")
def films() -> Phantom:
    return phantom(MANY, seed=1)


def area(score: np.ndarray, y: np.ndarray) -> float:
    """AUROC of any score."""
    return auroc(np.stack([-score, score], 1), y)


def standard_error(y: np.ndarray) -> float:
    ill = int(y.sum())
    return float(np.sqrt((len(y) + 1) / (12 * ill * (len(y) - ill))))


def test_shapes_types_and_range(films: Phantom) -> None:
    assert films.x.shape == (MANY, 1, 64, 64)
    assert films.x.dtype == np.float32
    assert films.x.min() >= 0
    assert films.x.max() <= 1
    assert np.isfinite(films.x).all()
    assert films.y.shape == (MANY,)
    assert films.y.dtype == np.int64
    assert films.truth.shape == (MANY, 64, 64)
    assert films.truth.dtype == bool
    assert films.probability.shape == films.ratio.shape == (MANY,)
    assert films.heart.shape == films.thorax.shape == (MANY, 2)


# ---------------------------------------------------------------------- the label


def test_the_ratio_decides_the_probability(films: Phantom) -> None:
    width = np.diff(films.heart)[:, 0] / np.diff(films.thorax)[:, 0]
    np.testing.assert_allclose(films.ratio, width, rtol=1e-12)
    np.testing.assert_allclose(films.probability, expit((width - 0.5) / 0.02), rtol=1e-9)
    assert films.ratio.min() > 0.36
    assert films.ratio.max() < 0.64


def test_ratios_are_drawn_evenly(films: Phantom) -> None:
    counts = np.histogram(films.ratio, bins=7, range=(0.36, 0.64))[0]
    assert np.abs(counts - MANY / 7).max() < 4 * np.sqrt(MANY * (1 / 7) * (6 / 7))


def test_labels_follow_the_probability(films: Phantom) -> None:
    """As many as expected, in each range of it, within 4 standard deviations."""
    for low, high in ((0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.95), (0.95, 1)):
        p = films.probability[(low <= films.probability) & (films.probability < high)]
        y = films.y[(low <= films.probability) & (films.probability < high)]
        assert len(p) > 100
        assert abs(y.sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum())


def test_classes_are_even(films: Phantom) -> None:
    assert abs(films.y.mean() - 0.5) < 4 * 0.5 / np.sqrt(MANY)


def test_the_optimum_is_known(films: Phantom) -> None:
    """The AUROC of P(y = 1) is 4 ∬ (1 − P(s)) P(r) over ratios s < r of uniform density.

    Within 4 standard errors of an AUROC a, which are below √(a (1 − a) / fewer of a class).
    """

    def p(r: float) -> float:
        return float(expit((r - 0.5) / 0.02))

    def below(r: float) -> float:
        return float(quad(lambda s: 1 - p(s), 0.36, r)[0])

    best = 4 * quad(lambda r: p(r) * below(r), 0.36, 0.64)[0] / 0.28**2
    assert best == pytest.approx(0.9667, abs=5e-5)
    fewer = min(films.y.sum(), MANY - films.y.sum())
    error = np.sqrt(best * (1 - best) / fewer)
    assert abs(area(films.probability, films.y) - best) < 4 * error


@pytest.mark.parametrize(
    "score",
    [
        lambda films: films.x.mean((1, 2, 3)),
        lambda films: films.x[:, 0, -8:].mean((1, 2)),  # the belly
        lambda films: films.x[:, 0, :16].mean((1, 2)),  # shoulders
        lambda films: films.x[:, 0, :4, :4].mean((1, 2)),  # air
        lambda films: films.heart.mean(1),
        lambda films: films.thorax.mean(1),
        lambda films: films.heart.mean(1) - films.thorax.mean(1),
        lambda films: np.diff(films.thorax)[:, 0],
        lambda films: levels(films)[0],
        lambda films: levels(films)[1],
    ],
    ids=[
        "mean brightness", "belly's brightness", "shoulders' brightness", "air's brightness",
        "heart's middle", "thorax's middle", "heart's middle in the thorax", "thorax's width",
        "heart's level", "thorax's level",
    ],
)  # fmt: skip
def test_brightness_place_and_scale_say_nothing(films: Phantom, score: Any) -> None:
    assert abs(area(score(films), films.y) - 0.5) < 4 * standard_error(films.y)


def levels(films: Phantom) -> tuple[np.ndarray, np.ndarray]:
    """How far down the truth of the heart's left edge and of the thorax's is, (films,) each."""
    return level(near(films, films.heart, 0)), level(near(films, films.thorax, 0))


def level(mask: np.ndarray) -> np.ndarray:
    """The mean line of each mask: (films, size, size) -> (films,)."""
    counts = mask.sum(2)  # (films, size)
    return (counts * np.arange(mask.shape[1])).sum(1) / counts.sum(1)


def near(films: Phantom, edges: np.ndarray, side: int, pixels: float = 3) -> np.ndarray:
    """The truth within some columns of an edge, (films, size, size)."""
    columns = np.arange(films.x.shape[-1]) + 0.5
    close = np.abs(columns - edges[:, side, None]) <= pixels  # (films, size)
    return films.truth & close[:, None, :]


def test_nothing_but_the_ratio_depends_on_the_label(films: Phantom) -> None:
    """Films of nearly the same ratio: the label tells nothing about any pixel.

    4,096 pixels are asked about 60 films a class: P(|t| > 5.5) is 1e-6, times 4,096 is 0.004.
    """
    here = np.abs(films.ratio - 0.5) < 0.004
    x, y = films.x[here, 0].reshape(here.sum(), -1).astype(np.float64), films.y[here]
    assert min(y.sum(), (1 - y).sum()) > 30
    one, other = x[y == 1], x[y == 0]
    error = np.sqrt(one.var(0) / len(one) + other.var(0) / len(other))
    inked = error > 1e-3
    assert inked.mean() > 0.9
    assert np.abs((one.mean(0) - other.mean(0))[inked] / error[inked]).max() < 5.5


def test_the_heart_is_seen_where_it_is_said_to_be(films: Phantom) -> None:
    """Across each edge at its level, the film goes from dark lung to bright heart or chest wall."""
    for edges, inwards in ((films.heart, 1), (films.thorax, -1)):
        for side in (0, 1):
            direction = inwards * (1 if side == 0 else -1)  # towards what is bright
            line = np.rint(level(near(films, edges, side))).astype(int)
            at = edges[:, side] - 0.5  # the column whose middle is at the edge
            bright, dark = (
                films.x[np.arange(MANY), 0, line, np.rint(at + step).astype(int)]
                for step in (2 * direction, -2 * direction)
            )
            assert (bright - dark).mean() > 0.2
            assert (bright > dark).mean() > 0.999


def test_widths_can_be_measured_on_the_film() -> None:
    """As a radiologist does, at the steepest steps near the edges: to about a pixel of 90."""
    films = phantom(100, size=128, seed=4)
    found = []  # the four edges
    for edges, inwards in ((films.heart, 1), (films.thorax, -1)):
        for side in (0, 1):
            lines = np.rint(level(near(films, edges, side, 6))).astype(int)
            places = []
            for film, line, edge in zip(films.x[:, 0], lines, edges[:, side], strict=True):
                smooth = np.convolve(film[line - 3 : line + 4].mean(0), np.ones(3) / 3, "same")
                rise = np.gradient(smooth) * inwards * (1 if side == 0 else -1)
                start = int(edge) - 8
                places.append(start + int(np.argmax(rise[start : start + 17])) + 0.5)
            found.append(np.array(places))
    measured = (found[1] - found[0]) / (found[3] - found[2])
    assert np.median(np.abs(measured - films.ratio)) < 0.01
    assert np.corrcoef(measured, films.ratio)[0, 1] > 0.99


# ---------------------------------------------------------------------- the truth


def test_every_edge_has_its_truth(films: Phantom) -> None:
    """Four of them, each a few pixels wide and about a dozen high, on both sides of the edge."""
    everything = np.zeros_like(films.truth)
    for edges in (films.heart, films.thorax):
        for side in (0, 1):
            here = near(films, edges, side)
            assert here.sum((1, 2)).min() >= 20
            assert here.any(2).sum(1).min() >= 6
            columns = np.arange(64) + 0.5
            left = here & (columns < edges[:, side, None])[:, None]
            assert (left.any((1, 2)) & (here & ~left).any((1, 2))).all()
            everything |= here
    # what is farther from an edge than 3 columns is where the heart's outline bends
    assert (films.truth & ~everything).sum() < 0.1 * films.truth.sum()
    assert 0.03 < films.truth.mean() < 0.06


def test_the_truth_is_at_edges_only(films: Phantom) -> None:
    columns = np.arange(64) + 0.5
    edges = np.concatenate([films.heart, films.thorax], 1)  # (films, 4)
    gap = np.abs(columns[None, :, None] - edges[:, None, :]).min(2)  # (films, size)
    assert gap[films.truth.any(1)].max() < 6


def test_the_truth_grows_with_the_size() -> None:
    small, large = phantom(50, size=64), phantom(50, size=128)
    halves = large.truth.reshape(50, 64, 2, 64, 2).mean((2, 4))
    assert np.abs(halves - small.truth).mean() < 0.015
    assert large.truth.mean() == pytest.approx(small.truth.mean(), rel=0.03)


# ---------------------------------------------------------------------- drawing


def test_the_seed_alone_decides() -> None:
    one, again, other = phantom(20, seed=3), phantom(20, seed=3), phantom(20, seed=4)
    for name in ("x", "y", "truth", "probability", "heart", "thorax"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.truth, other.truth)
    assert not np.array_equal(one.x[0], other.x[0])
    assert len(np.unique(one.x.reshape(20, -1), axis=0)) == 20


def test_every_film_and_seed_has_noise_of_its_own() -> None:
    """Differences of neighbours in the belly are noise; 4 standard errors of a correlation of 0.

    Neighbours share pixels, so that of 40 · 9 · 13 numbers at least a ninth are independent.
    """

    def grain(films: Phantom) -> np.ndarray:
        patch = films.x[:, 0, 54:, 14:28].astype(np.float64)
        rough = np.diff(np.diff(patch, axis=1), axis=2)  # (films, 9, 13)
        return rough / rough.std((1, 2), keepdims=True)

    one, other = grain(phantom(40, seed=3)), grain(phantom(40, seed=4))
    error = 1 / np.sqrt(one.size / 9)
    assert abs((one * other).mean()) < 4 * error
    assert abs((one[1:] * one[:-1]).mean()) < 4 * error


@pytest.mark.parametrize("rows", [1, 5, 128, 129, 300])
def test_the_first_films_do_not_depend_on_how_many_are_drawn(films: Phantom, rows: int) -> None:
    few = phantom(rows, seed=1)
    for name in ("x", "y", "truth", "probability", "heart", "thorax"):
        np.testing.assert_array_equal(getattr(few, name), getattr(films, name)[:rows])


def test_another_size_shows_the_same_thoraces() -> None:
    """But for noise, whose standard deviation is at most 0.04 a pixel."""
    small, large = phantom(40, size=64, seed=2), phantom(40, size=128, seed=2)
    np.testing.assert_array_equal(small.y, large.y)
    np.testing.assert_allclose(2 * small.heart, large.heart)
    np.testing.assert_allclose(2 * small.thorax, large.thorax)
    halves = large.x.reshape(40, 64, 2, 64, 2).mean((2, 4))
    assert np.abs(halves - small.x[:, 0]).mean() < 0.05
    for a, b in zip(halves, small.x, strict=True):
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.9


def test_no_global_generator_is_used() -> None:
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    phantom(3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("rows", 0, 1), ("rows", 2.0, 1), ("rows", True, 1), ("rows", "9", 1),
        ("size", 31, 32), ("size", 64.0, 32), ("size", None, 32), ("seed", -1, 0), ("seed", 0.5, 0),
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_by_value(name: str, value: Any, least: int) -> None:
    with pytest.raises(InputError) as caught:
        phantom(**({"rows": 3} | {name: value}))
    assert str(caught.value) == (
        f"{name} must be a whole number of at least {least} but is {value!r}."
    )


# ---------------------------------------------------------------------- superpixels


@settings(max_examples=100, deadline=None)
@given(data=st.data(), height=st.integers(1, 9), width=st.integers(1, 9))
def test_cells_are_true_by_the_rule(data: st.DataObject, height: int, width: int) -> None:
    """Counted by hand with the cells of Superpixels: a quarter of the fullest cell's, or more."""
    truth = data.draw(arrays(bool, (3, height, width)))
    grid = data.draw(st.tuples(st.integers(1, height), st.integers(1, width)))
    cells = Superpixels(grid).bound((1, height, width)).map
    found = truth_of_superpixels(truth, grid)
    assert found.shape == (3, grid[0] * grid[1])
    assert found.dtype == bool
    for film, row in zip(truth, found, strict=True):
        counts = [int(film[cells == cell].sum()) for cell in range(cells.max() + 1)]
        assert row.tolist() == [count > 0 and 4 * count >= max(counts) for count in counts]


def test_a_cell_a_pixel_is_the_truth_itself(films: Phantom) -> None:
    found = truth_of_superpixels(films.truth[:50], 64)
    np.testing.assert_array_equal(found, films.truth[:50].reshape(50, -1))


@pytest.mark.parametrize("grid", [4, 8, 16, (8, 16), 7])
def test_every_edge_keeps_a_cell(films: Phantom, grid: Any) -> None:
    cells = Superpixels(grid).bound((1, 64, 64)).map.ravel()
    found = truth_of_superpixels(films.truth[:500], grid)[:, cells].reshape(500, 64, 64)
    for edges in (films.heart, films.thorax):
        for side in (0, 1):
            assert (near(films, edges, side)[:500] & found).any((1, 2)).all()
    assert found.mean() < 0.3


def test_some_cells_of_the_usual_grids_are_true(films: Phantom) -> None:
    for grid, low, high in ((8, 0.08, 0.25), (16, 0.04, 0.15)):
        found = truth_of_superpixels(films.truth, grid)
        assert low < found.mean() < high


@pytest.mark.parametrize("grid", [0, -1, 2.0, True, (2,), (2, 2, 2), (2, 0), "8", None])
def test_an_impossible_grid_is_refused_by_value(films: Phantom, grid: Any) -> None:
    with pytest.raises(InputError, match="grid must be a whole number above 0") as caught:
        truth_of_superpixels(films.truth[:2], grid)
    assert repr(grid) in str(caught.value)


@pytest.mark.parametrize("grid", [65, (65, 1), (1, 65)])
def test_a_grid_that_is_too_fine_is_refused(films: Phantom, grid: Any) -> None:
    with pytest.raises(InputError, match=r"needs at least .* 64 × 64; use a coarser grid"):
        truth_of_superpixels(films.truth[:2], grid)


@pytest.mark.parametrize("truth", [np.zeros((4, 4), bool), np.zeros((1, 4, 4)), np.zeros(3, bool)])
def test_what_is_no_truth_is_refused(truth: Any) -> None:
    with pytest.raises(InputError, match=r"\(films, height, width\) of true and false"):
        truth_of_superpixels(truth, 2)
