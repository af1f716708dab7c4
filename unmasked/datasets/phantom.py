"""Phantoms of chest X-rays: drawn films whose label and whose truth are known.

::

    ratio = width of the heart / width of the thorax          the cardiothoracic ratio
    P(y = 1) = σ((ratio − 0.5) / 0.0075)                      0.5 is the usual limit

A film shows a thorax with dark lungs, diaphragm, spine, ribs and collarbones, and a heart that is
brighter than the lungs. Both outlines waver around ellipses whose ratio is 0.5 on every film: each
of the four edges, the left and the right one of heart and thorax, is moved out or in at places a
sixteenth of the film apart, by shares of the ellipse's width that are drawn independently. A width
is measured where ellipses are widest, as the mean over a part of the outline (11/64 of the film
high). So the label depends on these four parts alone, on all of them, and on all of each: they are
the truth, and nothing hides them. Nothing else tells the ratio: the ellipses' size and place, the
heart's height and tilt, ribs, noise and the film's mean brightness (exposure is automatic, as on
real machines) are drawn independently of it.

Three things to know. At the same mean brightness, the rest of a film with an enlarged heart is
about 0.7% darker; exposures differ by 18%. An outline is smooth, so pixels just above and below the
truth tell a little too. And the heart's edges decide more: 38% of the ratio's variance comes from
each of them, 12% from each of the thorax's, since a ratio of 0.5 halves the thorax's moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unmasked.checks import check_whole, grid_pair
from unmasked.errors import InputError

LIMIT = 0.5
"""The ratio above which a heart counts as enlarged."""
SOFTNESS = 0.0075
"""How much ratio it takes from P(y = 1) = 0.5 to σ(1) = 0.73."""

_LEAST_SIZE = 32  # below, the truth is less than a pixel wide
_NEAR, _LONG = 1 / 64, 5.5 / 64  # the truth: how far from an edge, how far up and down; sides
_STEP = 1 / 16  # from one place where an outline is moved to the next; sides
_REACH = 16  # such places above, and as many below, an edge's level
_SWAY = np.array([0.064, 0.064, 0.072, 0.072])  # how far heart and thorax are moved at most, w
_NOMINAL = np.array([LIMIT / 2, LIMIT / 2, 0.5, 0.5])  # halves of the ellipses' widths, w
_SHARE = 0.25  # of the fullest cell's truth, from which on a cell is true
_ALONG = _LONG * ((2 * np.arange(1000) + 1) / 1000 - 1)  # levels over which a width is averaged
_AT_ONCE = 128  # films drawn at the same time

_F = NDArray[np.float32]


@dataclass(frozen=True)
class Phantom:
    """Drawn films with everything that is true about them.

    Attributes
    ----------
    x : (films, 1, size, size) float32, 0 = black, 1 = white. y : (films,) 1 = enlarged heart.
    truth : (films, size, size) bool, the pixels at the four edges that decide the ratio.
    probability : (films,) the true P(y = 1 | ratio), whose AUROC, 0.958, is the best there can be.
    heart, thorax : (films, 2) where the left and the right edge are, in pixels from the left: the
        mean over the part of the outline where the width is measured.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    truth: NDArray[np.bool_]
    probability: NDArray[np.float64]
    heart: NDArray[np.float64]
    thorax: NDArray[np.float64]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """(films,) the cardiothoracic ratio."""
        result: NDArray[np.float64] = np.diff(self.heart)[:, 0] / np.diff(self.thorax)[:, 0]
        return result


