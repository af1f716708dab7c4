"""``unmasked explain-images`` in this process, for tests that share it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from unmasked.cli import app

SHORT = ["--size", 16, "--superpixels", 4, "--device", "cpu", "--epochs", 1, "--sparsity", 0.3]
_PROGRESS = ("reading ", "writing ", "REAL-X", "FULL: ", "EVAL-X: ")  # lines of a log


def run(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["explain-images", *map(str, arguments)])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done


def refused(*arguments: object) -> str:
    """The one sentence of a refusal."""
    lines = run(*arguments, code=2).stderr.splitlines()
    (line,) = [one for one in lines if not one.startswith(_PROGRESS)]
    return str(line)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found
