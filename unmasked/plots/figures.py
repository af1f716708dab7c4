"""Pictures of selections. Every function draws on ``ax`` (or a new one) and returns it.

In a notebook a new one is pyplot's, which is drawn below the cell; elsewhere it is a bare figure's:
nothing is registered globally, nothing leaks, no window opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmasked.plots.notebook import in_notebook
from unmasked.plots.overlays import overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN, HIDDEN, ACCENT, MUTED = "#20639b", "#edf1f5", "#c8553d", "#9aa5b1"
_MOST_ROWS = 2000  # more rows than pixels only blur a heat map
_VALUE_WIDTH = 28  # characters of a value beside a name
_NEAR = 0.12  # points of a path closer than this share of its length would share a place for labels


def axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or new ones of that many inches."""
    if ax is not None:
        return ax
    if in_notebook():
        from matplotlib import pyplot

        return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def literal(name: str) -> str:
    """A name as matplotlib shall draw it: what stands between dollars is no formula."""
    return name.replace("$", r"\$")


def shorten(text: str, width: int) -> str:
    """A text on one line, cut where it is longer than ``width``.

    >>> shorten("a long story", 6), shorten("short", 6)
    ('a lon…', 'short')
    """
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def one_row(
    probabilities: NDArray[Any],
    mask: NDArray[np.bool_],
    names: Sequence[str],
    *,
    title: str,
    ax: Axes | None = None,
    most: int = 30,
    values: Sequence[str] | None = None,
) -> Axes:
    """Bars of one row's selection probabilities; shown features are filled.

    values : the row's value of each feature, written beside its name.
    """
    order = np.argsort(-np.asarray(probabilities), kind="stable")[:most]
    ax = axes(ax, 5.0 if values is None else 6.0, 0.6 + 0.26 * len(order))
    labels = list(names)
    if values is not None:
        labels = [
            f"{name} = {shorten(v, _VALUE_WIDTH)}" for name, v in zip(names, values, strict=True)
        ]
    colours = [SHOWN if mask[i] else MUTED for i in order]
    positions = np.arange(len(order))
    ax.barh(positions, np.asarray(probabilities)[order], color=colours, height=0.7)
    ax.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
    ax.set_yticks(positions, [literal(labels[i]) for i in order])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("probability of being shown (shown above ½)")
    ax.set_title(literal(title))
    _plain(ax)
    return ax


def heat_map(
    masks: NDArray[np.bool_],
    names: Sequence[str],
    *,
    groups: NDArray[Any] | None = None,
    ax: Axes | None = None,
    most: int = 30,
    title: str = "",
    keep_order: bool = False,
) -> Axes:
    """Rows down, features across, filled where shown; ``groups`` sorts rows and labels blocks."""
    rates = masks.mean(0) if len(masks) else np.zeros(len(names))
    chosen = np.argsort(-rates, kind="stable")[:most]
    if keep_order:
        chosen = np.sort(chosen)
    order = np.arange(len(masks))
    if groups is not None:
        order = np.argsort(np.asarray(groups).astype(str), kind="stable")
    if len(order) > _MOST_ROWS:
        order = order[np.linspace(0, len(order) - 1, _MOST_ROWS).astype(int)]
    ax = axes(ax, 1.6 + 0.42 * len(chosen), 4.6)
    from matplotlib.colors import ListedColormap

    ax.imshow(
        masks[np.ix_(order, chosen)],
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap([HIDDEN, SHOWN]),
        vmin=0,
        vmax=1,
    )
    labels = [f"{literal(names[i])}\n{rates[i]:.0%}" for i in chosen]
    long = any(len(names[i]) > 6 for i in chosen)
    ax.set_xticks(
        np.arange(len(chosen)),
        [label.replace("\n", "  ") for label in labels] if long else labels,
        rotation=90 if long else 0,
    )
    ax.set_xticks(np.arange(len(chosen) + 1) - 0.5, minor=True)
    ax.grid(which="minor", axis="x", color="white", linewidth=1.5)
    ax.tick_params(which="both", length=0)
    ax.set_yticks([])
    ax.set_ylabel("rows")
    if groups is not None:
        sorted_groups = np.asarray(groups).astype(str)[order]
        values, starts = np.unique(sorted_groups, return_index=True)
        ends = np.append(starts[1:], len(order))
        middles = [(a + b - 1) / 2 for a, b in zip(starts, ends, strict=True)]
        ax.set_yticks(middles, [literal(value) for value in values])
        for start in starts[1:]:
            ax.axhline(start - 0.5, color=ACCENT, linewidth=1.5)
        ax.set_ylabel("")
    if title:
        ax.set_title(literal(title), fontsize=11)
    for side in ax.spines.values():
        side.set_visible(False)
    return ax


