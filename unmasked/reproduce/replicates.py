"""Train every method of a recipe over data sets × seeds, each as one program.

Each program keeps a checkpoint. A finished one is read back at once, so a run that was killed
goes on where it stopped.

Axes in the comments: W worlds, S settings, R rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.datasets.synthetic import Synthetic, synthetic
from unmasked.evaluation.evaluator import MEMBER_SHIFT, SEED_SHIFT
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import Sampler
from unmasked.reproduce.recipes import FEATURES, Recipe
from unmasked.reproduce.selections import Selections, kept
from unmasked.training import Data, Settings, Trained, Training, fit, restart_seeds
from unmasked.training.device import enough_for_a_row, in_parts
from unmasked.training.progress import Show
from unmasked.training.stack import Stack, over_leading


@dataclass(frozen=True)
class Place:
    """Device to compute on, folder for checkpoints, and whether to show progress."""

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


PARTS = ("train", "valid", "test")
_CHUNK = 2**24  # numbers, of rows of all networks, run at once


@dataclass(frozen=True)
class World:
    """One data set drawn with one seed: three independent draws of rows."""

    dataset: str
    seed: int
    train: Synthetic
    valid: Synthetic
    test: Synthetic

    def part(self, name: str) -> Synthetic:
        """The rows called "train", "valid" or "test"."""
        rows: Synthetic = getattr(self, name)
        return rows


def draw_worlds(datasets: tuple[str, ...], seeds: tuple[int, ...], rows: int) -> list[World]:
    """All data sets with all seeds; validation rows are extra, training keeps all of its own."""
    return [
        World(
            name,
            seed,
            *(synthetic(name, rows, 3 * seed + number) for number in range(len(PARTS))),
        )
        for name in datasets
        for seed in seeds
    ]


def data_of(worlds: list[World], part: str, masks: NDArray[Any] | None = None) -> list[Data]:
    """The rows of a part as the engine takes them; ``masks`` (W, explanations, R, F) if given."""
    found = []
    for i, world in enumerate(worlds):
        rows = world.part(part)
        found.append(
            Data(
                torch.from_numpy(rows.x).float(),
                torch.nn.functional.one_hot(torch.from_numpy(rows.y), 2).float(),
                None if masks is None else torch.from_numpy(masks[i]),
            )
        )
    return found


def inputs_of(worlds: list[World], part: str) -> Tensor:
    """(W, R, F) float32."""
    return torch.stack([torch.from_numpy(world.part(part).x).float() for world in worlds])


@torch.no_grad()
def selected(
    trained: Trained, sampler: Sampler, levels: tuple[float, ...], x: Tensor
) -> NDArray[np.bool_]:
    """Test-time masks (W, S, R, F) of a method's selectors for rows x (W, R, F)."""
    stack = trained.stacks["selector"]
    worlds, settings = x.shape[0], len(levels)
    device = stack.flat.device
    level = torch.tensor([levels], dtype=x.dtype, device=device)

    def run(start: int, stop: int) -> Tensor:
        rows = x[:, start:stop]
        spread = rows.to(device).unsqueeze(1).expand(-1, settings, -1, -1)
        logits = stack.forward(
            stack.weights(), spread.reshape(stack.count, *rows.shape[1:]), training=False
        ).reshape(worlds, settings, rows.shape[1], -1)
        masks: Tensor = over_leading(sampler.select, 2, logits, level)
        return masks.bool().cpu()

    return _over_rows(run, x, stack.count, device)


def predicted(
    stack: Stack, masker: Masker, x: Tensor, masks: NDArray[np.bool_], members: int = 1
) -> NDArray[np.float64]:
    """P(y = 1 | what masks (W, S, R, F) show) of rows x (W, R, F) -> (W, S, R)."""
    return probabilities(stack, masker, x, masks, members)[..., 1]


@torch.no_grad()
def probabilities(
    stack: Stack, masker: Masker, x: Tensor, masks: NDArray[np.bool_], members: int = 1
) -> NDArray[np.float64]:
    """P(class | what masks (W, S, R, F) show) of rows x (W, R, C) -> (W, S, R, K).

    The stack has one network for each world and setting, or ``members`` for each world, whose
    probabilities are averaged.
    """
    worlds, settings = masks.shape[:2]
    device = stack.flat.device

    def run(start: int, stop: int) -> Tensor:
        part = x[:, None, start:stop].to(device)  # (W, 1, R, F)
        mask = torch.from_numpy(masks[:, :, start:stop]).to(device, part.dtype)
        shown = over_leading(masker, 2, part, mask)  # (W, S, R, width)
        flat = shown.reshape(stack.count // members, -1, shown.shape[-1])
        logits = stack.forward(
            stack.weights(), flat.repeat_interleave(members, dim=0), training=False
        )
        p = torch.softmax(logits.double(), -1)  # (networks, rows, K)
        p = p.reshape(flat.shape[0], members, *p.shape[1:]).mean(1)
        return p.reshape(*shown.shape[:-1], -1).cpu()

    return _over_rows(run, x, worlds * settings * members, device)


def _over_rows(
    run: Callable[[int, int], Tensor], x: Tensor, networks: int, device: torch.device
) -> NDArray[Any]:
    """Apply ``run`` to rows x (W, R, C), some at a time, and join its results: (W, S, R, …)."""
    size = max(64, _CHUNK // (networks * x.shape[2]))
    with enough_for_a_row(device):
        found, _ = in_parts(run, x.shape[1], size, device)
    result: NDArray[Any] = torch.cat(found, dim=2).numpy()
    return result
