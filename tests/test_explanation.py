"""Explanation: what it holds, how it is cut, drawn, written down and read back."""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from unmasked import Explanation, InputError, OutputError, SavedError

mpl.use("Agg")

MASKS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=bool)
CHANCES = np.array([[0.9, 0.2, 0.1], [0.6, 0.6, 0.1], [0.3, 0.4, 0.4], [1.0, 1.0, 1.0]])
NAMES = ["âge", "dose (mg/kg)", "体重"]
INDEX = ["Zoë", "b", "c", "d"]


def example(**changes: Any) -> Explanation:
    values: dict[str, Any] = {
        "masks": MASKS,
        "probabilities": CHANCES,
        "feature_names": NAMES,
        "index": INDEX,
        "about": {"method": "REAL-X", "sparsity": 0.1},
    }
    return Explanation(**{**values, **changes})


def assert_equal(one: Explanation, other: Explanation) -> None:
    np.testing.assert_array_equal(one.masks, other.masks)
    np.testing.assert_array_equal(one.probabilities, other.probabilities)
    assert one.feature_names == other.feature_names
    assert one.index.tolist() == other.index.tolist()
    assert one.about == other.about


# ---------------------------------------------------------------------- what it holds


def test_sizes_and_fraction() -> None:
    assert example().sizes.tolist() == [1, 2, 0, 3]
    assert example().fraction == 0.5
    assert len(example()) == 4
    assert Explanation(np.zeros((0, 3))).fraction == 0


@pytest.mark.parametrize("kind", [bool, int, float, np.float32, object])
def test_masks_of_zeros_and_ones_of_any_type(kind: Any) -> None:
    explanation = Explanation(MASKS.astype(kind))
    assert explanation.masks.dtype == bool
    np.testing.assert_array_equal(explanation.masks, MASKS)


def test_without_probabilities_the_masks_stand_in() -> None:
    plain = Explanation(MASKS)
    np.testing.assert_array_equal(plain.probabilities, MASKS.astype(np.float32))
    assert plain.feature_names == ["x1", "x2", "x3"]
    assert plain.index.tolist() == [0, 1, 2, 3]
    assert plain.about == {}


