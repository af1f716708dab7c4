"""What a method selects and predicts on the images of a table, and a file that keeps it.

Axes in the comments: W seeds, S settings, R images, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.engine import checkpoint

Masks = NDArray[np.bool_]
_BY_PART = ("masks", "own")  # what there is for each part of the images


@dataclass(frozen=True)
class Found:
    """What a method selects and predicts, for each seed and setting.

    masks : for each part, (W, S, R, F). own : P(class | shown), "valid" and "test", (W, S, R, K).
    """

    method: str
    settings: list[dict[str, int | float]]
    masks: dict[str, Masks]
    own: dict[str, NDArray[np.float64]]
    epochs: NDArray[np.int64]  # (W, S)
    seconds: float


def kept(path: Path, run: str, compute: Callable[[], Found]) -> Found:
    """What ``compute`` gives, read back from ``path`` where a run has kept it there.

    run : a digest of all that it depends on; what another run has kept is refused.
    """
    content = checkpoint.read(path, run)
    if content is None:
        found = compute()
        values = {
            "method": found.method,
            "settings": found.settings,
            "masks": list(found.masks),
            "own": list(found.own),
            "features": found.masks["test"].shape[-1],
            "seconds": found.seconds,
        }
        checkpoint.write(path, run, values, _tensors(found))
        return found
    values, tensors = content
    packed, own = ({p: tensors[f"{what} {p}"].numpy() for p in values[what]} for what in _BY_PART)
    masks = {
        part: np.unpackbits(bits, axis=-1, count=values["features"]).astype(bool)
        for part, bits in packed.items()
    }
    epochs = tensors["epochs"].numpy()
    return Found(values["method"], values["settings"], masks, own, epochs, values["seconds"])


def _tensors(found: Found) -> dict[str, Tensor]:
    """Eight features of a mask in a byte."""
    masks = {f"masks {part}": np.packbits(masks, axis=-1) for part, masks in found.masks.items()}
    own = {f"own {part}": values for part, values in found.own.items()}
    arrays = {**masks, **own, "epochs": found.epochs}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def joined(pieces: list[Found]) -> Found:
    """The settings of several programs, in order."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    return Found(
        first.method,
        [setting for piece in pieces for setting in piece.settings],
        {part: np.concatenate([p.masks[part] for p in pieces], axis=1) for part in first.masks},
        {part: np.concatenate([p.own[part] for p in pieces], axis=1) for part in first.own},
        np.concatenate([p.epochs for p in pieces], axis=1),
        sum(p.seconds for p in pieces),
    )
