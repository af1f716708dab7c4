"""The pictures of an image table: samples with their selections, L2X's single pixel, a gallery."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unmasked.data.mnist import Images
from unmasked.pictures import overlay, png, to_rgb
from unmasked.report.gallery import Card, Picture, write_gallery
from unmasked.report.page import footer
from unmasked.reproduce.imagetraining import Found

Drawn = Mapping[str, tuple[Found, NDArray[np.int64]]]
"""For each method, what it found and the chosen setting of each seed."""
_SAMPLES = 2  # images of each class


def write_figures(
    folder: Path, test: Images, drawn: Drawn, lead: list[str], facts: dict[str, Any]
) -> None:
    """``samples.png``, ``single-pixel.png`` where L2X shows one, and ``gallery.html``."""
    which = samples(test.y)
    sample_figure(test, drawn, which).savefig(folder / "samples.png", dpi=110)
    single = _single(drawn)
    if single is not None:
        found, setting = single
        masks = found.masks["test"][0, setting]
        single_pixel_figure(test, masks).savefig(folder / "single-pixel.png", dpi=110)
    write_gallery(
        folder / "gallery.html",
        "MNIST: what each method shows",
        cards(test, drawn, which),
        lead=[*lead, "Orange marks what is shown."],
        footer=footer(facts),
    )


def samples(y: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first two test images of each class: not picked by hand."""
    return np.concatenate([np.flatnonzero(y == c)[:_SAMPLES] for c in np.unique(y)])


def _single(drawn: Drawn) -> tuple[Found, int] | None:
    if "L2X" not in drawn:
        return None
    found, _ = drawn["L2X"]
    at = [s for s, setting in enumerate(found.settings) if setting.get("k") == 1]
    return (found, at[0]) if at else None


def sample_figure(test: Images, drawn: Drawn, which: NDArray[np.int64]) -> Figure:
    """A column for each sample, a line for the image and for each method's chosen setting."""
    lines = 1 + len(drawn)
    figure = Figure(figsize=(0.62 * len(which) + 1.6, 0.66 * lines + 0.3), layout="constrained")
    axes = figure.subplots(lines, len(which), squeeze=False)
    for column, i in enumerate(which):
        axes[0, column].imshow(to_rgb(test.x[i]), interpolation="nearest")
        for line, (found, chosen) in enumerate(drawn.values(), 1):
            shown = found.masks["test"][0, chosen[0], i].reshape(test.x.shape[2:])
            axes[line, column].imshow(overlay(test.x[i], shown), interpolation="nearest")
    names = ["image"] + [f"{name}\n{_setting(*pair)}" for name, pair in drawn.items()]
    for line, name in enumerate(names):
        axes[line, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
    return figure


def _setting(found: Found, chosen: NDArray[np.int64]) -> str:
    ((name, value),) = found.settings[int(chosen[0])].items()
    return f"{'λ' if name == 'sparsity' else name} = {value:g}"


def single_pixel_figure(test: Images, masks: NDArray[np.bool_]) -> Figure:
    """For each digit its mean image, and where L2X's one pixel lies on its test images."""
    digits = np.unique(test.y)
    size = test.x.shape[2:]
    columns = 5
    lines = -(-len(digits) // columns)
    figure = Figure(figsize=(1.7 * columns, 1.95 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax, digit in zip(axes, digits, strict=False):
        own = test.y == digit
        rates = masks[own].mean(0)
        ax.imshow(1 - test.x[own].mean((0, 1)), cmap="gray", vmin=0, vmax=1)
        places = np.flatnonzero(rates > 0.005)
        line, column = np.unravel_index(places, size)
        ax.scatter(column, line, s=900 * rates[places], facecolors="none", edgecolors="#c8553d")
        ax.set_title(f"{digit}: pixel {np.unravel_index(rates.argmax(), size)[0]},"
                     f"{np.unravel_index(rates.argmax(), size)[1]} in {rates.max():.0%}",
                     fontsize=8)  # fmt: skip
    for ax in axes:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def cards(test: Images, drawn: Drawn, which: NDArray[np.int64]) -> list[Card]:
    """A card for each sample: the image, and what each method shows of it."""
    found_cards = []
    for i in which:
        label = int(test.y[i])
        pictures = [Picture("image", png(to_rgb(test.x[i])), f"a handwritten {label}")]
        facts = {}
        for name, (found, chosen) in drawn.items():
            shown = found.masks["test"][0, chosen[0], i]
            p = found.own["test"][0, chosen[0], i]
            pictures.append(
                Picture(
                    f"{name}, {_setting(found, chosen)}",
                    png(overlay(test.x[i], shown.reshape(test.x.shape[2:]))),
                    f"the same {label} with the {int(shown.sum())} pixels that {name} shows marked",
                )
            )
            said = f"{int(p.argmax())} ({p.max():.2f})"
            facts[name] = f"shows {shown.mean():.1%}; its own predictor says {said}"
        found_cards.append(
            Card(f"Digit {label}", f"Test image {i}", f"label {label}", pictures, facts)
        )
    return found_cards
