"""An audit of rows that have times: periods as folds, and rows from a date on."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_audits import FEATURES, QUICK, code, honest, table
from small_tables import assert_one_sentence
from typer.testing import CliRunner

from unmasked import InputError, audit
from unmasked.auditing.evaluators import folds_of, learn_and_stop
from unmasked.cli import app

pytestmark = pytest.mark.usefixtures("one_thread")
X, Y = table()
DAY = np.random.default_rng(5).permutation(400) // 2  # two rows a day, in no order
DATE = (pd.Timestamp("2024-01-01") + pd.to_timedelta(DAY, "D")).strftime("%Y-%m-%d")
LATER = DAY >= 60  # from 1 March 2024 on: 280 rows


def plain(result: Any) -> str:
    values = result.to_json()
    del values["seconds"], values["assumptions"]
    for one in values["explanations"]:
        del one["matched"]
    return json.dumps(values, sort_keys=True)


# ---------------------------------------------------------------------- folds


def test_folds_are_periods_and_the_latest_of_the_others_are_to_stop_on():
    label = np.random.default_rng(0).integers(2, size=400)
    folds = folds_of(label, None, 3, 1_000, 0, DAY)
    assert sorted(np.concatenate([fold.judge for fold in folds])) == list(range(400))
    for earlier, fold in pairwise(folds):
        assert DAY[earlier.judge].max() < DAY[fold.judge].min()
    for fold in folds:
        parts = [set(DAY[part]) for part in (fold.learn, fold.stop, fold.judge)]
        assert not parts[0] & parts[1]
        assert not (parts[0] | parts[1]) & parts[2]
        assert DAY[fold.learn].max() < DAY[fold.stop].min()
        low, high = DAY[fold.judge].min(), DAY[fold.judge].max()
        others = np.concatenate([DAY[fold.learn], DAY[fold.stop]])
        assert not ((others >= low) & (others <= high)).any()


def test_of_too_many_rows_a_sample_learns_in_the_order_of_time_too():
    learn, stop = learn_and_stop(np.arange(400) % 2, None, np.arange(400), 100, 0, DAY)
    assert len(learn) + len(stop) == 100
    assert DAY[learn].max() < DAY[stop].min()


# ---------------------------------------------------------------------- the audit


@pytest.fixture(scope="module")
def found():
    return audit({"honest": honest(), "code": code(Y)}, X, Y, times=DATE, settings=QUICK)


def test_verdicts_stand_where_rows_have_times(found):
    assert found["code"].verdict == "encodes"
    assert found["honest"].verdict != "encodes"
    assert found["honest"].metrics["over_random_eloglik"].low > 0
    told = " ".join(found.assumptions)
    assert "a fold is a period" in told
    # 400^(1/3) is 7.4: stretches of 8 rows, in 8 seasons of 50
    assert "48 stretches of neighbouring rows" in told
    assert "longer than 8 rows" in told
    assert "assumed: rows of different stretches" in found.report().lower()


def test_only_the_order_of_times_counts(found):
    again = audit({"honest": honest(), "code": code(Y)}, X, Y, times=DAY * 10.5, settings=QUICK)
    assert plain(again) == plain(found)


def test_neighbours_in_time_are_resampled_together():
    """Eight copies of each row, at its time: the intervals are those of an eighth of the rows."""
    few = np.repeat(np.arange(60), 8)
    rows, label = X.iloc[few].reset_index(drop=True), Y[few]
    result = audit({"it": honest()[few]}, rows, label, times=few, settings=QUICK)
    alone = audit({"it": honest()[few]}, rows, label, settings=QUICK)
    widths = []
    for one in (result, alone):
        shown = one["it"].metrics["fraction"]  # the same masks: nothing but the resampling differs
        widths.append(shown.high - shown.low)
    # √8 = 2.8 at 60 stretches of 8; a width of 100 draws varies by a fifth
    assert widths[0] / widths[1] > 1.6


def test_rows_of_a_date_and_later_are_audited_and_the_earlier_learned_from():
    masks = pd.DataFrame(honest(), columns=FEATURES, index=X.index)
    whole = audit(masks, X, Y, times=DATE, since="2024-03-01", settings=QUICK)
    assert list(whole.table.ids) == list(X.index[LATER])
    told = " ".join(whole.assumptions)
    assert "280 of the table's 400 rows have masks and are of 2024-03-01 or later" in told
    assert "the evaluators learned from the other 120" in told
    assert "evaluators learned from 120 rows of their own" in told
    # masks of the later rows alone say the same, with labels or without, and so do more of them
    half = DAY >= 30
    for given in (masks[LATER], honest()[LATER], honest(), masks[half]):
        again = audit({"explanation 1": given}, X, Y, times=DAY, since=60, settings=QUICK)
        assert plain(again) == plain(whole)


def test_earlier_rows_can_be_left_out():
    left = audit(honest(), X, Y, times=DAY, since=60, rest="drop", settings=QUICK)
    told = " ".join(left.assumptions)
    assert "never saw the other 120" in told
    assert "cross-fitted among the audited rows" in told
    only = audit(honest()[LATER], X[LATER], Y[LATER], times=DAY[LATER], settings=QUICK)
    assert plain(left) == plain(only)
    given = audit(honest(), X, Y, times=DAY, since=60, train=(X[~LATER], Y[~LATER]), settings=QUICK)
    assert "never saw the other 120" in " ".join(given.assumptions)
    assert "learned from 120 rows of their own" in " ".join(given.assumptions)


def test_other_times_are_another_audit(tmp_path):
    for times in (DAY, DAY[::-1], DAY):
        audit(honest(), X, Y, times=times, settings=QUICK, checkpoint=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": np.arange(400)}, "both came; give one"),
        ({"times": DAY[:399]}, "times must have one value for each of the 400 rows"),
        ({"times": [*DATE[:399], "soon"]}, "must hold numbers or dates but holds 'soon'"),
        ({"times": [*DATE[:399], None]}, "times must not have missing values"),
        ({"times": np.arange(400) % 2}, "at least 3 different times"),
        ({"times": np.where(Y == "ill", np.arange(400), 1_000)}, "outside of each .* two classes"),
        ({"since": "soon"}, "must be a number, as the times are, but is 'soon'"),
        ({"times": DATE, "since": "soon"}, "must be a date such as 2024-12-31"),
        ({"times": None, "since": 60}, "no times came"),
        ({"since": 999}, "no row is of 999 or later"),
        ({"since": 3}, "the rows that are left to them are 6"),
        ({"since": 60, "masks": honest()[:200]}, "200 rows but the table has 280"),
        (
            {"since": 60, "masks": pd.DataFrame(honest(), index=X.index).iloc[:300]},
            "of the 280 rows to audit",
        ),
    ],
)
def test_times_that_cannot_be_used_get_one_sentence(change, words):
    given = {"times": DAY, "masks": honest(), **change}
    with pytest.raises(InputError, match=words) as caught:
        audit({"it": given.pop("masks")}, X, Y, settings=QUICK, **given)
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("times")
    rows = X.assign(visit=DATE, ward=np.arange(400) % 50, outcome=Y)
    rows["mood"] = np.where(np.arange(400) == 7, "bad", "2024-01-01")
    rows["hole"] = [None, *DATE[1:]]
    rows.to_csv(folder / "patients.csv")
    masks = pd.DataFrame(code(Y), columns=FEATURES, index=X.index)
    masks.to_csv(folder / "code.csv")
    return folder


def run(files: Path, out: Path, *more: str) -> Any:
    call = [
        "audit", files / "patients.csv", "--target", "outcome", "--masks", files / "code.csv",
        "--drop", "mood", "--drop", "hole", "--drop", "ward", "--out", out,
        "--learner", "boosting", "--folds", "2", "--quiet", *more,
    ]  # fmt: skip
    return CliRunner().invoke(app, [str(part) for part in call])


def test_the_command_splits_by_time(files, tmp_path):
    out = tmp_path / "out"
    done = run(files, out, "--id", "patient", "--time", "visit", "--since", "2024-03-01")
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    assert results["audited_rows"] == 280
    assert results["features"] == FEATURES  # the time is none
    assert results["roles"]["time"] == "visit"
    assert results["explanations"][0]["verdict"] == "encodes"
    assert "or later" in (out / "summary.md").read_text()


REFUSED = {
    "no such column": (["--time", "visits"], "--time names the column 'visits'.*'visit'"),
    "the target": (["--time", "outcome"], "is the target"),
    "no dates": (["--time", "mood"], "must hold numbers or dates but holds 'bad'"),
    "holes": (["--time", "hole"], "missing in 1 rows"),
    "a group too": (["--time", "visit", "--group", "ward"], "both came; give one"),
    "no time": (["--since", "2024-03-01"], "give --time too"),
    "no date": (["--time", "visit", "--since", "soon"], "must be a date such as"),
    "after the end": (["--time", "visit", "--since", "2030-01-01"], "no row is of 2030-01-01"),
    "ids that repeat": (["--id", "ward"], "comes more than once; ids must differ"),
    "nothing left": ([part for name in FEATURES for part in ("--drop", name)], "other columns"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_columns_that_cannot_be_used_are_one_sentence_and_nothing_is_written(kind, files, tmp_path):
    options, words = REFUSED[kind]
    if kind == "nothing left":
        options = [*options, "--drop", "visit"]
    own = [] if "--id" in options else ["--id", "patient"]
    done = run(files, tmp_path / "out", *own, *options)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert pd.Series([done.stderr]).str.contains(words).all(), done.stderr
    assert not (tmp_path / "out").exists()


def test_rows_that_explain_counted_match_with_an_id_that_the_table_lacks(files, tmp_path):
    masks = pd.DataFrame(code(Y), columns=FEATURES).rename_axis("row").sample(frac=1)
    masks.to_csv(tmp_path / "counted.csv")
    rows = pd.read_csv(files / "patients.csv")[[*FEATURES, "outcome"]]
    rows.to_csv(tmp_path / "patients.csv", index=False)
    call = [
        "audit", tmp_path / "patients.csv", "--target", "outcome", "--id", "row", "--masks",
        tmp_path / "counted.csv", "--learner", "boosting", "--folds", "2", "--quiet",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [str(part) for part in call])
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "patients-audited" / "results.json").read_text())
    assert results["explanations"][0]["matched"] == "rows by label, columns by name"
    assert results["explanations"][0]["verdict"] == "encodes"
