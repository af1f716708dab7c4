"""Progress on the terminal or in a notebook, and a Ctrl-C that waits for the step to end."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from rich.progress import Progress

Show = bool | Literal["auto"]


def watched(show: Show) -> bool:
    """Whether to show progress: as asked, or where somebody watches."""
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) if show == "auto" else show


class Shown:
    """A bar of rich's that runs inside ``with``, where there is one."""

    _progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class Bar(Shown):
    """One progress bar over the epochs of all phases; silent where nobody watches."""

    def __init__(self, title: str, epochs: int, show: Show) -> None:
        if watched(show):
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            from unmasked.bars import progress_bar

            self._progress = progress_bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("epochs"),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                TextColumn("left"),
            )
            self._task = self._progress.add_task(title, total=epochs, note="")

    def update(self, done: int, loss: float | None = None, fraction: float | None = None) -> None:
        """Show how far training is, and how it went where that is known."""
        if self._progress is not None and loss is None:
            self._progress.update(self._task, completed=done)
        elif self._progress is not None:
            note = f"loss {loss:.4f}"
            if fraction is not None:
                note += f", shows {fraction:.0%}"
            self._progress.update(self._task, completed=done, note=note)


class Interrupt:
    """Turns the first Ctrl-C into a flag that training looks at; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
