"""Draw the samples of an image table, and keep its selections in a file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from matplotlib.figure import Figure
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from unmasked.errors import InputError
from unmasked.io.gallery import Card, Picture, write_gallery
from unmasked.io.page import footer
from unmasked.masks.maskers import Masker
from unmasked.masks.superpixels import Superpixels
from unmasked.plots.overlays import overlay, png, to_rgb
from unmasked.reproduce.render import Subject
from unmasked.reproduce.selections import Selections


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
    """Sort the arrays of a file of masks along their seeds, smallest first."""
    order = np.argsort(arrays["seeds"])
    return {name: value[order] if _by_seed(name) else value for name, value in arrays.items()}


def _shared(arrays: dict[str, NDArray[Any]], by_method: bool) -> dict[str, Any]:
    """Collect what files to be joined must share: seeds, or the settings of each method."""
    name, *_ = _methods(arrays)
    common = {"features": int(arrays["features"]), "images": arrays[name].shape[2]}
    same = [own for own in arrays if own.endswith(" settings")] if not by_method else ["seeds"]
    return {**common, **{own: arrays[own].tolist() for own in same}}


def save_masks(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """A file of masks as `write_masks` describes it."""
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_masks(path: Path) -> list[Selection]:
    """Read the selections that `write_masks` wrote, in its order."""
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
    """Read the arrays of a file of masks; refuse one that is not as `write_masks` describes it."""
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


Drawn = Mapping[str, tuple[Selections, NDArray[np.int64]]]
"""For each method, what it found and the chosen setting of each seed."""


@dataclass(frozen=True)
class View:
    """Test images as people see them: x (R, channels, height, width), y (R,) their classes.

    truth : (R, features) bool, the features that decide the label, where they are known.
    """

    subject: Subject
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    masker: Masker
    truth: NDArray[np.bool_] | None = None

    def pixels(self, shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The features that are shown (F,) as a map of pixels (height, width)."""
        if isinstance(self.masker, Superpixels):
            return shown[self.masker.map]
        return shown.reshape(self.x.shape[2:])

    def samples(self) -> NDArray[np.int64]:
        """The first test images of each class: not picked by hand."""
        most = self.subject.samples
        return np.concatenate([np.flatnonzero(self.y == c)[:most] for c in np.unique(self.y)])


def write_figures(
    folder: Path, view: View, drawn: Drawn, lead: list[str], facts: dict[str, Any]
) -> None:
    """``samples.png``, ``single-pixel.png`` where L2X shows one, and ``gallery.html``."""
    which = view.samples()
    sample_figure(view, drawn, which).savefig(folder / "samples.png", dpi=110)
    single = _single(drawn)
    if single is not None and not isinstance(view.masker, Superpixels):
        found, setting = single
        masks = found.masks["test"][0, setting]
        single_pixel_figure(view, masks).savefig(folder / "single-pixel.png", dpi=110)
    write_gallery(
        folder / "gallery.html",
        f"{view.subject.dataset}: what each method shows",
        cards(view, drawn, which),
        lead=[*lead, "Orange marks what is shown."],
        footer=footer(facts),
    )


def _single(drawn: Drawn) -> tuple[Selections, int] | None:
    if "L2X" not in drawn:
        return None
    found, _ = drawn["L2X"]
    at = [s for s, setting in enumerate(found.settings) if setting.get("k") == 1]
    return (found, at[0]) if at else None


def sample_figure(view: View, drawn: Drawn, which: NDArray[np.int64]) -> Figure:
    """A column for each sample, a line for the image and for each method's chosen setting.

    Where the truth is known, it is the second line.
    """
    shows = [found.masks["test"][0, chosen[0]] for found, chosen in drawn.values()]
    names = [f"{name}\n{_setting(*pair)}" for name, pair in drawn.items()]
    if view.truth is not None:
        shows, names = [view.truth, *shows], ["truth", *names]
    lines = 1 + len(shows)
    tiny = max(view.x.shape[2:]) <= 32
    side = 0.8 if tiny else 1.25  # inches
    figure = Figure(
        figsize=(side * len(which) + 1.6, 1.06 * side * lines + 0.3), layout="constrained"
    )
    axes = figure.subplots(lines, len(which), squeeze=False)
    for column, i in enumerate(which):
        axes[0, column].imshow(to_rgb(view.x[i]), interpolation="nearest")
        axes[0, column].set_title(view.subject.classes[int(view.y[i])], fontsize=7)
        for line, masks in enumerate(shows, 1):
            shown = view.pixels(masks[i])
            # single pixels are lost in print unless they are filled and the image steps back
            drawn_over = (
                overlay(0.6 * view.x[i], shown, limits=(0, 1), strength=1)
                if tiny
                else overlay(view.x[i], shown)
            )
            axes[line, column].imshow(drawn_over, interpolation="antialiased")
    for line, name in enumerate(["image", *names]):
        axes[line, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
    return figure


def _setting(found: Selections, chosen: NDArray[np.int64]) -> str:
    ((name, value),) = found.settings[int(chosen[0])].items()
    return f"{'λ' if name == 'sparsity' else name} = {value:g}"


def single_pixel_figure(view: View, masks: NDArray[np.bool_]) -> Figure:
    """For each class its mean image, and where L2X's one pixel lies on its test images."""
    classes = np.unique(view.y)
    size = view.x.shape[2:]
    columns = 5
    lines = -(-len(classes) // columns)
    figure = Figure(figsize=(1.7 * columns, 1.95 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax, one in zip(axes, classes, strict=False):
        own = view.y == one
        rates = masks[own].mean(0)
        ax.imshow(1 - view.x[own].mean((0, 1)), cmap="gray", vmin=0, vmax=1)
        places = np.flatnonzero(rates > 0.005)
        line, column = np.unravel_index(places, size)
        ax.scatter(column, line, s=900 * rates[places], facecolors="none", edgecolors="#c8553d")
        top, left = np.unravel_index(rates.argmax(), size)
        name = view.subject.classes[int(one)]
        ax.set_title(f"{name}: pixel {top},{left} in {rates.max():.0%}", fontsize=8)
    for ax in axes:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def cards(view: View, drawn: Drawn, which: NDArray[np.int64]) -> list[Card]:
    """A card for each sample: the image, and what each method shows of it."""
    subject = view.subject
    found_cards = []
    for i in which:
        label = subject.classes[int(view.y[i])]
        thing = subject.thing.format(label)
        pictures = [Picture("image", png(to_rgb(view.x[i])), thing)]
        facts = {}
        if view.truth is not None:
            true = view.truth[i]
            said = f"{thing}, with the {int(true.sum())} {subject.unit} that decide it marked"
            pictures.append(Picture("truth", png(overlay(view.x[i], view.pixels(true))), said))
        for name, (found, chosen) in drawn.items():
            shown = found.masks["test"][0, chosen[0], i]
            p = found.own["test"][0, chosen[0], i]
            pictures.append(
                Picture(
                    f"{name}, {_setting(found, chosen)}",
                    png(overlay(view.x[i], view.pixels(shown))),
                    f"{thing}, with the {int(shown.sum())} {subject.unit} that {name} shows marked",
                )
            )
            said = f"{subject.classes[int(p.argmax())]} ({p.max():.2f})"
            facts[name] = f"shows {shown.mean():.1%}; its own predictor says {said}"
        title = thing.removeprefix("a ")
        found_cards.append(
            Card(title[0].upper() + title[1:], f"Test image {i}", f"label {label}", pictures, facts)
        )
    return found_cards
