"""The HTML report: one self-contained file, no script, no external font or picture."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class TableBlock:
    """A table: header cells, rows of cells, which rows to stress, whether first cells are long."""

    header: list[str]
    rows: list[list[str]]
    stressed: frozenset[int] = frozenset()
    long: bool = False


@dataclass(frozen=True)
class Chance:
    """A class's probability, from what is shown and from everything; ``true``: it is the label."""

    name: str
    shown: float
    everything: float
    true: bool = False


@dataclass(frozen=True)
class RowCard:
    """One row for a person: what is shown of it, with its values, and what that predicts.

    ``reason`` is why it is an example, ``outcome`` what is true of it and ``right`` whether that
    is predicted; None where it is unknown. ``more`` shown features are not listed.
    """

    title: str
    reason: str
    outcome: str
    right: bool | None
    shown: list[tuple[str, str]]
    more: int
    hidden: int
    chances: list[Chance]


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, then rows, a table, pictures and a code block, each if given."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    table: TableBlock | None = None
    pictures: list[tuple[str, str]] = field(default_factory=list)
    """(data URI, description) of each picture."""
    code: str = ""
    after: list[str] = field(default_factory=list)
    cards: list[RowCard] = field(default_factory=list)


def picture(ax: Axes) -> str:
    """A plot as a PNG data URI."""
    return "data:image/png;base64," + base64.b64encode(png(ax)).decode()


def png(ax: Axes) -> bytes:
    """A plot as PNG bytes."""
    from matplotlib.figure import Figure

    figure = ax.get_figure()
    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, facecolor="white")
    return buffer.getvalue()


def render(title: str, lead: list[str], sections: list[Section], footer: str) -> str:
    """The page: what was found in plain words first, then the evidence."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("unmasked.io").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=title, lead=lead, sections=sections, footer=footer
    )


def footer(facts: dict[str, Any]) -> str:
    """One line on where the figures come from."""
    commit = f", commit {facts['commit']}" if facts["commit"] else ""
    return (
        f"Made by: {facts['command']} · unmasked {facts['version']}{commit} · torch "
        f"{facts['torch']} · {facts['hardware']}"
    )
