"""MNIST from a mirror on this machine: kept once, passed over when wrong or down, and named."""

from __future__ import annotations

import gc
import gzip
import hashlib
import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_mnist import (
    NAMES,
    TEST,
    TRAIN,
    linked,
    message,
    numbers,
    packed,
    replace,
    standin_labels,
    write_complete,
)

from unmasked.datasets import Mnist, mnist
from unmasked.datasets.mnist import read_idx
from unmasked.errors import InputError, MissingExtra, OutputError

module = importlib.import_module(
    "unmasked.datasets.mnist"
)  # the package has a function of that name


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_complete(tmp_path_factory.mktemp("complete"))


@pytest.fixture
def folder(complete: Path, tmp_path: Path) -> Path:
    return linked(complete, tmp_path / "digits")


@pytest.fixture(scope="module")
def loaded(complete: Path) -> Mnist:
    return mnist(complete)


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, notes what was asked for; a file named cut.* in it is sent in part."""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        path = Path(self.directory) / self.path.lstrip("/")
        if Path(f"{path}.cut").exists():
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            self.wfile.write(path.read_bytes()[:100])
        else:
            super().do_GET()


class Mirror:
    """A server of one folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        self.asked: list[str] = []
        self.server.asked = self.asked  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pooch keeps files during a test."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "unmasked" / "mnist"


@pytest.fixture
def mirrors(
    folder: Path, complete: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Mirror, Mirror]]:
    """Two mirrors; both have the stand-in's files, whose checksums are the expected ones."""
    both = Mirror(folder), Mirror(linked(complete, tmp_path / "second"))
    digests = {
        name: hashlib.sha256((complete / f"{name}.gz").read_bytes()).hexdigest() for name in NAMES
    }
    monkeypatch.setattr(module, "MIRRORS", tuple(mirror.url for mirror in both))
    monkeypatch.setattr(module, "SHA256", digests)
    yield both
    for mirror in both:
        mirror.stop()
    gc.collect()  # a socket left open by a failed download is reported here


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


ALL = sorted(f"{name}.gz" for name in NAMES)


def test_files_are_downloaded_once_and_then_read_from_the_cache(
    mirrors: tuple[Mirror, Mirror], cache: Path, loaded: Mnist
) -> None:
    first = mnist()
    assert sorted(mirrors[0].asked) == [f"/{name}" for name in ALL]
    assert mirrors[1].asked == []
    assert kept(cache) == ALL
    for mirror in mirrors:
        mirror.stop()
    for data in (first, mnist()):  # the second without any server
        for part in ("train", "valid", "test"):
            images, expected = getattr(data, part), getattr(loaded, part)
            np.testing.assert_array_equal(images.y, expected.y)
            np.testing.assert_array_equal(numbers(images), numbers(expected))
    assert len(mirrors[0].asked) == 4


def test_a_mirror_that_lacks_a_file_is_passed_over(
    mirrors: tuple[Mirror, Mirror], cache: Path
) -> None:
    (mirrors[0].folder / f"{NAMES[2]}.gz").unlink()
    files = module._fetched()
    assert {name: path.resolve() for name, path in files.items()} == {
        name: (cache / f"{name}.gz").resolve() for name in NAMES
    }
    assert len(mirrors[0].asked) == 4
    assert mirrors[1].asked == [f"/{NAMES[2]}.gz"]


def test_a_mirror_that_is_down_or_breaks_off_is_passed_over(
    mirrors: tuple[Mirror, Mirror], cache: Path
) -> None:
    (mirrors[0].folder / f"{NAMES[0]}.gz.cut").touch()
    module._fetched()
    assert mirrors[1].asked == [f"/{NAMES[0]}.gz"]
    assert kept(cache) == ALL
    (cache / f"{NAMES[1]}.gz").unlink()
    mirrors[0].stop()
    module._fetched()
    assert mirrors[1].asked == [f"/{NAMES[0]}.gz", f"/{NAMES[1]}.gz"]
    assert kept(cache) == ALL


