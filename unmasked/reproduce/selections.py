"""Hold what a method selects and predicts on the rows of a table, and keep it in a file.

Networks that were read back from a checkpoint need not select as they did when they were trained:
on a GPU sums may be rounded otherwise, and a probability near ½ falls on the other side. What has
learned from the first selections (readers of masks, ROAR) would not know the second. So they are
made once.

Axes in the comments: W worlds (seeds, data sets), S settings, R rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.training import Trained, checkpoint

Masks = NDArray[np.bool_]
_BY_PART = ("masks", "own")  # what there is for each part of the rows


@dataclass(frozen=True)
class Selections:
    """A method's selections and predictions, for all worlds and settings.

    settings : each level under its name, such as {"k": 4}.
    masks : for each part of the rows, (W, S, R, F).
    own : what the method's own predictor says of "valid" and "test" rows from what is shown:
        P(class), (W, S, R, K), or P(y = 1), (W, S, R).
    """

    method: str
    settings: list[dict[str, int | float]]
    masks: dict[str, Masks]
    own: dict[str, NDArray[np.float64]]
    epochs: NDArray[np.int64]  # (W, S)
    seconds: float

    @property
    def levels(self) -> tuple[float, ...]:
        """λ or k of each setting."""
        return tuple(float(next(iter(setting.values()))) for setting in self.settings)


def kept(
    path: Path,
    name: str,
    trained: Trained,
    rows: Iterable[Tensor],
    compute: Callable[[], Selections],
) -> Selections:
    """Read the result of ``compute`` back from ``path``, or compute it and keep it there.

    name, trained, rows : what it depends on; what was kept of others is refused.
    """
    weights = [t for stack in trained.stacks.values() for t in stack.state().values()]
    run = checkpoint.fingerprint(name, [*weights, *rows])
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
        part: np.unpackbits(bits, axis=-1, count=values["features"]).view(bool)
        for part, bits in packed.items()
    }
    epochs = tensors["epochs"].numpy()
    return Selections(values["method"], values["settings"], masks, own, epochs, values["seconds"])


def _tensors(found: Selections) -> dict[str, Tensor]:
    """Eight features of a mask in a byte."""
    masks = {f"masks {part}": np.packbits(masks, axis=-1) for part, masks in found.masks.items()}
    own = {f"own {part}": values for part, values in found.own.items()}
    arrays = {**masks, **own, "epochs": found.epochs}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def joined(pieces: list[Selections]) -> Selections:
    """The settings of several programs, in order."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    return Selections(
        first.method,
        [setting for piece in pieces for setting in piece.settings],
        {part: np.concatenate([p.masks[part] for p in pieces], axis=1) for part in first.masks},
        {part: np.concatenate([p.own[part] for p in pieces], axis=1) for part in first.own},
        np.concatenate([p.epochs for p in pieces], axis=1),
        sum(p.seconds for p in pieces),
    )
