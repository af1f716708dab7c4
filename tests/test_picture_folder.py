"""Folders of pictures: which of them have labels, what is refused, how they are split."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from small_pictures import found, saved, write_films, write_labels

from unmasked.errors import InputError
from unmasked.io.image_files import Plan
from unmasked.io.image_folder import find_pictures, split_pictures

# ---------------------------------------------------------------------- labels


@pytest.fixture
def films(tmp_path) -> tuple[Path, list[tuple[str, str]]]:
    return tmp_path / "films", write_films(tmp_path / "films", 30)


@pytest.mark.parametrize(
    "header", [("image", "label"), ("Filename", "Class"), ("file_name", "target"), ("q", "z")]
)
def test_usual_columns_are_found(films, tmp_path, header):
    """An unusual one is found too where its cells name the files and there are two columns."""
    folder, lines = films
    listing = found(folder, write_labels(tmp_path / "l.csv", lines, header)).listing
    assert listing.names == [name for name, _ in lines]
    assert listing.labels == [label for _, label in lines]
    assert not listing.skipped


def test_columns_that_are_asked_for_come_first(films, tmp_path):
    folder, lines = films
    table = write_labels(
        tmp_path / "l.csv", [(n, "x", y) for n, y in lines], ("image", "label", "truth")
    )
    assert found(folder, table, label_column="truth").listing.labels == [y for _, y in lines]
    with pytest.raises(InputError, match="has no column 'Truth'; did you mean 'truth'"):
        found(folder, table, label_column="Truth")
    with pytest.raises(InputError, match="must be different columns"):
        found(folder, table, image_column="truth", label_column="truth")
    three = write_labels(tmp_path / "m.csv", [(n, "x", y) for n, y in lines], ("q", "r", "s"))
    with pytest.raises(InputError, match=r"column with the labels.*--label-column"):
        found(folder, three)


def test_cells_may_leave_out_folders_and_endings(films, tmp_path):
    folder, lines = films
    (folder / "more").mkdir()
    for name, _ in lines[:10]:
        os.replace(folder / name, folder / "more" / name)
    cells = [name.removesuffix(".png") for name, _ in lines[:5]] + [n for n, _ in lines[5:]]
    table = write_labels(tmp_path / "l.csv", list(zip(cells, (y for _, y in lines), strict=True)))
    listing = found(folder, table).listing
    assert listing.names == [f"more/{n}" for n, _ in lines[:10]] + [n for n, _ in lines[10:]]


def test_each_picture_that_is_left_out_is_named(films, tmp_path):
    folder, lines = films
    (folder / "film0003.png").write_text("no picture")
    (folder / "deep").mkdir()
    (folder / "high").mkdir()
    saved(folder / "high" / "twin.png", np.zeros((32, 32), np.uint8))
    saved(folder / "deep" / "twin.jpg", np.zeros((32, 32), np.uint8))
    other = "normal" if lines[1][1] == "enlarged" else "enlarged"
    table = write_labels(
        tmp_path / "l.csv",
        [*lines[:-2], (lines[-2][0], ""), ("gone.png", "normal"), ("twin", "normal"),
         ("", "normal"), lines[0], (lines[1][0], other)],
    )  # fmt: skip
    listing = found(folder, table).listing
    reasons = {one.file: one.reason for one in listing.skipped}
    assert reasons.pop("film0003.png") == "is no PNG, JPEG or DICOM picture"
    assert reasons.pop("gone.png") == "is listed in l.csv but is not in the folder"
    assert reasons.pop("twin") == "stands for more than one picture in the folder"
    assert reasons.pop(lines[-2][0]) == "has no label in l.csv"
    assert reasons.pop(lines[-1][0]) == "has no line in l.csv"
    assert reasons.pop("row 32 below the header of l.csv") == "names no picture"
    assert reasons.pop(lines[1][0]) == "comes more than once in l.csv, differently"
    assert {reasons.pop("high/twin.png"), reasons.pop("deep/twin.jpg")} == {"has no line in l.csv"}
    assert not reasons
    assert lines[0][0] in listing.names  # said twice, but the same
    assert len(listing.names) == 30 - 4
    first = next(str(one) for one in listing.skipped if one.file == "gone.png")
    assert first == "gone.png was skipped: it is listed in l.csv but is not in the folder."


def test_labels_are_text_as_it_is_written(films, tmp_path):
    """01 is not 1, and None is a label as good as any."""
    folder, lines = films
    cells = [(name, ("01", "None")[i % 2]) for i, (name, _) in enumerate(lines)]
    table = write_labels(tmp_path / "l.csv", cells)
    assert set(found(folder, table).listing.labels) == {"01", "None"}
    table.write_text(table.read_text().replace(",", ";"))
    assert set(found(folder, table).listing.labels) == {"01", "None"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: [(n, "a") for n, _ in lines],
            r"two classes but have one class only \('a'\)",
        ),
        (lambda lines: lines[:8], "at least 10 pictures are needed .* has 8 with labels"),
        (lambda lines: [*lines, ("gone.png", "rare")], "'rare' has none in .*gone.png, which is"),
        (
            lambda lines: [(n, "b" if i < 2 else "a") for i, (n, _) in enumerate(lines)],
            "at least 3 pictures, .* but 'b' has 2",
        ),
        (lambda lines: [(n, n) for n, _ in lines], "30 different ones, which looks like names"),
        (lambda lines: [(n, "a") for n, _ in lines[1:]], r"1 was skipped, such as film0000\.png,"),
        (lambda lines: [(n, "a") for n, _ in lines[2:]], "2 were skipped"),
        (
            lambda lines: [(str(i), y) for i, (_, y) in enumerate(lines)],
            r"none of the 30 names in column 'image' of .*l\.csv is a picture of .*films: the "
            r"table has '0', the folder 'film0000\.png'; correct them, or .* with --image-column",
        ),
    ],
)
def test_too_little_is_refused(films, tmp_path, change, message):
    folder, lines = films
    with pytest.raises(InputError, match=message):
        found(folder, write_labels(tmp_path / "l.csv", change(lines)))


def test_folders_without_pictures_are_refused(tmp_path):
    table = write_labels(tmp_path / "l.csv", [("a.png", "x")])
    with pytest.raises(InputError, match="does not exist"):
        found(tmp_path / "gone", table)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds none"):
        found(tmp_path / "empty", table)
    with pytest.raises(InputError, match="from 8 to 2048 but is 4"):
        find_pictures(tmp_path / "empty", table, size=4)


def test_sizes_that_must_agree_are_refused_by_name(films, tmp_path):
    folder, lines = films
    saved(folder / "film0007.png", np.zeros((40, 32), np.uint8))
    table = write_labels(tmp_path / "l.csv", lines)
    with pytest.raises(InputError, match=r"film0007\.png is 32 × 40 pixels, not 32 × 32; use"):
        found(folder, table, fit="none")
    saved(folder / "film0009.png", np.zeros((40, 32), np.uint8))
    with pytest.raises(InputError, match="not 32 × 32, as is one other; use"):
        found(folder, table, fit="none")
    assert len(found(folder, table).looks) == 30


def test_one_deep_or_coloured_picture_decides_for_all(films, tmp_path):
    folder, lines = films
    table = write_labels(tmp_path / "l.csv", lines)
    assert found(folder, table).plan == Plan(32, 1, False)
    saved(folder / "film0001.png", np.zeros((32, 32, 3), np.uint8))
    assert found(folder, table).plan.channels == 3
    assert found(folder, table, channels=1).plan.channels == 1
    saved(folder / "film0002.png", np.zeros((32, 32), np.uint16))
    assert found(folder, table).plan.deep


# ---------------------------------------------------------------------- the split


def test_parts_are_in_proportion_and_do_not_overlap():
    labels = np.array(["a"] * 60 + ["b"] * 40)
    parts = split_pictures(labels, None, seed=0)
    assert {name: len(rows) for name, rows in parts.items()} == {
        "train": 60,
        "valid": 20,
        "test": 20,
    }
    assert sorted(np.concatenate(list(parts.values()))) == list(range(100))
    assert (labels[parts["test"]] == "a").sum() == 12


def test_nobody_is_in_two_parts():
    random = np.random.default_rng(0)
    patients = random.integers(0, 40, 300).astype(str)
    labels = np.where(random.random(300) < 0.4, "ill", "well")
    parts = split_pictures(labels, patients, seed=1)
    groups = {name: set(patients[rows]) for name, rows in parts.items()}
    assert not groups["train"] & groups["test"]
    assert not groups["train"] & groups["valid"]
    assert not groups["valid"] & groups["test"]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(300))
    assert 40 <= len(parts["test"]) <= 80
    assert any((split_pictures(labels, patients, seed=2)["test"] != parts["test"][:1]).tolist())


def test_groups_that_cannot_be_split_are_refused():
    labels = np.array(["a", "b"] * 20)
    with pytest.raises(InputError, match=r"at least 5 groups, .* but are of 2"):
        split_pictures(labels, np.array(["p", "q"] * 20), seed=0)
    with pytest.raises(InputError, match="has none of 'b', since pictures of a group stay"):
        split_pictures(
            np.array(["a"] * 36 + ["b"] * 4), np.array([*"abcdefghi" * 4, *"zzzz"]), seed=0
        )
