"""`benchmarks/defaults.py`: what it counts, the best fixed set, and the whole of it in small."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmasked import Training

pytestmark = pytest.mark.usefixtures("one_thread")
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
TESTED = 200


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark, with few rows to explain and few trees."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("defaults")
    monkeypatch.setattr(module, "TESTED", TESTED)
    monkeypatch.setattr(importlib.import_module("tables_rivals"), "ROUNDS", 3)
    rivals = importlib.import_module("defaults_rivals")
    monkeypatch.setattr(rivals, "LIME_ROWS", 5)
    monkeypatch.setattr(rivals, "FIXED_ROWS", 500)
    options = {"search": False, "training": Training(epochs=1)}
    monkeypatch.setitem(module.METHODS, "RealX(search=False)", partial(module.realx, options))
    few = {"training": Training(epochs=1)}
    monkeypatch.setitem(module.METHODS, "EvalX()", partial(module.evalx, few))
    return module


@pytest.fixture
def command(defaults: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs the benchmark with such arguments."""

    def run(*arguments: object) -> None:
        monkeypatch.setattr("sys.argv", ["defaults.py", *map(str, arguments)])
        defaults.main()

    return run


def lines(folder: Path) -> list[str]:
    return (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()


def test_masks_are_counted_against_each_row_s_truth(defaults: Any) -> None:
    cell = defaults.Cell("Syn4", 12, 100, 0.0, False)
    rows = cell.draw(50, 3)
    low = rows.branch == "A"  # x1, x2 and x11 are true; else x3 … x6 and x11
    masks = np.zeros((50, 12), dtype=bool)
    masks[:, [0, 1, 11]] = True
    found = cell.figures(rows, masks)
    share = low.mean()
    assert found["tpr"] == pytest.approx(share * 2 / 3)
    assert found["fdr"] == pytest.approx(share / 3 + (1 - share))
    assert found["f1"] == pytest.approx(share * 4 / 6)
    assert (found["cfsr"], found["size"], found["doubled"], found["sets"]) == (0, 3, 0, 1)
    assert found["tested"] == 50
    best = cell.figures(rows, rows.truth)
    true = np.where(rows.y == 1, rows.probability, 1 - rows.probability)
    assert best["loglik"] == pytest.approx(np.log(true).mean())
    assert (best["tpr"], best["fdr"], best["f1"], best["cfsr"]) == (1, 0, 1, 1)


@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_a_shown_copy_counts_as_its_original_and_once(defaults: Any, correlation: float) -> None:
    cell = defaults.Cell("Syn4", 12, 100, correlation, False, copies=2)
    copied = [0, 1, 2, 3, 4, 5, 10]
    rows = cell.draw(40, 5)
    assert rows.x.shape == (40, 12 + 2 * 7)
    for start in (12, 19):
        np.testing.assert_array_equal(rows.x[:, start : start + 7], rows.x[:, copied])
    originals = cell.with_copies(rows.truth)
    others = np.zeros_like(originals)
    others[:, 19:] = rows.truth[:, copied]  # the second copies alone
    plain = cell.figures(rows, originals)
    assert plain["f1"] == 1
    assert cell.figures(rows, others) == plain
    both = cell.figures(rows, originals | others)
    assert both["doubled"] == pytest.approx(rows.truth.sum(1).mean())
    assert {**both, "doubled": 0} == plain


def test_no_other_set_of_that_size_tells_more(defaults: Any) -> None:
    rivals = importlib.import_module("defaults_rivals")
    rivals.best_fixed_set.cache_clear()
    assert rivals.best_fixed_set("Syn1", 0.0, 2) == (0, 1)
    assert rivals.best_fixed_set("Syn3", 0.0, 4) == (6, 7, 8, 9)
    four = rivals.best_fixed_set("Syn4", 0.0, 4)  # x11 and three of x3 … x6, which are alike
    assert four[-1] == 10
    assert set(four[:3]) < {2, 3, 4, 5}
    rivals.best_fixed_set.cache_clear()


def test_each_row_shows_its_own_number_of_features(defaults: Any) -> None:
    rivals = importlib.import_module("defaults_rivals")
    values = np.array([[0.3, 0.1, 0.2], [0.0, 0.0, 0.0], [0.1, 0.2, 0.3]])
    masks = rivals.top_of_each(values, np.array([2, 1, 0]))
    assert masks.astype(int).tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]


