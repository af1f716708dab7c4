"""Shrunken pictures on disk: read once, whole or not there, and gone on with where they stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from PIL import Image
from small_pictures import found, write_films, write_labels

from unmasked.errors import OutputError
from unmasked.io import image_cache
from unmasked.io.image_cache import cached_pictures
from unmasked.io.image_files import Plan, read
from unmasked.io.image_folder import read_pictures


@pytest.fixture
def films(tmp_path) -> tuple[Path, list[tuple[str, str]]]:
    return tmp_path / "films", write_films(tmp_path / "films", 30)


def test_pictures_are_read_once(films, tmp_path, monkeypatch):
    folder, lines = films
    (folder / "film0004.png").write_bytes((folder / "film0004.png").read_bytes()[:200])
    listed = found(folder, write_labels(tmp_path / "l.csv", lines))
    first = read_pictures(listed, tmp_path / "cache", progress=False)
    assert first.images.shape == (29, 1, 32, 32)
    assert [one.file for one in first.skipped] == ["film0004.png"]
    assert "film0004.png" not in first.names
    assert isinstance(first.images.pixels, np.memmap)
    expected = np.array(Image.open(folder / first.names[7])) / np.float32(255)
    assert (first.images[7:8][0, 0] == expected).all()

    reads = []
    monkeypatch.setattr(image_cache, "read", lambda path, plan: reads.append(path.name) or "no")
    again = read_pictures(listed, tmp_path / "cache", progress=False)
    assert reads == ["film0004.png"]  # what failed is tried again, in case it can be read by now
    assert again.file == first.file
    assert (again.images[:] == first.images[:]).all()
    monkeypatch.undo()

    os.utime(folder / "film0005.png", ns=(1, 1))  # another time is another picture
    other = read_pictures(listed, tmp_path / "cache", progress=False)
    assert other.file != first.file


def test_a_folder_in_which_nothing_can_be_locked_will_do(films, tmp_path, monkeypatch):
    """As on some network drives: runs are not kept apart there, but pictures are read."""

    def refuses(self: filelock.FileLock, timeout: float) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuses)
    folder, lines = films
    listed = found(folder, write_labels(tmp_path / "l.csv", lines))
    assert len(read_pictures(listed, tmp_path / "cache", progress=False).names) == 30


def test_damage_to_the_cache_is_noticed(films, tmp_path):
    folder, _ = films
    paths = sorted(folder.glob("*.png"))
    names = [path.name for path in paths]
    plan = Plan(32, 1, False)
    pixels, _, file = cached_pictures(paths, names, plan, tmp_path / "c", False)
    whole = np.array(pixels)
    for damage in (b"", file.read_bytes()[:-10], b"junk" * 100):
        file.write_bytes(damage)
        pixels, _, _ = cached_pictures(paths, names, plan, tmp_path / "c", False)
        assert (pixels == whole).all()
    file.with_suffix(".json").write_text("[]")
    pixels, _, _ = cached_pictures(paths, names, plan, tmp_path / "c", False)
    assert (pixels == whole).all()
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == sorted(
        [file.name, file.with_suffix(".json").name]
    )


def test_a_cache_that_cannot_be_written_is_said(films, tmp_path):
    folder, _ = films
    paths = sorted(folder.glob("*.png"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot be kept in .*--cache"):
        cached_pictures(paths, [p.name for p in paths], Plan(8, 1, False), tmp_path / "file", False)


KILLED = """
import sys, time
from pathlib import Path
from unmasked.io import image_cache as picturecache
from unmasked.io.image_files import Plan
picturecache._SECONDS_BETWEEN_NOTES = 0.0
inner = picturecache.read
def slow(path, plan):
    time.sleep(0.05)
    return inner(path, plan)
