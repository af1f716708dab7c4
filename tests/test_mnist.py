"""idx files read back as they were written, MNIST from a folder and from a mirror on this machine.

The stand-in for MNIST has its sizes; the first three pixels of an image spell its number, so a
test can tell where each image went. Its files pack to almost nothing.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import hashlib
import importlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from unmasked.data import Images, Mnist, mnist
from unmasked.data.idx import read_idx
from unmasked.errors import InputError, MissingExtra, OutputError

module = importlib.import_module("unmasked.data.mnist")  # the package has a function of that name

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN, TEST = 60_000, 10_000
REAL = Path(__file__).parents[2] / "shared" / "data" / "mnist"
needs_real = pytest.mark.skipif(
    not all((REAL / f"{name}.gz").exists() for name in NAMES),
    reason=f"the real MNIST files are not in {REAL}",
)


def packed(array: np.ndarray, kind: int = 8) -> bytes:
    """An idx file, written from the format's description."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, kind, array.ndim]) + sizes + array.tobytes()


def message(caught: pytest.ExceptionInfo[BaseException], *parts: str | Path) -> str:
    """The message, which is one sentence and names all ``parts``."""
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text
    for part in parts:
        assert str(part) in text
    return text


# ---------------------------------------------------------------------- idx files


@settings(deadline=None)
@given(
    array=arrays(np.uint8, array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=7)),
    zipped=st.booleans(),
    name=st.sampled_from(["file", "file.gz", "file.idx3-ubyte"]),
)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, zipped: bool, name: str
) -> None:
    """Whatever the name says about packing."""
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(gzip.compress(packed(array)) if zipped else packed(array))
    for given_as in (path, str(path)):
        again = read_idx(given_as)
        assert again.dtype == np.uint8
        assert again.shape == array.shape
        np.testing.assert_array_equal(again, array)


def test_sizes_are_big_endian_and_rows_come_first(tmp_path: Path) -> None:
    path = tmp_path / "by-hand"
    path.write_bytes(bytes.fromhex("00000802 00000002 00000003 010203 0405ff"))
    assert read_idx(path).tolist() == [[1, 2, 3], [4, 5, 255]]


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=40),
        st.builds(bytes.__add__, st.just(b"\0\0\x08"), st.binary(max_size=60)),
        st.builds(bytes.__add__, st.just(b"\x1f\x8b\x08"), st.binary(max_size=60)),
        st.builds(  # nothing in one dimension, and sizes whose product no computer holds
            lambda sizes: (
                packed(np.zeros(0, np.uint8))[:3]
                + bytes([len(sizes)])
                + b"".join(size.to_bytes(4, "big") for size in sizes)
            ),
            st.lists(st.sampled_from([0, 1, 2**31, 2**32 - 1]), min_size=1, max_size=40),
        ),
    )
)
def test_any_bytes_are_an_array_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert read_idx(path).dtype == np.uint8
        return
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path)


SMALL = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\0", "begins with 00;"),
        (b"\0\0\x08", "begins with 00 00 08;"),
        (b"<html>not found</html>", "begins with 3c 68 74 6d;"),
        (b"\0\1\x08\1\0\0\0\0", "begins with 00 01 08 01;"),
        (b"\0\0\x08\0\5", "begins with 00 00 08 00;"),  # no dimension
        (b"\0\0\x08\x21" + b"\0\0\0\1" * 33 + b"\5", "begins with 00 00 08 21;"),  # 33 of them
        (b"\0\0\x0a\1\0\0\0\0", "begins with 00 00 0a 01;"),  # a type that does not exist
        (packed(SMALL, 9), "holds int8 (type 9)"),
        (packed(SMALL.astype(">i2"), 11), "holds int16 (type 11)"),
        (packed(SMALL.astype(">i4"), 12), "holds int32 (type 12)"),
        (packed(SMALL.astype(">f4"), 13), "holds float32 (type 13)"),
        (packed(SMALL.astype(">f8"), 14), "holds float64 (type 14)"),
        (packed(SMALL)[:15], "header of 16 bytes for its 3 dimensions but ends after 15 bytes"),
        (packed(SMALL)[:16], "24 bytes after its header, which says (2, 3, 4), but holds 0"),
        (packed(SMALL)[:-1], "but holds 23: it is cut short"),
        (packed(SMALL) + b"\0", "but holds 25: it is longer than it says"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_idx_file_of_bytes_is_refused(
    tmp_path: Path, content: bytes, says: str, zipped: bool
) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path, says, ";")


