"""Which picture a line of the labels means, and what is said of lines that mean none."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from unmasked.errors import InputError
from unmasked.io.image_lists import Listing, Skipped, read_labels
from unmasked.io.tables import read_table


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
    found = listed(tmp_path, [*files, "good.png"], [cell.replace("\\\\", "\\"), "good.png"])
    assert found.names == [*([meant] if meant else []), "good.png"]
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


TWICE = "comes more than once in labels.csv, differently"


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        ("1,a,p\n1,,p", {"1.png": TWICE}),
        ("1,,p\n1,a,p", {"1.png": TWICE}),
        ("1,a,p\n1,a,", {"1.png": TWICE}),
        ("1,,p\n1,a,p\n1,,p", {"1.png": TWICE}),
        ("1,,p\n1,a,", {"1.png": TWICE}),
        ("1,a,p\n1,b,p\n1,a,p", {"1.png": TWICE}),
        ("1,,p\n1,,p", {"1.png": "has no label in labels.csv"}),
        ("1,a,\n1,a,", {"1.png": "has no patient in labels.csv"}),
        ("1,a,p\n1,a,p", {}),
        ("\n".join(f"{i},a,p\n{i},b,p" for i in (8, 5, 1, 7, 3, 4, 6)),
         {f"{i}.png": TWICE for i in (1, 3, 4, 5, 6, 7, 8)}),
    ],
)  # fmt: skip
def test_a_picture_of_which_two_things_are_said_is_left_out(
    tmp_path: Path, lines: str, reasons: dict[str, str]
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(f"image,label,patient\n2,b,q\n{lines}\n", encoding="utf-8")
    listed = {line.partition(",")[0] for line in lines.splitlines()}
    files = {f"{name}.png": Path(f"{name}.png") for name in ("2", *listed)}
    found = read_labels(table, files, group="patient")
    assert [(one.file, one.reason) for one in found.skipped] == list(reasons.items())
    assert set(found.names) == set(files) - set(reasons)
    assert found.labels is not None
    assert found.groups is not None
    assert len(found.labels) == len(found.groups) == len(found.names)


@pytest.mark.parametrize(
    "text",
    [
        "image,label\n1.png,a,\n2.png,b,\n",
        "image,label\n1.png,a,,\n2.png,b,,\n",
        "image,label\n1.png,a,\n2.png,b\n",
        "image,label,\n1.png,a,\n2.png,b,\n",
        "image;label\n1.png;a;\n2.png;b;\n",
        "image;label;age\n1.png;a;3,5\n2.png;b;4,5\n",
        'image,label\n"1",1.png,a\n"2",2.png,b\n',  # R's row numbers
        "image,label,age,age\n1.png,a,1,2\n2.png,b,1,2\n",
        "\ufeffimage,label\r\n1.png,a\r\n2.png,b\r\n",
    ],
)
def test_columns_stay_in_their_places(tmp_path: Path, text: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_bytes(text.encode())
    found = read_labels(table, {name: Path(name) for name in ("1.png", "2.png")})
    assert (found.names, found.labels, found.skipped) == (["1.png", "2.png"], ["a", "b"], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,label\n1.png,a,x\n2.png,b,\n", "have 3 cells but its header names 2; name all"),
        ("image\n1.png,a,\n2.png,b,\n", "have 3 cells but its header names 1; name all"),
        ("image,label,label\n1.png,a,b\n", "the column 'label' must come once in .* comes 2 times"),
        ("image,image,label\n1.png,a,b\n", "the column 'image' must come once"),
        ("image,image\n1.png,a\n", "a column with the labels but which of image, image"),
        ("image,label,who,who,who\n1.png,a,1,2,3\n", "the column 'who' must come once .* 3 times"),
        ("image,label,who\n9,a,p\n8,a,p\n9,b,q\n", "none of the 2 names in column 'image' of .* is "
         r"a picture of \.: the table has '9', the folder '1\.png'; correct them, or name another"),
        ("image,label,who\n9,a,p\n", "the only name in column 'image' of .* is not a picture of"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, words: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text, encoding="utf-8")
    group = "who" if "who" in text else None
    with pytest.raises(InputError, match=words):
        read_labels(table, {name: Path(name) for name in ("1.png", "2.png")}, group=group)


def test_rows_are_counted_as_records(tmp_path: Path) -> None:
    """Blank lines, and breaks within a cell, are no rows."""
    table = tmp_path / "labels.csv"
    table.write_text('image,label,note\n\n1.png,a,"two\nlines"\n\n,b,x\n', encoding="utf-8")
    (skipped,) = read_labels(table, {"1.png": Path("1.png")}).skipped
    assert str(skipped) == (
        "row 2 below the header of labels.csv was skipped: it names no picture."
    )


def test_parquet_is_read_as_text_whatever_it_is_called(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    content = pd.DataFrame({"image": ["1.png", "2.png"], "label": ["01", None]})
    content.to_parquet(table)
    found = read_labels(table, {name: Path(name) for name in ("1.png", "2.png")})
    assert (found.names, found.labels) == (["1.png"], ["01"])
    assert [str(one) for one in found.skipped] == [
        "2.png was skipped: it has no label in labels.csv."
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a,b\n5,6,\n7,8,\n", [5, 7]),
        ("a,b\n0,5,\n1,5,\n", [0, 1]),
        ('a,b\n"1",5,6\n"2",7,8\n', [5, 7]),
        ("a,b\n5,6\n7,8\n", [5, 7]),
    ],
)
def test_other_tables_keep_their_columns_too(tmp_path: Path, text: str, first: list[int]) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    table = read_table(path)
    assert (table["a"].tolist(), list(table.columns)) == (first, ["a", "b"])
    path.write_text(text.replace("5", "é"), encoding="latin-1")
    with pytest.raises(InputError, match=r"table.csv must be written in UTF-8 but is not; save it"):
        read_table(path)


def test_cells_beyond_the_header_of_other_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n5,6,7\n8,9,10\n", encoding="utf-8")
    with pytest.raises(InputError, match="have 3 cells but its header names 2"):
        read_table(path)


@pytest.mark.parametrize("header", ["image,label", "image,label,0,1", "0.png,label"])
def test_columns_may_be_called_as_pictures_are(tmp_path: Path, header: str) -> None:
    files = {name: Path(name) for name in ("image.png", "0.png", "1.png")}
    table = tmp_path / "labels.csv"
    rest = "," * (header.count(",") - 1)
    table.write_text(f"{header}\n0.png,a{rest}\n1.png,b{rest}\n", encoding="utf-8")
    assert read_labels(table, files).names == ["0.png", "1.png"]


def test_na_at_the_end_of_a_row_is_no_hole(tmp_path: Path) -> None:
    """R's row numbers have no name in the header; a last column of NA is still a column."""
    path = tmp_path / "r.csv"
    path.write_text("age,dose,note\n1,50,2.5,NA\n2,60,3.5,NA\n", encoding="utf-8")
    table = read_table(path)
    assert table["age"].tolist() == [50, 60]
    assert table["note"].isna().all()


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"a,b\n{'x' * 200_000},2,\ny,4,\n", encoding="utf-8")
    assert read_table(path)["b"].tolist() == [2, 4]


