"""Where do the selections of a finished `unmasked reproduce cxr` lie, in every setting?

`unmasked reproduce cxr --hearts` says it of the chosen settings while it runs. This reads the kept
masks of a run, or of joined ones, afterwards: seed 0, each method and setting that shows anything.

    python benchmarks/places.py RUN NIH MASKS.npz OUT

RUN holds masks.npz, NIH are the films that were explained, MASKS.npz films with outlined hearts; it
writes OUT/places.json. Ten minutes on 2 CPU cores, nearly all for the network that finds hearts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unmasked import Superpixels
from unmasked.cli.workflows.saved import said_path
from unmasked.datasets import chest_xray
from unmasked.errors import InputError, UnmaskedError
from unmasked.io.output_folder import provenance, to_json
from unmasked.reproduce.hearts import places_of
from unmasked.reproduce.image_figures import read_masks
from unmasked.reproduce.image_training import label_digest
from unmasked.reproduce.join import read_results


def main(run: Path, nih: Path, masks: Path, out: Path) -> None:
    films = chest_xray(nih)
    if read_results(run)["images"].get("test_labels") != label_digest(films.test.y):
        raise InputError(f"{run} must be of the test films in {nih}, but is of others.")
    kept = [one for one in read_masks(run / "masks.npz") if one.seed == 0 and one.masks.any()]
    if not kept:
        raise InputError(f"the selections in {run} show nothing, so they lie nowhere.")
    cells = round(kept[0].masks.shape[1] ** 0.5)
    superpixels = Superpixels(cells).bound(films.test.x.shape[1:])
    found = places_of(
        masks,
        films.test.x,
        {f"{one.method} {one.setting:g}": one.masks for one in kept},
        superpixels.map,
        films.test.y,
    )
    for words in found["sentences"]:
        print(words)
    command = f"python benchmarks/places.py {run.name} {nih.name} {masks.name} {said_path(out)}"
    out.mkdir(parents=True, exist_ok=True)
    text = to_json({**provenance(command), "images": nih.name, **found})
    (out / "places.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for name in ("run", "nih", "masks", "out"):
        parser.add_argument(name, type=Path)
    try:
        main(**vars(parser.parse_args()))
    except (UnmaskedError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
