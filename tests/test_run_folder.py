"""The folder of a reproduction: whose run it holds, and that a kill at any moment loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_cxr import FILMS, OPTIONS, PARTS, tiny

from unmasked.errors import OutputError
from unmasked.reproduce.image_sets import run_cxr
from unmasked.reproduce.judging import check_same_run, mark

pytestmark = pytest.mark.usefixtures("one_thread")


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


_KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from small_cxr import FILMS, OPTIONS, PARTS, tiny
from unmasked.training import loop
from unmasked.reproduce.image_sets import run_cxr

torch.set_num_threads(1)
loop._SECONDS_BETWEEN_CHECKPOINTS, loop._SAVING_SHARE = 0.0, 0  # after every epoch
folder, name, times, before = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "before"
inner, seen = os.replace, []

def replace(one, other):
    seen.extend([other] if Path(other).name == name else [])
    last = len(seen) == times
    if not (last and before):
        inner(one, other)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace
run_cxr(Path(folder), tiny(), FILMS, drawn=PARTS, **OPTIONS)
"""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("unbroken") / "out"
    return run_cxr(folder, tiny(), FILMS, drawn=PARTS, **OPTIONS).rows


@pytest.mark.parametrize(
    ("name", "times", "when"),
    [
        ("real-x.safetensors", 1, "after"),  # the predictor is trained for one epoch of two
        ("l2x 3.safetensors", 2, "before"),  # the second epoch is written but not in place yet
        ("tables.md", 1, "after"),  # while the results are put in place
    ],
)
def test_a_killed_run_goes_on_to_the_rows_of_an_unbroken_one(
    unbroken: list[dict[str, Any]], tmp_path: Path, name: str, times: int, when: str
) -> None:
    """A process that ends by SIGKILL just when a file appears, however fast the machine is."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), name, str(times), when],
        env={**os.environ, "PYTHONPATH": paths},
        timeout=600,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "results.json").exists()
    again = run_cxr(tmp_path, tiny(), FILMS, drawn=PARTS, **OPTIONS)
    assert again.resumed
    assert again.rows == unbroken
    assert not (tmp_path / ".checkpoint").exists()
    assert json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"] == unbroken