def phantom(rows: int, size: int = 64, seed: int = 0) -> Phantom:
    """Draw ``rows`` films of ``size`` × ``size`` pixels.

    The first films are the same however many are asked for. Another size shows the same thoraces
    with the same labels; only the noise differs.

    >>> films = phantom(4, size=32)
    >>> films.x.shape, films.truth.shape, films.probability.shape
    ((4, 1, 32, 32), (4, 32, 32), (4,))
    """
    check_whole("rows", rows, 1)
    check_whole("size", size, _LEAST_SIZE)
    check_whole("seed", seed, 0)
    anatomy = _drawn(rows, seed)
    probability: NDArray[np.float64] = expit((anatomy.ratio - LIMIT) / SOFTNESS)
    y = (np.random.default_rng([seed, 1]).random(rows) < probability).astype(np.int64)
    noise = np.random.default_rng([seed, 2])
    x = np.empty((rows, 1, size, size), np.float32)
    truth = np.empty((rows, size, size), bool)
    for start in range(0, rows, _AT_ONCE):
        here = slice(start, min(start + _AT_ONCE, rows))
        films = _Films(_Anatomy(*(value[here] for value in anatomy)), size)
        x[here, 0] = films.exposed(noise)
        truth[here] = films.truths().any(0)
    return Phantom(
        x=x,
        y=y,
        truth=truth,
        probability=probability,
        heart=size * anatomy.edges[:, :2],
        thorax=size * anatomy.edges[:, 2:],
    )


