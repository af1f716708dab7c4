"""Small charts as inline SVG. Colours are classes, so that a page's light and dark styles apply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 40
_COLOURS = 6  # classes c0 … c5 of the page's style


@dataclass(frozen=True)
class Series:
    """A line with a band: points (x, value, low, high). ``style`` "dash" is for comparisons."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    colour: int = 0
    style: str = ""


def lines(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    description: str,
    *,
    diagonal: bool = False,
) -> str:
    """Lines over a common pair of axes, with a legend."""
    shown = [p for one in series for p in one.points if math.isfinite(p[1])]
    if not shown:
        return ""
    xs = [p[0] for p in shown]
    ys = [v for p in shown for v in p[1:] if math.isfinite(v)]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(ys), max(ys)
    if diagonal:
        y_low, y_high = min(y_low, x_low), max(y_high, x_high)
    margin = 0.04 * (y_high - y_low) or 0.05
    axes = _Axes(x_low, x_high if x_high > x_low else x_low + 1, y_low - margin, y_high + margin)
    parts = [axes.frame(x_label, y_label)]
    if diagonal:
        parts.append(
            f'<line class="ref" x1="{axes.x(x_low):.1f}" y1="{axes.y(x_low):.1f}" '
            f'x2="{axes.x(x_high):.1f}" y2="{axes.y(x_high):.1f}"/>'
        )
    for one in series:
        kind = f"c{one.colour % _COLOURS}"
        points = [p for p in one.points if all(math.isfinite(v) for v in p)]
        upper = [f"{axes.x(x):.1f},{axes.y(high):.1f}" for x, _, _, high in points]
        lower = [f"{axes.x(x):.1f},{axes.y(low):.1f}" for x, _, low, _ in reversed(points)]
        middle = " ".join(f"{axes.x(x):.1f},{axes.y(value):.1f}" for x, value, _, _ in points)
        parts.append(f'<polygon class="band {kind}" points="{" ".join(upper + lower)}"/>')
        parts.append(f'<polyline class="line {kind} {one.style}" points="{middle}"/>')
    return _figure("".join(parts), series, description)


@dataclass(frozen=True)
class Mark:
    """A value with its interval on a line of its own."""

    label: str
    value: float
    low: float
    high: float
    colour: int = 0
    hollow: bool = False


def forest(marks: Sequence[Mark], x_label: str, description: str) -> str:
    """Values with intervals under each other, labels above their lines so that long ones fit."""
    marks = [m for m in marks if math.isfinite(m.value)]
    ends = [v for m in marks for v in (m.value, m.low, m.high) if math.isfinite(v)]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 0.05
    low, high = low - margin, high + margin
    row, top = 34, 6
    height = top + row * len(marks) + 40

    def x(value: float) -> float:
        return 10 + (value - low) / (high - low) * (_WIDTH - 20)

    bottom = top + row * len(marks)
    parts = []
    for tick in _ticks(low, high, 5):
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{bottom}"/>'
            f'<text class="tick" x="{x(tick):.1f}" y="{bottom + 15}" text-anchor="middle">'
            f"{_number(tick)}</text>"
        )
    for i, mark in enumerate(marks):
        y = top + row * i + 24
        kind = f"c{mark.colour % _COLOURS}"
        name = mark.label if len(mark.label) <= 52 else mark.label[:51] + "…"
        parts.append(f'<text class="name" x="10" y="{y - 9}">{escape(name)}</text>')
        if math.isfinite(mark.low) and math.isfinite(mark.high):
            parts.append(
                f'<line class="line {kind}" x1="{x(mark.low):.1f}" x2="{x(mark.high):.1f}" '
                f'y1="{y}" y2="{y}"/>'
            )
        hollow = " hollow" if mark.hollow else ""
        parts.append(
            f'<circle class="dot {kind}{hollow}" cx="{x(mark.value):.1f}" cy="{y}" r="4"/>'
        )
    parts.append(
        f'<text class="axis" x="{_WIDTH / 2}" y="{height - 6}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(description)}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class _Axes:
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def frame(self, x_label: str, y_label: str) -> str:
        parts = []
        for tick in _ticks(self.y_low, self.y_high, 5):
            y = self.y(tick)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{_number(tick)}</text>"
            )
        for tick in _ticks(self.x_low, self.x_high, 6):
            x = self.x(tick)
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15}" '
                f'text-anchor="middle">{_number(tick)}</text>'
            )
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        parts.append(
            f'<text class="axis" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 5}" '
            f'text-anchor="middle">{escape(x_label)}</text>'
            f'<text class="axis" transform="rotate(-90)" x="{-middle}" y="12" '
            f'text-anchor="middle">{escape(y_label)}</text>'
        )
        return "".join(parts)


def _figure(inner: str, series: Sequence[Series], description: str) -> str:
    legend = "".join(
        f'<span class="key"><i class="c{one.colour % _COLOURS} {one.style}"></i>'
        f"{escape(one.name)}</span>"
        for one in series
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(description)}">'
        f'{inner}</svg><p class="legend">{legend}</p>'
    )


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two ends.

    >>> _ticks(0.0, 1.0, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = high - low
    step = 10.0 ** math.floor(math.log10(span / about))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= about + 0.5)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")
