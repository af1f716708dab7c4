"""An explanation as a notebook draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.notebook import Cell, block, lines, picture, table
from unmasked.pictures import png, to_rgb

_ROWS, _FEATURES = 8, 12  # drawn at most
_MAP_WIDTH = 224  # pixels on the screen


def explanation_html(
    summary: str,
    masks: NDArray[np.bool_],
    probabilities: NDArray[Any],
    names: Sequence[str],
    index: NDArray[Any],
    pixels: NDArray[np.int64] | None,
) -> str:
    """The first rows and the most shown features as a table, or a map of an image's pixels.

    masks, probabilities : (rows, features), pixels : (height, width) the feature of each pixel.
    """
    if not masks.size:
        return block(lines([summary]))
    rates = masks.mean(0)  # (features,)
    if pixels is not None:
        return block(lines([summary]), _map(rates[pixels]))
    chosen = np.sort(np.argsort(-rates, kind="stable")[:_FEATURES])
    only_masks = bool(np.isin(probabilities, (0, 1)).all())
    rows: list[list[str | Cell]] = [["shown in", *(f"{rates[i]:.0%}" for i in chosen)]]
    for label, shown, chances in zip(index[:_ROWS], masks, probabilities, strict=False):
        cells = [
            Cell(("●" if shown[i] else "") if only_masks else f"{chances[i]:.2f}", float(shown[i]))
            for i in chosen
        ]
        rows.append([str(label), *cells])
    told = ["filled: shown" if only_masks else "filled: shown; numbers: probability of being shown"]
    if len(masks) > _ROWS:
        told.append(f"{len(masks) - _ROWS:,} more rows")
    if len(rates) > _FEATURES:
        told.append(f"{len(rates) - _FEATURES:,} more features, shown less often")
    heads = ["", *(names[i] for i in chosen)]
    return block(lines([summary]), table(heads, rows), lines(["; ".join(told) + "."]))


def _map(rates: NDArray[Any]) -> str:
    """How often each pixel is shown, (height, width), from black (never) to white (always)."""
    drawn = png(to_rgb(rates, limits=(0.0, 1.0)))
    return picture(drawn, "how often each pixel is shown", _MAP_WIDTH) + lines(
        [f"how often each pixel is shown: black never, white always (at most {rates.max():.0%})."]
    )
