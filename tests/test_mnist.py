"""MNIST from a folder: the stand-in of `small_mnist`, and the real digits where they are."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import shutil
import subprocess
import sys
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
    standin,
    standin_labels,
    write_complete,
)

from unmasked.datasets import Images, Mnist, mnist
from unmasked.errors import InputError

module = importlib.import_module(
    "unmasked.datasets.mnist"
)  # the package has a function of that name

REAL = Path(__file__).parents[2] / "shared" / "data" / "mnist"
needs_real = pytest.mark.skipif(
    not all((REAL / f"{name}.gz").exists() for name in NAMES),
    reason=f"the real MNIST files are not in {REAL}",
)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_complete(tmp_path_factory.mktemp("complete"))


@pytest.fixture
def folder(complete: Path, tmp_path: Path) -> Path:
    return linked(complete, tmp_path / "digits")


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