def test_it_does_not_share_the_callers_masks_and_cannot_be_reassigned() -> None:
    masks = MASKS.copy()
    explanation = Explanation(masks)
    masks[:] = False
    assert explanation.fraction == 0.5
    with pytest.raises(AttributeError):
        explanation.masks = masks  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masks": MASKS * 0.3}, "only but hold 0.3; cut attributions"),
        ({"masks": MASKS * -1.0}, "only but hold -1.0"),
        ({"masks": np.where(MASKS, np.nan, 0)}, "only but hold nan"),
        ({"masks": np.full((4, 3), "shown")}, "only but hold 'shown'"),
        ({"masks": np.full((4, 3), None)}, "only but hold None"),
        ({"masks": MASKS[0]}, r"a table \(rows, features\) but came with shape \(3,\)"),
        ({"masks": MASKS[None]}, r"shape \(1, 4, 3\)"),
        ({"probabilities": CHANCES[:, :2]}, r"shape \(4, 3\) but have \(4, 2\)"),
        ({"probabilities": CHANCES[0]}, r"shape \(4, 3\) but have \(3,\)"),
        ({"feature_names": ["a"]}, "each of the 3 features but 1 came"),
        ({"index": range(5)}, "each of the 4 rows but 5 came"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        example(**changes)
    assert "\n" not in str(caught.value)


def test_repr_is_one_readable_line() -> None:
    assert repr(example()) == (
        "<Explanation of 4 rows × 3 features, 50% shown (0 to 3 a row) in 4 different sets; "
        "most often: âge 75%, dose (mg/kg) 50%, 体重 25%>"
    )
    assert repr(example()[:0]) == "<Explanation of 0 rows × 3 features>"
    many = Explanation(np.ones((1200, 400)))
    assert repr(many).startswith("<Explanation of 1,200 rows × 400 features, 100% shown")
    assert repr(many).endswith("every feature for every row: nothing was chosen>")
    assert len(repr(many)) < 160
    assert "different sets" not in repr(example()[:1])  # one row has one set, which says nothing


def test_one_choice_for_all_rows_is_called_so() -> None:
    same = "the same 2 of 3 features for every row (âge, dose (mg/kg)): a choice for all rows, not"
    assert same in repr(example(masks=np.tile(MASKS[1], (4, 1))))
    assert repr(example(masks=MASKS & False)).endswith("0% shown: nothing in any row>")
    wide = Explanation(np.tile(np.arange(500) < 400, (3, 1)))
    assert "x7, x8 and 392 more" in repr(wide)
    assert len(repr(wide)) < 200


def test_the_sets_of_features_are_counted() -> None:
    masks = MASKS[[0, 1, 3, 1, 0, 1]]
    sets = Explanation(masks, feature_names=NAMES).feature_sets()
    assert sets["features"].tolist() == [tuple(NAMES[:2]), tuple(NAMES[:1]), tuple(NAMES)]
    assert sets["size"].tolist() == [2, 1, 3]
    assert sets["rows"].tolist() == [3, 2, 1]
    assert sets["share"].tolist() == [3 / 6, 2 / 6, 1 / 6]
    assert len(Explanation(np.zeros((0, 3))).feature_sets()) == 0
    assert Explanation(np.zeros((5, 0))).feature_sets()["rows"].tolist() == [5]


@pytest.mark.parametrize("features", [1, 8, 9, 63, 64, 65, 200])
def test_sets_of_any_width_are_those_that_a_dictionary_finds(features: int) -> None:
    random = np.random.default_rng(features)
    kinds = random.random((7, features)) < 0.5
    masks = kinds[random.integers(0, 7, 300)]
    masks[0, -1] = ~masks[0, -1]
    counts = Counter(tuple(row) for row in masks.tolist())
    sets = Explanation(masks).feature_sets()
    assert sorted(sets["rows"], reverse=True) == sets["rows"].tolist()
    names = Explanation(masks).feature_names
    found = [tuple(name in shown for name in names) for shown in sets["features"]]
    assert dict(zip(found, sets["rows"], strict=True)) == counts


# ---------------------------------------------------------------------- values

TABLE = pd.DataFrame(
    {
        "体重": [71.5, np.nan, 80.0, 66.25],
        "âge": [51, 30, 44, 72],
        "town": ["Ulm", "Graz", "Łódź", "Ulm"],
        "dose (mg/kg)": pd.to_datetime(["2024-12-31", "2025-01-01", "2025-01-02", "2025-01-03"]),
    },
    index=INDEX,
)


def test_a_row_says_what_it_shows_with_its_values() -> None:
    assert example().shown(1) == ["âge", "dose (mg/kg)"]  # no values are known
    known = example().with_values(TABLE)
    assert known.shown(0) == ["âge = 51"]
    assert known.shown(-1) == ["âge = 72", "dose (mg/kg) = 2025-01-03", "体重 = 66.25"]
    assert known.shown(2) == []
    chances = example(probabilities=CHANCES[:, ::-1].copy()).with_values(TABLE)
    assert chances.shown(1) == ["dose (mg/kg) = 2025-01-01", "âge = 30"]  # most probable first
    turned = example().with_values(TABLE.iloc[::-1])  # by label and name, not by position
    assert turned.shown(0) == ["âge = 51"]
    with pytest.raises(InputError, match="between 0 and 3 but is 4"):
        known.shown(4)


def test_values_follow_their_rows() -> None:
    known = example().with_values(TABLE)
    for some in (known[1:], known[[1, 2, 3]], known[np.array([False, True, True, True])]):
        assert some.shown(0) == ["âge = 30", "dose (mg/kg) = 2025-01-01"]
        assert some.top(3).shown(0)[-1] == "体重 = missing"
    arrays = Explanation(MASKS).with_values(np.arange(12).reshape(4, 3) / 3)
    assert arrays.shown(3) == ["x1 = 3", "x2 = 3.33333", "x3 = 3.66667"]


def test_values_stay_as_they_were_explained() -> None:
    table = TABLE.copy()
    known = example().with_values(table)
    table.loc["Zoë", "âge"] = -1
    table["âge"] = 0
    assert known.shown(0) == ["âge = 51"]


@pytest.mark.parametrize("wrong", [TABLE.iloc[:2], TABLE[["âge"]], np.zeros((4, 2)), np.zeros(3)])
def test_values_of_other_rows_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"explained rows|3 features"):
        example().with_values(wrong)


