"""Chest X-rays from a small folder of NIH's form, from packed files, and the real packed file.

The stand-in films are 16 × 16 pixels; the first two pixels of a film spell its number, so a test
can tell where each film went. Read at their own size, they are read exactly.
"""

from __future__ import annotations

import importlib
import io
import os
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

from unmasked.data import ChestXrays, Films, HeartMasks, chest_xray, heart_masks
from unmasked.errors import DataWarning, InputError, OutputError

reading = importlib.import_module("unmasked.data.films")
module = importlib.import_module("unmasked.data.chest_xray")  # the package has such a function

SIDE = 16
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)
BOX_HEADER = "Image Index,Finding Label,Bbox [x,y,w,h],,,"
REAL = Path(__file__).parents[2] / "shared" / "data" / "cxr"
PACKED, MASKS = REAL / "nih_cardiomegaly_128.npz", REAL / "heart_masks_128.npz"
needs_packed = pytest.mark.skipif(not PACKED.exists(), reason=f"the real films are not in {REAL}")
needs_masks = pytest.mark.skipif(not MASKS.exists(), reason=f"the real masks are not in {REAL}")

Row = tuple[str, str, str]  # film, findings, patient


def message(caught: Any, *parts: str | Path) -> str:
    """The message, which is one sentence and names all ``parts``."""
    text = str(caught.value)
    one_sentence(text, *parts)
    return text


def one_sentence(text: str, *parts: str | Path) -> None:
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text
    for part in parts:
        assert str(part) in text


def pixels(number: int, side: int = SIDE) -> np.ndarray:
    """(side, side) bytes: the number in the first two, then a pattern."""
    values = np.random.default_rng(number).integers(256, size=(side, side), dtype=np.uint8)
    values[0, :2] = number % 256, number // 256
    return values


def number_of(name: str) -> int:
    """The number of a film such as 00000007_002.png: 7 and 2 -> 107."""
    patient, follow_up = name.removesuffix(".png").split("_")
    return int(patient) + 50 * int(follow_up)


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{name},{findings},0,{who},57,M,PA,2682,2749,0.143,0.143," for name, findings, who in rows
    ]
    return "\n".join([HEADER, *lines]) + "\n"


def nih(
    folder: Path,
    rows: Sequence[Row],
    *,
    images: str = "images_001/images",
    csv: str = "Data_Entry_2017.csv",
) -> Path:
    """A folder as NIH distributes it."""
    (folder / images).mkdir(parents=True, exist_ok=True)
    for name, _, _ in rows:
        Image.fromarray(pixels(number_of(name))).save(folder / images / name)
    (folder / csv).write_text(table(rows))
    return folder


def listed(ill: int, well: int, other: int = 0, films: int = 1) -> list[Row]:
    """Patients with so many films each: some ill, some well, some with something else."""
    findings = ["Cardiomegaly"] * ill + ["No Finding"] * well + ["Effusion"] * other
    return [
        (f"{i + 1:08d}_{j:03d}.png", finding, str(i + 1))
        for i, finding in enumerate(findings)
        for j in range(films)
    ]


MIXED: list[Row] = [
    ("00000001_000.png", "Cardiomegaly", "1"),
    ("00000001_001.png", "Cardiomegaly|Emphysema", "1"),
    ("00000001_002.png", "No Finding", "1"),
    ("00000002_000.png", "No Finding", "2"),
    ("00000003_000.png", "Effusion|Cardiomegaly|Mass", "3"),
    ("00000003_001.png", "Hernia", "3"),
    ("00000004_000.png", "No Finding", "4"),
    ("00000005_000.png", "Effusion", "5"),
    ("00000006_000.png", "Cardiomegaly", "6"),
    ("00000006_001.png", "No Finding", "6"),
    ("00000007_000.png", "No Finding", "7"),
    ("00000008_000.png", "No Finding", "8"),
    ("00000009_000.png", "Cardiomegaly", "9"),
    ("00000010_000.png", "No Finding", "10"),
]
ILL = [name for name, findings, _ in MIXED if "Cardiomegaly" in findings]
WELL = [name for name, findings, _ in MIXED if findings == "No Finding"]
PATIENT = {name: who for name, _, who in MIXED}


def read(folder: Path, **options: Any) -> ChestXrays:
    """Small parts, at the films' own size."""
    return chest_xray(folder, **({"size": SIDE, "validation": 2, "test": 2} | options))


