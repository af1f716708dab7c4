"""The selections of an image table as a file, so that anyone can look into them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import InputError
from unmasked.reproduce.imagefigures import Drawn


@dataclass(frozen=True)
class Selection:
    """A method's selections on the test images with one seed and one setting.

    setting : λ or k. masks : (images, features) bool. chosen : by the table's rule.
    """

    method: str
    seed: int
    setting: float
    chosen: bool
    masks: NDArray[np.bool_]


def write_masks(path: Path, drawn: Drawn, seeds: tuple[int, ...]) -> None:
    """Test masks of all methods, seeds and settings, eight features in a byte::

    <method>           (seeds, settings, images, ⌈features / 8⌉) uint8, as np.packbits makes them
    <method> settings  (settings,) λ or k     <method> chosen  (seeds,) the number of a setting
    seeds, features    (seeds,) and one number
    """
    arrays: dict[str, NDArray[Any]] = {"seeds": np.array(seeds)}
    for name, (found, chosen) in drawn.items():
        masks = found.masks["test"]
        arrays["features"] = np.array(masks.shape[-1])
        arrays[name] = np.packbits(masks, axis=-1)
        arrays[f"{name} settings"] = np.array([next(iter(s.values())) for s in found.settings])
        arrays[f"{name} chosen"] = chosen
    save_masks(path, arrays)


def joined_masks(paths: Sequence[Path]) -> dict[str, NDArray[Any]]:
    """The masks of runs with other seeds, or with other methods, for `save_masks`."""
    files = [_arrays(path) for path in paths]
    if any(file.keys() != files[0].keys() for file in files):  # other methods, the same seeds
        return {name: value for file in files for name, value in file.items()}
    return {
        name: value
        if name == "features" or name.endswith(" settings")
        else np.concatenate([file[name] for file in files])
        for name, value in files[0].items()
    }


def save_masks(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """A file of masks as `write_masks` describes it."""
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_masks(path: Path) -> list[Selection]:
    """What `write_masks` wrote, in its order."""
    arrays = _arrays(path)
    try:
        seeds, features = arrays["seeds"], int(arrays["features"])
        names = [name.removesuffix(" chosen") for name in arrays if name.endswith(" chosen")]
        found = []
        for name in names:
            masks = np.unpackbits(arrays[name], axis=-1, count=features).astype(bool)
            for w, seed in enumerate(seeds):
                for s, setting in enumerate(arrays[f"{name} settings"]):
                    chosen = bool(arrays[f"{name} chosen"][w] == s)
                    found.append(Selection(name, int(seed), float(setting), chosen, masks[w, s]))
    except (ValueError, KeyError) as error:
        raise _unreadable(path, error) from error
    return found


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} must be the masks.npz of an image table but cannot be read ({error}); run "
        "`unmasked reproduce mnist` or `unmasked reproduce cxr` again."
    )
