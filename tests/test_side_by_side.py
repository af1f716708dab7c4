"""Networks of a table trained side by side: the same figures, in order, and nobody left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from noted_tasks import TASKS, Diary
from small_cxr import FILMS, OPTIONS, PARTS, tiny

from unmasked.errors import UnmaskedWarning
from unmasked.reproduce import images
from unmasked.reproduce.image_sets import run_cxr
from unmasked.reproduce.image_training import Workshop
from unmasked.reproduce.parallel import train_side_by_side

pytestmark = pytest.mark.usefixtures("one_thread")


def _train(diary: Diary, jobs: int = 2) -> list[str]:
    """Train; what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnmaskedWarning)
        train_side_by_side(cast("Workshop", diary), (), jobs)
    return [str(one.message) for one in caught if issubclass(one.category, UnmaskedWarning)]


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def _until(what: Callable[[], bool]) -> bool:
    """Wait for something that happens soon, or never."""
    end = time.monotonic() + 120
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


def test_the_run_meets_all_trained_with_the_figures_of_one_that_trains_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes have a share of the threads each, so that sums are rounded alike with one only."""
    options = {**OPTIONS, "drawn": PARTS}
    alone = run_cxr(tmp_path / "alone", tiny(), FILMS, **options)

    def then_train_no_more(work: Workshop, explainers: tuple[str, ...], jobs: int) -> None:
        train_side_by_side(work, explainers, jobs)
        kept = {path.name for path in work.place.checkpoints.iterdir()}
        names = {"full", "eval-x", "eval-x_varied", "real-x", "l2x 1", "l2x 3", "start of l2x"}
        names |= {"mask of real-x", "mask of l2x", "mask of optimum"}
        assert {f"{name}.safetensors" for name in names} <= kept
        monkeypatch.setattr("unmasked.training.loop._Run._epoch", None)  # fails where it is called

    monkeypatch.setattr(images, "train_side_by_side", then_train_no_more)
    beside = run_cxr(tmp_path / "beside", tiny(), FILMS, jobs=3, **options)
    assert beside.rows == alone.rows
    assert beside.seconds.keys() == alone.seconds.keys()


def test_each_has_a_process_and_waits_for_what_it_needs_and_for_its_turn(tmp_path: Path) -> None:
    diary = Diary(tmp_path, {})
    assert _train(diary, jobs=2) == []
    found = {task.name: diary.read(task.name) for task in TASKS}
    assert found["after"]["began"] >= found["start"]["ended"]
    assert len({os.getpid(), *(one["pid"] for one in found.values())}) == 1 + len(TASKS)
    for one in found.values():
        meanwhile = [o for o in found.values() if o["began"] <= one["began"] < o["ended"]]
        assert 1 <= len(meanwhile) <= 2


def test_what_fails_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    diary = Diary(tmp_path, {"start": "raise", "third": "die", "fourth": "warn"})
    said = _train(diary)
    assert sorted(said) == [
        "in two halves.",
        "start could not be trained beside the others (ValueError: no luck); it is trained after "
        "them.",
        "third could not be trained beside the others (its process was killed); it is trained "
        "after them.",
    ]
    tried = {task.name for task in TASKS if (tmp_path / f"{task.name}.json").is_file()}
    assert tried == {"start", "third", "fourth"}  # what needs the first is left to the run too


def test_what_several_say_is_said_once(tmp_path: Path) -> None:
    """A GPU that is short of memory is so for each of them."""
    assert _train(Diary(tmp_path, {"start": "warn", "third": "warn"})) == ["in two halves."]


def test_processes_that_die_while_they_start_leave_all_to_the_run(tmp_path: Path) -> None:
    """What they read is larger than a pipe holds; the run must not wait until it is taken."""
    said = _train(Diary(tmp_path, {"every": "die", "more": "x" * 1_000_000}), jobs=4)
    assert {words.split(" ")[0] for words in said} == {"start", "third", "fourth"}
    assert all("its process was killed" in words for words in said)
    assert list(tmp_path.iterdir()) == []


_RUN = """
import sys
from pathlib import Path
from noted_tasks import Diary
from unmasked.reproduce.parallel import train_side_by_side
if __name__ == "__main__":
    train_side_by_side(Diary(Path(sys.argv[1]), {"start": "stay", "third": "stay"}), (), 2)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="reads /proc, which Linux has")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_nobody_is_left_when_the_run_is_stopped(sent: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(_RUN, encoding="utf-8")
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
    )
    try:
        begun = [tmp_path / "start.json", tmp_path / "third.json"]
        assert _until(lambda: all(path.is_file() for path in begun))
        pids = [json.loads(path.read_text("utf-8"))["pid"] for path in begun]
        run.send_signal(sent)
        run.communicate(timeout=120)
        assert run.returncode != 0
        assert _until(lambda: not any(map(_alive, pids)))
        assert not (tmp_path / "after.json").exists()
    finally:
        run.kill()
