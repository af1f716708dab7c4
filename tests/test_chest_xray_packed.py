"""Chest X-rays from packed files, boxes, outlined hearts, and the real films."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_films import (
    BOX_HEADER,
    MASKS,
    MIXED,
    PACKED,
    SIDE,
    all_names,
    kept,
    message,
    needs_masks,
    needs_packed,
    nih,
    one_sentence,
    parts,
    read,
    same,
    saved,
)

from unmasked.datasets import ChestXrays, Films, HeartMasks, chest_xray, heart_masks
from unmasked.datasets import films as lists
from unmasked.errors import DataWarning, InputError

# ---------------------------------------------------------------------- boxes


BOXES = f"""{BOX_HEADER}
00000001_000.png,Cardiomegaly,128.0,256.5,512.0,64.0,,,
00000003_000.png,Effusion,1,2,3,4,,,
00000006_000.png,Cardiomegaly,0,0,1024,1024,,,
00000006_000.png,Cardiomegaly,16,32,48,64,,,
00000077_000.png,Cardiomegaly,1,2,3,4,,,
"""


def test_boxes_are_in_pixels_of_the_shrunken_films(tmp_path: Path) -> None:
    """Only those of cardiomegaly, of films that are there; a film may have two."""
    (nih(tmp_path, MIXED) / "BBox_List_2017.csv").write_text(BOXES)
    boxes = read(tmp_path, balance=False).boxes
    assert set(boxes) == {"00000001_000.png", "00000006_000.png"}
    assert boxes["00000001_000.png"].tolist() == [[2.0, 256.5 / 64, 8.0, 1.0]]
    assert boxes["00000006_000.png"].tolist() == [[0, 0, 16, 16], [0.25, 0.5, 0.75, 1]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("256.5", "top"), "line 2 has 128.0, top, 512.0, 64.0"),
        (lambda text: text.replace("256.5", ""), "line 2 has 128.0, , 512.0, 64.0"),
        (lambda text: text.replace("512.0", "nan"), "line 2 has"),
        (lambda text: text.replace("512.0", "0"), "line 2 has"),
        (lambda text: text.replace(",64.0,,,", ""), "line 2 has 5"),
        (lambda text: text.replace("Bbox [x,", "x,"), "has no Bbox [x among"),
    ],
)
def test_boxes_that_are_none_are_refused(
    tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    path = nih(tmp_path, MIXED) / "BBox_List_2017.csv"
    path.write_text(change(BOXES))
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    message(caught, path, says)


# ---------------------------------------------------------------------- a packed file


def packed(path: Path, names: Sequence[str], label: Sequence[int], **change: Any) -> Path:
    """Even films, number i of brightness 2 · i + 20."""
    jpegs = [saved(Image.new("L", (SIDE, SIDE), 2 * i + 20), "jpeg") for i in range(len(names))]
    arrays = {
        "jpeg": np.frombuffer(b"".join(jpegs), np.uint8),
        "offsets": np.cumsum([0, *map(len, jpegs)]),
        "labels": np.array(label, np.uint8),
        "filename": np.array(names),
    } | change
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


LABELS = [0, 1, 0, 0, 1, 1, 0, 1, 0, 0] * 4  # 24 and 16
PLAIN = [f"{i}.png" for i in range(40)]
SPLIT = [f"data/{'test' if i % 4 == 0 else 'train'}/x/{i}.png" for i in range(40)]


def numbers(films: Films) -> list[int]:
    """The number of each film, read off its pixels."""
    assert np.ptp(films.x, axis=(1, 2, 3)).max() < 0.02  # even, as they were packed
    return np.rint((films.x.mean((1, 2, 3)) * 255 - 20) / 2).astype(int).tolist()


@pytest.mark.parametrize("names", [PLAIN, SPLIT], ids=["plain", "split"])
def test_films_of_a_packed_file_keep_label_and_name(tmp_path: Path, names: list[str]) -> None:
    path = packed(tmp_path / "films.npz", names, LABELS)
    data = read(path, balance=False)
    assert isinstance(data, ChestXrays)
    everything = []
    for films in parts(data):
        assert films.x.shape == (len(films.y), 1, SIDE, SIDE)
        assert films.x.dtype == np.float32
        assert films.y.dtype == np.int64
        assert films.patients is None
        which = numbers(films)
        assert which == sorted(which)
        assert films.names.tolist() == [names[i] for i in which]
        assert films.y.tolist() == [LABELS[i] for i in which]
        everything += which
    assert len(set(everything)) == len(everything) == (40 if names is PLAIN else 32)
    assert data.boxes == {}
    assert data.skipped == []
    assert kept(tmp_path) == ["films.npz"]  # no cache


def test_patients_may_repeat_and_the_remarks_say_so(tmp_path: Path) -> None:
    data = read(packed(tmp_path / "films.npz", PLAIN, LABELS))
    for remark in data.remarks:
        one_sentence(remark)
        assert "films.npz" in remark
    assert "patients may repeat across its splits" in data.remarks[0]
    assert "other findings" in data.remarks[1]


def test_parts_of_a_packed_file_without_its_own_are_drawn(tmp_path: Path) -> None:
    path = packed(tmp_path / "films.npz", PLAIN, LABELS)
    data = read(path, validation=8, test=6)
    assert [len(films.y) for films in parts(data)] == [18, 8, 6]
    assert [films.y.sum() for films in parts(data)] == [9, 4, 3]
    same(data, read(path, validation=8, test=6))
    assert all_names(data) != all_names(read(path, validation=8, test=6, seed=1))
    with pytest.raises(InputError) as caught:
        chest_xray(path)
    message(caught, path, "test asks for 300 films but 32 of the 32")


def test_the_files_own_test_films_are_the_test(tmp_path: Path) -> None:
    path = packed(tmp_path / "films.npz", SPLIT, LABELS)
    data = read(path, balance=False, test=None)
    assert numbers(data.test) == list(range(0, 40, 4))
    assert len(data.valid.y) == 2
    assert len(data.train.y) == 28
    data = read(path, test=None)  # as many of each class in each part
    assert data.test.y.sum() == sum(LABELS[0::4]) == 2
    assert len(data.test.y) == 4
    assert set(numbers(data.test)) < set(range(0, 40, 4))
    assert all(i % 4 for films in (data.train, data.valid) for i in numbers(films))
    assert 2 * data.train.y.sum() == len(data.train.y)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train/1.png", "valid/2.png", "test/3.png"], [0, 1, 2]),
        (["Train/1.png", "VAL/2.png", "Test/3.png"], [0, 1, 2]),
        (["a\\train\\1.png", "a\\validation\\2.png", "a\\test\\3.png"], [0, 1, 2]),
        (["train/1.png", "train/test.png", "test/train.png"], [0, 0, 2]),  # not the file's name
        (["train/1.png", "2.png", "test/3.png"], None),
        (["train/1.png", "train/2.png"], None),
        (["test/1.png", "test/2.png"], None),
        (["trained/1.png", "tests/2.png"], None),
        (["1.png", "2.png"], None),
    ],
)
def test_a_files_own_parts_are_told_by_its_folders(names: list[str], expected: Any) -> None:
    found = lists.own_parts(np.array(names))
    assert (None if found is None else found.tolist()) == expected


def test_packed_films_are_shrunk_to_the_size_asked_for(tmp_path: Path) -> None:
    data = read(packed(tmp_path / "films.npz", PLAIN, LABELS), size=8, balance=False)
    assert data.train.x.shape[1:] == (1, 8, 8)
    assert data.train.names.tolist() == [PLAIN[i] for i in numbers(data.train)]


def test_a_damaged_packed_film_is_skipped_and_named(tmp_path: Path) -> None:
    path = packed(tmp_path / "films.npz", PLAIN, LABELS)
    arrays = dict(np.load(path))
    start = arrays["offsets"][7]
    arrays["jpeg"][start : start + 10] = 0
    np.savez(path, **arrays)
    with pytest.warns(DataWarning, match=r"1 of 40 were skipped, such as 7\.png in "):
        data = read(path, balance=False)
    assert data.skipped == [f"7.png in {path.name} was skipped: it is no picture."]
    assert sorted(i for films in parts(data) for i in numbers(films)) == [
        i for i in range(40) if i != 7
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"jpeg": None}, "has no jpeg"),
        ({"labels": None, "filename": None}, "has no labels, filename"),
        ({"jpeg": np.zeros(9)}, "must hold bytes in 1 dimension(s) as 'jpeg' but holds float64"),
        ({"jpeg": np.zeros(9, np.uint16)}, "as 'jpeg' but holds uint16 of shape (9,)"),
        ({"jpeg": np.zeros((3, 3), np.uint8)}, "as 'jpeg' but holds uint8 of shape (3, 3)"),
        ({"offsets": np.linspace(0, 1, 41)}, "as 'offsets' but holds float64"),
        ({"labels": np.array(["1"] * 40)}, "as 'labels' but holds <U1"),
        ({"labels": np.ones((40, 1), int)}, "as 'labels' but holds int64 of shape (40, 1)"),
        ({"filename": np.arange(40)}, "must hold text in 1 dimension(s) as 'filename'"),
        ({"filename": np.array([object()] * 40)}, "of plain arrays"),
        ({"labels": np.zeros(39, int)}, "but holds 39, 40 and 41"),
        ({"filename": np.array(PLAIN[1:])}, "but holds 40, 39 and 41"),
        ({"offsets": np.arange(40)}, "but holds 40, 40 and 40"),
        ({"offsets": np.arange(41)}, "they go from 0 to 40"),
        ({"labels": np.array([0, 1, 2, 1] * 10)}, "holds [0, 1, 2]"),
        ({"labels": np.zeros(40, int)}, "both of them, but holds [0]"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_packed_file_of_another_form_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = packed(tmp_path / "films.npz", PLAIN, LABELS, **change)
    with pytest.raises(InputError) as caught:
        read(path)
    message(caught, path, says, ";")


@pytest.mark.parametrize("place", [0, 20, 40])
def test_offsets_that_do_not_rise_from_end_to_end_are_refused(tmp_path: Path, place: int) -> None:
    path = packed(tmp_path / "films.npz", PLAIN, LABELS)
    arrays = dict(np.load(path))
    arrays["offsets"][place] += 1 if place != 20 else 100_000
    np.savez(path, **arrays)
    with pytest.raises(InputError) as caught:
        read(path)
    message(caught, path, "'offsets' that rise from 0")


def test_what_is_no_npz_file_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "films.npz", PLAIN, LABELS)
    whole = path.read_bytes()
    np.save(tmp_path / "one.npy", np.zeros(3))
    for content in (b"", b"text", whole[:100], whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            chest_xray(path)
        message(caught, path, "cannot be read (it is none, or only the beginning of one);")
    with pytest.raises(InputError) as caught:
        chest_xray(tmp_path / "one.npy")
    message(caught, tmp_path / "one.npy", "has no jpeg, offsets")


# ---------------------------------------------------------------------- masks


def masks(path: Path, **change: Any) -> Path:
    random = np.random.default_rng(0)
    arrays = {
        "images": random.integers(256, size=(5, 6, 4), dtype=np.uint8),
        "heart": random.random((5, 6, 4)) < 0.5,
        "lungs": random.random((5, 6, 4)) < 0.5,
        "ctr_from_masks": random.random(5),
        "ctr_groundtruth": np.array([0.5, np.nan, 0.6, np.nan, 0.4]),
        "source": np.array(list("abcde")),
    } | change
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


def test_masks_are_read_as_they_are(tmp_path: Path) -> None:
    path = masks(tmp_path / "masks.npz")
    result, arrays = heart_masks(str(path)), np.load(path)
    assert isinstance(result, HeartMasks)
    assert result.x.shape == (5, 1, 6, 4)
    assert result.x.dtype == np.float32
    np.testing.assert_allclose(result.x[:, 0], arrays["images"] / 255, atol=1e-6)
    np.testing.assert_array_equal(result.heart, arrays["heart"])
    np.testing.assert_array_equal(result.lungs, arrays["lungs"])
    np.testing.assert_array_equal(result.ratio, arrays["ctr_from_masks"])
    np.testing.assert_array_equal(result.measured, arrays["ctr_groundtruth"])
    assert result.source.tolist() == list("abcde")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lungs": None}, "has no lungs"),
        ({"images": np.zeros((5, 6, 4))}, "must hold bytes in 3 dimension(s) as 'images'"),
        ({"heart": np.zeros((5, 6, 4), int)}, "must hold true and false in 3 dimension(s)"),
        (
            {"heart": np.zeros((5, 4, 6), bool)},
            "'heart' for its images, (5, 6, 4), but holds (5, 4",
        ),
        ({"source": np.array(["a"])}, "'source' for its images, (5,), but holds (1,)"),
        ({"ctr_from_masks": np.array(["x"] * 5)}, "must hold numbers in 1 dimension(s)"),
    ],
)
def test_masks_of_another_form_are_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    path = masks(tmp_path / "masks.npz", **change)
    with pytest.raises(InputError) as caught:
        heart_masks(path)
    message(caught, path, says)


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_a_file_with_changed_bytes_is_the_same_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int]]
) -> None:
    """Checksums in the file see to it; what decides where it is cannot be read either."""
    path = masks(tmp_path_factory.getbasetemp() / "changed.npz")
    before, content = heart_masks(path), bytearray(path.read_bytes())
    for place, value in changes:
        content[int(place * len(content))] = value
    path.write_bytes(bytes(content))
    try:
        after = heart_masks(path)
    except InputError as error:
        one_sentence(str(error), path)
        return
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        heart_masks(tmp_path / "nothing.npz")
    message(caught, tmp_path / "nothing.npz", "No such file")


def test_importing_the_data_sets_does_not_load_pictures_or_bars() -> None:
    code = (
        "import sys, unmasked.datasets; "
        "print([m for m in ('PIL', 'rich', 'pandas', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- the real films


@pytest.fixture(scope="module")
def real() -> ChestXrays:
    return chest_xray(PACKED, balance=False)


@needs_packed
def test_the_real_films_are_the_known_ones(real: ChestXrays) -> None:
    assert [len(films.y) for films in parts(real)] == [3800, 300, 1046]
    assert sum(films.y.sum() for films in parts(real)) == 2528
    assert real.test.y.sum() == 506
    assert real.valid.y.sum() == 148  # in proportion: 300 · 2,022 / 4,100
    assert real.skipped == []
    for films in parts(real):
        assert films.x.shape[1:] == (1, 128, 128)
        assert 0 <= films.x.min() < films.x.max() <= 1
        np.testing.assert_array_equal(films.y, ["/true/" in name for name in films.names])
    assert all("/test/" in name for name in real.test.names)
    assert not any("/test/" in name for name in all_names(real)[1046:])
    total = sum(films.x.sum(dtype=np.float64) for films in parts(real))
    assert 255 * total / (5146 * 128 * 128) == pytest.approx(157.53, abs=0.05)


@needs_packed
def test_the_real_films_balanced(real: ChestXrays) -> None:
    data = chest_xray(PACKED)
    assert [len(films.y) for films in parts(data)] == [3744, 300, 1012]
    assert [films.y.sum() for films in parts(data)] == [1872, 150, 506]
    assert set(all_names(data)) < set(all_names(real))


@needs_masks
def test_the_real_masks_are_the_known_ones() -> None:
    """The ratio is that of the masks: the heart's width over the lungs'."""
    result = heart_masks(MASKS)
    assert result.x.shape == (506, 1, 128, 128)
    assert np.unique(result.source, return_counts=True)[1].tolist() == [247, 259]
    assert np.isfinite(result.measured).sum() == 221

    def width(mask: np.ndarray) -> np.ndarray:
        columns = mask.any(1)  # (films, width)
        return 128 - columns.argmax(1) - columns[:, ::-1].argmax(1)

    ratio = width(result.heart) / width(result.lungs)
    # a pixel more or less on each of four edges, of about 100 across
    assert np.abs(ratio - result.ratio).mean() < 0.02
