"""Where selections lie, against hand-computed films, chance, limits and the phantom's truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmasked import Superpixels
from unmasked.datasets import phantom as phantoms
from unmasked.datasets import truth_of_superpixels
from unmasked.datasets.phantom import _drawn, _Films
from unmasked.errors import InputError
from unmasked.reproduce.heart_measures import (
    cardiothoracic_ratios,
    distance_to_outline,
    largest_pieces,
    overlap,
    plausible,
)
from unmasked.reproduce.heart_places import Group, Share, where_selections_lie

# One line of eight pixels, four superpixels of two. The heart is in columns 2 to 4; one pixel to
# each side of its outline (margin 1/8) are columns 1, 2, 4 and 5.
STRIP = np.array([[0, 0, 1, 1, 2, 2, 3, 3]])
HEART = np.array([[[0, 0, 1, 1, 1, 0, 0, 0]]], bool)
LUNGS = np.array([[[1, 0, 0, 0, 0, 1, 1, 1]]], bool)


def grid(side: int, cells: int) -> np.ndarray:
    """(side, side) superpixels of a grid."""
    return Superpixels(cells).bound((1, side, side)).map


def discs(count: int, side: int, seed: int = 0) -> np.ndarray:
    """(count, side, side) hearts somewhere near the middle."""
    random = np.random.default_rng(seed)
    middle, radius = random.uniform(0.3, 0.7, (count, 2, 1, 1)), random.uniform(0.12, 0.22, count)
    place = (np.arange(side) + 0.5) / side
    away = (place[:, None] - middle[:, 0]) ** 2 + (place - middle[:, 1]) ** 2
    return away <= radius[:, None, None] ** 2


def share(found: Any, place: str, group: str = "all") -> Share:
    one = found.groups[group]
    assert isinstance(one, Group)
    return one.places[place]


# ---------------------------------------------------------------------- shares


def test_a_film_counted_by_hand() -> None:
    found = where_selections_lie([[0, 1, 1, 0]], STRIP, HEART, lungs=LUNGS, margin=1 / 8, draws=10)
    # shown are columns 2 to 5; lungs without heart and margin are columns 0, 6 and 7
    by_hand = {
        "heart": (3 / 4, 3 / 8),
        "margin": (3 / 4, 4 / 8),
        "heart_or_margin": (4 / 4, 5 / 8),
        "lungs": (0.0, 3 / 8),
        "elsewhere": (0.0, 0.0),
    }
    assert set(found.groups["all"].places) == set(by_hand)
    for place, (shown, area) in by_hand.items():
        one = share(found, place)
        assert one.shown.value == pytest.approx(shown)
        assert one.area.value == pytest.approx(area)
        assert one.difference.value == pytest.approx(shown - area)
        if area:
            assert one.enrichment.value == pytest.approx(shown / area)
        else:
            assert np.isnan(one.enrichment.value)
    # the margin fills ½, ½, 1 and 0 of the superpixels: two of them have at most (1 + ½) / 2
    assert share(found, "margin").most.value == pytest.approx(3 / 4)
    assert share(found, "lungs").most.value == pytest.approx(3 / 4)
    assert np.isnan(share(found, "heart").shown.low)  # one film has no interval
    assert np.isnan(share(found, "heart").others.value)  # nor others


def test_superpixels_count_by_their_area() -> None:
    cells = np.array([[0, 1, 1, 1, 1, 1, 1, 1]])
    heart = np.array([[[1, 0, 0, 0, 1, 0, 0, 0]]], bool)
    found = where_selections_lie([[1, 1]], cells, heart, margin=0)
    assert share(found, "heart").shown.value == pytest.approx(2 / 8)  # and not (1 + 1/7) / 2
    found = where_selections_lie([[0, 1]], cells, heart, margin=0)
    assert share(found, "heart").shown.value == pytest.approx(1 / 7)
    assert share(found, "heart").most.value == pytest.approx((1 + 6 / 7) / 7)


def test_other_films_selections_by_hand() -> None:
    heart = np.zeros((3, 1, 4), bool)
    heart[0, 0, 0] = heart[1, 0, 1] = heart[2, 0, 2] = True
    masks = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]]
    one = share(where_selections_lie(masks, np.arange(4)[None], heart, margin=0), "heart")
    assert one.shown.value == pytest.approx((1 + 1 / 2 + 0) / 3)
    # film 0's heart has ½ of film 1's selection and none of film 2's; film 1's none; film 2's none
    assert one.others.value == pytest.approx(((1 / 2 + 0) / 2 + 0 + 0) / 3)
    assert one.beyond_others.value == pytest.approx(one.shown.value - one.others.value)


def test_the_same_superpixels_on_every_film_follow_no_film() -> None:
    hearts, cells = discs(30, 32), grid(32, 8)
    middle = np.zeros((8, 8), bool)
    middle[2:6, 2:6] = True
    found = where_selections_lie(np.tile(middle.ravel(), (30, 1)), cells, hearts, draws=200)
    for one in found.groups["all"].places.values():
        assert one.beyond_others.value == pytest.approx(0, abs=1e-12)
    assert share(found, "heart").enrichment.low > 1.5  # though hearts are in the middle
    assert "film adds 0.0% [" in found.sentences("middle")[0]
    own = np.stack([truth_of_superpixels(heart[None], 8)[0] for heart in hearts])
    found = where_selections_lie(own, cells, hearts, draws=200)
    assert share(found, "heart").beyond_others.low > 0.2


def test_selections_by_chance_have_the_areas_share() -> None:
    count, shown, cells = 400, 20, 64
    hearts = discs(count, 32)
    random = np.random.default_rng(0)
    masks = random.random((count, cells)).argsort(1) < shown  # so many of them, at random
    found = where_selections_lie(masks, grid(32, 8), hearts, draws=200)
    band = np.stack([distance_to_outline(heart) <= 1 for heart in hearts])  # 1/32 of 32 pixels
    for name, region in (("heart", hearts), ("margin", band)):
        cover = region.reshape(count, 8, 4, 8, 4).mean((2, 4)).reshape(count, cells)
        # drawn without replacement: E = area, var = σ² / k · (S − k) / (S − 1)
        variance = cover.var(1) / shown * (cells - shown) / (cells - 1)
        error = np.sqrt(variance.sum()) / count
        one = share(found, name)
        assert one.area.value == pytest.approx(region.mean())
        assert abs(one.difference.value) < 4 * error
        assert abs(one.enrichment.value - 1) < 4 * error / region.mean()


def test_showing_exactly_the_margin_is_the_most_there_can_be() -> None:
    hearts = discs(6, 24)
    band = np.stack([distance_to_outline(heart) <= 24 / 32 for heart in hearts])
    every_pixel = np.arange(24 * 24).reshape(24, 24)
    found = where_selections_lie(band.reshape(6, -1), every_pixel, hearts, draws=50)
    one = share(found, "margin")
    assert one.shown.value == one.most.value == pytest.approx(1)
    assert one.enrichment.value == pytest.approx(1 / band.mean())
    assert share(found, "elsewhere").shown.value == 0


def test_the_interval_is_that_of_a_mean() -> None:
    count, draws = 200, 4000
    hearts = discs(count, 32)
    masks = np.random.default_rng(1).random((count, 64)) < 0.3
    one = share(where_selections_lie(masks, grid(32, 8), hearts, draws=draws), "heart")
    cover = hearts.reshape(count, 8, 4, 8, 4).mean((2, 4)).reshape(count, 64)
    shown = (masks * cover).sum(1) / masks.sum(1)
    error = (shown - hearts.mean((1, 2))).std() / np.sqrt(count)
    # a 2.5% quantile of 4,000 normal draws is known to √(0.025 · 0.975 / 4000) / 0.058 = 0.043 sd
    assert abs(one.difference.low - (one.difference.value - 1.96 * error)) < 0.2 * error
    assert abs(one.difference.high - (one.difference.value + 1.96 * error)) < 0.2 * error


@settings(max_examples=60, deadline=None)
@given(
    masks=arrays(bool, (3, 4)),
    hearts=arrays(bool, (3, 4, 6)),
    lungs=arrays(bool, (3, 4, 6)),
    cells=st.permutations([0, 1, 2, 3, *([0, 1, 2, 3] * 5)]),
    margin=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_parts_sum_to_one_and_nothing_beats_the_most(
    masks: np.ndarray,
    hearts: np.ndarray,
    lungs: np.ndarray,
    cells: list[int],
    margin: float,
) -> None:
    superpixels = np.array(cells).reshape(4, 6)
    found = where_selections_lie(masks, superpixels, hearts, lungs=lungs, margin=margin, draws=3)
    group = found.groups["all"]
    assert group.counted == (masks.any(1) & hearts.any((1, 2))).sum()
    if not group.counted:
        assert group.places == {}
        return
    for figure in ("shown", "area"):
        parts = ("heart_or_margin", "lungs", "elsewhere")
        total = sum(getattr(group.places[part], figure).value for part in parts)
        assert total == pytest.approx(1)
    for one in group.places.values():
        assert 0 <= one.shown.value <= one.most.value + 1e-12
    order = np.array([2, 0, 3, 1])  # numbers of superpixels mean nothing
    same = where_selections_lie(
        masks[:, np.argsort(order)], order[superpixels], hearts, lungs=lungs, margin=margin, draws=3
    )
    for place, one in group.places.items():
        assert share(same, place).shown.value == pytest.approx(one.shown.value)
        assert share(same, place).most.value == pytest.approx(one.most.value)


def test_showing_everything_is_showing_the_area() -> None:
    found = where_selections_lie(np.ones((5, 16)), grid(16, 4), discs(5, 16), draws=50)
    for one in found.groups["all"].places.values():
        assert one.shown.value == pytest.approx(one.area.value)
        assert one.enrichment.low == one.enrichment.high == pytest.approx(1)


# ---------------------------------------------------------------------- films left out, classes


def test_films_that_show_nothing_are_counted_and_said() -> None:
    hearts = np.repeat(HEART, 4, axis=0)
    hearts[3] = False
    masks = [[0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]
    found = where_selections_lie(masks, STRIP, hearts, margin=0, draws=20)
    group = found.groups["all"]
    assert (group.films, group.nothing, group.without_heart, group.counted) == (4, 1, 1, 2)
    assert group.fraction == pytest.approx((1 + 0 + 1 + 4) / 16)
    assert share(found, "heart").shown.value == pytest.approx(1)
    (words,) = found.sentences("REAL-X")
    assert words.endswith(" (2 films; 1 shows nothing; on 1 no heart was found).")
    nothing = where_selections_lie(np.zeros((4, 4)), STRIP, hearts)
    assert nothing.groups["all"].places == {}
    assert nothing.sentences("L2X") == ["L2X: none of 4 films can be counted; 4 show nothing."]


def test_classes_are_counted_on_their_own() -> None:
    hearts, labels = discs(20, 16), np.arange(20) % 2
    masks = np.random.default_rng(0).random((20, 16)) < 0.5
    found = where_selections_lie(
        masks, grid(16, 4), hearts, labels=labels, names=("well", "ill"), draws=50
    )
    assert list(found.groups) == ["all", "well", "ill"]
    for name, value in (("well", 0), ("ill", 1)):
        rows = labels == value
        alone = where_selections_lie(masks[rows], grid(16, 4), hearts[rows], draws=50)
        for figure in ("enrichment", "shown", "most"):
            one, other = (share(*of) for of in ((found, "margin", name), (alone, "margin")))
            assert getattr(one, figure).value == pytest.approx(getattr(other, figure).value)
    assert [words.split(":")[0] for words in found.sentences("X")] == ["X", "X, well", "X, ill"]
    plain = found.to_dict()
    assert plain["groups"]["ill"]["counted"] == found.groups["ill"].counted
    assert plain["groups"]["ill"]["places"]["heart"]["shown"] == (
        share(found, "heart", "ill").shown.to_json()
    )


def test_probabilities_above_a_half_are_heart() -> None:
    soft = np.where(HEART, 0.51, 0.5)
    hard = where_selections_lie([[0, 1, 0, 1]], STRIP, HEART)
    assert str(where_selections_lie([[0, 1, 0, 1]], STRIP, soft)) == str(hard)  # NaN and all


# ---------------------------------------------------------------------- the phantom's truth


def test_the_phantoms_truth_lies_on_the_margin() -> None:
    """Two of its four edges are the heart's: they lie within 1/64 of its outline, on both sides."""
    size, films = 64, phantoms(40, size=64, seed=3)
    drawn = _Films(_drawn(40, seed=3), size)
    hearts, truths = drawn.to_heart <= 0, drawn.truths()
    lines = truths[0].any(2)  # (films, size) where the left edge is measured
    left = (hearts.argmax(2) * lines).sum(1) / lines.sum(1)
    np.testing.assert_allclose(left, films.heart[:, 0], atol=1)
    of_heart = truths[:2].any(0)
    every_pixel = np.arange(size * size).reshape(size, size)
    # d is measured to pixels' middles, and the phantom's own distance is a first-order one: a pixel
    found = where_selections_lie(
        of_heart.reshape(40, -1), every_pixel, hearts, margin=1 / 64 + 1 / 64, draws=100
    )
    assert share(found, "margin").shown.value > 0.99
    assert 0.3 < share(found, "heart").shown.value < 0.7  # about half inside, half outside
    cells = truth_of_superpixels(films.truth, 16)
    found = where_selections_lie(cells, grid(size, 16), hearts, draws=100)
    assert share(found, "margin").enrichment.low > 2
    assert share(found, "margin").beyond_others.low > 0


# ---------------------------------------------------------------------- measures of outlines


@settings(max_examples=60, deadline=None)
@given(region=arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 6))))
def test_distance_to_the_outline_is_that_to_the_other_side(region: np.ndarray) -> None:
    found = distance_to_outline(region)
    places = np.argwhere(np.ones_like(region))
    for u in places:
        other = [v for v in places if region[tuple(v)] != region[tuple(u)]]
        least = min((np.hypot(*(u - v)) for v in other), default=np.inf) - 0.5
        assert found[tuple(u)] == pytest.approx(least)


def test_pieces_without_specks_and_holes() -> None:
    film = np.array(
        [
            [1, 1, 1, 0, 0, 1],
            [1, 0, 1, 0, 0, 1],
            [1, 1, 1, 0, 0, 0],
            [0, 0, 0, 1, 0, 0],  # touches by a corner only
        ],
        bool,
    )
    one = np.zeros_like(film)
    one[:3, :3] = True
    two = one.copy()
    two[:2, 5] = True
    np.testing.assert_array_equal(largest_pieces(film[None], 1)[0], one)
    np.testing.assert_array_equal(largest_pieces(film[None], 2)[0], two)
    assert not largest_pieces(np.zeros((1, 3, 3), bool), 1).any()


def test_overlap_by_hand() -> None:
    found, true = np.zeros((4, 8, 8), bool), np.zeros((4, 8, 8), bool)
    found[0, 2:4, 2:6] = true[0, 2:4, 2:6] = True  # the same
    found[1, 2:4, 0:4] = true[1, 2:4, 2:6] = True  # 2 × 4 each, 2 × 2 in common
    found[2, 2:4, 2:6] = True  # where there is none
    score = overlap(found, true)
    np.testing.assert_allclose(score["dice"], [1, 1 / 2, 0, 1])
    np.testing.assert_allclose(score["iou"], [1, 1 / 3, 0, 1])
    # all pixels are outline; from columns 0 to 3 it is 2, 1, 0 and 0 pixels to columns 2 to 5
    np.testing.assert_allclose(score["distance"], [0, 3 / 4 / 8, np.nan, np.nan])


