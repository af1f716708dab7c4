"""The folder of a reproduction: whose run it holds, and that a kill at any moment loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unmasked.errors import OutputError
from unmasked.reproduce.folder import check_same_run, mark


def test_an_unfinished_run_of_another_preset_is_refused(tmp_path: Path) -> None:
    mark(tmp_path, "quick")
    check_same_run(tmp_path, "quick", "any")
    with pytest.raises(OutputError, match="an unfinished run of the preset 'quick', not 'tuned'"):
        check_same_run(tmp_path, "tuned", "any")
    assert [path.name for path in (tmp_path / ".checkpoint").iterdir()] == ["preset.json"]


@pytest.mark.parametrize("content", [b"", b'{"pres', b"\xff\xfe", b"[]"])
def test_a_note_of_the_preset_that_says_nothing_does_not_end_a_run(
    tmp_path: Path, content: bytes
) -> None:
    mark(tmp_path, "quick")
    (tmp_path / ".checkpoint" / "preset.json").write_bytes(content)
    check_same_run(tmp_path, "quick", "any")
    mark(tmp_path, "quick")
    with pytest.raises(OutputError, match="'quick', not 'tuned'"):
        check_same_run(tmp_path, "tuned", "any")


def test_the_note_of_the_preset_is_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark(tmp_path, "quick")

    def half(self: Path, text: str, **options: Any) -> None:
        self.write_bytes(text[:5].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        mark(tmp_path, "quick")
    note = tmp_path / ".checkpoint" / "preset.json"
    assert json.loads(note.read_text(encoding="utf-8")) == {"preset": "quick"}
