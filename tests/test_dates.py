"""Dates of every kind: one feature, read the same wherever they come from, never guessed."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import loud, quick, rows

from unmasked import PostHoc, RealX, encoding_test, stability
from unmasked.errors import DataWarning, InputError
from unmasked.inputs.dates import Dates, from_texts, orders
from unmasked.inputs.table import Columns

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT = 80
HOURS = np.random.default_rng(0).integers(0, 3 * 8760, COUNT)
WHEN = pd.Series(pd.Timestamp("2021-01-01") + pd.to_timedelta(HOURS, "h"))
X, Y = rows(COUNT)


def table(when: Any = WHEN) -> pd.DataFrame:
    return pd.DataFrame({"dose": X[:, 0], "when": when})


def learned(when: Any) -> tuple[Columns, np.ndarray[Any, Any]]:
    columns = loud(lambda: Columns.learn(table(when)))[0]
    return columns, columns.matrix(table(when))


KINDS: dict[str, Any] = {
    "seconds": WHEN.astype("datetime64[s]"),
    "nanoseconds": WHEN.astype("datetime64[ns]"),
    "datetime objects": pd.Series(list(WHEN.dt.to_pydatetime()), dtype=object),
    "ISO text": WHEN.astype(str),
    "ISO text with T": WHEN.map(lambda t: t.isoformat()),
    "named months": WHEN.dt.strftime("%d %B %Y %H:%M"),
    "American with a name": WHEN.dt.strftime("%b %d, %Y %I:%M %p"),
    "day first": WHEN.dt.strftime("%d/%m/%Y %H:%M"),
    "month first": WHEN.dt.strftime("%m/%d/%Y %I:%M %p"),
    "dots": WHEN.dt.strftime("%d.%m.%Y %H:%M"),
    "hours as periods": pd.Series(pd.PeriodIndex(WHEN, freq="h")),
    "category": WHEN.astype(str).astype(object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_dates_of_every_kind_are_the_same_numbers(kind: str) -> None:
    columns, matrix = learned(KINDS[kind])
    assert columns.features == ("dose", "when")
    assert columns.index == (0, *[1] * 8)  # elapsed, year, and three circles
    np.testing.assert_allclose(matrix, learned(WHEN)[1], atol=1e-6)


def test_the_parts_by_hand() -> None:
    when = pd.Series(pd.to_datetime(["2024-01-01 06:00", "2025-07-02 18:00"]))
    (column,) = loud(lambda: Columns.learn(when.to_frame("t")))[0].columns
    assert column.dates == Dates(("elapsed", "year", "month", "weekday", "hour"), 2024.5, 0.5)
    matrix = column.dates.matrix(pd.DatetimeIndex(when), column.mean, column.scale)
    angle = 2 * np.pi * np.array([0, 0, 6 / 24])  # January, Monday, six o'clock
    circles = np.sqrt(2) * np.stack([np.sin(angle), np.cos(angle)], 1).ravel()
    np.testing.assert_allclose(matrix[0], [-1, -1, *circles], atol=1e-12)
    np.testing.assert_allclose((matrix[:, 2:] ** 2).reshape(2, 3, 2).sum(2), 2)


def test_what_does_not_vary_is_no_part_and_one_day_is_constant() -> None:
    days = pd.Series(pd.date_range("2024-03-04", periods=3, freq="7D"))
    columns, said = loud(lambda: Columns.learn(days.to_frame("t")))
    assert columns.columns[0].dates == Dates(("elapsed",))
    assert said == ["read as dates, each one feature: 't' (elapsed time)."]
    _, said = loud(lambda: Columns.learn(pd.DataFrame({"t": days[[0, 0, 0]], "n": [1, 2, 3]})))
    assert "'t' is constant" in said[1]


def test_a_day_and_a_month_are_never_guessed() -> None:
    unclear = WHEN.dt.strftime("%m/%d/%Y").where(WHEN.dt.day <= 12, "01/02/2021")
    columns, said = loud(lambda: Columns.learn(table(unclear)))
    assert columns.columns[1].categories is not None
    assert said == [
        "column 'when' is taken as text: it holds dates whose day and month cannot be told apart; "
        "write them as 2024-12-31."
    ]
    assert orders(["13/02/2021", "02/13/2021"]) == []
    many = [f"{1 + i % 12:02d}/{1 + i // 12 % 12:02d}/{2000 + i // 144}" for i in range(400)]
    with pytest.raises(InputError, match=r"'t' holds dates whose day .* write them as 2024-12-31"):
        Columns.learn(pd.DataFrame({"t": many}))


@pytest.mark.parametrize("text", ["2024", "20240101", "12:30", "2024-02-30", "May", "5 days", ""])
def test_what_is_no_date_is_none(text: str) -> None:
    assert orders([text]) == []


def test_new_rows_are_read_by_the_order_that_was_learned() -> None:
    columns, _ = learned(KINDS["day first"])
    new = table("03/04/2022 12:00").head(1)
    expected = table(pd.Timestamp("2022-04-03 12:00")).head(1)
    np.testing.assert_array_equal(columns.matrix(new), columns.matrix(expected))
    assert loud(lambda: columns.matrix(new))[1] == []


def test_missing_dates_are_missing_values() -> None:
    gone = np.arange(COUNT) % 4 == 0
    text = WHEN.astype(str).where(~gone, "?")
    columns, said = loud(lambda: Columns.learn(table(text)))
    assert columns.columns[1].missing
    assert "taken as missing: '?' in 20 rows of 'when'." in said
    matrix, _ = loud(lambda: columns.matrix(table(text)))
    np.testing.assert_array_equal(matrix[:, -1], gone)
    assert not matrix[gone, 1:-1].any()
    expected, _ = learned(WHEN.where(~gone))
    assert columns == expected or columns.columns[1].mean == expected.columns[1].mean
    whole, _ = learned(WHEN)
    with pytest.warns(DataWarning, match="'when' has 80 missing values but had none in training"):
        whole.matrix(table(None))


def test_dates_that_training_never_saw_lie_beyond_it() -> None:
    columns, matrix = learned(WHEN)
    late = columns.matrix(table(pd.Timestamp("2031-06-01")).head(1))[0]
    early = columns.matrix(table("1970-06-01").head(1))[0]
    assert early[1] < matrix[:, 1].min() < matrix[:, 1].max() < late[1]
    assert np.abs(late[3:]).max() <= np.sqrt(2) + 1e-6
    assert np.isfinite(columns.matrix(table(datetime.date(9999, 12, 31)).head(1))).all()


def test_a_time_zone_is_one_clock() -> None:
    """The same instants in the zone of training, in another and as text: the same numbers."""
    berlin = WHEN.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    columns, matrix = learned(berlin)
    assert columns.columns[1].dates is not None
    assert columns.columns[1].dates.zone == "Europe/Berlin"
    for same in (berlin.dt.tz_convert("Asia/Tokyo"), berlin.astype(str)):
        np.testing.assert_array_equal(columns.matrix(table(same)), matrix)
    text, _ = learned(berlin.astype(str))  # summer and winter time: no one zone
    assert text.columns[1].dates is not None
    assert text.columns[1].dates.zone == "UTC"
    with pytest.raises(InputError, match="dates with a time zone in training but without one now"):
        columns.matrix(table(WHEN))
    _, unread = from_texts(["2024-01-01", "2024-01-01T00:00Z"], None)
    assert unread == ["2024-01-01"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("soon", "'when' held dates in training but holds 'soon' now; give the same kind"),
        (7.5, "'when' held dates in training but holds numbers now"),
    ],
)
def test_what_is_no_date_now_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        learned(WHEN)[0].matrix(table(value))
    with pytest.raises(InputError, match="'dose' held numbers in training but holds dates now"):
        learned(WHEN)[0].matrix(table().assign(dose=WHEN))


def test_an_explainer_of_dates_is_saved_asked_and_judged(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="read as dates"):
        explainer = quick(groups={"both": ["dose", "when"]}).fit(table(), Y)
    assert explainer.explain(table()).feature_names == ["both"]
    with pytest.warns(DataWarning, match="read as dates"):
        explainer = quick().fit(table(), Y)
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert loaded.columns_ == explainer.columns_
    text = table(WHEN.astype(str))
    for new in (table(), text):
        np.testing.assert_array_equal(loaded.explain(new).masks, explainer.explain(table()).masks)
        np.testing.assert_array_equal(loaded.familiarity(new), explainer.familiarity(table()))
    shown = explainer.explain(table()).masks
    assert (explainer.transform(table())["when"].isna() == ~shown[:, 1]).all()
    assert stability(explainer, table(), Y, seeds=2).masks.shape == (2, COUNT, 2)


@pytest.mark.parametrize("kind", ["seconds", "ISO text", "hours as periods"])
def test_others_take_dates_too(kind: str) -> None:
    frame = table(KINDS[kind])
    masks = np.random.default_rng(1).random((COUNT, 2)) < 0.5
    assert encoding_test(frame, Y, masks).verdict != "encodes"

    def model(asked: pd.DataFrame) -> Any:
        assert asked["when"].dtype == frame["when"].dtype
        return 1 / (1 + np.exp(-asked["dose"].to_numpy(dtype=float)))

    judge, _ = loud(lambda: PostHoc(model=model, progress=False).fit(frame))
    assert judge.predict_proba(frame, masks).shape == (COUNT, 2)