def test_ratio_of_widths() -> None:
    heart = np.array([[[0, 0, 1, 1, 1, 0, 0, 0]], [[0] * 8], [[1] * 8]], bool)
    lungs = np.array([[[0, 1, 0, 0, 0, 0, 1, 0]], [[1] * 8], [[0] * 8]], bool)
    np.testing.assert_allclose(cardiothoracic_ratios(heart, lungs), [3 / 6, np.nan, np.nan])


def test_what_is_plausible_by_hand() -> None:
    heart = np.zeros((2, 4, 4), bool)
    heart[0, 1:3, 2:4] = True
    found = plausible(heart)
    assert (found["films"], found["without"]) == (2, 1)
    assert found["area"] == {"mean": 4 / 16, "sd": 0.0}
    assert (found["across"]["mean"], found["down"]["mean"]) == (0.75, 0.5)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"masks": np.ones(4)}, "(films, superpixels) of 0 and 1"),
        ({"masks": [[0.5, 1, 0, 0]]}, "(films, superpixels) of 0 and 1"),
        ({"masks": np.ones((1, 5))}, "masks of 5 superpixels need a map"),
        ({"superpixels": STRIP[0]}, "(height, width) of whole numbers"),
        ({"superpixels": STRIP + 1}, "from 1 to 4"),
        ({"hearts": HEART[0]}, "hearts must be an array (1, 1, 8)"),
        ({"hearts": HEART.astype(int)}, "type int"),
        ({"hearts": np.where(HEART, np.nan, 0.0)}, "probabilities from 0 to 1"),
        ({"lungs": LUNGS[..., :4]}, "lungs must be an array (1, 1, 8)"),
        ({"margin": -0.1}, "margin must be"),
        ({"margin": float("nan")}, "margin must be"),
        ({"draws": 0}, "draws must be"),
        ({"labels": [0, 1]}, "labels must be 1 whole numbers"),
        ({"labels": [2], "names": ("a", "b")}, "names must name each class"),
    ],
)
def test_bad_input_gets_one_sentence(change: dict[str, Any], words: str) -> None:
    given_: dict[str, Any] = {"masks": [[0, 1, 1, 0]], "superpixels": STRIP, "hearts": HEART}
    with pytest.raises(InputError) as caught:
        where_selections_lie(**{**given_, **change})
    text = str(caught.value)
    assert words in text
    assert text.endswith(".")
    assert "\n" not in text


