"""The X-ray table made small: drawn films of 32 × 32 pixels and a recipe that trains in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unmasked.datasets.chest_xray import ChestXrays
from unmasked.datasets.phantom import phantom
from unmasked.networks.images import CNN, UNet
from unmasked.networks.tables import MLP
from unmasked.reproduce.cxr_recipes import tuned, with_cells
from unmasked.reproduce.image_recipes import Evaluation, ImageRecipe
from unmasked.reproduce.image_sets import _films
from unmasked.training import Training

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
