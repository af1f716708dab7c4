"""Keep the finished pieces of an audit, so that a killed one goes on; show how far it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.errors import OutputError
from unmasked.training.progress import Show, Shown, watched


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

        from unmasked.plots.notebook import progress_bar

        self._progress = progress_bar(
            TextColumn("audit"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._task = self._progress.add_task("", total=total)

    def now(self, what: str) -> None:
        """Show which piece of work is going on."""
        if self._progress is not None:
            self._progress.update(self._task, description=what)

    def done(self) -> None:
        """One piece more."""
        if self._progress is not None:
            self._progress.advance(self._task)


class Store:
    """Reads a finished piece back, or makes it and keeps it. Without a folder it only makes it."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def arrays(
        self, name: str, make: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """A piece made of arrays."""
        path = self._path(f"{name}.npz")
        if path is not None and path.is_file():
            with np.load(path, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        made = make()
        if path is not None:
            self._write(path, lambda part: _save(part, made))
        return made

    def values(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A piece made of plain values."""
        path = self._path(f"{name}.json")
        if path is not None and path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        made = make()
        if path is not None:
            self._write(path, lambda part: part.write_text(json.dumps(made), encoding="utf-8"))
        return made

    def place(self, name: str) -> Path | None:
        """A folder for the checkpoints of training itself."""
        return self._path(name)

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    @staticmethod
    def _write(path: Path, write: Callable[[Path], object]) -> None:
        """Whole or not at all: under another name first."""
        part = path.with_name(f"{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(part)
            os.replace(part, path)
        except OSError as error:
            raise OutputError(
                f"the audit cannot keep its progress in {path.parent} "
                f"({error.strerror or error}); choose another place."
            ) from error


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with open(path, "wb") as file:  # numpy would add an ending to a path
        np.savez(file, **arrays)  # type: ignore[arg-type]