def test_several_columns_of_one_feature_are_named() -> None:
    from unmasked.explanation.features import FeatureValues

    table = pd.DataFrame({"low": [80.5], "sex": ["f"], "high": [120]})
    grouped = Explanation(
        [[True, True]], feature_names=["pressure", "sex"], values=FeatureValues.of(table, (0, 1, 0))
    )
    assert grouped.shown(0) == ["pressure = low 80.5, high 120", "sex = f"]
    wide = FeatureValues.of(pd.DataFrame(np.arange(9.0)[None]), (0,) * 9)
    assert Explanation([[True]], values=wide).shown(0)[0].endswith("5 5, and 3 more")
    with pytest.raises(InputError, match="2 features but are of 1 rows and 1 features"):
        Explanation([[True, True]], values=wide)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2100, 51], ["2100", "51"]),
        ([2100.0, np.nan], ["2100", "missing"]),
        ([0.1, 1234567.891, 1e-7, 1e20, -0.5, 2.0**60], None),
        (np.array([0.1, 2.5], dtype=np.float32), ["0.1", "2.5"]),
        (["01", None, "a; b"], ["01", "missing", "a; b"]),
        ([True, False], ["True", "False"]),
        (pd.array([3, None], dtype="Int64"), ["3", "missing"]),
        (pd.Categorical(["high", None]), ["high", "missing"]),
        (pd.period_range("2024-01", periods=2, freq="M"), ["2024-01", "2024-02"]),
        (pd.DatetimeIndex(["2024-01-01", None]), ["2024-01-01", "missing"]),
        (pd.date_range("2024-01-01", periods=1, tz="UTC"), ["2024-01-01 00:00:00+00:00"]),
    ],
)
def test_values_are_written_as_their_user_writes_them(values: Any, expected: Any) -> None:
    from unmasked.explanation.features import value_texts

    series = pd.Series(values)
    exact = value_texts(series, exact=True)
    if expected is None:
        assert [float(text) for text in exact] == series.tolist()  # nothing is lost
        short = ["0.1", "1234567.89", "1e-07", "1e+20", "-0.5", "1.15292e+18"]
        assert value_texts(series) == short
    else:
        assert value_texts(series) == exact == expected


def test_the_file_holds_no_values(tmp_path: Path) -> None:
    example().with_values(TABLE).save(tmp_path / "some.npz")
    with np.load(tmp_path / "some.npz", allow_pickle=False) as file:
        assert set(file.files) == {"header", "masks", "probabilities", "feature_names", "index"}
    loaded = Explanation.load(tmp_path / "some.npz")
    assert loaded.values is None
    assert loaded.with_values(TABLE).shown(0) == ["âge = 51"]


# ---------------------------------------------------------------------- cutting


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_top_shows_exactly_k_with_ties(k: int) -> None:
    top = example().top(k)
    assert top.sizes.tolist() == [k] * 4
    lowest = np.where(top.masks, top.probabilities, np.inf).min(1)
    highest = np.where(top.masks, -np.inf, top.probabilities).max(1)
    assert (lowest >= highest).all()  # nothing hidden is more probable than what is shown
    assert top.about["top"] == k
    assert example().about == {"method": "REAL-X", "sparsity": 0.1}


def test_top_breaks_ties_by_the_earlier_feature() -> None:
    assert example().top(1).masks.argmax(1).tolist() == [0, 0, 1, 0]
    # Few levels over many features, where an unstable sort would scramble.
    chances = np.random.default_rng(0).choice([0.2, 0.5, 0.8], (5, 300)).astype(np.float32)
    many = Explanation(np.zeros((5, 300)), chances).top(150)
    for row, mask in zip(chances, many.masks, strict=True):
        expected = sorted(range(300), key=lambda i, row=row: (-row[i], i))[:150]
        assert np.flatnonzero(mask).tolist() == sorted(expected)


@pytest.mark.parametrize("k", [4, -1, 1.5, "2", None])
def test_top_of_what_is_not_there(k: Any) -> None:
    with pytest.raises(InputError, match=f"0 to the 3 features but is {k!r}"):
        example().top(k)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), ["b", "c"]),
        (slice(None, None, -1), ["d", "c", "b", "Zoë"]),
        ([3, 0], ["d", "Zoë"]),
        (np.array([True, False, False, True]), ["Zoë", "d"]),
        (-1, ["d"]),
        ([], []),
    ],
)
def test_slicing_keeps_rows_together(rows: Any, expected: list[str]) -> None:
    some = example()[rows]
    assert some.index.tolist() == expected
    where = [INDEX.index(label) for label in expected]
    np.testing.assert_array_equal(some.masks, MASKS[where])
    np.testing.assert_array_equal(some.probabilities, CHANCES[where].astype(np.float32))
    assert (some.feature_names, some.about) == (NAMES, example().about)


def test_to_frame() -> None:
    expected = pd.DataFrame(MASKS, columns=NAMES, index=INDEX)
    pd.testing.assert_frame_equal(example().to_frame(), expected)
    chances = example().to_frame("probabilities")
    np.testing.assert_array_equal(chances.to_numpy(), CHANCES.astype(np.float32))
    assert chances.loc["Zoë", "âge"] == np.float32(0.9)
    with pytest.raises(InputError, match="but is 'mask'"):
        example().to_frame("mask")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- drawing


@pytest.fixture
def ax() -> Any:
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_a_row_is_drawn_on_the_given_axes(ax: Any) -> None:
    assert example().plot(1, ax=ax) is ax
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.6, 0.6, 0.1])
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES
    assert ax.get_title() == "row b"
    shown, hidden = ax.patches[0].get_facecolor(), ax.patches[2].get_facecolor()
    assert shown != hidden


