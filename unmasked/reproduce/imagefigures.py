"""The pictures of an image table: samples with their selections, L2X's single pixel, a gallery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unmasked.masking import Masker
from unmasked.pictures import overlay, png, to_rgb
from unmasked.report.gallery import Card, Picture, write_gallery
from unmasked.report.page import footer
from unmasked.reproduce.selections import Selections
from unmasked.reproduce.subjects import Subject
from unmasked.superpixels import Superpixels

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
