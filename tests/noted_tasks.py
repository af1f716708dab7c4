"""Tasks that note who did them: in processes of their own, which import nothing else of tests."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmasked.errors import MemoryWarning
from unmasked.reproduce.image_training import Task
from unmasked.reproduce.replicates import Place

TASKS = (Task("start"), Task("after", "start"), Task("third"), Task("fourth"))


@dataclass(frozen=True)
class Diary:
    """In place of a workshop: each task notes who did it and when, then does what it is told."""

    folder: Path
    acts: dict[str, str]

    @property
    def place(self) -> Place:
        return Place("cpu", self.folder, False)

    def tasks(self, explainers: tuple[str, ...]) -> list[Task]:
        return list(TASKS)

    def silent(self) -> Diary:
        return self

    def do(self, task: Task) -> None:
        began = time.monotonic()
        act = self.acts.get(task.name, "")
        self._note(task, began)
        if act == "raise":
            raise ValueError("no luck")
        if act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "warn":
            warnings.warn("in two halves.", MemoryWarning, stacklevel=2)
        if act == "stay":
            time.sleep(600)
        self._note(task, began)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """It is read back in the processes alone."""
        self.__dict__.update(state)
        if self.acts.get("every") == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, task: Task, began: float) -> None:
        part = self.folder / f"{task.name}.part"
        text = json.dumps({"pid": os.getpid(), "began": began, "ended": time.monotonic()})
        part.write_text(text, encoding="utf-8")
        part.replace(self.folder / f"{task.name}.json")

    def read(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads((self.folder / f"{name}.json").read_text("utf-8")))