def test_a_row_is_drawn_with_its_values(ax: Any) -> None:
    town = TABLE.rename(columns={"体重": "-", "town": "体重"}).assign(**{"体重": "x" * 50})
    example().with_values(town).plot(0, ax=ax)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["âge = 51", "dose (mg/kg) = 2024-12-31", f"体重 = {'x' * 27}…"]
    ax.figure.canvas.draw()


def test_all_rows_are_drawn_on_the_given_axes(ax: Any) -> None:
    assert example().plot(ax=ax) is ax
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), MASKS)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert [label.split()[-1] for label in labels] == ["75%", "50%", "25%"]


def test_the_most_often_shown_are_drawn_first_and_no_more_than_asked(ax: Any) -> None:
    flipped = Explanation(MASKS[:, ::-1], feature_names=NAMES[::-1])
    flipped.plot(ax=ax, most=2)
    np.testing.assert_array_equal(ax.images[0].get_array(), MASKS[:, :2])
    assert ax.get_xticklabels()[0].get_text().startswith("âge")


def test_drawing_leaves_no_pyplot_state() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for row in (None, 0, -1):
        drawn = example().plot(row)
        drawn.figure.canvas.draw()  # it can really be rendered
    assert plt.get_fignums() == before


@pytest.mark.parametrize("row", [4, -5])
def test_a_row_that_is_not_there(row: int) -> None:
    with pytest.raises(InputError, match=f"between 0 and 3 but is {row}"):
        example().plot(row)


# ---------------------------------------------------------------------- on disk


@pytest.mark.parametrize(
    "index",
    [
        INDEX,
        [10, 20, 30, 40],
        np.array(INDEX, dtype=object),
        pd.Index(INDEX),
        pd.date_range("2026-01-01", periods=4),
    ],
)
def test_saving_and_loading(index: Any, tmp_path: Path) -> None:
    explanation = example(index=index)
    explanation.save(tmp_path / "some.npz")
    assert_equal(Explanation.load(tmp_path / "some.npz"), explanation)


def test_the_file_has_the_given_name_and_replaces_an_older_one(tmp_path: Path) -> None:
    example().save(tmp_path / "without ending")
    example()[:2].save(str(tmp_path / "without ending"))
    assert [p.name for p in tmp_path.iterdir()] == ["without ending"]
    assert_equal(Explanation.load(tmp_path / "without ending"), example()[:2])


def test_numpy_alone_can_read_the_file(tmp_path: Path) -> None:
    example().save(tmp_path / "some.npz")
    with np.load(tmp_path / "some.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["masks"], MASKS)
        assert file["feature_names"].tolist() == NAMES


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written to .*nowhere.*; choose another"):
        example().save(tmp_path / "nowhere" / "some.npz")


def foreign_archive(file: Path, **arrays: Any) -> None:
    with open(file, "wb") as opened:
        np.savez(opened, **arrays)


def other_version(file: Path) -> None:
    with np.load(file) as old:
        arrays = dict(old)
    arrays["header"] = np.array(str(arrays["header"]).replace('"version": 1', '"version": 9'))
    foreign_archive(file, **arrays)


def single_array(file: Path) -> None:
    with open(file, "wb") as opened:
        np.save(opened, MASKS)


BAD_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda f: f.write_bytes(b""), "damaged or was not written"),
    "text": (lambda f: f.write_text("row,shown\n1,age\n"), "damaged or was not written"),
    "pickle": (lambda f: f.write_bytes(pickle.dumps({"masks": 1})), "damaged or was not written"),
    "npy": (single_array, "damaged or was not written"),
    "other npz": (lambda f: foreign_archive(f, a=MASKS), "damaged or was not written"),
    "other header": (
        lambda f: foreign_archive(
            f, header=np.array("[]"), masks=1, probabilities=1, feature_names=1, index=1
        ),
        "format None",
    ),
    "zip": (lambda f: zipfile.ZipFile(f, "w").close(), "damaged or was not written"),
    "truncated": (lambda f: f.write_bytes(f.read_bytes()[:-30]), "damaged or was not written"),
    "other version": (other_version, "version 9 but this program reads .* version 1"),
    "missing": (lambda f: f.unlink(), "is not there"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_damaged_and_foreign_files_are_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    example().save(file)
    make, words = BAD_FILES[kind]
    make(file)
    with pytest.raises(SavedError, match=words) as caught:
        Explanation.load(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_flipped_byte_loads_something_else(tmp_path: Path) -> None:
    file = tmp_path / "some.npz"
    example().save(file)
    content = file.read_bytes()
    refused = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        file.write_bytes(bytes(damaged))
        try:
            assert_equal(Explanation.load(file), example())  # a date in the archive, say
        except SavedError:
            refused += 1
    assert refused > len(content) / 2
