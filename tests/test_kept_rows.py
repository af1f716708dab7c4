"""`benchmarks/kept.py`: a killed process loses the line that it wrote, and no other."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("kept")


def test_wherever_a_line_was_cut_the_next_is_read(kept: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    assert kept.read_rows(path) == []
    first, cut, last = {"n": 1}, {"n": 2, "word": "twö"}, {"n": 3}
    kept.add_rows(path, first)
    start = path.read_bytes()
    kept.add_rows(path, cut)
    whole = path.read_bytes()
    for end in range(len(start), len(whole) + 1):
        path.write_bytes(whole[:end])
        kept.add_rows(path, last)
        all_but_its_end = end >= len(whole) - 1
        assert kept.read_rows(path) == ([first, cut, last] if all_but_its_end else [first, last])


def test_rows_that_belong_together_are_read_together(kept: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    kept.add_rows(path, {"n": 1}, {"n": 2})
    assert kept.read_rows(path) == [{"n": 1}, {"n": 2}]
    path.write_bytes(path.read_bytes()[:-3])
    assert kept.read_rows(path) == []


def test_the_commit_is_told_found_or_unknown(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.commit("abc") == "abc"

    def no_git(*arguments: Any, **options: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert kept.commit() == ""


def test_gradients_keep_a_piece_of_work_or_nothing_of_it(kept: Any, tmp_path: Path) -> None:
    gradients = importlib.import_module("gradients")
    first = gradients.Kept(tmp_path, "accuracy.jsonl")
    first.add([{"name": "S1", "seed": 0, "n": n} for n in range(3)])
    first.add([{"name": "S2", "seed": 0, "n": n} for n in range(3)])
    path = tmp_path / "accuracy.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = gradients.Kept(tmp_path, "accuracy.jsonl")
    assert again.has(name="S1")
    assert not again.has(name="S2")
    again.add([{"name": "S2", "seed": 0, "n": 9}])
    assert [row["n"] for row in gradients.Kept(tmp_path, "accuracy.jsonl").rows] == [0, 1, 2, 9]
