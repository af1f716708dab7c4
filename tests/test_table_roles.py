"""Columns that say something about the rows: ids, groups, times; and classes that are rare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.errors import InputError
from unmasked.io.tables import Roles, split_table

ROWS = 200
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "name": [f"{i:03d}" for i in RANDOM.permutation(ROWS)],
        "patient": RANDOM.integers(0, 40, ROWS),
        "day": RANDOM.integers(0, 50, ROWS),
        "age": RANDOM.normal(size=ROWS),
        "dose": RANDOM.normal(size=ROWS),
        "outcome": np.where(RANDOM.random(ROWS) < 0.5, "ill", "well"),
    }
)


def test_groups_stay_whole_and_parts_have_about_their_share() -> None:
    split = split_table(TABLE, "outcome", seed=0, roles=Roles(id="name", group="patient"))
    patient = TABLE.set_index("name")["patient"]
    parts = [split.train, split.valid, split.test]
    owners = [set(patient[X.index]) for X, _ in parts]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]
    assert not owners[1] & owners[2]
    assert sum(len(X) for X, _ in parts) == ROWS
    largest = int(TABLE["patient"].value_counts().max())
    for (X, _), share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        # folds differ by whole groups: three of the largest bound what rounding can do
        assert abs(len(X) - share * ROWS) <= 3 * largest
        assert list(X.columns) == ["day", "age", "dose"]


def test_times_are_in_order_and_one_time_is_in_one_part() -> None:
    for table in (
        TABLE,
        TABLE.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(TABLE["day"], "D")),
    ):
        written = table.assign(day=table["day"].astype(str) if table is not TABLE else table["day"])
        split = split_table(written, "outcome", seed=0, roles=Roles(id="name", time="day"))
        day = TABLE.set_index("name")["day"]
        train, valid, test = (day[X.index] for X, _ in (split.train, split.valid, split.test))
        assert train.max() < valid.min()
        assert valid.max() < test.min()
        most = TABLE["day"].value_counts().max()
        assert abs(len(train) - 0.6 * ROWS) <= most
        assert abs(len(test) - 0.2 * ROWS) <= most


def test_ids_and_dropped_columns_are_no_features() -> None:
    roles = Roles(id="name", drop=("day", "patient"))
    split = split_table(TABLE, "outcome", seed=0, roles=roles)
    assert list(split.test[0].columns) == ["age", "dose"]
    by_name = TABLE.set_index("name")
    pd.testing.assert_series_equal(split.test[0]["age"], by_name.loc[split.test[0].index, "age"])
    pd.testing.assert_series_equal(split.test[1], by_name.loc[split.test[1].index, "outcome"])


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (Roles(group="patien"), r"--group names the column 'patien'.* did you mean 'patient'"),
        (Roles(id="patient"), r"'patient', in which \d+ comes more than once"),
        (Roles(time="outcome"), "is the target"),
        (Roles(time="name", group="patient"), "both came; give one"),
        (Roles(drop=("dos",)), "did you mean 'dose'"),
        (Roles(drop=tuple(TABLE.columns[:-1])), "needs other columns"),
        (Roles(group="few"), "'few', which has 2 different values, but at least 5"),
        (Roles(time="town"), "must hold numbers or dates but holds 'Ulm'"),
        (Roles(id="hole"), "missing in 1 rows"),
        (Roles(time="late"), "leave .* rows of 1 class"),
    ],
)
def test_columns_that_cannot_be_it_are_refused(roles: Roles, words: str) -> None:
    more = {
        "few": TABLE["age"] > 0,
        "town": "Ulm",
        "hole": [None, *map(str, range(1, ROWS))],
        "late": np.where(TABLE["outcome"] == "ill", 2, 1),
    }
    table = TABLE if roles.drop else TABLE.assign(**more)
    with pytest.raises(InputError, match=words):
        split_table(table, "outcome", seed=0, roles=roles)


def test_the_command_carries_ids_through_and_speaks_of_a_rare_class(tmp_path: Path) -> None:
    rare = TABLE.assign(outcome=np.where(np.arange(ROWS) < 12, "ill", "well"))
    rare.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "out"
    call = [
        "explain", str(tmp_path / "t.csv"), "--target", "outcome", "--id", "name",
        "--group", "patient", "--drop", "day", "--out", str(out), "--epochs", "2",
        "--sparsity", "0.1", "--stability", "2", "--quiet",
    ]  # fmt: skip
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    trust = pd.read_csv(out / "rows.csv", dtype={"row": str})
    assert list(trust.columns) == ["row", "familiarity", "agreement", "holds"]
    assert trust["familiarity"].between(0, 1).all()
    masks = pd.read_csv(out / "masks.csv", dtype=str)
    assert list(masks.columns) == ["row", "age", "dose"]
    assert set(masks["row"]) < set(rare["name"])  # "007" is still "007"
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert found["balance"] == {"well": 0.94, "ill": 0.06}
    assert found["roles"] == {"id": "name", "group": "patient", "drop": ["day"]}
    words = " ".join(found["summary"])
    assert "same patient are in one part" in words
    assert "holds across 2 seeds" in words
    assert "lie outside the rows learned from" in words
    assert "outcome = ill is rare, 6.0% of the rows: always saying well" in words
    new = [
        "explain", str(tmp_path / "t.csv"), "--model", str(out), "--id", "name",
        "--out", str(tmp_path / "new"), "--quiet",
    ]  # fmt: skip
    result = CliRunner().invoke(app, new)
    assert result.exit_code == 0, result.output
    assert list(pd.read_csv(tmp_path / "new" / "masks.csv", dtype=str)["row"]) == list(rare["name"])


def test_the_command_trains_again_and_keeps_the_better(tmp_path: Path) -> None:
    """Never worse than one training by the objective on validation rows, and refused below one."""
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    objective = {}
    for restarts in (1, 4):
        call = [
            "explain", str(tmp_path / "t.csv"), "--target", "outcome", "--drop", "name,patient,day",
            "--out", str(tmp_path / str(restarts)), "--epochs", "2", "--sparsity", "0.2,0.4",
            "--restarts", str(restarts), "--no-search", "--seed", "1", "--quiet",
        ]  # fmt: skip
        result = CliRunner().invoke(app, call)
        assert result.exit_code == 0, result.output
        found = json.loads((tmp_path / str(restarts) / "results.json").read_text(encoding="utf-8"))
        objective[restarts] = [
            row["loglik"] - row["sparsity"] * row["fraction"] for row in found["path"]
        ]
    gain = np.subtract(objective[4], objective[1])
    assert gain.min() > -1e-6  # the first restart is the only one of the other run
    assert gain.max() > 1e-3
    call[call.index("--restarts") + 1] = "0"
    call[call.index("--out") + 1] = str(tmp_path / "none")
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2
    assert "restarts must be a whole number above 0 but is 0" in " ".join(result.output.split())
    assert not (tmp_path / "none").exists()