def test_without_network_the_file_and_the_way_out_are_named(
    mirrors: tuple[Mirror, Mirror], cache: Path
) -> None:
    for mirror in mirrors:
        mirror.stop()
    with pytest.raises(InputError) as caught:
        mnist()
    first = f"{NAMES[0]}.gz could not be fetched"
    message(caught, first, mirrors[0].url, mirrors[1].url, "folder=", "--data FOLDER")
    assert kept(cache) == []


def test_a_file_that_no_mirror_has_is_named(mirrors: tuple[Mirror, Mirror], cache: Path) -> None:
    for mirror in mirrors:
        (mirror.folder / f"{NAMES[3]}.gz").unlink()
    with pytest.raises(InputError) as caught:
        mnist()
    message(caught, f"{NAMES[3]}.gz could not be fetched", "HTTPError")
    assert kept(cache) == sorted(f"{name}.gz" for name in NAMES[:3])


def test_a_wrong_file_is_passed_over_and_not_kept(
    mirrors: tuple[Mirror, Mirror], cache: Path
) -> None:
    wrong = replace(mirrors[0].folder, NAMES[1], packed(standin_labels(TRAIN, shift=1)))
    files = module._fetched()
    assert files[NAMES[1]].read_bytes() != wrong.read_bytes()
    assert mirrors[1].asked == [f"/{NAMES[1]}.gz"]
    assert kept(cache) == ALL


@pytest.mark.parametrize("other", ["wrong", "down"])
def test_a_wrong_checksum_is_named_and_nothing_is_kept(
    mirrors: tuple[Mirror, Mirror], cache: Path, other: str
) -> None:
    """A page of a hotel's network, say; the right file is fetched as soon as there is one."""
    for mirror in mirrors:
        replace(mirror.folder, NAMES[1], b"<html>please log in</html>")
    if other == "down":
        mirrors[1].stop()
    with pytest.raises(InputError) as caught:
        mnist()
    message(caught, f"{NAMES[1]}.gz", module.SHA256[NAMES[1]], "checksum", "--data FOLDER")
    assert kept(cache) == [f"{NAMES[0]}.gz"]  # and no temporary file
    good = gzip.compress(packed(standin_labels(TRAIN)), 1)
    module.SHA256[NAMES[1]] = hashlib.sha256(good).hexdigest()
    (mirrors[0].folder / f"{NAMES[1]}.gz").write_bytes(good)
    np.testing.assert_array_equal(read_idx(module._fetched()[NAMES[1]]), standin_labels(TRAIN))


@pytest.mark.parametrize("network", [True, False])
def test_a_cached_file_that_was_changed_is_not_used(
    mirrors: tuple[Mirror, Mirror], cache: Path, complete: Path, network: bool
) -> None:
    module._fetched()
    changed = cache / f"{NAMES[3]}.gz"
    changed.write_bytes(gzip.compress(packed(standin_labels(TEST, shift=4))))
    if network:
        assert module._fetched()[NAMES[3]].read_bytes() == (complete / changed.name).read_bytes()
        return
    for mirror in mirrors:
        mirror.stop()
    with pytest.raises(InputError) as caught:
        mnist()
    message(caught, f"{changed.name} could not be fetched")


def test_a_cache_that_cannot_be_written_is_named(
    mirrors: tuple[Mirror, Mirror], cache: Path
) -> None:
    cache.parent.parent.write_bytes(b"a file where the folder should be")
    with pytest.raises(OutputError) as caught:
        mnist()
    message(caught, f"{NAMES[0]}.gz", cache, "--data FOLDER")


def test_without_pooch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtra, match=r"'pooch'.* pip install \"unmasked\[data\]\"") as caught:
        mnist()
    message(caught, "downloading MNIST")


def test_importing_the_data_sets_does_not_load_pooch() -> None:
    code = (
        "import sys, unmasked, unmasked.datasets, unmasked.datasets.mnist; "
        "print([m for m in ('pooch', 'requests', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_mirrors_and_files_are_the_known_ones() -> None:
    assert tuple(module.SHA256) == NAMES
    assert all(len(bytes.fromhex(digest)) == 32 for digest in module.SHA256.values())
    assert len(set(module.SHA256.values())) == 4
    assert module.MIRRORS == (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