def broken_crc(content: bytes) -> bytes:
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content[:5],
        lambda content: content[:2],
        broken_crc,
        lambda content: content[:12] + b"\xff\xff\xff" + content[15:],  # an impossible block
        lambda content: content + b"more",
    ],
)
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    rows = np.random.default_rng(0).integers(256, size=500, dtype=np.uint8)
    path.write_bytes(damage(gzip.compress(packed(rows))))
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path, "is damaged", "fetch it again")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path)
    message(caught, tmp_path, "is a folder")
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path / "nothing.gz")
    message(caught, tmp_path / "nothing.gz", "does not exist")


def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path / "secret.gz")
    message(caught, tmp_path / "secret.gz", "Permission denied")


# ---------------------------------------------------------------------- a folder


def standin(images: int) -> np.ndarray:
    """(images, 28, 28): the number of an image in its first three pixels."""
    pixels = np.zeros((images, 28, 28), np.uint8)
    number = np.arange(images)
    pixels[:, 0, 0], pixels[:, 0, 1], pixels[:, 0, 2] = number % 256, number // 256 % 256, 255
    return pixels


def standin_labels(images: int, shift: int = 0) -> np.ndarray:
    return ((np.arange(images) * 7 + shift) % 10).astype(np.uint8)


def numbers(images: Images) -> np.ndarray:
    """The number of each image in its file, read off its pixels."""
    pixels = np.rint(images.x[:, 0, 0, :2] * 255).astype(int)
    return pixels[:, 0] + 256 * pixels[:, 1]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four gzipped files of MNIST's sizes; tests copy it as links."""
    folder = tmp_path_factory.mktemp("complete")
    for name, array in zip(
        NAMES,
        (standin(TRAIN), standin_labels(TRAIN), standin(TEST), standin_labels(TEST, shift=3)),
        strict=True,
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress(packed(array), 1))
    return folder


@pytest.fixture
def folder(complete: Path, tmp_path: Path) -> Path:
    """A folder like ``complete`` that a test may change, file by file."""
    copy = tmp_path / "digits"
    copy.mkdir()
    for name in NAMES:
        (copy / f"{name}.gz").symlink_to(complete / f"{name}.gz")
    return copy


def replace(folder: Path, name: str, content: bytes) -> Path:
    path = folder / f"{name}.gz"
    path.unlink()
    path.write_bytes(gzip.compress(content, 1))
    return path


@pytest.fixture(scope="module")
def loaded(complete: Path) -> Mnist:
    return mnist(complete)


def test_shapes_types_and_range(loaded: Mnist) -> None:
    for images, count in ((loaded.train, 55_000), (loaded.valid, 5_000), (loaded.test, TEST)):
        assert isinstance(images, Images)
        assert images.x.shape == (count, 1, 28, 28)
        assert images.x.dtype == np.float32
        assert images.y.shape == (count,)
        assert images.y.dtype == np.int64
        assert images.x.min() == 0
        assert (images.x[:, 0, 0, 2] == 1).all()  # 255 is 1, exactly
        assert images.x.flags.writeable
        assert images.x.flags.c_contiguous


def test_every_training_image_is_in_one_part_with_its_label(loaded: Mnist) -> None:
    train, valid = numbers(loaded.train), numbers(loaded.valid)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, valid])), np.arange(TRAIN))
    for images, number in ((loaded.train, train), (loaded.valid, valid)):
        np.testing.assert_array_equal(images.y, standin_labels(TRAIN)[number])
        assert (np.diff(number) > 0).all()  # in the order of the file


def test_test_images_are_the_files_whatever_the_seed(loaded: Mnist, complete: Path) -> None:
    other = mnist(complete, seed=1, validation=17)
    for data in (loaded, other):
        np.testing.assert_array_equal(numbers(data.test), np.arange(TEST))
        np.testing.assert_array_equal(data.test.y, standin_labels(TEST, shift=3))
        # nothing but the first three pixels is inked
        assert data.test.x.reshape(TEST, 784)[:, 3:].max() == 0


