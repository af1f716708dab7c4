"""The selections of an image table as a file, so that anyone can look into them again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
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
    files = [_in_order(_arrays(path)) for path in paths]
    first, by_method = files[0], any(file.keys() != files[0].keys() for file in files)
    for path, file in zip(paths, files, strict=True):
        if _shared(file, by_method) != _shared(first, by_method):
            raise InputError(
                f"{path} must hold masks that belong with those of {paths[0]}, but has others than "
                "the results beside it say; run the command that wrote it again."
            )
    if by_method:  # the same seeds
        return {name: value for file in files for name, value in file.items()}
    return {
        name: np.concatenate([file[name] for file in files]) if _by_seed(name) else value
        for name, value in first.items()
    }


def _by_seed(name: str) -> bool:
    return name != "features" and not name.endswith(" settings")


def _in_order(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The same with seeds that rise."""
    order = np.argsort(arrays["seeds"])
    return {name: value[order] if _by_seed(name) else value for name, value in arrays.items()}


def _shared(arrays: dict[str, NDArray[Any]], by_method: bool) -> dict[str, Any]:
    """What files that are joined must have in common: seeds, or the settings of each method."""
    name, *_ = _methods(arrays)
    common = {"features": int(arrays["features"]), "images": arrays[name].shape[2]}
    same = [own for own in arrays if own.endswith(" settings")] if not by_method else ["seeds"]
    return {**common, **{own: arrays[own].tolist() for own in same}}


def save_masks(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """A file of masks as `write_masks` describes it."""
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_masks(path: Path) -> list[Selection]:
    """What `write_masks` wrote, in its order."""
    arrays = _arrays(path)
    found = []
    for name in _methods(arrays):
        count = int(arrays["features"])
        masks = np.unpackbits(arrays[name], axis=-1, count=count).astype(bool)
        for w, seed in enumerate(arrays["seeds"]):
            for s, setting in enumerate(arrays[f"{name} settings"]):
                chosen = bool(arrays[f"{name} chosen"][w] == s)
                found.append(Selection(name, int(seed), float(setting), chosen, masks[w, s]))
    return found


def _methods(arrays: dict[str, NDArray[Any]]) -> list[str]:
    return [name.removesuffix(" chosen") for name in arrays if name.endswith(" chosen")]


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """What is in a file; refused where it is not as `write_masks` describes it."""
    try:
        with path.open("rb") as file:
            content = np.load(file)
            if not isinstance(content, NpzFile):
                raise ValueError("it is one array")
            arrays = {name: content[name] for name in content.files}
        _check(arrays)
    except (OSError, ValueError, EOFError, RuntimeError, BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} must be the masks.npz of an image table but cannot be read ({error}); run "
            "`unmasked reproduce mnist` or `unmasked reproduce cxr` again."
        ) from error
    return arrays


def _check(arrays: dict[str, NDArray[Any]]) -> None:
    names = _methods(arrays)
    wanted = ["seeds", "features", *names, *(f"{name} settings" for name in names)]
    missing = [name for name in wanted if name not in arrays]
    if missing or not names:
        raise ValueError(f"it lacks {missing[0] if missing else 'masks'}")
    seeds, features = arrays["seeds"], int(arrays["features"])
    for name in names:
        masks, settings = arrays[name], arrays[f"{name} settings"]
        expected = (*seeds.shape, *settings.shape, -(-features // 8))
        if (
            masks.dtype != np.uint8
            or masks.ndim != 4
            or (*masks.shape[:2], masks.shape[3]) != expected
            or arrays[f"{name} chosen"].shape != seeds.shape
        ):
            raise ValueError(f"the masks of {name} do not belong to its seeds and settings")
