"""The X-ray table made small: drawn films of 32 × 32 pixels and a recipe that trains in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unmasked.data.chest_xray import ChestXrays
from unmasked.data.phantom import phantom
from unmasked.engine import Training
from unmasked.imagenetworks import CNN, UNet
from unmasked.networks import MLP
from unmasked.reproduce.cxr import _films
from unmasked.reproduce.cxrrecipes import tuned, with_cells
from unmasked.reproduce.imagerecipes import Evaluation, ImageRecipe

SIZE, GRID = 32, 4
PARTS = [phantom(rows, SIZE, seed) for seed, rows in enumerate((120, 60, 60))]
FILMS = ChestXrays(*(_films(part, i) for i, part in enumerate(PARTS)), {}, ["Drawn."], [])  # type: ignore[arg-type]
OPTIONS: dict[str, Any] = {"device": "cpu", "show": False, "explainers": ("REAL-X", "L2X")}


def tiny(base: ImageRecipe | None = None) -> ImageRecipe:
    base = base or tuned()
    training = Training(epochs=2, batch_size=30, learning_rate=3e-3, selector_learning_rate=3e-3)
    recipe = replace(
        base,
        predictor=CNN((4, 8)),
        selector=UNet((4, 8)),
        training=training,
        own_training={"mask": training},
        evaluators={end: Evaluation(how.masker, how.law) for end, how in base.evaluators.items()},
        prices=(0.5, 20.0),
        numbers=(1, 3),
        reader=MLP((8,)),
    )
    return with_cells(recipe, GRID)
