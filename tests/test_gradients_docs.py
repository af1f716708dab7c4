"""The page on gradients shows what the command printed, and its code runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from unmasked import RealX

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8")


def test_every_line_of_a_table_is_as_it_was_printed() -> None:
    printed = [
        line
        for table in (ROOT / "results" / "gradients").rglob("table.md")
        for line in table.read_text(encoding="utf-8").splitlines()
    ]
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert len(lines) > 30
    assert not set(lines) - set(printed)


def test_the_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    x = np.random.default_rng(0).standard_normal((80, 4))
    names: dict[str, Any] = {"X": x, "y": (x[:, 0] > 0).astype(int)}
    quicker = code.replace("(0.1,", "(0.1, training=Training(epochs=2),")
    exec(compile(quicker, "page", "exec"), names)
    assert isinstance(names["explainer"], RealX)
    assert names["explainer"].choice_ is None
