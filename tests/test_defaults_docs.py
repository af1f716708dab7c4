"""The figures of docs/defaults.md are those that the benchmarks stored."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def page() -> str:
    return (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")


def stored(name: str) -> list[dict[str, Any]]:
    text = (ROOT / "results" / name / "results.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    ("name", "module", "make"),
    [("defaults", "defaults", "brief"), ("tables", "tables_report", "brief")],
)
def test_the_page_has_every_line_of_the_short_tables(
    page: str, monkeypatch: pytest.MonkeyPatch, name: str, module: str, make: str
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    found = lines(getattr(importlib.import_module(module), make)(stored(name)))
    assert len(found) > 5
    assert set(found) <= set(lines(page))


def test_the_page_counts_as_the_tables_do(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert importlib.import_module("tables_report").tally(stored("tables")) in " ".join(
        page.split()
    )
