"""Phantoms of chest X-rays: drawn films whose label and whose truth are known.

::

    ratio = width of the heart / width of the thorax          the cardiothoracic ratio
    P(y = 1) = σ((ratio − 0.5) / 0.02)                        0.5 is the usual limit

A film shows a thorax with dark lungs, diaphragm, spine, ribs and collarbones, and a heart that is
brighter than the lungs. Everything but the ratio is drawn independently of it: the thorax's width
and place, the heart's place, height and tilt, ribs, noise, and the film's mean brightness, since
exposure is automatic, as on real machines. What is left are four edges, the left and the right one
of heart and thorax: these are the truth.

Two things to know. At the same mean brightness, the rest of a film with an enlarged heart is about
1% darker; exposures differ by 18%. And the heart's outline goes on above and below its widest
place, so pixels a little beyond the truth tell something too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unmasked.errors import InputError

LIMIT = 0.5
"""The ratio above which a heart counts as enlarged."""
SOFTNESS = 0.02
"""How much ratio it takes from P(y = 1) = 0.5 to σ(1) = 0.73."""
RATIOS = (0.36, 0.64)
"""Ratios are drawn evenly from this range."""

_LEAST_SIZE = 32  # below, the truth is less than two pixels wide
_NEAR, _LONG = 2 / 64, 5.5 / 64  # the truth: how far from an edge, how far up and down; sides
_SHARE = 0.25  # of the fullest cell's truth, from which on a cell is true
_AT_ONCE = 128  # films drawn at the same time

_F = NDArray[np.float32]


@dataclass(frozen=True)
class Phantom:
    """Drawn films with everything that is true about them.

    Attributes
    ----------
    x : (films, 1, size, size) float32, 0 = black, 1 = white. y : (films,) 1 = enlarged heart.
    truth : (films, size, size) bool, the pixels at the four edges that decide the ratio.
    probability : (films,) the true P(y = 1 | ratio), whose AUROC, 0.967, is the best there can be.
    heart, thorax : (films, 2) where the left and the right edge are, in pixels from the left.
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
    _check_whole("rows", rows, 1)
    _check_whole("size", size, _LEAST_SIZE)
    _check_whole("seed", seed, 0)
    anatomy = _anatomy(np.random.default_rng([seed, 0]).random((rows, len(_RANGES))))
    ratio = anatomy.half_heart / anatomy.half_thorax  # (rows,)
    probability: NDArray[np.float64] = expit((ratio - LIMIT) / SOFTNESS)
    y = (np.random.default_rng([seed, 1]).random(rows) < probability).astype(np.int64)
    noise = np.random.default_rng([seed, 2])
    x = np.empty((rows, 1, size, size), np.float32)
    truth = np.empty((rows, size, size), bool)
    for start in range(0, rows, _AT_ONCE):
        here = slice(start, min(start + _AT_ONCE, rows))
        films = _Films(_Anatomy(*(value[here] for value in anatomy)), size)
        x[here, 0] = films.exposed(noise)
        truth[here] = films.truth()
    return Phantom(
        x=x,
        y=y,
        truth=truth,
        probability=probability,
        heart=size * _edges(anatomy.heart_x, anatomy.half_heart),
        thorax=size * _edges(anatomy.thorax_x, anatomy.half_thorax),
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
    pair = grid if isinstance(grid, tuple | list) else (grid, grid)
    if len(pair) != 2 or not all(_whole(n) and n > 0 for n in pair):
        raise InputError(
            f"grid must be a whole number above 0 or a pair (lines, columns) but is {grid!r}."
        )
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


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_whole(name: str, value: Any, least: int) -> None:
    if not _whole(value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least} but is {value!r}.")


# ---------------------------------------------------------------------- what is drawn

# Evenly drawn, each on its own; lengths are in sides of the film, or in widths of the thorax (w).
_RANGES = {
    "ratio": RATIOS,
    "width": (0.64, 0.80),  # of the thorax
    "across": (-0.035, 0.035),  # the thorax's middle, from the film's
    "down": (-0.03, 0.03),
    "height": (0.88, 1.02),  # of the lungs, w
    "heart_x": (0.03, 0.085),  # the heart's middle, to the right of the thorax's, w
    "heart_y": (0.15, 0.18),  # above the diaphragm, w
    "heart_height": (0.16, 0.21),  # of its upper left quarter, w
    "tilt": (0.10, 0.30),  # how much its axis falls to the apex
    "wall": (0.055, 0.09),  # of the chest
    "shoulders": (0.02, 0.10),  # from the top
    "axilla": (0.36, 0.50),  # how far down the arms hide the trunk's sides
    "neck": (0.10, 0.14),  # half of its width
    "spine": (0.040, 0.052),  # half of its width, w
    "vessels": (0.085, 0.115),  # half of the width of what lies above the heart, w
    "knob": (0.03, 0.05),  # radius of the aorta's, w
    "dome": (0.03, 0.08),  # how much the diaphragm rises on each side, w
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
    """What is drawn about each film, in sides of the film."""

    half_heart: NDArray[np.float64]  # (films,), as are the next three
    half_thorax: NDArray[np.float64]
    heart_x: NDArray[np.float64]
    thorax_x: NDArray[np.float64]
    drawn: NDArray[np.float64]  # (films, ranges)


def _anatomy(uniform: NDArray[np.float64]) -> _Anatomy:
    """Numbers from 0 to 1 (films, ranges) -> what they stand for."""
    low, high = np.array(list(_RANGES.values())).T  # (ranges,) each
    drawn = low + (high - low) * uniform
    value = dict(zip(_RANGES, drawn.T, strict=True))
    middle = 0.5 + value["across"]
    return _Anatomy(
        half_heart=value["ratio"] * value["width"] / 2,
        half_thorax=value["width"] / 2,
        heart_x=middle + value["heart_x"] * value["width"],
        thorax_x=middle,
        drawn=drawn,
    )


def _edges(middle: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.float64]:
    """(films,) twice -> (films, 2)."""
    return np.stack([middle - half, middle + half], axis=1)


class _Films:
    """Draws films. Lengths are in sides; all arrays broadcast to (films, size, size)."""

    def __init__(self, anatomy: _Anatomy, size: int) -> None:
        def per_film(value: NDArray[np.float64]) -> _F:
            return value.astype(np.float32)[:, None, None]

        self.size, self.count = size, len(anatomy.drawn)
        place = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
        u, self.v = place[None, None, :], place[None, :, None]  # to the right, downwards
        self.value = dict(zip(_RANGES, map(per_film, anatomy.drawn.T), strict=True))
        self.w, self.half = self.value["width"], per_film(anatomy.half_thorax)
        self.half_heart = per_film(anatomy.half_heart)
        self.aside: _F = u - per_film(anatomy.thorax_x)
        self.away: _F = np.abs(self.aside)
        self.side: _F = self.away / self.half  # 1 at the thorax's edges
        self.heart_x: _F = per_film(anatomy.heart_x - anatomy.thorax_x)  # from the middle
        self.from_heart: _F = (self.aside - self.heart_x) / self.half_heart  # ±1 at its edges
        lungs = self.value["height"] * self.w
        self.apex: _F = np.float32(0.5) + self.value["down"] - np.float32(0.54) * lungs
        self.widest: _F = self.apex + np.float32(0.80) * lungs  # where the thorax is
        self.base: _F = self.apex + np.float32(0.88) * lungs  # the diaphragm between its domes
        self.heart_y: _F = self.base - self.value["heart_y"] * self.w
        self.to_heart = self._to_heart()
        self.to_thorax: _F = self.away - self._half_width()  # at the same level
        self.to_lungs = self._to_lungs()

    def _to_heart(self) -> _F:
        """About the distance from the heart's outline, below 0 inside.

        Quarters of ellipses, of one width and three heights, which meet where vessels and diaphragm
        hide it. The axis is level on the left and falls to the apex on the right.
        """
        x, right = self.from_heart, self.from_heart > 0
        slope = np.where(right, self.value["tilt"], np.float32(0))
        y = self.v - self.heart_y - slope * self.half_heart * x
        quarter = np.where(right, np.float32(1.3), np.float32(1))
        height = self.value["heart_height"] * self.w * np.where(y > 0, np.float32(1.5), quarter)
        y = y / height
        along, down = x / self.half_heart - slope * y / height, y / height  # the form's gradient
        form = np.sqrt(x * x + y * y)
        result: _F = (form - 1) * form / np.sqrt(np.maximum(along**2 + down**2, 1e-6))
        return result

    def _half_width(self) -> _F:
        """Half of the thorax's width at each level, (films, size, 1); 0 above the lungs."""
        level = (self.v - self.widest) / (self.widest - self.apex)  # −1 at the top of the lungs
        above = (1 - np.clip(-level, 0, 1) ** 2.3) ** (1 / 2.1)
        below = np.sqrt(1 - np.clip(level / 1.6, 0, 1) ** 2)
        result: _F = self.half * np.where(level < 0, above, below).astype(np.float32)
        return result

    def _to_lungs(self) -> _F:
        """How far below the diaphragm, which rises to a dome on each side; below 0 in the lungs."""
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

    def truth(self) -> NDArray[np.bool_]:
        """The pixels at the four edges, above the diaphragm, (films, size, size)."""
        apex = self.value["tilt"] * self.half_heart  # how much lower the right edge is
        level = self.v - self.heart_y - np.where(self.from_heart > 0, apex, 0)
        heart = (np.abs(self.to_heart) <= _NEAR) & (np.abs(level) <= _LONG)
        heart &= np.abs(self.from_heart) > 0.7  # not the heart's top, where it is low
        level = self.v - self.widest
        thorax = (np.abs(self.to_thorax) <= _NEAR) & (np.abs(level) <= _LONG)
        result: NDArray[np.bool_] = (heart | thorax) & (self.to_lungs <= _NEAR)
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
        trunk = self._inside(self.away - self.half - self.value["wall"] - arms + waist)
        neck = self._inside(self.away - self.value["neck"])
        result: _F = np.maximum(neck, self._inside(line - self.v) * trunk)
        return result

    def _mediastinum(self) -> _F:
        """What lies between the lungs: vessels that widen towards the heart, the aorta's knob."""
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
        """Where the lungs' vessels enter them."""
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