def test_the_seed_alone_decides_what_is_held_out(loaded: Mnist, complete: Path) -> None:
    again, other = mnist(complete, seed=0), mnist(complete, seed=np.int64(1))
    np.testing.assert_array_equal(numbers(again.valid), numbers(loaded.valid))
    np.testing.assert_array_equal(numbers(again.train), numbers(loaded.train))
    shared = len(np.intersect1d(numbers(other.valid), numbers(loaded.valid)))
    # hypergeometric: 5,000 · 5,000 / 60,000 = 416.7 in common, standard deviation 18.7; five of it
    assert abs(shared - 416.7) < 5 * 18.7


def test_held_out_images_are_drawn_evenly(loaded: Mnist) -> None:
    """From all of the file: each sixth of it, within five hypergeometric standard deviations."""
    share = np.histogram(numbers(loaded.valid), bins=6, range=(0, TRAIN))[0]
    p, rest = 1 / 6, (TRAIN - 5_000) / (TRAIN - 1)
    assert np.abs(share - 5_000 * p).max() < 5 * np.sqrt(5_000 * p * (1 - p) * rest)


@pytest.mark.parametrize("validation", [1, 59_999])
def test_one_image_may_be_held_out_or_left(complete: Path, validation: int) -> None:
    data = mnist(complete, validation=validation)
    assert len(data.valid.y) == validation
    assert len(data.train.y) == TRAIN - validation
    both = np.concatenate([numbers(data.train), numbers(data.valid)])
    np.testing.assert_array_equal(np.sort(both), np.arange(TRAIN))


@pytest.mark.parametrize("value", [0, -1, 60_000, 5_000.0, True, "5000", None, np.nan])
def test_an_impossible_validation_is_refused_by_value(tmp_path: Path, value: Any) -> None:
    """Before files are looked for."""
    with pytest.raises(InputError, match="validation must be a whole number from 1 to 59,999") as c:
        mnist(tmp_path / "nothing", validation=value)
    message(c, f"but is {value!r}")


@pytest.mark.parametrize("value", [-1, 0.5, True, "0", None])
def test_an_impossible_seed_is_refused_by_value(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError, match="seed must be a whole number of at least 0") as caught:
        mnist(tmp_path / "nothing", seed=value)
    message(caught, f"but is {value!r}")


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("dotted", [False, True])
def test_files_are_found_under_all_their_usual_names(
    complete: Path, tmp_path: Path, end: str, dotted: bool
) -> None:
    for name in NAMES:
        usual = name.replace("-idx", ".idx") if dotted else name
        content = (complete / f"{name}.gz").read_bytes()
        (tmp_path / (usual + end)).write_bytes(content if end else gzip.decompress(content))
    files = module._found(tmp_path)
    assert {path.name for path in files.values()} == {
        (name.replace("-idx", ".idx") if dotted else name) + end for name in NAMES
    }
    data = mnist(str(tmp_path), validation=10)
    np.testing.assert_array_equal(data.test.y, standin_labels(TEST, shift=3))


def test_a_folder_beside_a_file_is_passed_over(folder: Path) -> None:
    """As in an archive that unpacks to both train-images-idx3-ubyte/ and the file."""
    for name in NAMES:
        (folder / name).mkdir()
    assert {path.name for path in module._found(folder).values()} == {f"{n}.gz" for n in NAMES}


