"""Measures of outlines: pieces, distances, overlaps, the cardiothoracic ratio."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Regions = NDArray[np.bool_]


def largest_pieces(regions: Regions, most: int) -> Regions:
    """The largest connected pieces of each film's region, without holes: (films, h, w) twice.

    Pixels are connected along lines and columns. Among equals the uppermost counts as larger.

    >>> largest_pieces(np.array([[[1, 0, 1], [1, 0, 0]]], bool), 1)[0].astype(int)
    array([[1, 0, 0],
           [1, 0, 0]])
    """
    result = np.zeros_like(regions)
    for film, region in enumerate(regions):
        pieces, count = ndimage.label(region)
        if count:
            sizes = np.bincount(pieces.ravel())[1:]
            kept = 1 + np.argsort(-sizes, kind="stable")[:most]
            result[film] = ndimage.binary_fill_holes(np.isin(pieces, kept))
    return result


def distance_to_outline(region: Regions) -> NDArray[np.float64]:
    """Measure each pixel's distance from the outline of a region, (h, w), in pixels.

    The outline runs between pixels: d(u) = min {|u − v| : v on the other side} − ½, from pixels'
    middles. Infinite where there is no other side. The film's edge is no outline.

    >>> distance_to_outline(np.array([[True, True, False, False]]))
    array([[1.5, 0.5, 0.5, 1.5]])
    """
    if region.all() or not region.any():
        return np.full(region.shape, np.inf)
    inside = ndimage.distance_transform_edt(region)
    outside = ndimage.distance_transform_edt(~region)
    result: NDArray[np.float64] = np.where(region, inside, outside) - 0.5
    return result


def overlap(found: Regions, true: Regions) -> dict[str, NDArray[np.float64]]:
    """Score found regions against true ones, (films, h, w) each -> three scores, (films,) each.

    ::

        dice = 2 |A ∩ B| / (|A| + |B|)        iou = |A ∩ B| / |A ∪ B|        both 1 if A = B = ∅
        distance = ½ mean over A's outline of the distance to B's, and ½ the reverse; in sides

    ``distance`` is in widths of the film, NaN where one of the two is empty.
    """
    both = (found & true).sum((1, 2)).astype(np.float64)
    sizes = found.sum((1, 2)) + true.sum((1, 2))
    either = sizes - both
    distance = [_between_outlines(a, b) / found.shape[2] for a, b in zip(found, true, strict=True)]
    return {
        "dice": np.where(sizes > 0, 2 * both / np.maximum(sizes, 1), 1.0),
        "iou": np.where(either > 0, both / np.maximum(either, 1), 1.0),
        "distance": np.array(distance),
    }


def _between_outlines(one: Regions, other: Regions) -> float:
    """The mean distance between the outlines of two regions (h, w), in pixels."""
    if not one.any() or not other.any():
        return float("nan")
    rims = [region & ~ndimage.binary_erosion(region) for region in (one, other)]
    away = [ndimage.distance_transform_edt(~rim) for rim in rims]
    return float((away[1][rims[0]].mean() + away[0][rims[1]].mean()) / 2)


def extents(regions: Regions) -> NDArray[np.float64]:
    """Measure each region's width, leftmost to rightmost pixel, (films, h, w) -> (films,).

    >>> extents(np.array([[[0, 1, 0, 1]]], bool))
    array([3.])
    """
    columns: Regions = np.asarray(regions.any(1))  # (films, w)
    width = columns.shape[1]
    result = width - columns.argmax(1) - columns[:, ::-1].argmax(1)
    return np.where(columns.any(1), result, 0).astype(np.float64)


def cardiothoracic_ratios(heart: Regions, lungs: Regions) -> NDArray[np.float64]:
    """Width of the heart / width of both lungs together, (films,); NaN where one is missing."""
    wide, thorax = extents(heart), extents(lungs)
    known = (wide > 0) & (thorax > 0)
    return np.where(known, wide / np.where(known, thorax, 1), np.nan)


def plausible(heart: Regions) -> dict[str, Any]:
    """Summarise area and place of hearts (films, h, w), which needs no truth: see the keys.

    area : mean share of the film. across, down : where the middle is, in sides of the film.
    without : how many films have no heart.
    """
    there = heart.any((1, 2))
    height, width = heart.shape[1:]
    lines, columns = (np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width
    size = heart[there].sum((1, 2))
    across = (heart[there].sum(1) @ columns) / size
    down = (heart[there].sum(2) @ lines) / size
    area = heart[there].mean((1, 2))

    def spread(values: NDArray[Any]) -> dict[str, float]:
        return {"mean": float(values.mean()), "sd": float(values.std())}

    return {
        "films": len(heart),
        "without": int((~there).sum()),
        "area": spread(area),
        "across": spread(across),
        "down": spread(down),
    }