def pixel_map(
    values: NDArray[Any],
    *,
    title: str,
    scale: str = "probability of being shown",
    ax: Axes | None = None,
) -> Axes:
    """Numbers from 0 to 1 for each pixel, (height, width), as a heat map with its scale."""
    height, width = values.shape
    ax = axes(ax, 4.2 * min(2.0, max(0.5, width / height)) + 0.8, 4.2)
    drawn = ax.imshow(values, vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label=scale)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(literal(title))
    return ax


def over_image(
    image: ArrayLike, shown: NDArray[np.bool_], *, title: str, ax: Axes | None = None
) -> Axes:
    """An image (channels, height, width) with its selection (height, width) marked on it."""
    picture = overlay(np.asarray(image), shown)
    height, width = picture.shape[:2]
    ax = axes(ax, 4.2 * min(2.0, max(0.5, width / height)), 4.2)
    ax.imshow(picture, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(literal(title))
    return ax


def sparsity_path(
    fractions: Sequence[float],
    scores: Sequence[float],
    labels: Sequence[str],
    chosen: int,
    *,
    score_name: str,
    references: dict[str, float] | None = None,
    intervals: Sequence[tuple[float, float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Score against the fraction shown, one point per λ, the chosen one marked."""
    ax = axes(ax, 6.0, 3.8)
    order = np.argsort(fractions)
    x, y = np.asarray(fractions)[order], np.asarray(scores)[order]
    ax.plot(x, y, color=SHOWN, linewidth=1.5, zorder=2)
    if intervals is not None:
        low, high = np.array(intervals)[order].T
        ax.vlines(x, low, high, color=SHOWN, linewidth=1.2, zorder=2)
    ax.scatter(x, y, color=SHOWN, s=28, zorder=3)
    ax.scatter(
        [fractions[chosen]], [scores[chosen]], s=130, facecolors="none", edgecolors=ACCENT,
        linewidths=2, zorder=4, label="chosen",
    )  # fmt: skip
    for i, (left, up) in zip(order, _label_sides(x, y), strict=True):
        ax.annotate(
            labels[i],
            (fractions[i], scores[i]),
            textcoords="offset points",
            xytext=(-9 if left else 9, 6 if up else -12),
            horizontalalignment="right" if left else "left",
            fontsize=8,
            color="#444",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            zorder=5,
        )
    styles = ["--", ":", "-."]
    for number, (name, value) in enumerate((references or {}).items()):
        ax.axhline(
            value, color=MUTED, linestyle=styles[number % 3], linewidth=1.2, label=name, zorder=1
        )
    ax.set_xlabel("fraction of features shown")
    ax.set_ylabel(score_name)
    ax.set_xlim(left=0)
    ax.legend(
        frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4
    )  # above the picture, where it hides nothing
    _plain(ax)
    return ax


def _label_sides(x: NDArray[Any], y: NDArray[Any]) -> list[tuple[bool, bool]]:
    """Choose the side of each point of a path, from left to right, for its label: (left, above).

    Left where the next point is near, so that of two neighbours each has a side of its own, unless
    there the axis stands; above where the point lies over the middle of its neighbours, and the
    line leaves it downwards.

    >>> _label_sides(np.array([0.41, 0.45, 0.46, 0.65]), np.array([0.887, 0.893, 0.894, 0.89]))
    [(True, False), (True, True), (False, True), (False, False)]
    >>> _label_sides(np.array([0.0, 0.0, 0.03, 0.6]), np.array([0.5, 0.5, 0.7, 0.9]))
    [(False, True), (False, False), (False, True), (False, True)]
    """
    near = _NEAR * max(float(x[-1]), 1e-9)
    sides = []
    for i, (own, height) in enumerate(zip(x, y, strict=True)):
        to_next = x[i + 1] - own if i + 1 < len(x) else np.inf
        to_last = own - x[i - 1] if i else np.inf
        beside = [y[j] for j in (i - 1, i + 1) if 0 <= j < len(y)]
        left = bool(own > 2 * near and to_next < near and to_next <= to_last)
        sides.append((left, bool(height >= np.mean(beside)) if beside else True))
    return sides


def _plain(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
