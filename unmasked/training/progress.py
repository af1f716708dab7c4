"""Progress on the terminal, in a notebook or in a log; a Ctrl-C that waits for the step to end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from rich.progress import Progress

Show = bool | Literal["auto", "lines"]
"""Whether to show progress: a bar, a bar where somebody watches, or plain lines for a log."""
_BETWEEN_LINES = 60.0  # seconds


def watched(show: Show) -> bool:
    """Decide whether to show a bar: as asked, or for "auto" in a terminal or a notebook."""
    if show == "auto":
        return sys.stderr.isatty() or "ipykernel" in sys.modules
    return show is True


def tell(title: str, words: str, show: Show) -> None:
    """Say something in a line, where progress is shown."""
    if show == "lines" or watched(show):
        print(f"{title}: {words}", file=sys.stderr, flush=True)


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
        self._lines = Lines(title, epochs) if show == "lines" else None
        if watched(show):
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            from unmasked.plots.notebook import progress_bar

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._lines is not None and kind is None:
            self._lines.end()

    def update(self, done: int, loss: float | None = None, fraction: float | None = None) -> None:
        """Show how far training is, and how it went where that is known."""
        if self._lines is not None:
            self._lines.update(done)
        if self._progress is not None and loss is None:
            self._progress.update(self._task, completed=done)
        elif self._progress is not None:
            note = f"loss {loss:.4f}"
            if fraction is not None:
                note += f", shows {fraction:.0%}"
            self._progress.update(self._task, completed=done, note=note)


class Lines:
    """Lines for a log: when training begins, once a minute, and when it ends."""

    def __init__(self, title: str, epochs: int) -> None:
        self._title, self._epochs = title, epochs
        self._began = self._said = time.monotonic()
        self._first: int | None = None

    def update(self, done: int) -> None:
        """Say how far training is, if that was not said just now."""
        now = time.monotonic()
        if self._first is None:
            self._first = done
            if done < self._epochs:
                count = f"{self._epochs} epoch{'' if self._epochs == 1 else 's'}"
                self._say(count + (f", {done} of them before" if done else ""))
        elif now - self._said >= _BETWEEN_LINES:
            self._say(f"{done} of {self._epochs} epochs")
            self._said = now

    def end(self) -> None:
        """Say that it was trained, if it was not before."""
        if self._first is not None and self._first < self._epochs:
            self._say(f"trained in {time.monotonic() - self._began:.0f} s")

    def _say(self, words: str) -> None:
        tell(self._title, words, "lines")


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
