"""The page on the encoding test: its code runs and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "encoding-test.md"


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(compile(block, PAGE.name, "exec"), names)
    (said,) = re.findall(r"```\n(random features.*?)```", text, re.S)
    assert printed.getvalue() == said
    assert (tmp_path / "encoding-test.png").stat().st_size > 1_000
    assert (PAGE.parent / "encoding-test.png").exists()


def test_the_pages_error_rates_are_the_measured_ones() -> None:
    results = json.loads((ROOT / "results" / "encoding" / "results.json").read_text())
    alarms = results["false_alarms"]
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{alarms['encodes']} false alarms in {alarms['trials']}" in text
    assert alarms["rate"]["value"] <= 0.05
