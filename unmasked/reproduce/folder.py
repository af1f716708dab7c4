"""One folder holds the results of one preset."""

from __future__ import annotations

import json
from pathlib import Path

from unmasked.errors import OutputError
from unmasked.report.results import CHECKPOINTS

_MARK = "preset.json"


def check_same_preset(folder: Path, preset: str) -> None:
    """Refuse a folder with results, or an unfinished run, of another preset."""
    for path, kind in (
        (folder / "results.json", "results"),
        (folder / CHECKPOINTS / _MARK, "an unfinished run"),
    ):
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            there = content["recipe"]["preset"] if kind == "results" else content["preset"]
        except (OSError, ValueError, KeyError, TypeError):
            there = "something else"
        if there != preset:
            raise OutputError(
                f"{folder} holds {kind} of the preset {there!r}, not {preset!r}; "
                "choose another folder with --out, or remove it."
            )


def mark(folder: Path, preset: str) -> None:
    """Say whose unfinished run a folder holds."""
    path = folder / CHECKPOINTS / _MARK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"preset": preset}), encoding="utf-8")