picturecache.read = slow
paths = sorted(Path(sys.argv[1]).glob("*.png"))
names = [path.name for path in paths]
picturecache.cached_pictures(paths, names, Plan(32, 1, False), Path(sys.argv[2]), False)
"""


def test_a_killed_reading_goes_on_where_it_was(films, tmp_path, monkeypatch):
    folder, _ = films
    cache = tmp_path / "cache"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(cache)])
    deadline = time.monotonic() + 120
    done = 0
    while done < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
        for note in cache.glob("*.part.json"):
            try:
                done = json.loads(note.read_text())["done"]
            except (OSError, ValueError):
                continue
    assert process.poll() is None, "the reading ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(cache.glob("*.npy"))
    paths = sorted(folder.glob("*.png"))
    names = [path.name for path in paths]
    reads = []
    monkeypatch.setattr(image_cache, "read", lambda p, plan: reads.append(p.name) or read(p, plan))
    pixels, _, _ = cached_pictures(paths, names, Plan(32, 1, False), cache, False)
    assert reads == names[len(names) - len(reads) :]
    assert len(reads) <= len(names) - done
    unbroken, _, _ = cached_pictures(paths, names, Plan(32, 1, False), tmp_path / "other", False)
    assert (pixels == unbroken).all()


@pytest.mark.parametrize("target", [".part.json", ".npy", "[0-9a-f].json"])
def test_pixels_and_what_is_said_of_them_change_together(films, tmp_path, monkeypatch, target):
    """A picture was out of reach for a while; the run that can read it is killed at the end."""
    folder, _ = films
    paths = sorted(folder.glob("*.png"))
    names, plan, cache = [path.name for path in paths], Plan(32, 1, False), tmp_path / "c"
    gone = "cannot be read (Stale file handle)"
    with monkeypatch.context() as away:
        away.setattr(image_cache, "read", lambda p, s: gone if p == paths[2] else read(p, s))
        assert cached_pictures(paths, names, plan, cache, False)[1] == {2: gone}
    inner = os.replace

    def killed(one: Any, other: Any) -> None:
        if fnmatch(str(other), f"*{target}"):
            raise KeyboardInterrupt
        inner(one, other)

    with monkeypatch.context() as end:
        end.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            cached_pictures(paths, names, plan, cache, False)
    pixels, reasons, _ = cached_pictures(paths, names, plan, cache, False)
    assert reasons == {}
    assert all((own == read(path, plan)).all() for own, path in zip(pixels, paths, strict=True))


RACING = """
import sys, time
from pathlib import Path
from unmasked.io import image_cache as picturecache
from unmasked.io.image_files import Plan
inner, gate, mine = picturecache.read, Path(sys.argv[3]), Path(sys.argv[4])
def slow(path, plan):
    mine.touch()
    while not gate.exists():
        time.sleep(0.01)
    return inner(path, plan)
picturecache.read = slow
paths = sorted(Path(sys.argv[1]).glob("*.png"))
names = [path.name for path in paths]
pixels, _, _ = picturecache.cached_pictures(
    paths, names, Plan(32, 1, False), Path(sys.argv[2]), "lines"
)
print(int((pixels.reshape(len(paths), -1).max(1) == 0).sum()))
"""


def test_a_second_run_waits_for_the_pictures_of_the_first(films, tmp_path):
    """The first stands still in the middle until the second has said that it waits."""
    folder, _ = films
    gate, cache = tmp_path / "gate", tmp_path / "cache"

    def started(number: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", RACING, folder, cache, gate, tmp_path / f"began{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = started(1)
    second = None
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "began1").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        second = started(2)
        assert second.stderr is not None
        said = second.stderr.readline()
        assert "another run reads the same pictures" in said
        gate.touch()
        assert first.communicate(timeout=120)[0] == "0\n"  # no picture is black
        out, more = second.communicate(timeout=120)
        assert (out, more) == ("0\n", "")
        assert not (tmp_path / "began2").exists()  # it read none itself
    finally:
        for run in (first, second):
            if run is not None:
                run.kill()
                run.wait()
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".npy"]


def test_who_waits_goes_on_where_a_killed_run_stopped(films, tmp_path):
    folder, _ = films
    paths, cache, gate = sorted(folder.glob("*.png")), tmp_path / "cache", tmp_path / "gate"
    names, plan = [path.name for path in paths], Plan(32, 1, False)
    began = tmp_path / "began"
    run = subprocess.Popen([sys.executable, "-c", RACING, folder, cache, gate, began])
    deadline = time.monotonic() + 120
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    threading.Timer(0.2, run.kill).start()
    pixels, _, _ = cached_pictures(paths, names, plan, cache, False)
    assert run.wait() == -signal.SIGKILL
    assert all((own == read(path, plan)).all() for own, path in zip(pixels, paths, strict=True))
