"""Which picture a line of the labels means, and what is said of lines that mean none."""

from __future__ import annotations

from pathlib import Path

import pytest

from unmasked.data.picturelabels import Listing, read_labels
from unmasked.errors import InputError


def listed(tmp_path: Path, files: list[str], cells: list[str], **options: object) -> Listing:
    table = tmp_path / "labels.csv"
    table.write_text("image,label\n" + "".join(f"{cell},a\n" for cell in cells), encoding="utf-8")
    return read_labels(table, {name: Path(name) for name in files}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "cell", "meant"),
    [
        (["a/1.png"], "a/1.png", "a/1.png"),
        (["a/1.png"], "1.png", "a/1.png"),
        (["a/1.png"], "1", "a/1.png"),
        (["a/1.png"], "a/1", "a/1.png"),
        (["a/1.png"], "./a/1.png", "a/1.png"),
        (["a/1.png"], "C:\\\\films\\\\a\\\\1.png", "a/1.png"),
        (["1.png"], "/films/b/1.png", "1.png"),
        (["x/a/1.png"], "a/1.png", "x/a/1.png"),
        (["a/1.png", "1.png"], "films/a/1.png", "a/1.png"),  # what agrees further
        (["a/1.png"], "A1.png", None),
        (["a/1.png"], "1.PNG", "a/1.png"),
        (["a/1.png"], "b/1.png", None),  # another folder's
        (["a/1.png"], "/films/1.png", None),
        (["a/1.png", "b/1.png"], "1.png", ""),  # which of them?
        (["1.2.840.7"], "1.2.840", None),  # a series, not a picture
        (["1.2.840.7"], "1.2.840.7", "1.2.840.7"),
        (["1.2.840.7.dcm"], "1.2.840.7", "1.2.840.7.dcm"),
    ],
)
def test_cells_name_pictures(
    tmp_path: Path, files: list[str], cell: str, meant: str | None
) -> None:
    found = listed(tmp_path, files, [cell.replace("\\\\", "\\")])
    assert found.names == ([meant] if meant else [])
    if not meant:
        words = "more than one picture" if meant == "" else "is not in the folder"
        assert words in found.skipped[0].reason


def test_files_of_other_kinds_are_not_said_to_be_missing(tmp_path: Path) -> None:
    found = listed(tmp_path, ["1.png"], ["1.png", "2.tif", "3.gif"], others=["2.tif"])
    reasons = {one.file: one.reason for one in found.skipped}
    assert reasons["2.tif"] == "is no PNG, JPEG or DICOM picture"
    assert reasons["3.gif"] == "is listed in labels.csv but is not in the folder"


def test_a_table_without_names_of_its_columns_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("1.png,a\n2.png,b\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"must name its columns.* holds the picture 1\.png"):
        read_labels(table, {"1.png": Path("1.png"), "2.png": Path("2.png")})


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_spreadsheets_separate_in_their_own_ways(tmp_path: Path, separator: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(f"image{separator}label\n1.png{separator}a\n", encoding="utf-8")
    found = read_labels(table, {"1.png": Path("1.png")})
    assert (found.names, found.labels) == (["1.png"], ["a"])


@pytest.mark.parametrize(
    ("encoding", "words"), [("utf-16", "in UTF-16; save it as UTF-8"), ("latin-1", "as UTF-8")]
)
def test_other_encodings_are_named(tmp_path: Path, encoding: str, words: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,label\n1.png,vergrößert\n", encoding=encoding)
    with pytest.raises(InputError, match=words):
        read_labels(table, {"1.png": Path("1.png")})


def test_a_folder_of_one_site_takes_no_labels_of_another(tmp_path: Path) -> None:
    site = tmp_path / "siteA"
    files = {name: site / name for name in ("1.png", "2.png", "3.png")}
    table = tmp_path / "all.csv"
    lines = ["siteA/1.png,a", "siteB/1.png,b", "siteB/2.png,b", "siteA/3.png,a"]
    table.write_text("image,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    found = read_labels(table, files)
    assert (found.names, found.labels) == (["1.png", "3.png"], ["a", "a"])
    reasons = {one.file: one.reason for one in found.skipped}
    assert reasons["2.png"] == "has no line in all.csv"
    assert reasons["siteB/2.png"] == "is listed in all.csv but is not in the folder"
    table.write_text("image,label\nimages/1.png,a\n", encoding="utf-8")  # called otherwise there
    assert read_labels(table, files).names == ["1.png"]


@pytest.mark.parametrize("header", ["image,label", "image,label,0,1", "0.png,label"])
def test_columns_may_be_called_as_pictures_are(tmp_path: Path, header: str) -> None:
    files = {name: Path(name) for name in ("image.png", "0.png", "1.png")}
    table = tmp_path / "labels.csv"
    rest = "," * (header.count(",") - 1)
    table.write_text(f"{header}\n0.png,a{rest}\n1.png,b{rest}\n", encoding="utf-8")
    assert read_labels(table, files).names == ["0.png", "1.png"]
