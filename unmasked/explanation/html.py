"""An explanation as a notebook draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unmasked.plots.figures import shorten
from unmasked.plots.notebook import Cell, block, lines, picture, table
from unmasked.plots.overlays import png, to_rgb

if TYPE_CHECKING:
    from unmasked.explanation.features import FeatureValues

_ROWS, _FEATURES = 8, 12  # drawn at most
_CELL_WIDTH = 24  # characters of a value
_MAP_WIDTH = 224  # pixels on the screen


def explanation_html(
    summary: str,
    masks: NDArray[np.bool_],
    probabilities: NDArray[Any],
    names: Sequence[str],
    index: NDArray[Any],
    pixels: NDArray[np.int64] | None,
    values: FeatureValues | None = None,
) -> str:
    """The first rows and the most shown features as a table, or a map of an image's pixels.

    masks, probabilities : (rows, features), pixels : (height, width) the feature of each pixel.
    Where values are known, the cells hold them instead of the probabilities.
    """
    if not masks.size:
        return block(lines([summary]))
    rates = masks.mean(0)  # (features,)
    if pixels is not None:
        return block(lines([summary]), _map(rates[pixels]))
    chosen = np.sort(np.argsort(-rates, kind="stable")[:_FEATURES])
    only_masks = bool(np.isin(probabilities, (0, 1)).all())
    numbers = None if only_masks else probabilities[:_ROWS]
    columns, meaning = _cells(masks[:_ROWS], numbers, chosen, values)
    rows: list[list[str | Cell]] = [["shown in", *(f"{rates[i]:.0%}" for i in chosen)]]
    for number, (label, shown) in enumerate(zip(index[:_ROWS], masks, strict=False)):
        cells = [
            Cell(column[number], float(shown[i])) for i, column in zip(chosen, columns, strict=True)
        ]
        rows.append([str(label), *cells])
    told = [f"filled: shown{meaning}"]
    if len(masks) > _ROWS:
        told.append(f"{len(masks) - _ROWS:,} more rows")
    if len(rates) > _FEATURES:
        told.append(f"{len(rates) - _FEATURES:,} more features, shown less often")
    heads = ["", *(names[i] for i in chosen)]
    return block(lines([summary]), table(heads, rows), lines(["; ".join(told) + "."]))


def _cells(
    masks: NDArray[np.bool_],
    probabilities: NDArray[Any] | None,
    chosen: NDArray[Any],
    values: FeatureValues | None,
) -> tuple[list[list[str]], str]:
    """The texts of each chosen feature's cells, and what they mean."""
    if values is not None:
        rows = np.arange(len(masks))
        texts = [values.texts(int(i), rows) for i in chosen]
        return [[shorten(text, _CELL_WIDTH) for text in column] for column in texts], (
            "; in the cells: the rows' values"
        )
    if probabilities is None:
        return [["●" if shown else "" for shown in masks[:, i]] for i in chosen], ""
    return [[f"{chance:.2f}" for chance in probabilities[:, i]] for i in chosen], (
        "; numbers: probability of being shown"
    )


def _map(rates: NDArray[Any]) -> str:
    """Draw how often each pixel is shown, (height, width): black for never, white for always."""
    drawn = png(to_rgb(rates, limits=(0.0, 1.0)))
    return picture(drawn, "how often each pixel is shown", _MAP_WIDTH) + lines(
        [f"how often each pixel is shown: black never, white always (at most {rates.max():.0%})."]
    )
