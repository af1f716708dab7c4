"""Write the files of ``explain-images``: overlays, masks, a table, study material, a gallery."""

from __future__ import annotations

import csv
import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.datasets.films import file_bar, threads
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.explanation.explanation import Explanation
from unmasked.io.gallery import Card, Picture, write_gallery
from unmasked.io.image_files import SUFFIXES
from unmasked.io.image_folder import PictureFolder
from unmasked.plots.overlays import only_shown, overlay, png, to_rgb
from unmasked.training.progress import Show

STUDY_CASES = 50  # as many as the paper's readers saw
_CARDS = 24  # in the gallery, of all classes together
_THREADS = 8  # that draw; each holds a picture, of 2,048 × 2,048 in colour 0.3 GB
_SIDE = 256  # pixels: what pictures are enlarged to, so that they can be looked at
_LONGEST = 200  # bytes of a name, so that an ending and a number still fit
RANDOM = "random masks"


@dataclass(frozen=True)
class Explained:
    """Pictures that were explained, and what is known about each: (pictures,) rows everywhere.

    rows : positions in the folder. shown, everything : (pictures, classes) what an evaluator says
    of what is shown and of the whole picture; None without one. learned : whether the model
    learned from each; None where none of them can be, or where that is not known.
    """

    folder: PictureFolder
    rows: NDArray[np.int64]
    explanation: Explanation
    classes: NDArray[Any]
    shown: NDArray[np.float64] | None
    everything: NDArray[np.float64] | None
    learned: NDArray[np.bool_] | None = None

    @property
    def names(self) -> list[str]:
        names: list[str] = self.folder.names[self.rows].tolist()
        return names

    @property
    def labels(self) -> list[str] | None:
        known = self.folder.labels
        return None if known is None else known[self.rows].tolist()

    def image(self, i: int) -> NDArray[np.float32]:
        """One picture (channels, size, size), read now."""
        row = self.rows[i]
        found: NDArray[np.float32] = self.folder.images[row : row + 1][0]
        return found

    @property
    def limits(self) -> tuple[float, float] | None:
        """Pictures of 8 bits are drawn as they are, deeper ones from their darkest to brightest."""
        return None if self.folder.plan.deep else (0.0, 1.0)

    @property
    def factor(self) -> int:
        return -(-_SIDE // self.folder.plan.size)

    def mask(self, i: int) -> NDArray[np.bool_]:
        """(size, size), which pixels are shown."""
        pixels = self.explanation.pixels
        assert pixels is not None
        found: NDArray[np.bool_] = self.explanation.masks[i][pixels]
        return found


def write_all(part: Path, found: Explained, show: Show = False) -> None:
    """``overlays/``, ``masks/`` and ``explained.csv``."""
    overlays, masks = part / "overlays", part / "masks"
    overlays.mkdir()
    masks.mkdir()
    files = plain_names(found.names)

    def draw(i: int) -> None:
        image, shown = found.image(i), found.mask(i)
        drawn = overlay(image, shown, limits=found.limits, factor=found.factor)
        (overlays / files[i]).write_bytes(png(drawn))
        (masks / files[i]).write_bytes(_mask_png(shown))

    workers = min(_THREADS, os.cpu_count() or 1)
    with file_bar(len(files), show, "pictures", "writing") as advance, threads(workers) as pool:
        for _ in pool.map(draw, range(len(files))):
            advance()
    explanation = found.explanation
    Explanation(
        explanation.masks,
        explanation.probabilities,
        explanation.feature_names,
        np.array(found.names),
        explanation.about,
        explanation.pixels,
    ).save(masks / "masks.npz")
    explained_table(found, files).to_csv(part / "explained.csv", index=False)


def explained_table(found: Explained, files: list[str]) -> pd.DataFrame:
    """One line for each picture: what was shown, what EVAL-X says, where the picture lies.

    ``left``, ``top``, ``wide`` and ``high`` are the whole picture's place in pixels of its mask.
    """
    plan = found.folder.plan
    sizes = found.folder.sizes[found.rows]
    columns: dict[str, Any] = {"image": found.names}
    if found.labels is not None:
        columns["label"] = found.labels
    for what, chances in (("from_shown", found.shown), ("from_everything", found.everything)):
        if chances is not None:
            columns[what] = found.classes[chances.argmax(1)]
            columns[f"{what}_probability"] = chances.max(1).round(4)
    columns["shown"] = found.explanation.sizes
    columns["fraction"] = found.explanation.masks.mean(1).round(4)
    if found.learned is not None:
        columns["learned_from"] = np.where(found.learned, "yes", "no")
    columns["file"] = files
    columns["height"], columns["width"] = sizes[:, 0], sizes[:, 1]
    places = np.array([plan.place(int(h), int(w)) for h, w in sizes])
    for column, name in enumerate(("left", "top", "wide", "high")):
        columns[name] = places[:, column]
    return pd.DataFrame(columns)


def write_study(part: Path, found: Explained, *, most: int, seed: int) -> int:
    """``study/manifest.csv`` with pictures and masks, REAL-X's and random ones of the same size.

    Cases are drawn by the seed, classes in turn. Returns how many.
    """
    folder = part / "study"
    folder.mkdir()
    random = np.random.default_rng([seed, 4])
    order = random.permutation(len(found.rows))
    chosen = _in_turn(order, found.labels)[:most]
    others = same_size_masks(found.explanation.masks, random)
    pixels = found.explanation.pixels
    assert pixels is not None
    with open(folder / "manifest.csv", "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["image", "method", "mask", "case", "label"])
        for number, i in enumerate(chosen, 1):
            case = f"case-{number:03d}"
            picture = to_rgb(found.image(i), limits=found.limits)
            (folder / f"{case}.png").write_bytes(png(picture))
            label = "" if found.labels is None else found.labels[i]
            masks = {"REAL-X": found.mask(i), RANDOM: others[i][pixels]}
            for method, mask in masks.items():
                name = f"{case}-{method.lower().replace(' ', '-')}.png"
                (folder / name).write_bytes(_mask_png(mask))
                lines.writerow([f"{case}.png", method, name, found.names[i], label])
    return len(chosen)


def write_page(part: Path, found: Explained, title: str, lead: list[str], footer: str) -> None:
    """``gallery.html``: the first pictures of each class, not picked by hand."""
    every = len(found.rows)
    own = found.names if found.labels is None else found.labels
    shown = sorted(_in_turn(np.arange(every), found.labels)[:_CARDS])
    if len(shown) < every:
        each = "" if found.labels is None else " of each class"
        lead = [*lead, f"Below are {len(shown):,} of {every:,}, the first{each}: overlays has all."]
    write_gallery(
        part / "gallery.html",
        title,
        [_card(found, i) for i in _by_class(shown, found.labels)],
        lead=lead,
        totals=Counter(_heading(None if found.labels is None else one) for one in own),
        footer=footer,
    )


def _card(found: Explained, i: int) -> Card:
    image, mask = found.image(i), found.mask(i)
    name, size = found.names[i], int(found.explanation.sizes[i])
    drawn: dict[str, Any] = {"limits": found.limits, "factor": found.factor}
    whole = np.ones_like(mask)
    pictures = [
        Picture("picture", png(only_shown(image, whole, **drawn)), f"the picture {name}"),
        Picture(
            "what REAL-X shows",
            png(overlay(image, mask, **drawn)),
            f"the same picture with the {size} superpixels that REAL-X shows marked",
        ),
        Picture(
            "only that",
            png(only_shown(image, mask, **drawn)),
            f"only the {size} superpixels that REAL-X shows, the rest hidden",
        ),
    ]
    facts = {"shown": f"{size} of {found.explanation.masks.shape[1]} superpixels"}
    for what, chances in (
        ("EVAL-X, from what is shown", found.shown),
        ("EVAL-X, from everything", found.everything),
    ):
        if chances is not None:
            best = int(chances[i].argmax())
            facts[what] = f"{found.classes[best]} ({chances[i, best]:.2f})"
    label = None if found.labels is None else found.labels[i]
    return Card(_heading(label), name, "", pictures, facts)


def _heading(label: str | None) -> str:
    return "" if label is None else f"Label: {label}"


def _in_turn(order: NDArray[np.int64], labels: list[str] | None) -> list[int]:
    """Reorder positions so that classes take turns; without labels leave them as they are."""
    positions: list[int] = order.tolist()
    if labels is None:
        return positions
    seen: Counter[str] = Counter()
    turn = {}
    for i in positions:
        turn[i] = seen[labels[i]]
        seen[labels[i]] += 1
    return sorted(positions, key=lambda i: turn[i])  # stable: the order stays within a turn


def _by_class(positions: list[int], labels: list[str] | None) -> list[int]:
    return positions if labels is None else sorted(positions, key=lambda i: labels[i])


def plain_names(names: list[str]) -> list[str]:
    """A .png file name for each picture, no two alike whatever the file system thinks of case.

    File systems take 255 bytes at most; of longer names the beginning and a digest are left.

    >>> plain_names(["a.png", "b/a.dcm", "c.jpg", "C.png"])
    ['a.png', 'b__a.png', 'c.jpg.png', 'C.png.png']
    """
    flat = [_short(name.replace("/", "__")) for name in names]
    short = [
        PurePosixPath(name).stem if PurePosixPath(name).suffix.lower() in SUFFIXES else name
        for name in flat
    ]
    counts = Counter(name.lower() for name in short)
    found: dict[str, str] = {}  # what a file system without case makes of it -> the name
    for name, whole in zip(short, flat, strict=True):
        best = own = name if counts[name.lower()] == 1 else whole
        number = 1
        while own.lower() in found:
            number += 1
            own = f"{best}-{number}"
        found[own.lower()] = own
    return [f"{name}.png" for name in found.values()]


def _short(name: str) -> str:
    encoded = name.encode()
    if len(encoded) <= _LONGEST:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 17].decode(errors='ignore')}~{digest}"


def _mask_png(shown: NDArray[np.bool_]) -> bytes:
    """White where shown, black elsewhere."""
    return png(np.repeat(shown[..., None], 3, axis=2).astype(np.uint8) * 255)
