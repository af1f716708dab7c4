"""Data sets × seeds as the worlds of one program, and trained stacks applied to their rows.

Axes in the comments: W worlds, S settings, R rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.data.synthetic import Synthetic, synthetic
from unmasked.engine import Data, Trained
from unmasked.engine.memory import enough_for_a_row, in_parts
from unmasked.engine.stack import Stack, over_leading
from unmasked.masking import Masker
from unmasked.samplers import Sampler

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
    """What ``run`` makes of rows x (W, R, C), some at a time, as one: (W, S, R, …)."""
    size = max(64, _CHUNK // (networks * x.shape[2]))
    with enough_for_a_row(device):
        found, _ = in_parts(run, x.shape[1], size, device)
    result: NDArray[Any] = torch.cat(found, dim=2).numpy()
    return result