def test_a_second_command_adds_its_methods_and_repeats_nothing(
    defaults: Any, command: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    told = ["--sets", "Syn4", "--rows", 200, "--copies", 1, "--device", "cpu"]
    many = "TreeSHAP,LIME,fixed,boosting,optimum"
    command(*told, "--seeds", 1, "--methods", many, "--out", one)
    first = lines(one)
    rows = {row["method"]: row for row in map(json.loads, first)}
    assert ",".join(rows) == many
    assert all(row["device"] == "cpu, 1 thread" and "commit" in row for row in rows.values())
    for method in ("TreeSHAP", "LIME"):
        took = rows[method]
        assert took["seconds"] == took["fit_seconds"] + took["explain_seconds"] > 0
    assert [rows[method]["tested"] for method in ("TreeSHAP", "LIME")] == [TESTED, 5]
    assert rows["fixed"]["size"] == 4
    assert rows["optimum"]["f1"] == 1
    assert {"auroc", "loglik"} < set(rows["boosting"])
    assert "f1" not in rows["boosting"]

    with (one / "rows.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"name": "Syn4", "cut sho')  # killed while it wrote
    for method in ("TreeSHAP", "LIME", "fixed", "boosting"):
        monkeypatch.setitem(defaults.METHODS, method, None)  # what is done is not done again
    command(*told, "--seeds", 1, "--methods", f"{many},random", "--out", one)
    assert lines(one)[: len(first)] == first
    assert [json.loads(line)["method"] for line in lines(one)[len(first) + 1 :]] == ["random"]

    command(*told, "--seeds", 2, "--methods", "RealX(search=False),optimum", "--out", other)
    more = [json.loads(line) for line in lines(other)]
    assert [(row["seed"], row["method"]) for row in more] == [
        (seed, method) for seed in (0, 1) for method in ("RealX(search=False)", "optimum")
    ]
    assert {"sparsity", "choice", "kept", "fit_seconds"} < set(more[0])
    for row in more:  # as if they came from another machine
        defaults.add_rows(tmp_path / "gpu" / "rows.jsonl", {**row, "device": "NVIDIA H200"})

    joined = tmp_path / "joined"
    command("--join", one, other, tmp_path / "gpu", "--out", joined)
    results = json.loads((joined / "results.json").read_text(encoding="utf-8"))
    assert len(results["rows"]) == 6 + 4 - 1 + 2  # the optimum, not timed, is once for each seed
    table = (joined / "table.md").read_text(encoding="utf-8").splitlines()[2:]
    methods = [line.split(" | ")[4] for line in table]
    assert methods[0] == "RealX(search=False)"
    assert methods[1:] == [name for name in defaults.METHODS if name in methods]
    assert len(methods) == 8
    assert ["| NVIDIA H200 | 2 |" in line for line in table[:2]] == [True, False]
    assert [line.count("±") for line in table[:3]] == [1, 1, 0]
    assert "| Syn4 | 11 + 7 copies | 200 | 0 | optimum |" in table[methods.index("optimum")]


def test_a_model_is_explained_instead_and_costs_nothing(
    command: Callable[..., None], tmp_path: Path
) -> None:
    told = ["--sets", "Syn6", "--rows", 200, "--seeds", 1, "--model", "--device", "cpu"]
    command(*told, "--methods", "TreeSHAP,RealX(search=False)", "--out", tmp_path)
    shap, realx = (json.loads(line) for line in lines(tmp_path))
    assert shap["model"] is realx["model"] is True
    assert shap["fit_seconds"] == 0 < realx["fit_seconds"]
    assert shap["f1"] > 0


def test_an_evaluator_stands_beside_the_exact_posterior(
    defaults: Any, command: Callable[..., None], tmp_path: Path
) -> None:
    told = ["--sets", "Syn4", "--rows", 200, "--copies", 1, "--seeds", 1, "--device", "cpu"]
    command(*told, "--methods", "EvalX(),optimum", "--out", tmp_path)
    own, optimum = (json.loads(line) for line in lines(tmp_path))
    assert own["exact_loglik"] == pytest.approx(optimum["loglik"])
    assert own["gap"] == pytest.approx(own["exact_loglik"] - own["true_loglik"])
    assert own["kl"] > 0
    assert own["picked"] in ("network", "boosting", "both")
    assert own["tested"] == TESTED
    assert "tpr" not in own
    head, _, second, first = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    place = head.split(" | ").index("gap to exact")
    assert (first.split(" | ")[place], second.split(" | ")[place]) == (f"{own['gap']:.4f}", "")


def test_a_gap_is_in_nats_and_the_exact_posterior_has_none(defaults: Any) -> None:
    exact, y = np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0])
    assert {defaults.beside_exact(exact, exact, y)[key] for key in ("gap", "kl")} == {0.0}
    found = defaults.beside_exact(np.full((2, 2), 0.5), exact, y)
    assert found["gap"] == pytest.approx(np.log(1.5) / 2)
    assert found["kl"] == pytest.approx((0.25 * np.log(0.5) + 0.75 * np.log(1.5)) / 2)


def test_an_unknown_method_is_refused(command: Callable[..., None], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command("--methods", "RealX(),Shap")
    assert "'Shap'" in capsys.readouterr().err


def test_a_draw_of_two_devices_counts_once_in_the_short_table(defaults: Any) -> None:
    def row(seed: int, device: str, f1: float, seconds: float) -> dict[str, Any]:
        cell = {"name": "S3", "features": 11, "rows": 100, "correlation": 0.0, "model": False}
        about = {**cell, "copies": 0, "seed": seed, "method": "RealX()", "device": device}
        return {**about, "tested": 9, "f1": f1, "seconds": seconds}

    rows = [row(0, "cpu, 1 thread", 0.0, 60.0), row(0, "GPU", 0.5, 2.0), row(1, "GPU", 1.0, 4.0)]
    entries = [part.strip() for part in defaults.brief(rows).splitlines()[-1].split("|")[1:-1]]
    assert entries[4] == "2"  # draws
    assert entries[8] == "0.750"
    assert entries[-2:] == ["60", "3"]
    rows = [row(0, "cpu, 1 thread", 0.0, 60.0), row(1, "GPU", 1.0, 4.0)]
    assert "| 2 |" in defaults.brief(rows)
