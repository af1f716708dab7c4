"""Several explanations' encoding tests in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unmasked.errors import InputError
from unmasked.evaluation.encoding.result import CANNOT_TELL, ENCODES, NO_SIGN, Encoding
from unmasked.plots import ACCENT, MUTED, SHOWN, axes, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {ENCODES: ACCENT, NO_SIGN: SHOWN, CANNOT_TELL: MUTED}


def forest(found: Mapping[str, Encoding], *, ax: Axes | None = None) -> Axes:
    """Each explanation's nats with their interval; grey lies between the two marks of the rule."""
    if not found:
        raise InputError("there must be at least one Encoding to draw but none came.")
    ax = axes(ax, 7.2, 1.2 + 0.42 * len(found))
    threshold = next(iter(found.values())).threshold
    ax.axvspan(threshold / 4, threshold, color=MUTED, alpha=0.25, linewidth=0)
    for place, one in enumerate(found.values()):
        colour = _COLOURS[one.verdict]
        ax.hlines(place, one.low, one.high, color=colour, linewidth=2.5)
        ax.plot([one.nats], [place], "o", color=colour)
        ax.annotate(
            one.verdict, (one.high, place), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=8, color=colour if one.verdict != CANNOT_TELL else "#444",
        )  # fmt: skip
    ax.set_yticks(range(len(found)), [literal(name) for name in found])
    ax.set_ylim(len(found) - 0.5, -0.5)
    least, most = min(e.low for e in found.values()), max(e.high for e in found.values())
    ax.set_xlim(
        min(-0.01, least * 1.1), max(most, 2 * threshold) * 3.5
    )  # with room for the verdicts
    ax.set_xscale("symlog", linthresh=2 * threshold)
    ticks = [t for t in (0, threshold, 0.1, 0.5, 2) if t <= max(most, 0.1)]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("nats in the choice of features, with 95% intervals")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax
