"""Write HTML for notebooks, readable on light and on dark; progress bars there and on terminals.

In a notebook rich needs ipywidgets, warns at every step where they are missing, and shows
nothing. A notebook can redraw an output by itself, so there the same bar is drawn as HTML.

Text takes the notebook's own colour and fills are translucent, so no theme has to be known: a
notebook's theme need not be the browser's.
"""

from __future__ import annotations

import io
import sys
import time
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn

_EVERY = 0.2  # seconds between two drawings
_HTML = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;margin:0;color:inherit;'
    "background:none;font-family:Menlo,'DejaVu Sans Mono',consolas,monospace\">{code}</pre>"
)


def progress_bar(*columns: str | ProgressColumn) -> Progress:
    """A bar of rich's with these columns, for where the program runs."""
    console = Console(stderr=True)
    if console.is_jupyter:
        return NotebookProgress(*columns, console=Console(file=io.StringIO(), force_jupyter=False))
    return Progress(*columns, console=console)


class NotebookProgress(Progress):
    """rich's progress, drawn into one output of a notebook and redrawn there."""

    _handle: Any = None
    _drawn = float("-inf")

    def start(self) -> None:
        """Show the bar; there is no thread, it is redrawn when it moves."""
        self._draw()

    def stop(self) -> None:
        """Show how far it came."""
        if self._handle is not None:
            self._draw()

    def refresh(self) -> None:
        """Redraw, unless that was done just now."""
        if self._handle is not None and time.monotonic() - self._drawn >= _EVERY:
            self._draw()

    def update(self, *args: Any, **changes: Any) -> None:
        """As rich's, and redraw."""
        super().update(*args, **changes)
        self.refresh()

    def advance(self, *args: Any, **changes: Any) -> None:
        """As rich's, and redraw."""
        super().advance(*args, **changes)
        self.refresh()

    def _draw(self) -> None:
        from IPython.display import display

        paper = Console(
            file=io.StringIO(), record=True, force_jupyter=False, force_terminal=True,
            color_system="truecolor", legacy_windows=False, width=110,
        )  # fmt: skip
        paper.print(self.get_renderable())
        html = paper.export_html(inline_styles=True, code_format=_HTML, clear=False)
        what = {"text/html": html, "text/plain": paper.export_text().rstrip()}
        if self._handle is None:
            self._handle = display(what, raw=True, display_id=True)
        else:
            self._handle.update(what, raw=True)
        self._drawn = time.monotonic()


_LINE = "border:0;border-bottom:1px solid rgba(128,128,128,.35)"
_FILL = "rgba(64,132,196,{strength:.2f})"  # a blue that text is read on, black or white
_STRONGEST = 0.45


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text and how strongly it is filled, from 0 to 1."""

    text: str
    fill: float = 0.0


def in_notebook() -> bool:
    """Tell whether the code runs in a notebook's kernel, where what a cell returns is drawn."""
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
