"""Measure how much of selections lies on heart, margin, lungs or elsewhere, against the area.

For film i with heart H, lungs L (sets of pixels) and a selection that shows the pixels S::

    margin          M = {u : d(u) ≤ margin · width}, d the distance from H's outline, both sides
    heart_or_margin H ∪ M;   lungs  L \\ (H ∪ M);   elsewhere  the rest
    shown_i(P)  = |S ∩ P| / |S|        share of what is shown that lies on place P
    area_i(P)   = |P| / |film|         the same for the whole film, and for a selection by chance
    others_i(P) = mean over j ≠ i of the share on P, in film i, of what film j's selection shows
    most_i(P)   = the largest share on P that any selection of the same area |S| could have

A superpixel that lies partly on P counts with its part. Over films that show something and have a
heart, each with weight 1/n::

    shown = mean shown_i, area, others, most likewise
    enrichment = shown / area          1: no better than by chance
    difference = shown − area          beyond_others = shown − others

Hearts are in the middle of most films, so showing the middle of every film has an enrichment above
1 without looking at it; ``beyond_others`` is above 0 only if selections follow their own film.

Intervals are 95% bootstrap intervals over films, or over patients where these are known (ratios of
resampled means; ``others`` is over pairs of resampled films, none with itself). They do not include
the segmenter's error; where that has nothing to do with the selections, it blurs the places, and
true enrichment is further from 1 than what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unmasked.errors import InputError
from unmasked.metrics import Interval, Statistic, bootstrap
from unmasked.reproduce.heart_measures import distance_to_outline

MARGIN = 1 / 32
"""How far the margin reaches to each side of the outline, in widths of the film."""

_F = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """Share of what is shown on one place, with comparisons, means over films; see the module."""

    shown: Interval
    area: Interval
    enrichment: Interval
    difference: Interval
    others: Interval
    beyond_others: Interval
    most: Interval

    def to_dict(self) -> dict[str, Any]:
        return {name: value.to_json() for name, value in vars(self).items()}


@dataclass(frozen=True)
class Group:
    """Films of one kind.

    films : how many there are. nothing : how many of them show nothing, without_heart : on how many
    of the others no heart was found; neither are counted in ``places``. counted : how many are.
    fraction : mean share of the film that is shown, over all films.
    """

    films: int
    nothing: int
    without_heart: int
    counted: int
    fraction: float
    places: dict[str, Share]

    def to_dict(self) -> dict[str, Any]:
        places = {name: share.to_dict() for name, share in self.places.items()}
        return {**vars(self), "places": places}


@dataclass(frozen=True)
class Places:
    """Shares of one method's selections on each place, for "all" films and films of each class."""

    margin: float
    groups: dict[str, Group]

    def to_dict(self) -> dict[str, Any]:
        groups = {name: group.to_dict() for name, group in self.groups.items()}
        return {"margin": self.margin, "groups": groups}

    def sentences(self, method: str) -> list[str]:
        """Put the shares into words: a sentence for all films, then one for each class."""
        return [
            _sentence(method if name == "all" else f"{method}, {name}", group, self.margin)
            for name, group in self.groups.items()
        ]


