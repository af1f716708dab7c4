"""Train every method of a recipe over all worlds, each as one program, and apply it to the rows.

Each program keeps a checkpoint. A finished one is read back at once, so a run that was killed
goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.engine import Settings, Trained
from unmasked.engine import fit as fit_or_cut_short
from unmasked.engine.progress import Show
from unmasked.reproduce.recipes import Recipe
from unmasked.reproduce.worlds import PARTS, World, data_of, inputs_of, predicted, selected

_EVALUATOR_SEED = 7_919  # an evaluator never starts from an explainer's network
_MEMBER_SEED = 104_729


def fit(*arguments: Any, **options: Any) -> Trained:
    """`engine.fit`, but Ctrl-C ends the run: half-trained methods make no tables."""
    trained = fit_or_cut_short(*arguments, **options)
    if trained.interrupted:
        raise KeyboardInterrupt  # the checkpoint stays
    return trained


@dataclass(frozen=True)
class Place:
    """Where to compute and to keep checkpoints, and whether to show progress."""

    device: str
    checkpoints: Path
    show: Show

    def checkpoint(self, name: str) -> Path:
        return self.checkpoints / f"{name.lower()}.safetensors"


@dataclass(frozen=True)
class Selections:
    """What a method selects and predicts, for all worlds and settings.

    masks : for each part of the rows, (W, S, R, F).
    own : P(y = 1 | what is shown) under the method's own predictor, "valid" and "test", (W, S, R).
    """

    method: str
    levels: tuple[float, ...]
    masks: dict[str, NDArray[np.bool_]]
    own: dict[str, NDArray[np.float64]]
    epochs: NDArray[np.int64]
    seconds: float


def train_explainer(name: str, recipe: Recipe, worlds: list[World], place: Place) -> Selections:
    """Train a method in all settings and worlds, and select on all rows."""
    method, levels = recipe.method(name), recipe.levels(name)
    assert method.selector is not None
    trained = fit(
        method,
        Settings(levels, tuple(world.seed for world in worlds)),
        data_of(worlds, "train"),
        data_of(worlds, "valid"),
        recipe.options(name),
        device=place.device,
        path=place.checkpoint(name),
        show=place.show,
        title=name,
    )
    masks, own = {}, {}
    for part in PARTS:
        x = inputs_of(worlds, part)
        masks[part] = selected(trained, method.selector.sampler, levels, x)
        if part != "train":
            own[part] = predicted(trained.stacks["predictor"], recipe.masker, x, masks[part])
    epochs = np.array(trained.epochs).reshape(len(worlds), len(levels))
    return Selections(name, levels, masks, own, epochs, trained.seconds)


def train_evaluator(name: str, recipe: Recipe, worlds: list[World], place: Place) -> Trained:
    """EVAL-X or FULL, one network for each world, or one for each member of an ensemble."""
    members = recipe.members if name == "EVAL-X" else 1
    seeds = [
        world.seed + _EVALUATOR_SEED + _MEMBER_SEED * i for world in worlds for i in range(members)
    ]
    return fit(
        recipe.method(name),
        Settings(seeds=tuple(seeds)),
        [data for data in data_of(worlds, "train") for _ in range(members)],
        [data for data in data_of(worlds, "valid") for _ in range(members)],
        recipe.options(name),
        device=place.device,
        path=place.checkpoint(name),
        show=place.show,
        title=name,
    )


def train_roar(
    recipe: Recipe, worlds: list[World], masks: dict[str, NDArray[np.bool_]], place: Place
) -> Trained:
    """One model for each world and explanation, on that explanation's masks (W, E, R, F)."""
    explanations = masks["train"].shape[1]
    return fit(
        recipe.method("ROAR"),
        Settings(
            tuple(float(i) for i in range(explanations)),
            tuple(world.seed + _EVALUATOR_SEED for world in worlds),
        ),
        data_of(worlds, "train", masks["train"]),
        data_of(worlds, "valid", masks["valid"]),
        recipe.options("ROAR"),
        device=place.device,
        path=place.checkpoint("roar"),
        show=place.show,
        title="ROAR",
    )


def train_collection(
    recipe: Recipe, worlds: list[World], place: Place, features: int = 11
) -> Trained:
    """2^features separately trained models for each world."""
    assert recipe.collection is not None
    return fit(
        recipe.method("collection"),
        Settings(
            tuple(float(i) for i in range(2**features)),
            tuple(world.seed + _EVALUATOR_SEED for world in worlds),
        ),
        data_of(worlds, "train"),
        data_of(worlds, "valid"),
        recipe.collection,
        device=place.device,
        path=place.checkpoint("collection"),
        show=place.show,
        title=f"{2**features:,} subsets",
    )
