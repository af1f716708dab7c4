"""Phantoms: what is drawn is what is said, and only the ratio says anything about the label.

Tolerances are in standard errors: of an AUROC without information, √((n + 1) / (12 n₀ n₁)).

A width is the mean over 11/64 of a side, 2.75 steps of 1/16, of an outline that goes from place to
place with weights s(t) = t² (3 − 2 t), whose integral is t³ − t⁴ / 2. So five places count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from unmasked.datasets import Phantom, phantom, truth_of_superpixels
from unmasked.datasets.phantom import _RANGES, _Anatomy, _anatomy, _drawn, _Films
from unmasked.errors import InputError
from unmasked.masks.superpixels import Superpixels
from unmasked.metrics import auroc

MANY = 4000
EDGES = ("heart's left", "heart's right", "thorax's left", "thorax's right")
SWAY = np.array([0.064, 0.064, 0.072, 0.072])  # how far edges are moved at most, in widths
PLACES, LEVEL = 33, 16  # places of an edge, and the one at its level
TAIL = 0.375**3 - 0.375**4 / 2  # of the outermost place, of which 0.375 steps are measured
WEIGHTS = np.array([TAIL, 0.875 - TAIL, 1, 0.875 - TAIL, TAIL]) / 2.75  # of places −2 to 2


@pytest.fixture(scope="module")
def films() -> Phantom:
    return phantom(MANY, seed=1)


@pytest.fixture(scope="module")
def anatomy() -> _Anatomy:
    """Of the same films."""
    return _drawn(MANY, seed=1)


@pytest.fixture(scope="module")
def truths(films: Phantom, anatomy: _Anatomy) -> np.ndarray:
    """(4, 500, size, size) the truth of the first films, edge by edge."""
    found = _Films(first(anatomy, 500), 64).truths()
    np.testing.assert_array_equal(found.any(0), films.truth[:500])
    return found


def first(anatomy: _Anatomy, rows: int) -> _Anatomy:
    return _Anatomy(*(value[:rows] for value in anatomy))


def value(anatomy: _Anatomy, name: str) -> np.ndarray:
    return anatomy.drawn[:, list(_RANGES).index(name)]


def moved(anatomy: _Anatomy) -> np.ndarray:
    """(films, 4) how far each edge is from its ellipse, in widths, outwards."""
    outwards = np.array([-1, 1, -1, 1]) * (anatomy.edges - anatomy.middles)
    return outwards / value(anatomy, "width")[:, None] - np.array([0.25, 0.25, 0.5, 0.5])


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


def test_the_ratio_decides_the_probability(films: Phantom, anatomy: _Anatomy) -> None:
    width = np.diff(films.heart)[:, 0] / np.diff(films.thorax)[:, 0]
    np.testing.assert_allclose(films.ratio, width, rtol=1e-12)
    np.testing.assert_allclose(anatomy.ratio, width, rtol=1e-12)
    np.testing.assert_allclose(films.probability, expit((width - 0.5) / 0.0075), rtol=1e-9)
    assert films.ratio.min() > (0.5 - 2 * 0.064) / (1 + 2 * 0.072)  # all moves at their limits
    assert films.ratio.max() < (0.5 + 2 * 0.064) / (1 - 2 * 0.072)


def test_edges_are_moved_as_promised(anatomy: _Anatomy) -> None:
    """Σ w u of five even numbers u from −1 to 1: mean 0, variance v = Σ w² / 3, and independent.

    The fourth moment is 3 v² − 2/15 Σ w⁴, which gives the standard error of a variance.
    """
    assert WEIGHTS.sum() == pytest.approx(1)
    z = moved(anatomy) / SWAY  # (films, 4)
    assert np.abs(z).max() < 1
    variance = (WEIGHTS**2).sum() / 3
    fourth = 3 * variance**2 - 2 / 15 * (WEIGHTS**4).sum()
    assert np.abs(z.mean(0)).max() < 4 * np.sqrt(variance / MANY)
    assert np.abs(z.var(0) - variance).max() < 4 * np.sqrt((fourth - variance**2) / MANY)
    assert np.abs(np.corrcoef(z.T) - np.eye(4)).max() < 4 / np.sqrt(MANY)


def test_an_edge_is_the_mean_of_its_places_by_their_weights() -> None:
    rng = np.random.default_rng(0)
    moves = rng.random((50, 4, PLACES))
    expected = (2 * moves[:, :, LEVEL - 2 : LEVEL + 3] - 1) @ WEIGHTS * SWAY
    found = moved(_anatomy(rng.random((50, len(_RANGES))), moves))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_every_edge_has_its_share(anatomy: _Anatomy) -> None:
    """ratio − 0.5 = (a − b / 2) / (1 + b), with a and b the moves of heart and thorax.

    To first order the slopes are 1, 1, −0.5 and −0.5. The rest, b²/2 − ab and above, changes them
    by a share of about 3 Var(b) = 0.003 and has a standard deviation of 0.0013 = σ(b) √(Var(a) +
    Var(b)/2), against 0.02 of an edge: standard errors are 0.001.
    """
    z, ratio = moved(anatomy), anatomy.ratio
    design = np.concatenate([np.ones((MANY, 1)), z], 1)
    slopes = np.linalg.lstsq(design, ratio, rcond=None)[0][1:]
    np.testing.assert_allclose(slopes, [1, 1, -0.5, -0.5], atol=0.004 + 4 * 0.001)
    shares = slopes**2 * z.var(0) / ratio.var()
    expected = np.array([1, 1, 0.25, 0.25]) * SWAY**2
    # 4 standard errors of a variance, each at most √(2 / n) of it, of a share and of the whole
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=0.02 + 8 * np.sqrt(2 / MANY))
    assert shares.sum() == pytest.approx(1, abs=0.06)  # edges are nearly uncorrelated


def test_size_and_place_do_not_change_the_ratio() -> None:
    """Nor does anything else but the moves: they are shares of the width."""
    rng = np.random.default_rng(1)
    one, other = rng.random((2, 100, len(_RANGES)))
    moves = rng.random((100, 4, PLACES))
    np.testing.assert_allclose(_anatomy(one, moves).ratio, _anatomy(other, moves).ratio, rtol=1e-12)


def test_the_outline_elsewhere_changes_neither_label_nor_truth() -> None:
    """Places from the third on, up and down, are beyond the five that count."""
    rng = np.random.default_rng(2)
    uniform, moves = rng.random((60, len(_RANGES))), rng.random((60, 4, PLACES))
    others = rng.random((60, 4, PLACES))
    counts = slice(LEVEL - 2, LEVEL + 3)
    others[:, :, counts] = moves[:, :, counts]
    one, other = _anatomy(uniform, moves), _anatomy(uniform, others)
    np.testing.assert_allclose(one.edges, other.edges, rtol=1e-12)
    a, b = _Films(one, 64), _Films(other, 64)
    np.testing.assert_array_equal(a.truths(), b.truths())
    assert (np.abs(a.to_thorax - b.to_thorax) > 1 / 64).any((1, 2)).all()  # it is drawn, though


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
    """The AUROC of P(y = 1) over 200,000 anatomies: pairs count by P of one and 1 − P of the other.

    Its standard error comes from 20 parts of them. That of the films' AUROC a is below
    √(a (1 − a) / fewer of a class).
    """
    parts = []
    for seed in range(20):
        p = np.sort(expit((_drawn(10_000, seed).ratio - 0.5) / 0.0075))
        below = np.cumsum(1 - p) - (1 - p)
        parts.append((p * below).sum() / (p.sum() * (1 - p).sum() - (p * (1 - p)).sum()))
    best, error = np.mean(parts), np.std(parts, ddof=1) / np.sqrt(20)
    assert error < 0.0003
    assert abs(best - 0.958) < 0.0005 + 4 * error  # three digits are promised
    fewer = min(films.y.sum(), MANY - films.y.sum())
    error = np.sqrt(best * (1 - best) / fewer)
    assert abs(area(films.probability, films.y) - best) < 4 * error


@pytest.mark.parametrize("edge", range(4), ids=EDGES)
def test_who_misses_an_edge_knows_less(films: Phantom, anatomy: _Anatomy, edge: int) -> None:
    """The ratio as if one edge lay on its ellipse; the same films, so that the difference counts.

    Its standard error comes from 20 parts of the films.
    """
    z = moved(anatomy) * (np.arange(4) != edge)
    blind = (0.5 + z[:, 0] + z[:, 1]) / (1 + z[:, 2] + z[:, 3])
    loss = [
        area(films.ratio[part], films.y[part]) - area(blind[part], films.y[part])
        for part in np.split(np.arange(MANY), 20)
    ]
    assert np.mean(loss) > 4 * np.std(loss, ddof=1) / np.sqrt(20)


@pytest.mark.parametrize("place", [-4, -3, -1, 0, 1, 3, 4])
@pytest.mark.parametrize("edge", range(4), ids=EDGES)
def test_the_label_depends_on_the_measured_places_only(
    films: Phantom, anatomy: _Anatomy, edge: int, place: int
) -> None:
    """Those next to the level tell the label, those from the third on do not."""
    score = anatomy.waver[:, edge, LEVEL + place] * (1 if edge < 2 else -1)
    told = (area(score, films.y) - 0.5) / standard_error(films.y)
    if abs(place) <= 1:
        assert told > 4
    else:
        assert abs(told) < 4


def test_everything_else_that_is_drawn_says_nothing(films: Phantom, anatomy: _Anatomy) -> None:
    """The ellipses' size and place, the heart's height and tilt, ribs, exposure: 29 of them."""
    for drawn in anatomy.drawn.T:
        assert abs(area(drawn, films.y) - 0.5) < 4 * standard_error(films.y)


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
        lambda films: level(films.truth),
    ],
    ids=[
        "mean brightness", "belly's brightness", "shoulders' brightness", "air's brightness",
        "heart's middle", "thorax's middle", "heart's middle in the thorax", "level",
    ],
)  # fmt: skip
def test_brightness_and_place_say_nothing(films: Phantom, score: Any) -> None:
    assert abs(area(score(films), films.y) - 0.5) < 4 * standard_error(films.y)


def level(mask: np.ndarray) -> np.ndarray:
    """The mean line of each mask: (films, size, size) -> (films,)."""
    counts = mask.sum(2)  # (films, size)
    return (counts * np.arange(mask.shape[1])).sum(1) / counts.sum(1)


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


@pytest.mark.parametrize("edge", range(4), ids=EDGES)
def test_the_film_steps_where_the_truth_is(films: Phantom, anatomy: _Anatomy, edge: int) -> None:
    """From dark lung to bright heart or chest wall, in the mean over the truth's lines.

    Pixels are compared from 1 to 3 pixels off the edge on each side, beyond its blur.
    """
    rows = 500
    drawn = _Films(first(anatomy, rows), 64)
    inside, measured = 64 * drawn.to_edges[edge], np.abs(drawn.v - drawn.levels[edge]) <= 5.5 / 64
    towards = drawn.from_heart if edge < 2 else drawn.aside
    own = measured & (towards * (1 if edge % 2 else -1) > 0)

    def brightness(low: float, high: float) -> np.ndarray:
        here = own & (low < inside) & (inside < high)
        return (films.x[:rows, 0] * here).sum((1, 2)) / here.sum((1, 2))

    step = (brightness(-3, -1) - brightness(1, 3)) * (1 if edge < 2 else -1)
    assert step.mean() > 0.2
    assert step.min() > 0.03  # four standard deviations of the grain over 20 pixels


def test_half_widths_have_the_promised_mean() -> None:
    """Over the measured part, but for half a line of 176 at each end, up to 0.1 off the mean."""
    drawn = _drawn(8, seed=6)
    films = _Films(drawn, 1024)
    for edge, outwards in enumerate((-1, 1, -1, 1)):
        half = films._half_width(edge, drawn.waver[:, edge])
        here = (np.abs(films.v - films.levels[edge]) <= 5.5 / 64)[:, :, 0]
        mean = (half * here).sum(1) / here.sum(1)
        expected = outwards * (drawn.edges - drawn.middles)[:, edge]
        np.testing.assert_allclose(mean, expected, atol=0.1 / 176)


def test_widths_can_be_measured_on_the_film() -> None:
    """As a radiologist does: at the steepest step of each measured line, then the lines' mean.

    A line's place is known to half a pixel, so the mean of 22 lines to 0.3 / √22 = 0.06; a line
    more or less at the ends, up to 10 pixels away from the mean, moves it by up to 10 / 44.
    """
    size, rows = 128, 150
    films, drawn = phantom(rows, size, seed=4), _Films(_drawn(rows, seed=4), size)
    said = np.concatenate([films.heart, films.thorax], 1)
    smooth = films.x[:, 0, :, :-2] + films.x[:, 0, :, 1:-1] + films.x[:, 0, :, 2:]
    rise = np.diff(smooth)  # between columns i + 1 and i + 2, that is, at i + 2
    at = np.arange(rise.shape[2]) + 2
    found = np.empty((rows, 4))
    for edge, sign in enumerate((1, -1, -1, 1)):  # towards what is bright
        close = np.abs(at - said[:, edge, None]) < 0.1 * size
        steepest = at[np.where(close[:, None], sign * rise, -9).argmax(2)]  # (films, lines)
        here = (np.abs(drawn.v - drawn.levels[edge]) <= 5.5 / 64)[:, :, 0]
        found[:, edge] = (steepest * here).sum(1) / here.sum(1)
    away = found - said
    assert np.abs(away).mean(0).max() < 0.06 + 10 / 44
    assert np.abs(away.mean(0)).max() < 0.05  # no bias: five standard errors of 0.11 / √150
    measured = (found[:, 1] - found[:, 0]) / (found[:, 3] - found[:, 2])
    assert np.corrcoef(measured, films.ratio)[0, 1] > 0.99


# ---------------------------------------------------------------------- the truth


def test_every_edge_has_its_truth(films: Phantom, truths: np.ndarray) -> None:
    """11 pixels high, at least 2 wide: one and more on both sides of the edge; in the film."""
    assert set(np.unique(truths.any(3).sum(2))) <= {11, 12}  # 12 if a line's middle is at the end
    assert truths.sum(3).max(2).min() >= 2
    assert truths.sum((2, 3)).min() >= 2 * 11
    border = np.ones((64, 64), bool)
    border[1:-1, 1:-1] = False
    assert not films.truth[:, border].any()
    assert 4 * 22 / 64**2 <= films.truth.mean() < 4 * 33 / 64**2


@pytest.mark.parametrize("limits", [False, True], ids=["drawn", "at the limits"])
def test_nothing_hides_the_truth(limits: bool) -> None:
    """Neither diaphragm nor vessels nor the film's or the body's end nor another edge does."""
    rng = np.random.default_rng(3)
    uniform, moves = rng.random((400, len(_RANGES))), rng.random((400, 4, PLACES))
    if limits:
        uniform, moves = np.rint(uniform), np.rint(moves)
    films = _Films(_anatomy(uniform, moves), 64)
    truths = films.truths()
    assert truths.sum(0).max() == 1
    truth = truths.any(0)
    assert films._inside(films.to_lungs)[truth].min() == 1
    assert films._mediastinum()[truth & (films.to_heart > 0)].max() == 0
    assert films._body()[truth & (films.to_thorax < 0.5 / 64)].min() == 1
    columns = np.arange(64)
    places = np.stack([(one * columns).sum(2) / np.maximum(one.sum(2), 1) for one in truths])
    left_heart, right_heart, left_thorax, right_thorax = places  # (films, lines) each
    for inner, outer, sign in (
        (left_heart, left_thorax, -1), (right_heart, right_thorax, 1), (left_heart, right_heart, 1),
    ):  # fmt: skip
        both = (inner > 0) & (outer > 0)
        assert both.any()
        assert (sign * (outer - inner))[both].min() > 1.5


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
def test_every_edge_keeps_a_cell(truths: np.ndarray, grid: Any) -> None:
    cells = Superpixels(grid).bound((1, 64, 64)).map.ravel()
    found = truth_of_superpixels(truths.any(0), grid)[:, cells].reshape(500, 64, 64)
    assert (truths & found).any((2, 3)).all()
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
