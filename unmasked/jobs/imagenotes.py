"""``model/pictures.json``: how a model's pictures were read, and which it learned from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.data.picturefiles import FITS, Fit
from unmasked.data.stored import StoredImages
from unmasked.errors import InputError
from unmasked.jobs.saved import said_path
from unmasked.report.results import to_json

DEFAULT_FIT: Fit = "pad"
_FILE = "pictures.json"
_DIGITS = 16  # of a digest: among a million pictures two meet with a chance of 3 in 10⁸


@dataclass(frozen=True)
class PictureNotes:
    """What is kept beside a model of pictures.

    learned : digests of the pictures that it was trained and validated with; None where an older
        program saved it. unsaid : remarks on what it does not say.
    """

    fit: Fit
    learned: frozenset[str] | None
    unsaid: list[str]

    def seen(self, images: StoredImages) -> NDArray[np.bool_]:
        """Which pictures the model learned from, (pictures,); none where that is not known."""
        if self.learned is None:
            return np.zeros(len(images), dtype=bool)
        return np.array([own in self.learned for own in digests(images)])


def write_notes(model: Path, fit: Fit, superpixels: int, learned: StoredImages) -> None:
    notes = {"fit": fit, "superpixels": superpixels, "learned": sorted(set(digests(learned)))}
    (model / _FILE).write_text(to_json(notes), encoding="utf-8")


def read_notes(model: Path, asked: Fit | None) -> PictureNotes:
    """What a model says about its pictures; ``asked`` is how new ones are to be made square."""
    path = model / _FILE
    if not path.is_file():
        taken = DEFAULT_FIT if asked is None else asked
        remark = (
            f"{said_path(model)} does not say how its pictures were made square, so --fit {taken} "
            "was taken."
        )
        return PictureNotes(taken, None, [remark])
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fit = content["fit"]
        learned = frozenset(map(str, content["learned"])) if "learned" in content else None
    except (OSError, ValueError, KeyError, TypeError):
        fit, learned = None, None
    if fit not in FITS:
        raise InputError(
            f"{path} must say how the model's pictures were made square but is damaged; train the "
            "model again."
        )
    if asked not in (fit, None):
        raise InputError(
            f"the model's pictures were read with --fit {fit}, so new ones cannot be read with "
            f"--fit {asked}; leave it out."
        )
    return PictureNotes(fit, learned, [])


def digests(images: StoredImages) -> list[str]:
    """A digest of each picture's pixels, the same whether they are stored in 8 bits or in 16."""
    scale = 65535 // images.white  # as `Plan` spreads 8 bits over 16
    return [
        hashlib.sha256((one.astype("<u2") * np.uint16(scale)).tobytes()).hexdigest()[:_DIGITS]
        for block in images.blocks()
        for one in images.whole_numbers(block)
    ]
