"""How far an audit is: one bar over its pieces, on a terminal or in a notebook."""

from __future__ import annotations

from unmasked.engine.progress import Show, Shown, watched


class Steps(Shown):
    """Counts pieces of work and says which is going on; silent where nobody watches."""

    def __init__(self, total: int, show: Show) -> None:
        if not watched(show):
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        from unmasked.bars import progress_bar

        self._progress = progress_bar(
            TextColumn("audit"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._task = self._progress.add_task("", total=total)

    def now(self, what: str) -> None:
        """What is going on."""
        if self._progress is not None:
            self._progress.update(self._task, description=what)

    def done(self) -> None:
        """One piece more."""
        if self._progress is not None:
            self._progress.advance(self._task)
