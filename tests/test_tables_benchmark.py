"""`benchmarks/tables.py`: its searches and figures on tiny data, and the whole of it in small."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from unmasked import EvalX, RealX, Training

pytestmark = pytest.mark.usefixtures("one_thread")
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def additive(worth: NDArray[np.float64]) -> Any:
    """A predictor of two classes: each shown feature of a row adds its worth to the log-odds."""

    def one_more(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        more = masks[:, None] | np.eye(masks.shape[1], dtype=bool)
        odds = (more * worth[: len(masks), None]).sum(2)
        second = 1 / (1 + np.exp(-odds))
        return np.stack([1 - second, second], axis=2)

    return one_more


def test_the_fixed_set_is_the_best_for_all_rows(modules: Any) -> None:
    figures = modules("tables_figures")
    worth = np.array([[0.1, 2.0, -1.0, 0.5]] * 6)
    target = np.eye(2)[np.ones(6, dtype=int)]
    found = figures.fixed_sets(additive(worth), target, 4, [1, 3])
    assert [np.flatnonzero(found[k]).tolist() for k in (1, 3)] == [[1], [0, 1, 3]]


def test_a_row_s_set_is_nearest_to_its_prediction_from_everything(modules: Any) -> None:
    figures = modules("tables_figures")
    worth = np.array([[3.0, 0.1, 0.0], [0.0, 0.1, 3.0], [1.0, -3.0, 0.0]])
    second = 1 / (1 + np.exp(-worth.sum(1)))
    everything = np.stack([1 - second, second], axis=1)
    found = figures.row_sets(additive(worth), everything, 3, [0, 1, 2])
    assert found[1].argmax(1).tolist() == [0, 2, 1]
    assert [int(found[k].sum()) for k in (0, 1, 2)] == [0, 3, 6]


def test_a_search_of_many_features_stops_at_every_size_asked_for(modules: Any) -> None:
    figures = modules("tables_figures")
    went = figures.schedule([1, 37, 200])
    assert went[:20] == list(range(1, 21))
    assert {37, 200} <= set(went)
    assert len(went) < 60
    worth = np.random.default_rng(0).normal(size=(5, 30))
    everything = np.full((5, 2), 0.5)
    found = figures.row_sets(additive(worth), everything, 30, [25, 30])
    assert found[25].sum(1).tolist() == [25] * 5
    assert found[30].all()
    assert figures.sizes(7) == [1, 2]
    assert figures.sizes(100) == [1, 10, 25]


def test_the_paired_interval_holds_the_mean_and_widens_with_groups(modules: Any) -> None:
    figures = modules("tables_figures")
    rows = 400
    means = np.random.default_rng(1).normal(0.2, 1.0, rows // 4)
    difference = np.repeat(means, 4)  # four equal rows a group
    alone = figures.paired_interval(difference)
    grouped = figures.paired_interval(difference, np.arange(rows) // 4)
    error = difference.std() / np.sqrt(rows)
    assert alone["value"] == pytest.approx(difference.mean())
    # of 2,000 draws the ends are within a tenth of what a normal distribution says
    assert alone["high"] - alone["low"] == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert grouped["high"] - grouped["low"] == pytest.approx(4 * 1.96 * error, rel=0.1)


def test_shares_and_sizes_between_whole_numbers(modules: Any) -> None:
    figures = modules("tables_figures")
    assert figures.captured(-0.35, -0.4, -0.3) == pytest.approx(0.5)
    assert figures.captured(-0.35, -0.4, -0.395) is None
    found = {2: np.array([0.0, 1.0]), 3: np.array([1.0, 1.0])}
    assert figures.between(found, 2.25).tolist() == [0.25, 1.0]
    assert figures.between(found, 3.0).tolist() == [1.0, 1.0]
    one = np.array([[1, 1, 0], [0, 0, 0]], dtype=bool)
    other = np.array([[0, 1, 1], [0, 0, 0]], dtype=bool)
    assert figures.jaccard(one, other) == pytest.approx((1 / 3 + 1) / 2)
    assert figures.top(np.array([[0.1, 0.9, 0.9]]), 1).tolist() == [[False, True, False]]


def test_parts_share_no_rows_and_no_groups(modules: Any) -> None:
    data = modules("tables_data")
    y = np.arange(400) % 2
    groups = np.arange(400) // 4
    table = data.Table("some", pd.DataFrame({"a": y}), y, groups, 400)
    parts = data.split(table, 3)
    every = [set(groups[own]) for own in (parts.explainer, parts.judge, parts.test)]
    assert sum(len(own) for own in every) == len(set.union(*every)) == 100
    rows = np.concatenate([parts.explainer, parts.judge, parts.test])
    assert sorted(rows) == list(range(400))
    assert len(parts.test) == 100
    again = data.halved(table, parts, 1)
    assert not set(again) & set(parts.test)
    coded = data.codes(pd.DataFrame({"t": ["b", None, "a"], "n": [1.5, np.nan, 2]}))
    np.testing.assert_array_equal(coded, [[1, 1.5], [np.nan, np.nan], [0, 2]])


def test_the_two_ways_to_ask_a_predictor_agree(modules: Any) -> None:
    rivals = modules("tables_rivals")
    X, y = rows_of_a_table(120)
    explainer = RealX(
        search=True, training=Training(epochs=1), random_state=0, device="cpu", progress=False
    ).fit(X, y)
    own = rivals.Own(explainer, X).first(7)
    masks = np.random.default_rng(0).random((7, 4)) < 0.5
    np.testing.assert_allclose(own.one_more(masks), own._by_masks(masks), atol=1e-5)


def rows_of_a_table(rows: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(rows, 3)), columns=["compounds", "hour", "iterations"])
    X["protocol"] = random.choice(["A", "B", None], rows)
    return X, np.where(X["hour"] + X["compounds"] > 0, "F", "VF")


def test_the_benchmark_runs_and_goes_on(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables = modules("tables")
    few = Training(epochs=1)
    monkeypatch.setitem(tables.METHODS, "plain", {"training": few})
    monkeypatch.setattr(
        tables,
        "judge",
        lambda seed, device, model: EvalX(
            model=model, training=few, random_state=seed, progress=False
        ),
    )
    monkeypatch.setattr(modules("tables_rivals"), "ROUNDS", 3)
    values = {"only": np.random.default_rng(0).random((60, 4))}
    monkeypatch.setattr(tables, "tree_shap", lambda model, x: values)
    monkeypatch.setattr(tables, "lime_values", lambda *_: 1 - values["only"])
    X, y = rows_of_a_table(240)
    X.assign(**{"class": y}).to_parquet(tmp_path / "hpc.parquet")
    out = tmp_path / "out"
    told = ["tables.py", "--tables", str(tmp_path), "--only", "hpc", "--device", "cpu"]
    for more in (
        ["--rivals-only", str(out), "--lime"],
        ["--rivals", str(out), "--lime", "--out", str(out), "--overlap", "--commit", "abc"],
    ):
        monkeypatch.setattr("sys.argv", [*told, *more])
        tables.main()
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    row, alike = results["rows"]
    assert {"command", "commit", "hardware"} <= set(results)
    assert results["commit"] == "abc"
    assert row["features"] == 4
    assert row["parts"] == [90, 90, 60]
    sizes = {(f["method"], f["k"]): f["size"] for f in row["figures"]}
    for method in ("RealX", "TreeSHAP", "LIME", "fixed", "per row", "random"):
        assert sizes[method, 1] == 1
    assert "RealX − TreeSHAP" in (out / "table.md").read_text(encoding="utf-8")
    assert set(alike["overlap"]) == set(alike["shown"]) == {"random_state", "half"}
    assert [set(own) for own in alike["overlap"].values()] == [{"own", "1"}] * 2
    assert [len(own) for own in alike["shown"].values()] == [3, 3]
    with (out / "rows.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"table": "hp')  # killed while it wrote
    monkeypatch.setattr("sys.argv", [*told, "--model", "--out", str(out)])
    tables.main()
    *before, of_model = json.loads((out / "results.json").read_text(encoding="utf-8"))["rows"]
    assert before == [row, alike]
    assert (of_model["model"], of_model["boosting"]) == (True, {})
    assert "| hpc, boosting |" in (out / "table.md").read_text(encoding="utf-8")
    monkeypatch.setattr(tables, "measure", None)  # what is finished is not done again
    for more in ([], ["--model"]):
        monkeypatch.setattr("sys.argv", [*told, *more, "--out", str(out)])
        tables.main()


def test_the_explained_model_knows_a_category_in_any_part_of_the_table(modules: Any) -> None:
    X = pd.DataFrame({"t": ["b", None, "a", "c"], "n": [1.5, np.nan, 2, 3]})
    coded = modules("tables_data").codes(X)
    model = modules("tables_rivals").OfFrames(Echo(), X)
    np.testing.assert_array_equal(model.predict_proba(X.iloc[[3, 1]]), coded[[3, 1]])


class Echo:
    """A model that says what it was asked about."""

    def predict_proba(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x


def test_how_far_numbers_shown_are_apart_is_a_share_of_their_mean(modules: Any) -> None:
    report = modules("tables_report")
    shown = {"table": "some", "overlap": {"half": {"own": 0.9}}, "shown": {"half": [4, 5, 6]}}
    assert "| own: 0.90 | 4.0, 5.0, 6.0 | 40% |" in report.overlaps([shown])
    assert "| – | – |" in report.overlaps([{**shown, "shown": {}}])