def truth_of_superpixels(
    truth: NDArray[np.bool_], grid: int | tuple[int, int]
) -> NDArray[np.bool_]:
    """The truth of the cells of a grid: (films, height, width) -> (films, lines · columns) bool.

    A cell is true if it holds at least a quarter as many true pixels as the fullest cell of its
    film. So, while cells are no smaller than an edge's truth, an edge that falls on the corner of
    four cells keeps at least one; with one cell a pixel, cells are true where pixels are. Cells are
    those of ``Superpixels(grid)``, line after line.

    >>> film = np.zeros((1, 4, 4), bool)
    >>> film[0, :2, 0] = True
    >>> truth_of_superpixels(film, 2)
    array([[ True, False, False, False]])
    """
    values: Any = np.asarray(truth)
    if values.ndim != 3 or values.dtype != bool:
        raise InputError(
            "the truth must be an array (films, height, width) of true and false but has shape "
            f"{values.shape} and type {values.dtype}; give phantom(…).truth."
        )
    pair = grid_pair(grid)
    films, height, width = values.shape
    if pair[0] > height or pair[1] > width:
        raise InputError(
            f"a grid of {pair[0]} × {pair[1]} cells needs at least as many lines and columns of "
            f"pixels, but the truth is {height} × {width}; use a coarser grid."
        )
    counts = values.astype(np.int64)
    for axis, cells in ((1, pair[0]), (2, pair[1])):
        length = values.shape[axis]
        first = -(-np.arange(cells) * length // cells)  # where each cell starts: superpixels._cells
        counts = np.add.reduceat(counts, first, axis=axis)
    counts = counts.reshape(films, -1)  # (films, lines · columns)
    fullest = counts.max(1, keepdims=True)
    result: NDArray[np.bool_] = (counts > 0) & (counts >= _SHARE * fullest)
    return result


# ---------------------------------------------------------------------- what is drawn

# Evenly drawn, each on its own; lengths are in sides of the film, or in widths of the thorax's
# ellipse (w).
_RANGES = {
    "width": (0.65, 0.74),
    "across": (-0.02, 0.02),  # the thorax's middle, from the film's
    "down": (-0.03, 0.03),
    "height": (0.98, 1.10),  # of the lungs, w
    "heart_x": (0.02, 0.055),  # the heart's middle, to the right of the thorax's, w
    "heart_y": (0.235, 0.265),  # above the diaphragm, w
    "heart_height": (0.20, 0.25),  # of its upper left quarter, w
    "tilt": (0.0, 0.14),  # how much its axis falls to the apex
    "wall": (0.045, 0.06),  # of the chest, beyond the farthest that the outline goes
    "shoulders": (0.02, 0.10),  # from the top
    "axilla": (0.36, 0.50),  # how far down the arms hide the trunk's sides
    "neck": (0.10, 0.14),  # half of its width
    "spine": (0.040, 0.052),  # half of its width, w
    "vessels": (0.075, 0.10),  # half of the width of what lies above the heart, w
    "knob": (0.03, 0.05),  # radius of the aorta's, w
    "dome": (0.01, 0.04),  # how much the diaphragm rises on each side, w
    "liver": (0.01, 0.04),  # how much more on the left of the film, w
    "bubble": (-0.5, 1.0),  # how dark the stomach's air is, if there is any
    "rib_gap": (0.098, 0.118),  # w
    "rib_phase": (0.0, 1.0),
    "rib_fall": (0.16, 0.30),  # to the side, w
    "ribs": (0.07, 0.13),  # how bright
    "lungs": (0.36, 0.46),  # how dark
    "markings": (0.6, 1.4),  # how bright the lungs' vessels are
    "gamma": (0.75, 1.45),
    "mean": (0.26, 0.50),  # of the film without fog
    "fog": (0.0, 0.05),
    "cloud": (0.015, 0.035),  # smooth noise
    "grain": (0.008, 0.02),
}


class _Anatomy(NamedTuple):
    """Geometry and look of each film, drawn at random; lengths are in sides of the film.

    The four edges are the heart's left and right one, then the thorax's left and right one.
    """

    edges: NDArray[np.float64]  # (films, 4), from the left
    waver: NDArray[np.float64]  # (films, 4, places), how far an edge is moved outwards
    middles: NDArray[np.float64]  # (films, 4), between the left and the right edge's ellipse
    drawn: NDArray[np.float64]  # (films, ranges)

    @property
    def ratio(self) -> NDArray[np.float64]:
        """(films,) the heart's width over the thorax's."""
        left_heart, right_heart, left_thorax, right_thorax = self.edges.T
        result: NDArray[np.float64] = (right_heart - left_heart) / (right_thorax - left_thorax)
        return result


_OUTWARDS = np.array([-1, 1, -1, 1])


def _drawn(rows: int, seed: int) -> _Anatomy:
    """The anatomy of a seed's first films."""
    return _anatomy(
        np.random.default_rng([seed, 0]).random((rows, len(_RANGES))),
        np.random.default_rng([seed, 3]).random((rows, 4, 2 * _REACH + 1)),
    )


def _anatomy(uniform: NDArray[np.float64], moves: NDArray[np.float64]) -> _Anatomy:
    """Numbers from 0 to 1, (films, ranges) and (films, 4, places) -> what they stand for."""
    low, high = np.array(list(_RANGES.values())).T  # (ranges,) each
    drawn = low + (high - low) * uniform
    value = dict(zip(_RANGES, drawn.T, strict=True))
    thorax = 0.5 + value["across"]
    heart = thorax + value["heart_x"] * value["width"]
    middles = np.stack([heart, heart, thorax, thorax], 1)
    waver = value["width"][:, None, None] * _SWAY[:, None] * (2 * moves - 1)
    half = value["width"][:, None] * _NOMINAL + waver @ _between(_ALONG).mean(0)  # (films, 4)
    return _Anatomy(middles + _OUTWARDS * half, waver, middles, drawn)


def _between(level: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights that take an outline smoothly from place to place: (...,) -> (..., places).

    ``level`` is how far below an edge's level. Between two places t = 0 and t = 1 the weights are
    1 − s and s, with s = t² (3 − 2 t).
    """
    place = level[..., None] / _STEP + _REACH - np.arange(2 * _REACH + 1)
    t = np.clip(1 - np.abs(place), 0, 1)
    result: NDArray[np.float64] = t * t * (3 - 2 * t)
    return result


class _Films:
    """Draws films. Lengths are in sides; all arrays broadcast to (films, size, size)."""

    def __init__(self, anatomy: _Anatomy, size: int) -> None:
        def per_film(value: NDArray[np.float64]) -> _F:
            return value.astype(np.float32)[:, None, None]

        self.size, self.count = size, len(anatomy.drawn)
        place = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
        u, self.v = place[None, None, :], place[None, :, None]  # to the right, downwards
        self.value = dict(zip(_RANGES, map(per_film, anatomy.drawn.T), strict=True))
        self.w = self.value["width"]
        self.half: _F = self.w * np.float32(0.5)
        self.aside: _F = u - per_film(anatomy.middles[:, 2])
        self.away: _F = np.abs(self.aside)
        self.side: _F = self.away / self.half  # 1 at the edges of the thorax's ellipse
        self.heart_x: _F = per_film(anatomy.middles[:, 0] - anatomy.middles[:, 2])
        self.from_heart: _F = self.aside - self.heart_x
        lungs = self.value["height"] * self.w
        self.apex: _F = np.float32(0.5) + self.value["down"] - np.float32(0.54) * lungs
        self.widest: _F = self.apex + np.float32(0.72) * lungs  # where the thorax is
        self.base: _F = self.apex + np.float32(0.90) * lungs  # the diaphragm between its domes
        self.heart_y: _F = self.base - self.value["heart_y"] * self.w
        fall = self.value["tilt"] * self.w / 4  # how much lower the heart's right edge is
        self.levels = (self.heart_y, self.heart_y + fall, self.widest, self.widest)
        self.to_edges = self._to_edges(anatomy.waver)
        self.to_heart: _F = np.where(self.from_heart > 0, self.to_edges[1], self.to_edges[0])
        self.to_thorax: _F = np.where(self.aside > 0, self.to_edges[3], self.to_edges[2])
        self.to_lungs = self._to_lungs()

    def _to_edges(self, waver: NDArray[np.float64]) -> list[_F]:
        """About the distance from each of the four edges, below 0 inside; beyond the middle, where
        the other edge counts, it means nothing."""
        result = []
        for edge, outwards in enumerate(_OUTWARDS):
            from_middle = np.float32(outwards) * (self.from_heart if edge < 2 else self.aside)
            half = self._half_width(edge, waver[:, edge])  # (films, size)
            slope = np.clip(np.gradient(half, 1 / self.size, axis=1), -4, 4)
            distance = (from_middle - half[:, :, None]) / np.sqrt(1 + slope**2)[:, :, None]
            result.append(distance.astype(np.float32))
        return result

    def _half_width(self, edge: int, waver: NDArray[np.float64]) -> NDArray[np.float64]:
        """From the middle to an edge at each level: (films, places) -> (films, size).

        The ellipse's half width, whose mean is ``_NOMINAL`` where the width is measured, and how
        far the edge is moved, which fades where an ellipse ends.
        """
        form = self._heart_form if edge < 2 else self._thorax_form
        level = (self.v - self.levels[edge])[:, :, 0].astype(np.float64)  # (films, size)
        along = np.broadcast_to(_ALONG, (self.count, len(_ALONG)))
        ellipse = form(level, edge)
        nominal = self.w[:, :, 0] * _NOMINAL[edge] / form(along, edge).mean(1, keepdims=True)
        moved = np.einsum("fsp,fp->fs", _between(level), waver)
        result: NDArray[np.float64] = nominal * ellipse + moved * np.clip(2 * ellipse, 0, 1)
        return result

    def _heart_form(self, level: NDArray[np.float64], edge: int) -> NDArray[np.float64]:
        """Quarters of ellipses, of one width and three heights, which meet where vessels and
        diaphragm hide it; 1 at an edge's level: (films, levels) -> the same."""
        quarter = np.where(level > 0, 1.5, 1.3 if edge else 1.0)
        height = (self.value["heart_height"] * self.w)[:, :, 0] * quarter
        result: NDArray[np.float64] = np.sqrt(np.clip(1 - (level / height) ** 2, 0, 1))
        return result

    def _thorax_form(self, level: NDArray[np.float64], edge: int) -> NDArray[np.float64]:
        """1 at the widest level, 0 above the lungs: (films, levels) -> the same."""
        down = level / (self.widest - self.apex)[:, :, 0]  # −1 at the top of the lungs
        above = (1 - np.clip(-down, 0, 1) ** 2.3) ** (1 / 2.1)
        below = np.sqrt(1 - np.clip(down / 1.6, 0, 1) ** 2)
        result: NDArray[np.float64] = np.where(down < 0, above, below)
        return result

    def _to_lungs(self) -> _F:
        """Measure the depth below the diaphragm, domed on each side; below 0 in the lungs."""
        dome = self.value["dome"] * (1 - ((self.side - 0.42) / 0.50) ** 2)
        liver = self.value["liver"] * self._bump(self.aside / self.half + 0.45, 0.35)
        result: _F = self.v - self.base + self.w * (dome + liver * (self.aside < 0))
        return result

    def exposed(self, noise: np.random.Generator) -> _F:
        """The films, (films, size, size) from 0 to 1."""
        heart, above = self._inside(self.to_heart), self._inside(self.to_lungs)
        thorax, body = self._inside(self.to_thorax), self._body()
        lungs = thorax * above * (1 - self._mediastinum()) * (1 - heart)
        belly = (1 - above) * np.clip((self.v - self.base + 0.12) / 0.2, 0, 1)
        film = 0.60 + 0.10 * belly + 0.06 * self._bump(self.aside, 0.35)
        film += self._spine() + 0.13 * self._collarbones()
        film -= self._windpipe() + self._bubble() * (1 - above)
        film *= body
        film += self.value["ribs"] * self._ribs() * (0.3 * thorax + 0.7 * lungs)
        film += 0.05 * heart * above
        film += lungs * (self._markings() - self.value["lungs"] * (1 - 0.25 * self._hila()))
        film = np.clip(film, 0, 1) ** self.value["gamma"]
        film *= self.value["mean"] / film.mean((1, 2), keepdims=True)
        film += self.value["fog"] + self._noise(noise)
        result: _F = np.clip(film, 0, 1)
        return result

    def truths(self) -> NDArray[np.bool_]:
        """The pixels at each of the four edges, (4, films, size, size)."""
        result = np.empty((4, self.count, self.size, self.size), bool)
        for edge, outwards in enumerate(_OUTWARDS):
            own = outwards * (self.from_heart if edge < 2 else self.aside) > 0
            near = np.abs(self.to_edges[edge]) <= _NEAR
            result[edge] = own & near & (np.abs(self.v - self.levels[edge]) <= _LONG)
        return result

    def _inside(self, distance: _F) -> _F:
        """1 where a distance is below 0, 0 where it is above, a pixel and a half between."""
        result: _F = np.clip(0.5 - distance * (self.size / 1.5), 0, 1)
        return result

    def _bump(self, distance: _F, width: _F | float) -> _F:
        result: _F = np.exp(-((distance / width) ** 2))
        return result

    def _body(self) -> _F:
        """Neck, shoulders, arms and trunk."""
        aside = np.clip(self.away - self.value["neck"], 0, 1)
        line = self.value["shoulders"] + 0.02 + 0.22 * aside**0.8  # falls to the side
        arms = 0.5 * expit((self.value["axilla"] - self.v) / 0.02)
        waist = 0.04 * np.clip(self.v - 0.6, 0, 1)
        farthest = self.half + np.float32(_SWAY[2]) * self.w
        trunk = self._inside(self.away - farthest - self.value["wall"] - arms + waist)
        neck = self._inside(self.away - self.value["neck"])
        result: _F = np.maximum(neck, self._inside(line - self.v) * trunk)
        return result

    def _mediastinum(self) -> _F:
        """Draw the space between lungs: vessels that widen towards the heart, the aorta's knob."""
        down = np.clip((self.v - self.apex) / (self.heart_y - self.apex), 0, 1)
        lean = 0.01 + self.heart_x * np.clip(down - 0.3, 0, 1)
        wide = 0.75 + 0.8 * np.clip(down - 0.35, 0, 1) ** 1.5
        column = np.abs(self.aside - lean) - self.value["vessels"] * self.w * wide
        x = self.aside - 0.075 * self.w
        y = 0.8 * (self.v - self.apex - 0.34 * (self.base - self.apex))
        knob = np.sqrt(x * x + y * y) - self.value["knob"] * self.w
        return self._inside(np.minimum(column, knob))

    def _spine(self) -> _F:
        column = expit((self.value["spine"] * self.w - self.away) / 0.008)
        result: _F = column * (0.10 + 0.03 * np.cos(2 * np.pi * self.v / 0.062))
        return result

    def _windpipe(self) -> _F:
        return 0.10 * self._bump(self.aside, 0.018) * self._inside(self.v - self.apex - 0.2)

    def _collarbones(self) -> _F:
        bend = np.clip(self.away - 0.15, 0, 1) ** 1.3
        line = self.apex + 0.10 - 0.28 * self.away + 0.45 * bend
        ends = self._inside(0.035 - self.away) * self._inside(self.away - self.half - 0.06)
        return self._bump(self.v - line, 0.014) * ends

    def _ribs(self) -> _F:
        """Behind: from the spine a little up, then down to the side. In front, fainter: upwards."""
        side, gap = np.clip(self.side, 0, 1), self.value["rib_gap"] * self.w
        line = self.value["rib_fall"] * side**2.2 - 0.10 * np.sin(np.pi * side)
        behind = self._stripes((self.v - line * self.w) / gap + self.value["rib_phase"])
        line = -0.35 * (1 - side) ** 1.5
        before = self._stripes((self.v - line * self.w) / gap + 1.7 * self.value["rib_phase"])
        visible = np.clip((side - 0.1) / 0.15, 0, 1)
        result: _F = visible * (behind + 0.45 * before * np.clip(2 * side - 0.6, 0, 1))
        return result

    def _stripes(self, phase: _F) -> _F:
        """1 at whole numbers, 0 between them."""
        return self._bump(phase - np.rint(phase), 0.2)

    def _hila(self) -> _F:
        """Draw the hila, a soft spot on each side where the vessels enter the lung."""
        level = self.v - self.apex - 0.48 * (self.base - self.apex)
        near = self._bump(self.away - 0.12 * self.w, 0.075 * self.w) * self._bump(level, 0.09)
        result: _F = near * self.value["markings"]
        return result

    def _markings(self) -> _F:
        """Vessels that spread from there, fainter to the side."""
        level = self.v - self.apex - 0.48 * (self.base - self.apex)
        angle = np.arctan2(level, np.maximum(self.away, 1e-3))
        rays = self._bump(np.abs(np.sin(5.5 * angle + 0.6)) - 1, 0.25)
        result: _F = 0.06 * self.value["markings"] * rays * np.clip(1 - self.side, 0, 1)
        return result

    def _bubble(self) -> _F:
        """Air in the stomach, under the diaphragm on the heart's side."""
        x = (self.aside - 0.27 * self.w) / (0.11 * self.w)
        y = (self.v - self.base - 0.02 * self.w) / (0.05 * self.w)
        dark = np.clip(self.value["bubble"], 0, 1)
        return 0.22 * dark * self._bump(x * x + y * y, 1.0)

    def _noise(self, noise: np.random.Generator) -> _F:
        """Clouds and grain, drawn film after film: the first do not depend on how many follow."""
        knots = 7
        place = np.linspace(0, knots - 1, self.size)[:, None] - np.arange(knots)
        weights = np.exp(-((place / 0.99) ** 2))
        weights /= np.sqrt((weights**2).sum(1, keepdims=True))  # clouds have variance 1 everywhere
        spread = weights.astype(np.float32)  # (size, knots)
        result = np.empty((self.count, self.size, self.size), np.float32)
        for i in range(self.count):
            cloud = spread @ noise.standard_normal((knots, knots), np.float32) @ spread.T
            grain = noise.standard_normal((self.size, self.size), np.float32)
            result[i] = self.value["cloud"][i] * cloud + self.value["grain"][i] * grain
        return result
