"""One folder holds the results of one run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmasked.errors import OutputError
from unmasked.report.results import CHECKPOINTS, to_json

_MARK = "preset.json"


def run_digest(recipe: Mapping[str, Any], *more: Any) -> str:
    """What tells a run from others: its recipe as in ``results.json``, and what else decides it.

    Deviations are left out: they are words, which a later version may put better.
    """
    own = {name: value for name, value in recipe.items() if name != "deviations"}
    return hashlib.sha256(to_json([own, *more]).encode()).hexdigest()[:12]


def check_same_run(folder: Path, preset: str, run: str) -> None:
    """Refuse a folder with results of another run, or with an unfinished run of another preset.

    Results of earlier versions do not say of which run they are; their preset is compared.
    """
    content = _read(folder / "results.json")
    if content is not None:
        _check_preset(folder, "results", content.get("recipe"), preset)
        if content.get("run", run) != run:
            raise OutputError(
                f"{folder} holds results of another run ({content.get('command')}); choose another "
                "folder with --out, or remove it."
            )
    content = _read(folder / CHECKPOINTS / _MARK)
    if content:  # one that says nothing, as a kill may leave it, is no reason to forget training
        _check_preset(folder, "an unfinished run", content, preset)


def _read(path: Path) -> dict[str, Any] | None:
    """What a file says; None where there is no file, nothing where it cannot be read."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = {}
    return content if isinstance(content, dict) else {}


def _check_preset(folder: Path, kind: str, content: Any, preset: str) -> None:
    there = content.get("preset") if isinstance(content, dict) else None
    if there != preset:
        raise OutputError(
            f"{folder} holds {kind} of the preset {there or 'something else'!r}, not {preset!r}; "
            "choose another folder with --out, or remove it."
        )


def mark(folder: Path, preset: str) -> None:
    """Say whose unfinished run a folder holds, in a file that appears whole or not at all."""
    path = folder / CHECKPOINTS / _MARK
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({"preset": preset}), encoding="utf-8")
    os.replace(part, path)


def begun(checkpoints: Path) -> bool:
    """Whether an earlier try of a run has left any training."""
    return checkpoints.is_dir() and any(checkpoints.iterdir())
