"""How far can the hearts be trusted that `unmasked.reproduce.hearts` finds on NIH's films?

Trains the segmenter on both sources of films with masks, and on each source alone to test it on the
other: that is the honest guess for films of a third source. On NIH's test films, which have no
masks, it counts what can be counted: area and place, whether hearts are one piece, how well the
cardiothoracic ratio tells cardiomegaly, and how far the three segmenters agree. Last, selections of
the 32 superpixels that lie most on true margins show how much enrichment wrong outlines cost.

    python benchmarks/hearts.py MASKS.npz NIH [OUT] [--sheet SHEET.png]

writes OUT/results.json; the sheet shows 24 validation films with their outlines. About a quarter of
an hour on 2 CPU cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from unmasked import Superpixels
from unmasked.datasets import Films, HeartMasks, chest_xray, heart_masks
from unmasked.errors import UnmaskedError
from unmasked.io.output_folder import provenance, to_json
from unmasked.plots.overlays import overlay, png
from unmasked.reproduce.heart_measures import cardiothoracic_ratios, distance_to_outline, overlap
from unmasked.reproduce.heart_places import MARGIN, where_selections_lie
from unmasked.reproduce.heart_segmenter import (
    Anatomy,
    Schooling,
    Segmenter,
    fit_segmenter,
    scores_on,
)
from unmasked.reproduce.hearts import check_hearts

CELLS, SHOWN = 16, 32  # a grid of so many lines and columns, of which so many cells are shown


def main(masks: Path, nih: Path, out: Path | None, sheet: Path | None) -> None:
    films, xrays = heart_masks(masks), chest_xray(nih)
    both = fit_segmenter(films)
    found: dict[str, Any] = {"both": {"own": both.scores, **both.about}}
    hearts = {"both": both.anatomy(xrays.test.x)}
    print(f"both sources, held-out films: {both.scores}")
    for source in sorted(set(films.source.tolist())):
        one = _trained_on(films, source)
        other = np.flatnonzero(films.source != source)
        found[source] = {
            "own": one.scores,
            "other": scores_on(one, films, other),
            **_on_others(one, films, other),
            **one.about,
        }
        hearts[source] = one.anatomy(xrays.test.x)
        print(f"trained on {source}: {found[source]}")
    result = {"segmenters": found, "nih": _on_nih(hearts, both, xrays.test)}
    print(f"NIH's test films: {result['nih']}")
    if out is not None:
        command = f"python benchmarks/hearts.py {masks.name} {nih.name} {out}"
        out.mkdir(parents=True, exist_ok=True)
        text = to_json({**provenance(command), **result})
        (out / "results.json").write_text(text, encoding="utf-8")
    if sheet is not None:
        sheet.write_bytes(png(_sheet(both, xrays.valid)))


def _trained_on(films: HeartMasks, source: str) -> Segmenter:
    """As many steps as with all films."""
    own = films.source == source
    epochs = round(Schooling().epochs * len(own) / own.sum())
    return fit_segmenter(HeartMasks(*(values[own] for values in films)), epochs=epochs)


def _on_others(one: Segmenter, films: HeartMasks, rows: NDArray[np.int64]) -> dict[str, Any]:
    """On another source's films: the ratio beside the true one, and what wrong outlines cost."""
    found = one.anatomy(films.x[rows])
    ratio, truth = cardiothoracic_ratios(found.heart, found.lungs), films.ratio[rows]
    known = np.isfinite(ratio)
    error = (ratio - truth)[known]
    beside = {
        "correlation": float(np.corrcoef(ratio[known], truth[known])[0, 1]),
        "bias": float(error.mean()),
        "sd": float(error.std()),
        "without": int((~known).sum()),
    }
    true = films.heart[rows]
    side = true.shape[1]
    band = np.stack([distance_to_outline(heart) <= MARGIN * side for heart in true])
    cell = side // CELLS
    cover = band.reshape(len(rows), CELLS, cell, CELLS, cell).mean((2, 4)).reshape(len(rows), -1)
    shown = (-cover).argsort(1, kind="stable").argsort(1, kind="stable") < SHOWN
    cells = Superpixels(CELLS).bound((1, side, side)).map
    cost = {}
    for name, heart in (("true", true), ("found", found.heart)):
        places = where_selections_lie(shown, cells, heart).groups["all"].places
        cost[name] = {
            place: places[place].enrichment.to_json() for place in ("margin", "heart_or_margin")
        }
    return {"ratio": beside, "enrichment": cost}


def _on_nih(hearts: dict[str, Anatomy], both: Segmenter, films: Films) -> dict[str, Any]:
    """What can be checked without masks."""
    raw = both.hearts(films.x) > 0.5
    pieces = np.array([ndimage.label(heart)[1] for heart in raw])
    agree = {}
    names = sorted(hearts)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            scores = overlap(hearts[a].heart, hearts[b].heart)
            agree[f"{a}, {b}"] = {name: float(np.nanmean(v)) for name, v in scores.items()}
    return {
        "checks": {name: check_hearts(one, films.y)[0] for name, one in hearts.items()},
        "one_piece": float((pieces == 1).mean()),
        "agreement": agree,
    }


def _sheet(segmenter: Segmenter, films: Films, columns: int = 6) -> NDArray[np.uint8]:
    """Two lines of films without and two with cardiomegaly; hearts tinted."""
    random = np.random.default_rng(0)
    rows = [random.permutation(np.flatnonzero(films.y == c))[: 2 * columns] for c in (0, 1)]
    x = films.x[np.concatenate(rows)]
    hearts = segmenter.anatomy(x).heart
    tiles = [
        overlay(film, heart, strength=0.2, factor=2, limits=(0, 1))
        for film, heart in zip(x, hearts, strict=True)
    ]
    lines = [np.concatenate(tiles[i : i + columns], 1) for i in range(0, len(tiles), columns)]
    return np.concatenate(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("masks", type=Path)
    parser.add_argument("nih", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--sheet", type=Path)
    given = parser.parse_args()
    try:
        main(given.masks, given.nih, given.out, given.sheet)
    except (UnmaskedError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
