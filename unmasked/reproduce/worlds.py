"""Data sets × seeds as the worlds of one program, and trained stacks applied to their rows.

Axes in the comments: W worlds, S settings, R rows, F features, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.data.synthetic import Synthetic, synthetic
from unmasked.engine import Data, Trained
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
    level = torch.tensor([levels], dtype=x.dtype, device=stack.flat.device)
    found = []
    size = _rows(stack.count, x.shape[2])
    for start in range(0, x.shape[1], size):
        rows = x[:, start : start + size]
        spread = rows.to(stack.flat.device).unsqueeze(1).expand(-1, settings, -1, -1)
        logits = stack.forward(
            stack.weights(), spread.reshape(stack.count, *rows.shape[1:]), training=False
        ).reshape(worlds, settings, rows.shape[1], -1)
        found.append(over_leading(sampler.select, 2, logits, level).bool().cpu())
    return torch.cat(found, dim=2).numpy()


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
    found = []
    size = _rows(worlds * settings * members, x.shape[2])
    for start in range(0, x.shape[1], size):
        rows = slice(start, start + size)
        part = x[:, None, rows].to(device)  # (W, 1, R, F)
        mask = torch.from_numpy(masks[:, :, rows]).to(device, part.dtype)
        shown = over_leading(masker, 2, part, mask)  # (W, S, R, width)
        flat = shown.reshape(stack.count // members, -1, shown.shape[-1])
        logits = stack.forward(
            stack.weights(), flat.repeat_interleave(members, dim=0), training=False
        )
        p = torch.softmax(logits.double(), -1)  # (networks, rows, K)
        p = p.reshape(flat.shape[0], members, *p.shape[1:]).mean(1)
        found.append(p.reshape(*shown.shape[:-1], -1).cpu())
    return torch.cat(found, dim=2).numpy()


def _rows(networks: int, columns: int) -> int:
    return max(64, _CHUNK // (networks * columns))
