"""Chest X-rays from a small folder of NIH's form: what is in the parts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_films import (
    ILL,
    MIXED,
    PATIENT,
    SIDE,
    WELL,
    Row,
    all_names,
    listed,
    message,
    module,
    nih,
    number_of,
    one_sentence,
    parts,
    pixels,
    read,
    same,
    table,
)

from unmasked.datasets import ChestXrays, chest_xray
from unmasked.datasets import films as lists
from unmasked.errors import InputError


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
    listing = lists.listed_in_folder(folder)
    drawn = [
        set(listing.names[module._balanced(listing.y, None, seed)].tolist()) & negative
        for seed in range(40)
    ]
    assert all(len(names) == 6 for names in drawn)
    assert set().union(*drawn) == negative


def listing(rows: Sequence[tuple[int, int]], part: Sequence[int] | None = None) -> Any:
    """Films with a label and a patient each, not read yet."""
    return lists.Listing(
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
        f"{tmp_path.name}, such as 00000002_000.png."
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
    ("rows", "finding"),
    [(listed(0, 5, 2), "Cardiomegaly"), (listed(5, 0, 2), "No Finding")],
)
def test_a_class_without_films_is_refused(tmp_path: Path, rows: list[Row], finding: str) -> None:
    with pytest.raises(InputError) as caught:
        read(nih(tmp_path, rows))
    text = message(caught, tmp_path / "Data_Entry_2017.csv", repr(finding), "lists no film with it")
    assert "unpack" not in text


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
        (
            {"test": None},
            "give more films or, in Python, ask for fewer with `chest_xray(…, test=)`",
        ),
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