def where_selections_lie(
    masks: ArrayLike,
    superpixels: ArrayLike,
    hearts: ArrayLike,
    *,
    lungs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    margin: float = MARGIN,
    draws: int = 1000,
    seed: int = 0,
    patients: ArrayLike | None = None,
) -> Places:
    """Measure how much of what is shown lies on hearts, margins and lungs; formulas: the module.

    masks : (films, superpixels), 1 or True = shown. superpixels : (height, width) the superpixel of
    each pixel. hearts, lungs : (films, height, width) bool, or probabilities, of which those above
    ½ count. labels : (films,) 0, 1, … the class of each film, called by ``names``. margin : in
    widths of the film. draws : of the bootstrap, which takes all films of some of the ``patients``
    (films,) where they are given.

    >>> heart = np.zeros((2, 4, 4), bool)
    >>> heart[:, :2, :2] = True  # a quarter of each film, one of four superpixels
    >>> cells = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]])
    >>> found = where_selections_lie([[1, 0, 0, 0], [1, 1, 0, 0]], cells, heart, margin=0)
    >>> found.groups["all"].places["heart"].enrichment.value  # (1 + ½) / 2 against ¼
    3.0
    """
    shown, cells = _selections(masks, superpixels)
    size = (len(shown), *cells.shape)
    heart = _regions("hearts", hearts, size)
    lung = None if lungs is None else _regions("lungs", lungs, size)
    if not 0 <= margin < 1:
        raise InputError(
            f"margin must be a share of the film's width from 0 to below 1 but is {margin!r}."
        )
    if draws < 1:
        raise InputError(f"draws must be a whole number of at least 1 but is {draws!r}.")
    groups = _groups(labels, names, len(shown))
    whose = None if patients is None else np.asarray(patients)
    if whose is not None and whose.shape != (len(shown),):
        raise InputError(
            f"patients must be {len(shown)}, one for each film, but have shape {whose.shape}."
        )
    pixels = np.bincount(cells.ravel(), minlength=shown.shape[1]).astype(np.float64)
    films = {
        name: _on_place(shown, pixels, _coverage(region, cells, pixels))
        for name, region in _places(heart, lung, margin).items()
    }
    shows, has_heart = shown.any(1), heart.any((1, 2))
    fraction = shown @ pixels / pixels.sum()  # (films,)
    return Places(
        float(margin),
        {
            name: Group(
                films=int(rows.sum()),
                nothing=int((rows & ~shows).sum()),
                without_heart=int((rows & shows & ~has_heart).sum()),
                counted=int((rows & shows & has_heart).sum()),
                fraction=float(fraction[rows].mean()),
                places=_shares(films, rows & shows & has_heart, draws, seed, whose),
            )
            for name, rows in groups.items()
        },
    )


# ---------------------------------------------------------------------- what comes in


def _selections(masks: ArrayLike, superpixels: ArrayLike) -> tuple[_F, NDArray[np.int64]]:
    """Masks (films, superpixels) of 0 and 1, and the superpixel of each pixel (h, w)."""
    shown, cells = np.asarray(masks), np.asarray(superpixels)
    if shown.ndim != 2 or not shown.size or not np.isin(shown, (0, 1)).all():
        raise InputError(
            "masks must be an array (films, superpixels) of 0 and 1 but have shape "
            f"{shown.shape} and type {shown.dtype}; give Explanation.masks."
        )
    if cells.ndim != 2 or cells.dtype.kind not in "iu" or not cells.size:
        raise InputError(
            "superpixels must be an array (height, width) of whole numbers but has shape "
            f"{cells.shape} and type {cells.dtype}; give Superpixels(…).map."
        )
    if not np.array_equal(np.unique(cells), np.arange(shown.shape[1])):
        raise InputError(
            f"masks of {shown.shape[1]} superpixels need a map with the numbers 0 to "
            f"{shown.shape[1] - 1}, each at least once, but it has {len(np.unique(cells))} from "
            f"{cells.min()} to {cells.max()}; give the map that the masks were made with."
        )
    return shown.astype(np.float64), cells.astype(np.int64)


def _regions(name: str, values: ArrayLike, size: tuple[int, ...]) -> NDArray[np.bool_]:
    """(films, h, w) bool, from bool or probabilities."""
    regions = np.asarray(values)
    if regions.shape != size or regions.dtype.kind not in "bf":
        raise InputError(
            f"{name} must be an array {size}, (films, height, width), of true and false or of "
            f"probabilities but have shape {regions.shape} and type {regions.dtype}; make them for "
            "these films and this map."
        )
    if regions.dtype == bool:
        return regions
    if not ((regions >= 0) & (regions <= 1)).all():  # NaN fails too
        raise InputError(f"{name} must be probabilities from 0 to 1 but some are not; clip them.")
    return regions > 0.5


