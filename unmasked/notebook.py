"""Pieces of HTML for notebooks: self-contained, escaped, readable on light and on dark.

Text takes the notebook's own colour and fills are translucent, so no theme has to be known: a
notebook's theme need not be the browser's.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35)"
_FILL = "rgba(64,132,196,{strength:.2f})"  # a blue that text is read on, black or white
_STRONGEST = 0.45


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text and how strongly it is filled, from 0 to 1."""

    text: str
    fill: float = 0.0


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, where what a cell returns is drawn."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """A table whose first column labels its rows; all text is escaped."""
    header = "".join(_cell('th scope="col"', Cell(head)) for head in heads)
    body = "".join(
        "<tr>"
        + _cell('th scope="row"', _as_cell(label), side="left")
        + "".join(_cell("td", _as_cell(cell)) for cell in cells)
        + "</tr>"
        for label, *cells in rows
    )
    return (
        '<table style="border-collapse:collapse;margin:.4em 0;color:inherit">'
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
    )


def lines(texts: Iterable[str]) -> str:
    """Sentences, each on a line of its own."""
    return "".join(f'<div style="margin:.2em 0">{escape(text)}</div>' for text in texts)


def picture(png: bytes, alt: str, width: int) -> str:
    """A PNG, enlarged without blur."""
    data = b64encode(png).decode()
    style = f"width:{width}px;image-rendering:pixelated;border:1px solid rgba(128,128,128,.35)"
    return f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}" style="{style}">'


def block(*parts: str) -> str:
    """Parts below each other; wide ones scroll by themselves."""
    return f'<div style="overflow-x:auto;color:inherit">{"".join(parts)}</div>'


def _as_cell(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _cell(tag: str, cell: Cell, side: str = "right") -> str:
    style = f"{_LINE};padding:.2em .6em;text-align:{side}"
    if cell.fill > 0:  # bold too, not by colour alone
        strength = _STRONGEST * min(1.0, cell.fill)
        style += f";background:{_FILL.format(strength=strength)};font-weight:bold"
    return f'<{tag} style="{style}">{escape(cell.text)}</{tag.split()[0]}>'