def test_numbers_of_rows_are_no_pictures(tmp_path: Path) -> None:
    """pandas writes them unasked; 0, 1, … could be names of 0.png, 1.png, … without ending."""
    names = [f"{i}.png" for i in (2, 0, 1)]
    files = {f"{i}.png": tmp_path / f"{i}.png" for i in range(3)}
    table = tmp_path / "labels.csv"
    pd.DataFrame({"scan": names, "label": ["c", "a", "b"]}).to_csv(table)
    listing = read_labels(table, files)
    assert dict(zip(listing.names, listing.labels or [], strict=True)) == {
        "0.png": "a", "1.png": "b", "2.png": "c",
    }  # fmt: skip
    twice = pd.DataFrame({"scan": names, "copy": names[::-1], "label": ["c", "a", "b"]})
    twice.to_csv(table, index=False)
    with pytest.raises(InputError, match="cannot be told; name it with --image-column"):
        read_labels(table, files)


def test_a_table_with_one_column_is_separated_otherwise(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image|label\na.png|x\nb.png|y\n")
    files = {"a.png": Path("a.png"), "b.png": Path("b.png")}
    with pytest.raises(InputError, match=r"has one column, 'image\|label', so it is probably sep"):
        read_labels(table, files)
    pd.DataFrame({"image": list(files)}).to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(InputError, match="has one column, 'image'; add the other"):
        read_labels(tmp_path / "labels.parquet", files)


def test_the_label_of_a_file_that_was_skipped_before_is_known(tmp_path: Path) -> None:
    """A dead link in a folder, which the table names without the folder."""
    table = tmp_path / "labels.csv"
    table.write_text("image,label\na.png,x\nb.png,y\n")
    listing = read_labels(table, {"a.png": Path("a.png")}, skipped=["sub/b.png"])
    listing.skipped.append(Skipped("sub/b.png", "is a link to a file that is not there"))
    assert [one.file for one in listing.skipped_of("y")] == ["sub/b.png"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "image,label\na.png,x\nb.png,y\nc.png,x,more,cells\n",
            r"labels\.csv must have 2 cells in each line, as in those above, but line 4 has 4;",
        ),
        (
            'image,label\na.png,x\n"b.png,y\nc.png,x\n',
            r"labels\.csv has a quotation mark in line 3 that is never closed; close or remove it",
        ),
    ],
)
@pytest.mark.parametrize("as_written", [False, True])
def test_what_is_wrong_with_a_table_is_said_with_its_line(
    tmp_path: Path, text: str, words: str, as_written: bool
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=words):
        read_table(table, as_written=as_written)


def test_what_is_left_out_is_known_by_its_class(tmp_path: Path) -> None:
    cells = ["a.png", "gone.png", "gone2.png", "a.png", ""]
    table = write(tmp_path, cells, ["x", "x", "y", "z", "w"])
    found = read_labels(table, {"a.png": Path("a.png"), "b.png": Path("b.png")})
    names = {label: [one.file for one in found.skipped_of(label)] for label in "xyzw"}
    nameless = "row 5 below the header of labels.csv"
    assert names == {
        "x": ["gone.png", "a.png"],
        "y": ["gone2.png"],
        "z": ["a.png"],
        "w": [nameless],
    }


def write(tmp_path: Path, cells: list[str], labels: list[str]) -> Path:
    lines = [f"{cell},{label}" for cell, label in zip(cells, labels, strict=True)]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["image,label", *lines, ""]))
    return table