def _groups(
    labels: ArrayLike | None, names: Sequence[str] | None, films: int
) -> dict[str, NDArray[np.bool_]]:
    """Mark the films of each group, (films,) bool: "all", and every class that has a film."""
    groups = {"all": np.ones(films, bool)}
    if labels is None:
        return groups
    y = np.asarray(labels)
    if y.shape != (films,) or y.dtype.kind not in "iub" or y.min() < 0:
        raise InputError(
            f"labels must be {films} whole numbers from 0, one for each film, but have shape "
            f"{y.shape} and type {y.dtype}."
        )
    if names is not None and int(y.max()) >= len(names):
        raise InputError(
            f"names must name each class but are {len(names)} and labels go up to {y.max()}."
        )
    for value in np.unique(y.astype(np.int64)).tolist():
        groups[str(value) if names is None else names[value]] = y == value
    return groups


# ---------------------------------------------------------------------- what is counted


def _places(
    heart: NDArray[np.bool_], lungs: NDArray[np.bool_] | None, margin: float
) -> dict[str, NDArray[np.bool_]]:
    """The pixels of each place, (films, h, w)."""
    reach = margin * heart.shape[2]
    band = np.stack([distance_to_outline(region) <= reach for region in heart])
    near = heart | band
    if lungs is None:
        return {"heart": heart, "margin": band, "heart_or_margin": near, "elsewhere": ~near}
    return {
        "heart": heart,
        "margin": band,
        "heart_or_margin": near,
        "lungs": lungs & ~near,
        "elsewhere": ~(near | lungs),
    }


def _coverage(region: NDArray[np.bool_], cells: NDArray[np.int64], pixels: _F) -> _F:
    """The share of each superpixel that lies on a region: (films, h, w) -> (films, superpixels)."""
    count = cells.size
    member = sparse.csr_array(
        (np.ones(count), (cells.ravel(), np.arange(count))), shape=(len(pixels), count)
    )
    covered: _F = (member @ region.reshape(len(region), count).T.astype(np.float64)).T
    return covered / pixels


@dataclass(frozen=True)
class _OnPlace:
    """One place in all films; (films,) each but ``weights`` and ``coverage`` (films, superpixels).

    weights : each superpixel's part of what a film shows. coverage : its share on the place.
    """

    weights: _F
    coverage: _F
    shows: NDArray[np.bool_]
    shown: _F
    area: _F
    most: _F

    def others(self, rows: NDArray[np.bool_]) -> Statistic:
        """mean over i in ``rows`` and j ≠ i of w_j · c_i, by weights (draws, films)::

        (Σ_i W_i c_i) · (Σ_j W_j w_j) − Σ_i W_i² w_i · c_i   over   Σ_i W_i (Σ_j W_j − W_i)
        """

        def pairs(weights: NDArray[Any]) -> _F:
            mine, every = weights * rows, weights * self.shows
            total = ((mine @ self.coverage) * (every @ self.weights)).sum(1)
            total = total - (mine * every) @ np.where(self.shows, self.shown, 0)
            count = (mine * (every.sum(1, keepdims=True) - every)).sum(1)
            result: _F = np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)
            return result

        return pairs


def _on_place(shown: _F, pixels: _F, coverage: _F) -> _OnPlace:
    """shown_i, area_i and most_i of one place; NaN where a film shows nothing."""
    area = shown @ pixels  # (films,) pixels shown
    shows = area > 0
    weights = shown * pixels / np.maximum(area, 1)[:, None]  # sums to 1, or 0 if nothing is shown
    return _OnPlace(
        weights,
        coverage,
        shows,
        shown=np.where(shows, (weights * coverage).sum(1), np.nan),
        area=coverage @ pixels / pixels.sum(),
        most=np.where(shows, _most(coverage, pixels, area), np.nan),
    )