def test_a_folder_in_place_of_a_file_is_refused(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    (folder / "t10k-labels-idx1-ubyte").mkdir()
    with pytest.raises(InputError) as caught:
        mnist(folder)
    message(caught, folder / "t10k-labels-idx1-ubyte", "is a folder")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named_with_its_folder(folder: Path, name: str) -> None:
    (folder / f"{name}.gz").unlink()
    with pytest.raises(InputError) as caught:
        mnist(folder)
    text = message(caught, f"{name} (or {name}.gz)", folder, "missing")
    assert not any(other in text for other in NAMES if other != name)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        mnist(tmp_path / "nowhere")
    message(caught, tmp_path / "nowhere", "does not exist")
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as caught:
        mnist(tmp_path / "file")
    message(caught, tmp_path / "file", "is a file")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (NAMES[0], standin(TEST), "60,000 grey images of 28 × 28 pixels, (60000, 28, 28)"),
        (NAMES[2], standin(TEST - 1), "holds (9999, 28, 28)"),
        (NAMES[2], np.zeros((TEST, 28, 27), np.uint8), "holds (10000, 28, 27)"),
        (NAMES[2], np.zeros((TEST, 784), np.uint8), "holds (10000, 784);"),
        (NAMES[2], np.zeros((TEST, 28, 28, 3), np.uint8), "(10000, 28, 28, 3) and may be in col"),
        (NAMES[0], standin_labels(TRAIN), "holds (60000,)"),  # labels in place of images
        (NAMES[1], standin_labels(TEST), "each of the 60,000 images, (60000,), but holds (10000,)"),
        (NAMES[3], standin_labels(TEST + 1), "holds (10001,)"),
        (NAMES[3], np.zeros((TEST, 1), np.uint8), "holds (10000, 1)"),
        (NAMES[3], np.append(standin_labels(TEST - 1), np.uint8(10)), "holds 10;"),
        (NAMES[1], np.append(np.uint8(255), standin_labels(TRAIN - 1)), "0 to 9 but holds 255"),
    ],
)
def test_files_of_other_sizes_or_labels_are_refused(
    folder: Path, name: str, content: np.ndarray, says: str
) -> None:
    path = replace(folder, name, packed(content))
    with pytest.raises(InputError) as caught:
        mnist(folder)
    message(caught, path, says)


def test_a_damaged_file_in_a_folder_is_named(folder: Path, complete: Path) -> None:
    path = folder / f"{NAMES[1]}.gz"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-20])
    with pytest.raises(InputError) as caught:
        mnist(folder)
    message(caught, path, "is damaged")


def test_a_folder_needs_no_pooch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert len(mnist(folder, validation=2).valid.y) == 2


# ---------------------------------------------------------------------- the download


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
    second = tmp_path / "second"
    second.mkdir()
    for name in NAMES:
        (second / f"{name}.gz").symlink_to(complete / f"{name}.gz")
    both = Mirror(folder), Mirror(second)
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
        "import sys, unmasked, unmasked.data, unmasked.data.mnist; "
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


# ---------------------------------------------------------------------- the real digits


@pytest.fixture(scope="module")
def real() -> Mnist:
    return mnist(REAL)


def gnu_gzip() -> bool:
    """Other programs of that name pack differently."""
    if shutil.which("gzip") is None:
        return False
    done = subprocess.run(["gzip", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.startswith("gzip 1.")


@needs_real
@pytest.mark.skipif(not gnu_gzip(), reason="GNU gzip is needed to pack as the authors did")
@pytest.mark.parametrize(
    ("name", "seconds"), [*zip(NAMES, (848331386, 848331398, 885827245, 885827268), strict=True)]
)
def test_the_checksums_are_those_of_the_real_digits(name: str, seconds: int) -> None:
    """The mirrors' files are gzip -6 of the digits, under an old name, at a time in 1996 or 1998.

    The files in the folder hold the same digits, packed by someone else.
    """
    done = subprocess.run(
        ["gzip", "-6", "-n", "-c"],
        input=gzip.decompress((REAL / f"{name}.gz").read_bytes()),
        capture_output=True,
        check=True,
    )
    header = b"\x1f\x8b\x08\x08" + seconds.to_bytes(4, "little") + b"\x00\x03"
    old_name = name.replace("-idx", ".idx").encode() + b"\0"
    digest = hashlib.sha256(header + old_name + done.stdout[10:]).hexdigest()
    assert digest == module.SHA256[name]


@needs_real
def test_the_real_digits_are_the_known_ones(real: Mnist) -> None:
    labels = np.concatenate([real.train.y, real.valid.y])
    assert np.bincount(labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert np.bincount(real.test.y).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert real.test.y[:5].tolist() == [7, 2, 1, 0, 4]
    total = sum(images.x.sum(dtype=np.float64) for images in (real.train, real.valid))
    assert total / (TRAIN * 784) == pytest.approx(0.1307, abs=5e-5)
    for images, count in ((real.train, 55_000), (real.valid, 5_000), (real.test, TEST)):
        assert images.x.shape == (count, 1, 28, 28)
        assert images.x.min() == 0
        assert images.x.max() == 1
