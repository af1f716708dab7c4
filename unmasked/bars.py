"""Progress bars on a terminal and in a notebook.

In a notebook rich needs ipywidgets, warns at every step where they are missing, and shows
nothing. A notebook can redraw an output by itself, so there the same bar is drawn as HTML.
"""

from __future__ import annotations

import io
import time
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