def _drawn_to_the_middle(rng: np.random.Generator, films: int) -> tuple[Any, Any, Any]:
    """Hearts that wander, and selections that prefer the middle without looking: (masks, cells,
    hearts) of 8 × 8 cells of one pixel."""
    side = np.arange(8)
    middle = rng.normal(3.5, 1, (2, films, 1, 1))
    heart = ((side[:, None] - middle[0]) ** 2 + (side - middle[1]) ** 2) < 6
    liked = -((side[:, None] - 3.5) ** 2 + (side - 3.5) ** 2) / 8 + rng.gumbel(size=(films, 8, 8))
    order = (-liked.reshape(films, 64)).argsort(1).argsort(1)
    return order < 6, np.arange(64).reshape(8, 8), heart


@pytest.mark.parametrize("figure", ["others", "beyond_others", "shown"])
def test_intervals_are_as_wide_as_the_figures_vary(figure: str) -> None:
    """Over new films. The spread of 150 figures, and the mean width of 150 intervals, are each
    known to some 6%; four times both together, and 3% by which a bootstrap of pairs of 60 films
    may be narrow, is 0.37. With the others' share held fixed it is off by a factor of two."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(150):
        masks, cells, hearts = _drawn_to_the_middle(rng, 60)
        places = where_selections_lie(masks, cells, hearts, margin=0, draws=200)
        found.append(getattr(share(places, "heart"), figure))
    spread = np.std([one.value for one in found], ddof=1)
    width = np.mean([one.high - one.low for one in found]) / (2 * 1.96)
    assert abs(np.log(width / spread)) < 0.37


def test_films_of_a_patient_are_resampled_together() -> None:
    """Each film twice, as of one patient, has the intervals of the films once; only the others'
    share is another, since a film's double is an other of it."""
    masks, cells, hearts = _drawn_to_the_middle(np.random.default_rng(1), 30)
    once = where_selections_lie(masks, cells, hearts, margin=0, draws=100)
    twice = where_selections_lie(
        np.repeat(masks, 2, 0),
        cells,
        np.repeat(hearts, 2, 0),
        margin=0,
        draws=100,
        patients=np.repeat(np.arange(30), 2),
    )
    for figure in ("shown", "area", "enrichment", "difference", "most"):
        one, other = (getattr(share(places, "heart"), figure) for places in (once, twice))
        assert other.to_json() == pytest.approx(one.to_json(), abs=1e-12)
    same = where_selections_lie(masks, cells, hearts, margin=0, draws=10, patients=[7] * 30)
    assert np.isnan(share(same, "heart").shown.low)  # one patient's films tell of no other
    with pytest.raises(InputError, match="patients must be 30"):
        where_selections_lie(masks, cells, hearts, patients=[1, 2])
