"""Tables as they come: many categories, numbers as text, what cannot be read, and remarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import assert_one_sentence, loud, quick, rows
from typer.testing import CliRunner

from unmasked import RealX, encoding_test
from unmasked.checks import check_labels
from unmasked.cli import app
from unmasked.errors import DataWarning, InputError
from unmasked.inputs.remarks import copying, deciding, tell
from unmasked.inputs.table import Column, Columns, is_identifier
from unmasked.io.tables import check_parts

pytestmark = pytest.mark.usefixtures("one_thread")


def quietly(frame: pd.DataFrame) -> Columns:
    return loud(lambda: Columns.learn(frame))[0]


# ---------------------------------------------------------------------- many categories


def towns(different: int, times: int) -> list[str]:
    return [f"t{i:04d}" for i in range(different) for _ in range(times)]


def test_of_many_categories_the_most_frequent_stay_and_the_others_share_a_column() -> None:
    frame = pd.DataFrame({"town": [*towns(150, 3), *towns(150, 1)[:49:-1]]})  # the first 50: 3 ×
    columns, said = loud(lambda: Columns.learn(frame))
    (town,) = columns.columns
    assert town.categories == tuple(f"t{i:04d}" for i in range(50, 150))
    assert town.rare == tuple(f"t{i:04d}" for i in range(50))
    assert (town.width, columns.index) == (101, (0,) * 101)
    assert said == [
        "rare values share one column: 'town' has 150 values, of which the 100 most frequent stay "
        "apart and 50 are joined."
    ]
    matrix = columns.matrix(frame)
    np.testing.assert_array_equal(matrix.sum(1), 1)
    np.testing.assert_array_equal(matrix[:, 100] == 1, frame["town"].isin(town.rare))
    new = pd.DataFrame({"town": ["t0050", "t0010", "Ulm", None]})
    found, said = loud(lambda: columns.matrix(new))
    assert found.argmax(1)[:2].tolist() == [0, 100]
    assert not found[2:].any()  # neither is one of the known
    assert said[0].startswith("column 'town' holds 'Ulm', not seen in training")
    assert said[1].startswith("column 'town' has 1 missing values but had none in training")


def test_up_to_100_categories_nothing_changes() -> None:
    frame = pd.DataFrame({"town": towns(100, 1)})
    columns, said = loud(lambda: Columns.learn(frame))
    assert said == []
    assert columns.columns[0] == Column("town", categories=tuple(towns(100, 1)))
    np.testing.assert_array_equal(columns.matrix(frame), np.eye(100))


def test_who_is_an_identifier() -> None:
    random = np.random.default_rng(0)
    tails = np.bincount(random.choice(4037, 327_346, p=random.dirichlet(np.full(4037, 0.5))))
    assert not is_identifier(tails[tails > 0])
    assert not is_identifier([3147] * 104)
    assert is_identifier([1] * 9_900 + [5] * 20)  # tweets, some of them twice
    assert is_identifier([2] * 2_000)  # patients who come twice


def test_categories_of_pandas_stay_categories() -> None:
    dates = pd.Series(pd.date_range("2024-01-01", periods=30).astype(str)).astype("category")
    columns, said = loud(lambda: Columns.learn(dates.to_frame("when")))
    assert len(columns.columns[0].categories or ()) == 30
    assert said == []


# ---------------------------------------------------------------------- numbers as text

NUMBERS = np.random.default_rng(0).normal(size=120).round(2) * 2_000
WRITTEN: dict[str, Callable[[float], str]] = {
    "thousands": lambda x: f"{x:,.2f}",
    "German": lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,")),
    "Swiss francs": lambda x: f"CHF {x:,.2f}".replace(",", "'"),
    "dollars": lambda x: f"{'-' if x < 0 else ''}${abs(x):,.2f}",
    "spaces and euros": lambda x: f"{x:,.2f}".replace(",", " ").replace(".", ",") + " €",
    "per cent": lambda x: f"{x:.2f}%",
    "whole thousands": lambda x: f"{x:,.0f}",
    "plain": lambda x: f"{x:.2f}",
}


@pytest.mark.parametrize("style", WRITTEN)
def test_numbers_that_are_written_are_numbers(style: str) -> None:
    text = pd.DataFrame({"price": [WRITTEN[style](x) for x in NUMBERS]})
    numbers = pd.DataFrame({"price": NUMBERS.round(0) if style == "whole thousands" else NUMBERS})
    columns, said = loud(lambda: Columns.learn(text))
    np.testing.assert_allclose(columns.matrix(text), Columns.learn(numbers).matrix(numbers), 1e-5)
    assert len(said) == 1
    assert said[0].startswith("read as numbers: 'price' (")
    if style != "per cent":
        np.testing.assert_array_equal(columns.matrix(numbers), columns.matrix(text))
    assert Columns.from_config(json.loads(json.dumps(columns.to_config()))) == columns


@pytest.mark.parametrize("texts", [["1,234", "1.234"], ["1.234 €", "999 €"], ["1,234", "12345"]])
def test_thousands_and_decimals_are_never_guessed(texts: list[str]) -> None:
    columns, said = loud(lambda: Columns.learn(pd.DataFrame({"price": texts * 3})))
    assert columns.columns[0].categories == tuple(sorted(texts))
    assert "'price' is taken as text: it holds numbers whose thousands" in said[0]


@pytest.mark.parametrize(
    "texts", [["01", "02"], ["1", "2"], ["5%", "0.5"], ["$5", "€5"], ["1.2.3", "2.0.0"], ["5 kg"]]
)
def test_codes_and_mixtures_stay_text(texts: list[str]) -> None:
    columns = quietly(pd.DataFrame({"code": texts}))
    assert columns.columns[0].categories == tuple(sorted(texts))


def test_signs_of_missing_numbers_are_counted() -> None:
    frame = pd.DataFrame({"age": ["41", "?", "7", "?", "missing", "12"]})
    columns, said = loud(lambda: Columns.learn(frame))
    assert said == ["taken as missing: '?' in 2 rows of 'age'; 'missing' in 1 rows of 'age'."]
    matrix, said = loud(lambda: columns.matrix(frame))
    assert said == []  # what training told is not told again
    np.testing.assert_array_equal(matrix[:, 1], [0, 1, 0, 1, 1, 0])
    assert not matrix[[1, 3, 4], 0].any()
    mixed = pd.DataFrame({"age": pd.Series([41, "?", 7.0, "?", "missing", 12], dtype=object)})
    np.testing.assert_array_equal(loud(lambda: columns.matrix(mixed))[0], matrix)
    plain = Columns.learn(pd.DataFrame({"age": [41.0, np.nan, 7, 12]}))
    with pytest.warns(DataWarning, match=r"taken as missing: '\?' in 2 rows of 'age'"):
        plain.matrix(frame)


def test_truth_values_stay_categories() -> None:
    answers = pd.DataFrame({"a": ["yes", "no"], "b": [True, False], "c": ["True", "?"]})
    columns, said = loud(lambda: Columns.learn(answers))
    assert [column.categories for column in columns.columns] == [
        ("no", "yes"), ("False", "True"), ("?", "True"),
    ]  # fmt: skip
    assert said == []


def test_another_unit_is_refused() -> None:
    columns = quietly(pd.DataFrame({"rate": ["12%", "7.5%"]}))
    for new in (["12"], ["$12"], [0.12]):
        with pytest.raises(InputError, match=r"'rate' held (numbers|percentages) in training but"):
            columns.matrix(pd.DataFrame({"rate": new}))


def test_the_encoding_test_reads_numbers_as_text() -> None:
    x, y = rows(120)
    frame = pd.DataFrame({"a": [f"{v:,.2f}" for v in 1e4 * x[:, 0]], "b": x[:, 1]})
    masks = np.random.default_rng(0).random((120, 2)) < 0.5
    plain = frame.assign(a=(1e4 * x[:, 0]).round(2))
    assert encoding_test(frame, y, masks).nats == encoding_test(plain, y, masks).nats


# ---------------------------------------------------------------------- what cannot be read


def test_all_that_cannot_be_read_is_named_at_once() -> None:
    frame = pd.DataFrame(
        {
            "name": [f"n{i}" for i in range(150)],
            "age": np.arange(150.0),
            "tweet": [f"w {i}" for i in range(150)],
            "hole": [None] * 150,
            "far": [np.inf, *range(149)],
        }
    )
    with pytest.raises(InputError) as caught:
        Columns.learn(frame)
    assert str(caught.value) == (
        "4 columns cannot be read: 'name' holds 150 different texts in 150 rows, most of them once "
        "or twice, 'tweet' holds 150 different texts in 150 rows, most of them once or twice (drop "
        "it (--drop), or let it name the rows (--id)); 'hole' has no value in any training row "
        "(drop the column); 'far' has 1 infinite values (inf) (replace them by large numbers or "
        "drop these rows)."
    )
    many = pd.DataFrame({f"c{i}": [np.inf, 1.0] for i in range(30)})
    with pytest.raises(InputError, match=r"30 columns .*'c19' has 1 .*, likewise 'c20', .*'c29'"):
        Columns.learn(many)


def test_new_rows_name_all_columns_that_cannot_be_read() -> None:
    columns = Columns.learn(pd.DataFrame({"a": [1.0, 2], "b": [3.0, 5], "c": [1.0, 0]}))
    new = pd.DataFrame({"a": ["old"], "b": [1.0], "c": ["new"]})
    with pytest.raises(InputError, match=r"2 columns .*'a' held .*'old'.*, 'c' held .*'new'"):
        columns.matrix(new)


def test_a_word_among_the_test_rows_is_found_before_training() -> None:
    learned = pd.DataFrame({"age": ["1,200", "900"]})
    with pytest.raises(InputError, match=r"'age' held numbers .* holds text now \('old'\)"):
        check_parts(learned, learned, pd.DataFrame({"age": ["old"]}))
    check_parts(learned, learned)


# ---------------------------------------------------------------------- what is no class


def test_labels_at_their_borders() -> None:
    check_labels([*range(20)], "y")  # as many as rows, but few
    check_labels([*range(50)] * 20, "y")
    check_labels([f"c{i}" for i in range(1000)] * 2, "y")
    for values, words in (
        ([*range(51)] * 100, "51 different numbers and looks like a measurement"),
        ([*range(21)] * 2, "21 different numbers"),
        ([f"c{i}" for i in range(21)], "21 different values in 21 rows .* an identifier"),
        ([f"c{i}" for i in range(1001)] * 2, "1,001 classes, but at most 1,000"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            check_labels(values, "y")
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("kind", [int, float])
def test_house_prices_are_no_classes(kind: type) -> None:
    x, _ = rows(200)
    prices = (1000 * (100 + 30 * x[:, 0]).round(0)).astype(kind)
    with pytest.raises(InputError, match=r"y has .* looks like a measurement; .* into ranges"):
        quick().fit(x, prices)


def test_few_rows_are_said(tmp_path: Path) -> None:
    x, y = rows(20)
    pd.DataFrame(x, columns=list("abcd")).assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    done = call(
        "explain", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "out", "--epochs", 1
    )
    assert done.exit_code == 0, done.output
    assert "The table has 20 rows, of which 4 were tested" in " ".join(done.stdout.split())


# ---------------------------------------------------------------------- remarks

RANDOM = np.random.default_rng(0)
LABEL = RANDOM.integers(0, 2, 400)
NOISE = RANDOM.normal(size=400)


@pytest.mark.parametrize(
    ("values", "decides"),
    [
        (LABEL, True),
        (np.where(LABEL, "paid", "late"), True),
        (np.where(LABEL, "a", np.where(NOISE > 0, "b", "c")), True),
        (LABEL * 10 + NOISE, True),  # two intervals
        (np.where(LABEL, np.abs(NOISE), np.nan), True),  # where it is missing
        (pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(LABEL, "D")), True),
        (np.where(np.arange(400) == 7, 1 - LABEL, LABEL), False),  # all rows but one
        (np.arange(400), False),  # a value of its own in each row
        (NOISE[::-1], False),
        ([f"g{i}" for i in range(100)] * 4, False),
    ],
)
def test_a_column_that_decides_y_is_told(values: Any, decides: bool) -> None:
    frame = pd.DataFrame({"noise": NOISE, "c": values})
    columns = quietly(frame)
    matrix = columns.matrix(frame)
    assert deciding(columns, matrix, LABEL) == ([1] if decides else [])
    _, said = loud(lambda: tell(columns, matrix, LABEL))
    assert said == (
        ["column 'c' decides y by itself; is it an outcome in disguise? Drop it (--drop) if so."]
        if decides
        else []
    )


def test_of_few_rows_chance_decides_nothing() -> None:
    """Among 2,000 random truth values for 12 rows some always follow y."""
    random = np.random.default_rng(1)
    label = np.arange(12) % 2
    frame = pd.DataFrame(random.integers(0, 2, (12, 20_000))).loc[:, :]
    found = (frame.to_numpy() == label[:, None]).all(0).sum()
    assert found > 0
    columns = quietly(frame)
    assert deciding(columns, columns.matrix(frame), label) == []


def test_three_classes_and_a_rare_one() -> None:
    label = np.digitize(NOISE, [-1.5, 1.0])
    frame = pd.DataFrame({"a": NOISE, "b": RANDOM.normal(size=400)})
    columns = Columns.learn(frame)
    assert deciding(columns, columns.matrix(frame), label) == [0]


def test_columns_that_copy_each_other_are_told() -> None:
    grade = RANDOM.integers(0, 5, 400)
    frame = pd.DataFrame(
        {
            "celsius": NOISE,
            "sex": np.where(LABEL, "f", "m"),
            "grade": grade,
            "fahrenheit": 32 + 1.8 * NOISE,
            "woman": LABEL,
            "school": np.array(["none", "high", "some", "ba", "ma"])[grade],
            "other": RANDOM.normal(size=400),
            "near": NOISE + 0.01 * RANDOM.normal(size=400),
            "id": np.arange(400),
            "time": np.arange(400)[::-1] ** 2,
        }
    )
    columns = Columns.learn(frame)
    matrix = columns.matrix(frame)
    assert copying(columns, matrix) == [[0, 3], [1, 4], [2, 5]]
    _, said = loud(lambda: tell(columns, matrix, None))
    assert said == [
        "columns say the same in every training row: 'celsius' = 'fahrenheit'; 'sex' = 'woman'; "
        "'grade' = 'school'; an explanation may show either, so group them with groups= or drop "
        "all but one (--drop)."
    ]
    pairs = [["celsius", "fahrenheit"], ["sex", "woman"], ["grade", "school"]]
    grouped = Columns.learn(frame, pairs)
    assert loud(lambda: tell(grouped, matrix, None))[1] == []


def test_holes_at_other_places_are_no_copy() -> None:
    frame = pd.DataFrame({"a": NOISE, "b": NOISE, "c": NOISE, "d": NOISE})
    frame.loc[:9, ["a", "d"]] = np.nan
    frame.loc[5:14, "b"] = np.nan
    columns = Columns.learn(frame)
    assert copying(columns, columns.matrix(frame)) == [[0, 3]]


def test_an_explainer_remarks_once_and_a_model_may_rest_on_one_column() -> None:
    x, _ = rows(200)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 0]})
    _, said = loud(lambda: quick().fit(frame, x[:, 0] > 0))
    assert len(said) == 2
    assert "each of the columns 'a', 'c' decides y by itself" in said[0]
    assert "'a' = 'c'" in said[1]
    chance = np.stack([x[:, 0] > 0, x[:, 0] <= 0], 1).astype(float)
    _, said = loud(lambda: quick().fit(frame, chance))
    assert len(said) == 1


# ---------------------------------------------------------------------- the whole command


def patients(count: int = 700) -> pd.DataFrame:
    """A table as it comes: dates, 200 clinics, prices and rates as text, holes as signs."""
    random = np.random.default_rng(3)
    age = random.integers(18, 90, count)
    price = random.gamma(2, 1_000, count)
    clinic = np.where(
        random.random(count) < 0.6, random.integers(0, 30, count), np.arange(count) % 180
    )
    return pd.DataFrame(
        {
            "admitted": (
                pd.Timestamp("2022-01-01") + pd.to_timedelta(random.integers(0, 700, count), "D")
            ).strftime("%d %b %Y"),
            "clinic": [f"clinic {c}" for c in clinic],
            "price": [f"{p:,.2f}" for p in price],
            "rate": [f"{r:.1f}%" for r in 100 * random.random(count)],
            "age": np.where(random.random(count) < 0.1, "?", age.astype(str)),
            "outcome": np.where(
                age + price / 100 + 10 * random.normal(size=count) > 75, "ill", "ok"
            ),
        }
    )


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(part) for part in arguments])


def test_the_command_takes_a_table_as_it_comes(tmp_path: Path) -> None:
    frame = patients()
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "out"
    done = call(
        "explain", tmp_path / "t.csv", "--target", "outcome", "--out", out, "--epochs", 2,
        "--sparsity", "0.1", "--stability", 2,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(set(notes))
    for words in (
        "read as dates, each one feature: 'admitted' (elapsed time, year, month, weekday).",
        "read as numbers: 'price' ('",
        "taken as missing: '?' in ",
        "rare values share one column: 'clinic' has ",
    ):
        assert sum(words in note for note in notes) >= 1, words
    masks = pd.read_csv(out / "masks.csv", index_col="row")
    assert list(masks.columns) == ["admitted", "clinic", "price", "rate", "age"]
    loaded = RealX.load(out / "model", device="cpu")
    tested = frame.loc[masks.index].drop(columns="outcome")
    assert (loud(lambda: loaded.explain(tested))[0].masks == masks.to_numpy()).all()

    few = frame.loc[masks.index].head(4).assign(age="41", clinic="clinic 1")
    few.to_csv(tmp_path / "new.csv", index=False)
    done = call("explain", "--model", out, tmp_path / "new.csv", "--out", tmp_path / "new")
    assert done.exit_code == 0, done.output
    new = pd.read_csv(tmp_path / "new" / "masks.csv", index_col="row")
    same = loud(lambda: loaded.explain(few.drop(columns="outcome")))[0].masks
    assert (new.to_numpy() == same).all()
    few.drop(columns=["price", "rate"]).to_csv(tmp_path / "new.csv", index=False)
    done = call("explain", "--model", out, tmp_path / "new.csv", "--out", tmp_path / "none")
    assert done.exit_code == 2
    assert "lacks the 2 columns 'price', 'rate' that the model" in done.stderr


def test_the_command_names_all_that_it_cannot_read(tmp_path: Path) -> None:
    frame = patients(300).assign(
        name=[f"n{i}" for i in range(300)], words=[f"w {i}" for i in range(300)]
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = call("explain", tmp_path / "t.csv", "--target", "outcome", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "2 columns cannot be read: 'name' holds 300" in done.stderr
    assert "'words' holds 300" in done.stderr
    assert "drop it (--drop), or let it name the rows (--id)" in done.stderr


def test_the_command_audits_a_table_as_it_comes(tmp_path: Path) -> None:
    frame = patients(300)
    frame.to_csv(tmp_path / "t.csv", index=False)
    masks = np.random.default_rng(0).random((300, 5)) < 0.5
    np.save(tmp_path / "masks.npy", masks)
    done = call(
        "audit", tmp_path / "t.csv", "--target", "outcome", "--masks", tmp_path / "masks.npy",
        "--out", tmp_path / "out", "--learner", "boosting",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "note: read as dates" in done.stderr


def test_an_older_model_is_still_read() -> None:
    old = {
        "columns": [
            {"name": "age", "mean": 40.0, "scale": 2.0, "categories": None, "missing": True},
            {"name": "town", "mean": 0.0, "scale": 1.0, "categories": ["a", "b"]},
        ],
        "features": ["age", "town"],
        "feature_of": [0, 1],
    }
    columns = Columns.from_config(old)
    assert columns.columns == (
        Column("age", 40.0, 2.0, missing=True), Column("town", categories=("a", "b")),
    )  # fmt: skip
    assert columns.index == (0, 0, 1, 1)


@pytest.mark.skipif(
    not Path(__file__).parents[2].joinpath("shared/data/tables/adult.parquet").exists(),
    reason="the table is not here",
)
def test_adult_says_that_education_comes_twice() -> None:
    path = Path(__file__).parents[2] / "shared/data/tables/adult.parquet"
    frame = pd.read_parquet(path)
    columns = quietly(frame)
    matrix, _ = loud(lambda: columns.matrix(frame))
    names = [[columns.columns[i].name for i in same] for same in copying(columns, matrix)]
    assert any(len([n for n in same if "educ" in n]) == 2 for same in names)
