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

from unmasked.engine import Settings, Trained, Training, fit, restart_seeds
from unmasked.engine.progress import Show
from unmasked.evaluation.evaluator import MEMBER_SHIFT, SEED_SHIFT
from unmasked.reproduce.recipes import FEATURES, Recipe
from unmasked.reproduce.selections import Selections, kept
from unmasked.reproduce.worlds import PARTS, World, data_of, inputs_of, predicted, selected


@dataclass(frozen=True)
class Place:
    """Where to compute and to keep checkpoints, and whether to show progress."""

    device: str
    checkpoints: Path
    show: Show

    def checkpoint(self, name: str) -> Path:
        return self.checkpoints / f"{name.lower()}.safetensors"


def _train(
    name: str,
    recipe: Recipe,
    settings: Settings,
    worlds: list[World],
    place: Place,
    *,
    masks: dict[str, NDArray[np.bool_]] | None = None,
    training: Training | None = None,
    title: str = "",
) -> Trained:
    """One program over all worlds. Ctrl-C ends the run: half-trained methods make no tables."""
    given = masks or {}
    return fit(
        recipe.method(name),
        settings,
        data_of(worlds, "train", given.get("train")),
        data_of(worlds, "valid", given.get("valid")),
        training or recipe.options(name),
        device=place.device,
        path=place.checkpoint(name),
        show=place.show,
        title=title or name,
        whole=True,
    )


def _seeds(worlds: list[World], shift: int = 0) -> tuple[int, ...]:
    return tuple(world.seed + shift for world in worlds)


def train_explainer(name: str, recipe: Recipe, worlds: list[World], place: Place) -> Selections:
    """Train a method in all settings and worlds, and select on all rows.

    With ``recipe.restarts`` above 1 each is trained so many times, from other seeds on the same
    rows, and the one with the best validation score (the objective that it was trained for) is
    kept: a selector can settle in a selection that no small change improves.
    """
    selector, levels = recipe.method(name).selector, recipe.levels(name)
    assert selector is not None
    sampler, starts = selector.sampler, range(recipe.restarts)
    repeated = [world for world in worlds for _ in starts]
    seeds = tuple(seed for world in worlds for seed in restart_seeds(world.seed, len(starts)))
    trained = _train(name, recipe, Settings(levels, seeds), repeated, place)
    best = trained.best_restarts(len(starts), len(levels))  # (W, S)

    inputs = {part: inputs_of(repeated, part) for part in PARTS}

    def best_of(values: NDArray[Any]) -> NDArray[Any]:
        """(W · restarts, S, …) -> (W, S, …)."""
        return values.reshape(-1, *values.shape[2:])[best]

    def compute() -> Selections:
        masks, own = {}, {}
        for part, x in inputs.items():
            every = selected(trained, sampler, levels, x)
            masks[part] = best_of(every)
            if part != "train":
                own[part] = best_of(predicted(trained.stacks["predictor"], recipe.masker, x, every))
        settings = [sampler.named(level) for level in levels]
        epochs = np.array(trained.epochs)[best]
        return Selections(name, settings, masks, own, epochs, trained.seconds)

    path = place.checkpoint(f"selections of {name}")
    return kept(path, f"{name} {levels} {best.tolist()}", trained, inputs.values(), compute)


def train_evaluator(name: str, recipe: Recipe, worlds: list[World], place: Place) -> Trained:
    """EVAL-X or FULL, one network for each world, or one for each member of an ensemble."""
    members = range(recipe.members if name == "EVAL-X" else 1)
    seeds = [world.seed + SEED_SHIFT + MEMBER_SHIFT * i for world in worlds for i in members]
    repeated = [world for world in worlds for _ in members]
    return _train(name, recipe, Settings(seeds=tuple(seeds)), repeated, place)


def train_roar(
    recipe: Recipe, worlds: list[World], masks: dict[str, NDArray[np.bool_]], place: Place
) -> Trained:
    """One model for each world and explanation, on that explanation's masks (W, E, R, F)."""
    explanations = tuple(float(i) for i in range(masks["train"].shape[1]))
    settings = Settings(explanations, _seeds(worlds, SEED_SHIFT))
    return _train("ROAR", recipe, settings, worlds, place, masks=masks)


def train_collection(
    recipe: Recipe, worlds: list[World], place: Place, features: int = FEATURES
) -> Trained:
    """2^features separately trained models for each world."""
    subsets = tuple(float(i) for i in range(2**features))
    settings = Settings(subsets, _seeds(worlds, SEED_SHIFT))
    title = f"{2**features:,} subsets"
    return _train(
        "collection", recipe, settings, worlds, place, training=recipe.collection, title=title
    )