def _most(coverage: _F, pixels: _F, area: _F) -> _F:
    """The largest share on a place of any ``area`` (films,) of superpixels, the last one in part.

    Fullest superpixels first: no choice of whole superpixels can have more.
    """
    order = np.argsort(-coverage, axis=1, kind="stable")
    sizes = pixels[order]  # (films, superpixels)
    before = np.cumsum(sizes, axis=1) - sizes
    taken = np.clip(area[:, None] - before, 0, sizes)
    gained: _F = (taken * np.take_along_axis(coverage, order, axis=1)).sum(1)
    return gained / np.maximum(area, 1)


def _shares(
    films: dict[str, _OnPlace],
    rows: NDArray[np.bool_],
    draws: int,
    seed: int,
    patients: NDArray[Any] | None,
) -> dict[str, Share]:
    """Means over some films with their intervals; {} where there is no film."""
    count = int(rows.sum())
    if not count:
        return {}
    statistics: dict[str, Statistic] = {}
    differences: dict[str, tuple[str, str]] = {}
    every = np.ones(count)
    for place, one in films.items():
        for name in ("shown", "area", "most"):
            statistics[f"{place} {name}"] = _ratio(getattr(one, name)[rows], every, rows)
        statistics[f"{place} others"] = one.others(rows)
        statistics[f"{place} enrichment"] = _ratio(one.shown[rows], one.area[rows], rows)
        differences[f"{place} difference"] = (f"{place} shown", f"{place} area")
        differences[f"{place} beyond_others"] = (f"{place} shown", f"{place} others")
    found = bootstrap(
        statistics, len(rows), draws=draws, seed=seed, differences=differences, groups=patients
    )
    if count == 1 or (patients is not None and len(np.unique(patients[rows])) == 1):
        # resampling one film, or one patient's, tells nothing
        found = {name: Interval(one.value, np.nan, np.nan) for name, one in found.items()}
    return {
        place: Share(**{name: found[f"{place} {name}"] for name in Share.__dataclass_fields__})
        for place in films
    }


def _ratio(above: _F, below: _F, rows: NDArray[np.bool_]) -> Statistic:
    """The ratio of weighted means over some films; NaN where nothing lies there at all."""

    def ratio(weights: NDArray[Any]) -> _F:
        some = weights[:, rows]
        total = some @ below
        result: _F = np.where(total > 0, some @ above / np.where(total > 0, total, 1), np.nan)
        return result

    return ratio


# ---------------------------------------------------------------------- words


def _sentence(who: str, group: Group, margin: float) -> str:
    left_out = _left_out(group)
    if not group.places:
        return f"{who}: none of {group.films:,} films can be counted; {' and '.join(left_out)}."
    near, band = group.places["heart_or_margin"], group.places["margin"]
    return (
        f"{who}: {_percent(near.shown)} of what is shown lies on the heart or within "
        f"{margin:.1%} of the film's width from its outline, where {near.area.value:.1%} of the "
        f"film lies: {_times(near.enrichment)} times the area's share; on the band along the "
        f"outline alone {_percent(band.shown)} against {band.area.value:.1%}, "
        f"{_times(band.enrichment)} times; the other films' selections would have "
        f"{near.others.value:.1%} and {band.others.value:.1%} there, so that following its own "
        f"film adds {_percent(near.beyond_others)} and {_percent(band.beyond_others)}; the best of "
        f"the same size would have {near.most.value:.1%} and {band.most.value:.1%} "
        f"({'; '.join([f'{group.counted:,} films', *left_out])})."
    )


def _left_out(group: Group) -> list[str]:
    """Say how many films are not counted because they show nothing or no heart was found."""
    parts = []
    if group.nothing:
        parts.append(f"{group.nothing:,} show{'s' if group.nothing == 1 else ''} nothing")
    if group.without_heart:
        parts.append(f"on {group.without_heart:,} no heart was found")
    return parts


def _percent(one: Interval) -> str:
    return f"{one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"


def _times(one: Interval) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