def parts(data: ChestXrays) -> tuple[Films, Films, Films]:
    return data.train, data.valid, data.test


def all_names(data: ChestXrays) -> list[str]:
    return sorted(name for films in parts(data) for name in films.names.tolist())


def same(one: ChestXrays, other: ChestXrays) -> None:
    for a, b in zip(parts(one), parts(other), strict=True):
        assert a.names.tolist() == b.names.tolist()
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that tests do not change, but for its cache."""
    return nih(tmp_path_factory.mktemp("mixed"), MIXED)


# ---------------------------------------------------------------------- what is in the parts


def test_shapes_types_range_and_order(mixed: Path) -> None:
    data = read(mixed, balance=False)
    assert isinstance(data, ChestXrays)
    order = [name for name, _, _ in MIXED]
    for films in parts(data):
        count = len(films.y)
        assert films.x.shape == (count, 1, SIDE, SIDE)
        assert films.x.dtype == np.float32
        assert films.x.flags.writeable
        assert films.y.dtype == np.int64
        assert set(films.y.tolist()) == {0, 1}
        assert films.names.shape == films.patients.shape == (count,)
        places = [order.index(name) for name in films.names]
        assert places == sorted(places)  # as in the table
    assert data.remarks == []
    assert data.skipped == []
    assert data.boxes == {}


def test_every_film_has_its_own_pixels_label_and_patient(mixed: Path) -> None:
    data = read(mixed, balance=False)
    for films in parts(data):
        for x, y, name, patient in zip(*films, strict=True):
            expected = pixels(number_of(name)).astype(np.float32) / np.float32(255)
            np.testing.assert_array_equal(x[0], expected)
            assert y == (name in ILL)
            assert patient == PATIENT[name]


def test_cardiomegaly_with_anything_against_no_finding_alone(mixed: Path) -> None:
    assert all_names(read(mixed, balance=False)) == sorted(ILL + WELL)


@pytest.mark.parametrize(
    "findings", ["Cardiomegaly2", "No Cardiomegaly", "cardiomegaly", "Finding"]
)
def test_only_whole_findings_count(tmp_path: Path, findings: str) -> None:
    rows = [*listed(4, 4), ("00000020_000.png", findings, "20")]
    assert "00000020_000.png" not in all_names(read(nih(tmp_path, rows)))


def test_balance_leaves_out_films_of_the_more_frequent_class(tmp_path: Path) -> None:
    """As many of each, the same ones for a seed, others for another; either class may be larger."""
    for ill, well in ((6, 30), (30, 6)):
        folder = nih(tmp_path / f"{ill}", listed(ill, well))
        data = read(folder)
        assert sum(films.y.sum() for films in parts(data)) == 6
        assert len(all_names(data)) == 12
        assert all_names(data) == all_names(read(folder))
        assert all_names(data) != all_names(read(folder, seed=1))
        assert len(all_names(read(folder, balance=False))) == 36


def test_balance_draws_from_the_whole_table(tmp_path: Path) -> None:
    """Each of 30 negatives is drawn by 1 seed in 5; 40 seeds miss one of them with P = 0.004."""
    rows = listed(6, 30)
    folder = nih(tmp_path, rows)
    negative = {name for name, findings, _ in rows if findings == "No Finding"}
    listing = module._folder(folder)
    drawn = [
        set(listing.names[module._balanced(listing.y, None, seed)].tolist()) & negative
        for seed in range(40)
    ]
    assert all(len(names) == 6 for names in drawn)
    assert set().union(*drawn) == negative


def listing(rows: Sequence[tuple[int, int]], part: Sequence[int] | None = None) -> Any:
    """Films with a label and a patient each, not read yet."""
    return module._Listing(
        path=Path("films"),
        names=np.array([f"{i}.png" for i in range(len(rows))]),
        y=np.array([y for y, _ in rows], np.int64),
        patients=np.array([str(who) for _, who in rows]),
        part=None if part is None else np.array(part, np.int64),
        sources=[b""] * len(rows),
        boxes={},
        remarks=[],
    )


films_of_patients = st.lists(  # a label for each film of each patient
    st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=1, max_size=30
).map(lambda patients: [(y, who) for who, labels in enumerate(patients) for y in labels])
asked = st.one_of(st.integers(2, 10), st.floats(0.05, 0.4))


@settings(max_examples=400, deadline=None)
@given(rows=films_of_patients, validation=asked, test=asked, seed=st.integers(0, 5))
def test_no_patient_is_in_two_parts_and_every_film_in_one(
    rows: list[tuple[int, int]], validation: float, test: float, seed: int
) -> None:
    """Whatever the films are; or one sentence says why they cannot be split."""
    films = listing(rows)
    try:
        split, remarks = module._split(films, (validation, test), seed)
    except InputError as error:
        one_sentence(str(error))
        return
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(rows)))
    who = [set(films.patients[rows].tolist()) for rows in split]
    assert not who[0] & who[1]
    assert not who[0] & who[2]
    assert not who[1] & who[2]
    expected = []
    for number, name, wanted in ((2, "test", test), (1, "validation", validation)):
        count = wanted if isinstance(wanted, int) else max(2, round(wanted * len(rows)))
        here = len(split[number])
        assert here <= count
        if here < count:
            expected.append(f"{name} has {here} films where {count} were asked for")
    assert [remark.split(",")[0] for remark in remarks] == expected
    assert all(set(films.y[rows].tolist()) == {0, 1} for rows in split)


@settings(max_examples=15, deadline=None)
@given(rows=films_of_patients)
def test_no_patient_is_in_two_parts_of_a_folder(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    """The same, through the table and the files."""
    folder = tmp_path_factory.mktemp("films")
    finding = ("No Finding", "Cardiomegaly")
    nih(
        folder,
        [(f"{who:08d}_{i:03d}.png", finding[y], str(who)) for i, (y, who) in enumerate(rows)],
    )
    try:
        data = read(folder, balance=False, validation=0.2, test=0.2)
    except InputError as error:
        one_sentence(str(error))
        return
    who = [set(films.patients.tolist()) for films in parts(data)]
    assert not who[0] & who[1] | who[0] & who[2] | who[1] & who[2]
    assert len(all_names(data)) == len(rows)


@pytest.mark.parametrize(("validation", "test"), [(10, 20), (0.1, 0.2)])
def test_parts_have_the_size_that_was_asked_for(validation: float, test: float) -> None:
    """With a film a patient, exactly, and classes in proportion."""
    films = listing([(int(i % 4 == 0), i) for i in range(100)])
    split, remarks = module._split(films, (validation, test), 0)
    assert [len(rows) for rows in split] == [70, 10, 20]
    assert [films.y[rows].sum() for rows in split] == [18, 2, 5]  # 2.5 rounds to even
    assert remarks == []


def test_three_hundred_films_are_held_out_by_default() -> None:
    films = listing([(i % 2, i) for i in range(1000)])
    split, _ = module._split(films, (None, None), 0)
    assert [len(rows) for rows in split] == [400, 300, 300]
    assert [films.y[rows].sum() for rows in split] == [200, 150, 150]


def test_what_is_tested_does_not_depend_on_what_validates() -> None:
    films = listing([(i % 2, i) for i in range(100)])
    tested = [module._split(films, (n, 20), 3)[0][2].tolist() for n in (5, 40)]
    assert tested[0] == tested[1]
    assert module._split(films, (5, 20), 4)[0][2].tolist() != tested[0]


def test_held_out_films_are_drawn_evenly() -> None:
    """Each film of 60 is tested in 1/3 of 300 seeds, within 5 standard deviations."""
    films = listing([(i % 2, i) for i in range(60)])
    counts = np.zeros(60)
    for seed in range(300):
        counts[module._split(films, (4, 20), seed)[0][2]] += 1
    assert np.abs(counts - 100).max() < 5 * np.sqrt(300 * (1 / 3) * (2 / 3))


def test_a_part_that_whole_patients_do_not_fill_says_so(tmp_path: Path) -> None:
    folder = nih(tmp_path, listed(8, 8, films=2))  # two films each: no odd number is possible
    data = read(folder, validation=6, test=4)
    assert [len(films.y) for films in parts(data)] == [24, 4, 4]
    assert data.remarks == [
        "validation has 4 films where 6 were asked for, since films of a patient stay together."
    ]


@pytest.mark.parametrize("own", [False, True])
def test_held_out_films_of_the_files_own_parts(own: bool) -> None:
    part = [0] * 40 + [1] * 12 + [2] * 20 if own else [0] * 52 + [2] * 20
    films = listing([(i % 2, i) for i in range(72)], part)
    train, valid, test = (set(rows.tolist()) for rows in module._split(films, (8, None), 0)[0])
    assert test == set(range(52, 72))
    assert len(valid) == 8
    assert valid <= (set(range(40, 52)) if own else set(range(52)))
    assert train == (set(range(40)) if own else set(range(52)) - valid)
    train, valid, test = (set(rows.tolist()) for rows in module._split(films, (8, 6), 0)[0])
    assert len(test) == 6
    assert test < set(range(52, 72))  # the file's other test films are not trained on
    assert len(train) == (40 if own else 44)
    if own:
        split = module._split(films, (None, 0.5), 0)[0]
        assert [len(rows) for rows in split] == [40, 12, 10]


# ---------------------------------------------------------------------- the folder


@pytest.mark.parametrize("images", ["images_003/images", "images_003", "images"])
@pytest.mark.parametrize("csv", ["Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv"])
def test_films_and_table_are_found_in_all_usual_places(
    tmp_path: Path, mixed: Path, images: str, csv: str
) -> None:
    same(read(nih(tmp_path, MIXED, images=images, csv=csv)), read(mixed))
    same(read(str(tmp_path)), read(mixed))  # type: ignore[arg-type]


def test_films_may_be_spread_over_folders(tmp_path: Path, mixed: Path) -> None:
    nih(tmp_path, MIXED[:4], images="images_001/images")
    nih(tmp_path, MIXED[4:8], images="images_002")
    nih(tmp_path, MIXED[8:], images="images")
    (tmp_path / "Data_Entry_2017.csv").write_text(table(MIXED))
    same(read(tmp_path), read(mixed))


def test_of_two_tables_the_corrected_one_is_read(tmp_path: Path) -> None:
    nih(tmp_path, MIXED, csv="Data_Entry_2017_v2020.csv")
    (tmp_path / "Data_Entry_2017.csv").write_text("nothing")
    data = read(tmp_path)
    assert data.remarks == ["Data_Entry_2017_v2020.csv was read and Data_Entry_2017.csv was not."]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "\n\n",
        lambda text: text.replace(
            "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],", "a,b,c,d"
        ),
        lambda text: text.replace("Cardiomegaly|Emphysema", '"Cardiomegaly | Emphysema"'),
        lambda text: "\n".join(  # the columns in another order
            ",".join([*cells[3:], *cells[:3]])
            for cells in (line.split(",") for line in text.splitlines())
        ),
    ],
    ids=["mark", "windows", "blank lines", "other columns", "quoted", "reordered"],
)
def test_the_table_may_be_written_differently(
    tmp_path: Path, mixed: Path, change: Callable[[str], str]
) -> None:
    nih(tmp_path, MIXED)
    (tmp_path / "Data_Entry_2017.csv").write_bytes(change(table(MIXED)).encode())
    same(read(tmp_path, balance=False), read(mixed, balance=False))


def test_listed_films_that_are_missing_are_counted_in_one_remark(tmp_path: Path) -> None:
    rows = listed(6, 6, 3)
    nih(tmp_path, rows)
    gone = ["00000002_000.png", "00000009_000.png", "00000014_000.png"]  # the last is of neither
    for name in gone:
        (tmp_path / "images_001/images" / name).unlink()
    data = read(tmp_path, balance=False)
    assert data.remarks == [
        "2 of the 12 films that Data_Entry_2017.csv lists for these two classes are not in "
        f"{tmp_path}, such as 00000002_000.png."
    ]
    assert all_names(data) == [name for name, _, _ in rows[:12] if name not in gone]


def test_films_that_are_not_listed_are_passed_over(tmp_path: Path, mixed: Path) -> None:
    nih(tmp_path, [*MIXED, ("00000044_000.png", "Cardiomegaly", "44")])
    (tmp_path / "Data_Entry_2017.csv").write_text(table(MIXED))
    same(read(tmp_path), read(mixed))


def test_a_path_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        chest_xray(tmp_path / "nowhere")
    message(caught, tmp_path / "nowhere", "does not exist")


def test_a_folder_without_table_or_films_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        chest_xray(tmp_path)
    message(caught, tmp_path, "Data_Entry_2017.csv or Data_Entry_2017_v2020.csv", "holds neither")
    (tmp_path / "Data_Entry_2017.csv").write_text(table(MIXED))
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "00000001_000.jpg").touch()
    with pytest.raises(InputError) as caught:
        chest_xray(tmp_path)
    message(caught, tmp_path, "images_*/images, images_* or images", "no .png file")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no Image Index, Finding Labels, Patient ID among ;"),
        (table(MIXED).replace("Finding Labels", "Label"), "has no Finding Labels among Image"),
        (table(MIXED).replace("Patient ID", "patient"), "has no Patient ID among"),
        (table(MIXED) + "00000099_000.png,Cardiomegaly\n", "line 16 has 2;"),
        (table(MIXED) + "00000099_000.png,Cardiomegaly,0,,1\n", "line 16 says"),
        (table(MIXED) + "00000099_000.png,,0,7,1\n", "line 16 says"),
        (table(MIXED) + ",Effusion,0,7,1\n", "line 16 says '', 'Effusion' and '7'"),
        (table([*MIXED, MIXED[3]]), "lists 00000002_000.png again in line 16"),
        (table(MIXED).encode()[:90] + b"\xff\xfe" + b"x" * 9, "cannot be read ('utf-8' codec"),
        (table(MIXED) + "a" * 200_000 + ",b\n", "cannot be read (field larger than"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_a_table_that_is_not_nihs_is_refused(
    tmp_path: Path, content: str | bytes, says: str
) -> None:
    path = nih(tmp_path, MIXED) / "Data_Entry_2017.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    message(caught, path, says, ";")


@pytest.mark.parametrize(
    ("rows", "finding", "count"),
    [(listed(0, 5, 2), "Cardiomegaly", "0"), (listed(5, 0, 2), "No Finding", "0")],
)
def test_a_class_without_films_is_refused(
    tmp_path: Path, rows: list[Row], finding: str, count: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(nih(tmp_path, rows))
    message(caught, tmp_path / "Data_Entry_2017.csv", repr(finding), f"lists {count}, none of")


def test_a_class_whose_films_are_all_missing_is_refused(tmp_path: Path) -> None:
    nih(tmp_path, MIXED)
    for name in ILL:
        (tmp_path / "images_001/images" / name).unlink()
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    message(caught, "'Cardiomegaly'", "lists 5, none of which is there", tmp_path)


def test_fewer_patients_than_parts_are_refused(tmp_path: Path) -> None:
    rows = [
        (f"{who:08d}_{i:03d}.png", finding, str(who))
        for who in (1, 2)
        for i, finding in enumerate(["Cardiomegaly", "No Finding"] * 3)
    ]
    with pytest.raises(InputError) as caught:
        read(nih(tmp_path, rows))
    message(caught, tmp_path, "at least 3 patients", "holds 2;")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"test": 99}, "test asks for 99 films but 20 of the 20 films"),
        ({"test": 19}, "test asks for 19 films"),
        ({"validation": 17, "test": 2}, "validation asks for 17 films but 18 of the 20 films"),
        ({"validation": None}, "validation asks for 300 films"),
        ({"test": None}, "test asks for 300 films"),
    ],
)
def test_more_films_than_there_are_cannot_be_held_out(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    folder = nih(tmp_path, listed(10, 10))
    with pytest.raises(InputError) as caught:
        read(folder, **options)
    message(caught, folder, says, "ask for fewer")


def test_a_part_of_one_class_is_refused() -> None:
    """All films with cardiomegaly are of one patient."""
    films = listing([(1, 0)] * 5 + [(0, i) for i in range(1, 30)])
    with pytest.raises(InputError) as caught:
        module._split(films, (4, 4), 0)
    message(caught, "has none with cardiomegaly", "films of films", "patients stay together")


@pytest.mark.parametrize("name", ["validation", "test"])
@pytest.mark.parametrize("value", [0, 1, -3, 0.0, 1.0, 1.5, -0.1, True, "300", float("nan")])
def test_an_impossible_part_is_refused_by_value(tmp_path: Path, name: str, value: Any) -> None:
    """Before anything is looked for."""
    with pytest.raises(InputError, match=f"{name} must be a whole number of films") as caught:
        chest_xray(tmp_path / "nowhere", **{name: value})
    message(caught, f"but is {value!r}")


@pytest.mark.parametrize(
    ("name", "value"), [("size", 0), ("size", 64.0), ("size", True), ("seed", -1), ("seed", None)]
)
def test_an_impossible_size_or_seed_is_refused_by_value(
    tmp_path: Path, name: str, value: Any
) -> None:
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least") as caught:
        chest_xray(tmp_path / "nowhere", **{name: value})
    message(caught, f"but is {value!r}")


# ---------------------------------------------------------------------- pixels


def saved(image: Image.Image, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P"])
def test_films_in_colour_or_with_transparency_are_the_same_grey(mode: str) -> None:
    """NIH saved some films with four channels."""
    grey = Image.fromarray(pixels(5))
    if mode == "P":
        image = grey.copy()
        image.putpalette([value for i in range(256) for value in (i, i, i)])
        assert image.mode == "P"
        image.info["transparency"] = bytes(range(256))
    else:
        image = grey.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(pixels(6)))
    film = reading._film(saved(image), SIDE)
    assert film.dtype == np.uint8
    np.testing.assert_array_equal(film, pixels(5))


def test_black_and_white_films_are_black_and_white() -> None:
    values = pixels(3) > 127
    np.testing.assert_array_equal(
        reading._film(saved(Image.fromarray(values)), SIDE), np.where(values, 255, 0)
    )


def test_shrinking_averages_instead_of_picking() -> None:
    """A fine chessboard becomes an even grey; picking pixels would make it black or white."""
    board = (np.indices((1024, 1024)).sum(0) % 2 * 255).astype(np.uint8)
    film = reading._film(saved(Image.fromarray(board)), 128).astype(int)
    assert film.shape == (128, 128)
    assert np.abs(film - 127.5).max() <= 1


def test_shrinking_keeps_what_is_where_and_how_bright() -> None:
    values = np.zeros((1024, 1024), np.uint8)
    values[:512, 512:] = 200  # above, right
    film = reading._film(saved(Image.fromarray(values)), 64).astype(int)
    assert (film[:28, 36:] == 200).all()
    assert film[36:].max() == film[:, :28].max() == 0
    assert film.mean() == pytest.approx(values.mean(), abs=1)
    assert (reading._film(saved(Image.new("L", (1024, 1024), 77)), 100) == 77).all()


def test_a_size_that_is_not_the_films_own(mixed: Path) -> None:
    data = read(mixed, size=8, balance=False)
    for films in parts(data):
        assert films.x.shape[1:] == (1, 8, 8)
        for x, name in zip(films.x, films.names, strict=True):
            whole = np.asarray(
                Image.fromarray(pixels(number_of(name))).resize((8, 8), Image.Resampling.LANCZOS)
            )
            np.testing.assert_allclose(x[0], whole / 255, atol=1e-6)


WHOLE = saved(Image.fromarray(pixels(1)))


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.builds(lambda n: WHOLE[:n], st.integers(0, len(WHOLE))),
        st.builds(  # some bytes of a film changed
            lambda place, new: WHOLE[:place] + new + WHOLE[place + len(new) :],
            st.integers(0, len(WHOLE)),
            st.binary(min_size=1, max_size=8),
        ),
    )
)
def test_any_bytes_are_a_film_or_a_reason(content: bytes) -> None:
    film = reading._film(content, SIDE)
    if isinstance(film, str):
        one_sentence(f"It {film}.")
        assert "0x" not in film  # no address of an object
    else:
        assert film.shape == (SIDE, SIDE)
        assert film.dtype == np.uint8


def damaged(folder: Path, name: str, content: bytes) -> Path:
    path = folder / "images_001/images" / name
    path.write_bytes(content)
    return path


BROKEN = [
    (WHOLE[:-40], "cannot be read ("),
    (b"<html>not found</html>", "is no picture"),
    (b"", "is no picture"),
    (saved(Image.new("L", (20, 16))), "is 20 × 16 pixels, not square"),
    (saved(Image.new("I;16", (16, 16))), "has pixels of the kind 'I;16', not of 8 bits"),
]


@pytest.mark.parametrize(("content", "why"), BROKEN, ids=lambda value: str(value)[:12])
def test_a_film_that_cannot_be_used_is_skipped_and_named(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = damaged(nih(tmp_path, MIXED), "00000004_000.png", content)
    for _ in range(2):  # also when the others come from the cache
        with pytest.warns(DataWarning) as caught:
            data = read(tmp_path, balance=False)
        text = str(caught[0].message)
        one_sentence(text)
        assert len(caught) == 1
        assert f"1 of 12 were skipped, such as {path}, which {why}" in text
        (sentence,) = data.skipped
        one_sentence(sentence)
        assert sentence.startswith(f"{path} was skipped: it {why}")
        assert all_names(data) == sorted({*ILL, *WELL} - {path.name})
        for films in parts(data):
            for x, name in zip(films.x, films.names, strict=True):
                np.testing.assert_allclose(x[0], pixels(number_of(name)) / 255, atol=1e-6)


def test_all_skipped_films_are_listed(tmp_path: Path) -> None:
    folder = nih(tmp_path, listed(8, 8))
    names = ["00000002_000.png", "00000005_000.png", "00000012_000.png"]
    for name in names:
        damaged(folder, name, b"")
    with pytest.warns(DataWarning, match="3 of 16 were skipped"):
        data = read(folder)
    assert [Path(sentence.split(" was ")[0]).name for sentence in data.skipped] == names


def test_films_that_can_none_be_read_are_an_error(tmp_path: Path) -> None:
    nih(tmp_path, MIXED)
    for name, _, _ in MIXED:
        damaged(tmp_path, name, b"broken")
    with pytest.raises(InputError) as caught:
        read(tmp_path, balance=False)
    message(caught, tmp_path, "of 12 none can", "00000001_000.png is no picture")


def test_a_class_whose_films_can_none_be_read_is_an_error(tmp_path: Path) -> None:
    nih(tmp_path, MIXED)
    for name in ILL:
        damaged(tmp_path, name, b"broken")
    with (
        pytest.warns(DataWarning),
        pytest.raises(InputError, match="none with cardiomegaly") as caught,
    ):
        read(tmp_path, balance=False)
    message(caught, tmp_path)


@pytest.mark.parametrize("show", [True, False, "auto"])
def test_progress_is_shown_where_somebody_watches(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], show: Any
) -> None:
    read(mixed, balance=False, cache=tmp_path, progress=show)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("12/12 films" in shown.err) == (show is True)
    read(mixed, balance=False, cache=tmp_path, progress=show)
    assert capsys.readouterr().err == ""  # nothing was read


# ---------------------------------------------------------------------- the cache


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all films that are read from their files from now on."""
    names: list[str] = []
    real = reading._film

    def film(source: Path, size: int) -> Any:
        names.append(source.name)
        return real(source, size)

    monkeypatch.setattr(reading, "_film", film)
    return names


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_films_are_read_once(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    first = read(mixed, cache=tmp_path / "new" / "cache")
    assert len(reads) == 10
    (name,) = kept(tmp_path / "new" / "cache")
    assert name.endswith(".npz")
    again = read(mixed, cache=tmp_path / "new" / "cache")
    assert len(reads) == 10
    same(first, again)
    assert again.skipped == again.remarks == []


def test_the_cache_is_in_the_folder_by_default(tmp_path: Path, reads: list[str]) -> None:
    nih(tmp_path, MIXED)
    read(tmp_path)
    assert len([name for name in kept(tmp_path) if name.endswith(".npz")]) == 1
    reads.clear()
    read(tmp_path)
    assert reads == []


def test_how_films_are_split_is_not_cached(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    read(mixed, balance=False, cache=tmp_path)
    reads.clear()
    data = read(mixed, balance=False, validation=3, test=4, seed=1, cache=tmp_path)
    assert reads == []
    assert [len(films.y) for films in parts(data)][1:] == [3, 4]


@pytest.mark.parametrize("options", [{"size": 8}, {"balance": False}, {"seed": 3}])
def test_a_cache_of_other_films_or_sizes_is_not_used(
    mixed: Path, tmp_path: Path, reads: list[str], options: dict[str, Any]
) -> None:
    read(mixed, cache=tmp_path)
    reads.clear()
    data = read(mixed, cache=tmp_path, **options)
    assert len(reads) == (12 if "balance" in options else 10)
    same(data, read(mixed, cache=tmp_path / "empty", **options))
    reads.clear()
    read(mixed, cache=tmp_path)  # nor has it replaced the other one
    assert reads == []


@pytest.mark.parametrize("change", ["content", "time", "length"])
def test_films_that_changed_are_read_again(tmp_path: Path, reads: list[str], change: str) -> None:
    nih(tmp_path, MIXED)
    read(tmp_path, balance=False)
    reads.clear()
    path = tmp_path / "images_001/images/00000004_000.png"
    if change == "time":
        os.utime(path, ns=(1, 1))
    else:
        before = path.stat()
        Image.fromarray(pixels(200)).save(path)
        if change == "length":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            path.write_bytes(path.read_bytes() + b"more")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    data = read(tmp_path, balance=False)
    assert len(reads) == 12
    (x,) = (f.x[f.names == path.name][0] for f in parts(data) if path.name in f.names)
    assert round(float(x[0, 0, 0]) * 255) == (4 if change == "time" else 200)


def test_a_half_written_cache_is_not_used(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    first = read(mixed, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    for content in (
        whole[:middle],
        whole[:10],
        b"",
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:-30],
    ):
        file.write_bytes(content)
        reads.clear()
        same(read(mixed, cache=tmp_path), first)
        assert len(reads) == 10
        assert file.read_bytes() == whole  # and is replaced by a whole one


@pytest.mark.parametrize(
    "change",
    [
        {"key": np.array("0" * 64)},
        {"pixels": np.zeros((9, SIDE, SIDE), np.uint8)},
        {"pixels": np.zeros((10, SIDE, SIDE), np.float32)},
        {"read": np.ones(9, bool)},
        {"read": np.ones(10)},
        {"pixels": None},
    ],
    ids=str,
)
def test_a_cache_with_something_else_in_it_is_not_used(
    mixed: Path, tmp_path: Path, reads: list[str], change: dict[str, Any]
) -> None:
    first = read(mixed, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    arrays = {**np.load(file), **change}
    with open(file, "wb") as handle:
        np.savez(handle, **{name: values for name, values in arrays.items() if values is not None})
    reads.clear()
    same(read(mixed, cache=tmp_path), first)
    assert len(reads) == 10


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_writing_that_is_broken_off_leaves_nothing(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The films are there all the same where the disk is full."""

    def half(handle: Any, **arrays: Any) -> None:
        handle.write(b"PK half of it")
        raise error

    monkeypatch.setattr(np, "savez", half)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            read(mixed, cache=tmp_path)
    else:
        (remark,) = read(mixed, cache=tmp_path).remarks
        one_sentence(remark)
        assert f"could not be kept in {tmp_path} (No space left on device)" in remark
    assert kept(tmp_path) == []


def test_the_cache_appears_under_its_name_only_when_whole(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = np.savez, []

    def watched(handle: Any, **arrays: Any) -> None:
        real(handle, **arrays)
        seen.extend(kept(tmp_path))

    monkeypatch.setattr(np, "savez", watched)
    read(mixed, cache=tmp_path)
    assert len(seen) == 1
    assert not seen[0].endswith(".npz")
    assert kept(tmp_path) == [seen[0].split(".npz")[0] + ".npz"]


def test_what_could_not_be_read_is_tried_again(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was out of reach for a while; nothing else is read a second time."""
    real, names = reading._film, []

    def film(source: Path, size: int) -> Any:
        names.append(source.name)
        lost = source.name == "00000004_000.png" and len(names) <= 12
        return "cannot be read (Permission denied)" if lost else real(source, size)

    monkeypatch.setattr(reading, "_film", film)
    with pytest.warns(DataWarning, match="Permission denied"):
        read(mixed, balance=False, cache=tmp_path)
    data = read(mixed, balance=False, cache=tmp_path)
    assert names[12:] == ["00000004_000.png"]
    assert data.skipped == []
    read(mixed, balance=False, cache=tmp_path)
    assert len(names) == 13  # now it is kept too
    same(data, read(mixed, balance=False, cache=tmp_path / "empty"))


def test_a_cache_that_cannot_be_a_folder_is_refused_before_reading(
    mixed: Path, tmp_path: Path, reads: list[str]
) -> None:
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError) as caught:
            read(mixed, cache=cache)
        message(caught, cache, "cache=")
    assert reads == []


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
    found = module._own_parts(np.array(names))
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
    assert data.skipped == [f"7.png in {path} was skipped: it is no picture."]
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
        message(caught, path, ";")
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
        "import sys, unmasked.data; "
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
