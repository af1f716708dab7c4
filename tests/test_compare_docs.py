"""SHAP, LIME and Captum in the guides: their code runs, and the figures are the measured ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

mpl.use("Agg")

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[1]
SETS = ("S1", "S2", "S3")
SAME, OWN = "5 features", "each row's true number"


@pytest.fixture(scope="module")
def libraries() -> None:
    """Skips what needs the extra `compare` where it is missing."""
    with warnings.catch_warnings():  # their imports call what newer versions of others dislike
        warnings.simplefilter("ignore")
        for library in ("shap", "lime.lime_tabular", "captum.attr"):
            pytest.importorskip(library)


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("libraries")
def test_the_guide_s_code_for_the_libraries_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib import pyplot

    page = ROOT / "docs" / "auditing.md"
    found = blocks(page)
    assert [("shap.TreeExplainer" in b, "to_shap" in b) for b in found] == [
        (False, False), (True, False), (False, True)
    ]  # fmt: skip
    names: dict[str, object] = {}
    with warnings.catch_warnings():  # SHAP's plots' use of numpy and matplotlib is not ours
        warnings.simplefilter("ignore")
        for block in found:
            exec(compile(block, page.name, "exec"), names)
    pyplot.close("all")
    printed = capsys.readouterr().out
    for name in ("SHAP", "LIME", "Captum"):
        assert f"\n{name}: " in printed


# ---------------------------------------------------------------------- docs/comparing.md


class Measured:
    """What the benchmark stored, by set, method, cut and number of rows."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.rows = results["rows"]

    def row(self, name: str, method: str, cut: str = SAME, rows: int | None = None) -> Any:
        """One stored row; without ``rows`` the one of all rows that the method explained."""
        (found,) = [
            row
            for row in self.rows
            if (row["dataset"], row["method"], row["cut"]) == (name, method, cut)
            and row["judged_rows"] == (rows or row["explained_rows"])
        ]
        return found

    def methods(self, name: str) -> list[str]:
        return list(dict.fromkeys(row["method"] for row in self.rows if row["dataset"] == name))


@pytest.fixture(scope="module")
def measured() -> Measured:
    path = ROOT / "results" / "compare" / "results.json"
    return Measured(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """Heading -> the cells of the table below it, without its first two lines."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in page.splitlines():
        heading = line.strip("# ") if line.startswith("#") else heading
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(heading, []).append(cells)
    return {heading: lines[2:] for heading, lines in found.items()}


def figure(value: float, places: int = 3) -> str:
    return f"{value:.{places}f}".replace("-", "−")


def interval(value: dict[str, float]) -> str:
    return f"{figure(value['value'])} [{figure(value['low'])}, {figure(value['high'])}]"


def duration(seconds: float) -> str:
    unit, size = next((u, s) for u, s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= s)
    return f"{seconds / size:.3g} {unit}"


def judged(measured: Measured, name: str) -> list[list[str]]:
    lines = []
    for method in measured.methods(name):
        row = measured.row(name, method)
        metrics = row["metrics"]
        lines.append(
            [method, f"{row['judged_rows']:,}"]
            + [figure(metrics[key]["value"]) for key in ("eauroc", "eloglik", "ologlik")]
            + [figure(metrics[key]) for key in ("tpr", "fdr", "cfsr")]
        )
    return lines


def chosen(measured: Measured) -> list[list[str]]:
    lines = []
    for name in SETS:
        threshold = measured.row(name, "REAL-X, own threshold")
        away = measured.row(name, "KernelSHAP")["largest_difference_from_TreeSHAP"]
        settings = [measured.row(name, method)["setting"] for method in ("LIME", "REAL-X")]
        share = figure(threshold["metrics"]["fraction"])
        lines.append([name, *settings, threshold["setting"], share, figure(away, 4)])
    return lines


def row_by_row(measured: Measured) -> list[list[str]]:
    lines = []
    for name in SETS:
        for method in ("TreeSHAP", "TreeSHAP, background", "KernelSHAP", "LIME", "L2X"):
            line = [name, method, f"{measured.row(name, method)['judged_rows']:,}"]
            for cut in (SAME, OWN):
                if name == "S3" and cut == OWN:  # always 5
                    line += ["–", "–"]
                    continue
                metrics = measured.row(name, method, cut)["metrics"]
                line += [interval(metrics[f"over_realx_{judge}loglik"]) for judge in "eo"]
            lines.append(line)
    return lines


def common_rows(measured: Measured) -> list[list[str]]:
    methods = ("KernelSHAP", "LIME", "REAL-X", "true features")
    return [
        [name, *(interval(measured.row(name, m, rows=50)["metrics"]["eauroc"]) for m in methods)]
        for name in SETS
    ]


def quicker(measured: Measured) -> list[list[str]]:
    return [
        [
            pay["dataset"],
            pay["against"],
            duration(measured.row(pay["dataset"], pay["against"])["seconds"]["row"]),
            *(
                f"{pay[key]:,.0f}"
                for key in ("times_quicker", "times_quicker_processor", "pays_from_rows")
            ),
        ]
        for pay in measured.results["speed"]
        if pay["method"] == "REAL-X"
    ]


def training(measured: Measured) -> list[list[str]]:
    lines = []
    for name in SETS:
        taken = [measured.row(name, method)["seconds"] for method in ("REAL-X", "L2X")]
        lines.append([name, *(duration(one[key]) for one in taken for key in ("training", "row"))])
    return lines


def test_the_page_s_tables_are_what_was_measured(page: str, measured: Measured) -> None:
    found = tables_of(page)
    assert found.pop("Which to use")  # words
    assert found == {
        **{name: judged(measured, name) for name in SETS},
        "What was chosen": chosen(measured),
        "Row by row": row_by_row(measured),
        "The 50 rows that all explained": common_rows(measured),
        "Time": quicker(measured),
        "Training": training(measured),
    }


def test_the_page_says_where_its_figures_come_from(page: str, measured: Measured) -> None:
    facts, text = measured.results, " ".join(page.split())
    versions = ", ".join(f"{name} {facts[name]}" for name in ("shap", "lime", "scikit-learn"))
    for said in (
        f"`{facts['command']}` at commit {facts['commit']}, {facts['hardware']}",
        versions,
        f"{facts['seconds'] / 60:.0f} minutes",
    ):
        assert said in text


def test_the_page_s_sentences_quote_its_tables(page: str) -> None:
    lines = page.splitlines()
    numbers = re.compile(r"(?<![\d.])\d\.\d{3}(?!\d)|\d{3},\d{3}")
    tables = set(numbers.findall("\n".join(line for line in lines if line.startswith("|"))))
    said = numbers.findall("\n".join(line for line in lines if not line.startswith("|")))
    assert len(said) > 20
    assert set(said) - tables == {"204,600"}  # 2,046 subsets of 100 rows


def test_what_the_page_says_in_words(page: str, measured: Measured) -> None:
    """The sentences that a new run could make untrue, each beside what it says."""

    def over(name: str, method: str, judge: str, cut: str = SAME) -> dict[str, float]:
        return measured.row(name, method, cut)["metrics"][f"over_realx_{judge}loglik"]

    def metric(name: str, method: str, key: str) -> float:
        return measured.row(name, method)["metrics"][key]

    def around_zero(value: dict[str, float]) -> bool:
        return value["low"] <= 0 <= value["high"]

    text = " ".join(page.split())
    claims = {
        "predict the outcome better than TreeSHAP's, by 0.012 and 0.021 nats": all(
            over(name, "TreeSHAP", judge)["high"] < 0 for name in ("S1", "S3") for judge in "eo"
        ),
        "TreeSHAP shows the deciding feature x11 more often": metric("S2", "TreeSHAP", "cfsr")
        > metric("S2", "REAL-X", "cfsr"),
        "level under the exact posterior": around_zero(over("S2", "TreeSHAP", "o")),
        "all intervals contain 0": all(
            around_zero(over(name, "KernelSHAP", judge)) for name in SETS for judge in "eo"
        ),
        "three of its four intervals contain 0 and the fourth": sum(
            around_zero(over(name, "LIME", judge)) for name in ("S2", "S3") for judge in "eo"
        )
        == 3,
        "with the true number both intervals of S2 lie below 0": all(
            over("S2", "LIME", judge, OWN)["high"] < 0 for judge in "eo"
        ),
        "x11 in every row": metric("S1", "REAL-X", "cfsr") == metric("S3", "REAL-X", "cfsr") == 1,
        "has exactly KernelSHAP's figures here": all(
            measured.row(name, "KernelSHAP")["metrics"]
            == measured.row(name, "TreeSHAP, background", rows=50)["metrics"]
            for name in SETS
        ),
        "On S1 and S2 the smallest of the three prices": all(
            measured.row(name, "REAL-X")["setting"] == "λ = 0.05" for name in ("S1", "S2")
        ),
        "L2X with five features does better there": over("S2", "L2X", "e")["low"] > 0,
    }
    for said, holds in claims.items():
        assert said in text
        assert holds, said


# ---------------------------------------------------------------------- benchmarks/shap_lime.py


@pytest.mark.usefixtures("libraries")
def test_the_benchmark_runs_and_counts_right(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "shap_lime.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick", "--sets", "S1", "--labels", "--out",
         str(tmp_path / "out")],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert {"command", "version", "commit", "hardware", "rows", "speed"} <= set(results)
    found = Measured(results)
    methods = found.methods("S1")
    libraries = ["TreeSHAP", "TreeSHAP, background", "KernelSHAP", "LIME"]
    trained = ["REAL-X", "REAL-X, own threshold", "L2X"]
    of_labels = [name.replace("-X", "-X, of the labels") for name in trained[:2]]
    of_labels.append("L2X, of the labels")
    assert methods == ["random masks", "true features", *libraries, *trained, *of_labels]

    shown = found.row("S1", "true features", OWN)["metrics"]["fraction"]
    for method in methods:
        if method == "true features" or "own threshold" in method:
            continue
        same = found.row("S1", method)
        assert same["metrics"]["fraction"] == pytest.approx(5 / 11)  # the same number for all
        if same["explained_rows"] == 200:
            own = found.row("S1", method, OWN)["metrics"]
            assert own["fraction"] == pytest.approx(shown)
            assert own["tpr"] + own["fdr"] == pytest.approx(1)  # as many shown as there are
    truth = found.row("S1", "true features")["metrics"]
    assert (truth["tpr"], truth["fdr"], truth["cfsr"]) == (1, 0, 1)

    realx = found.row("S1", "REAL-X")
    assert realx["metrics"]["over_realx_ologlik"] == {"value": 0, "low": 0, "high": 0}
    for method in methods:  # the paired difference is that of the same rows
        rows = found.row("S1", method)["judged_rows"]
        if rows == realx["judged_rows"]:
            one = found.row("S1", method)["metrics"]
            less = one["ologlik"]["value"] - realx["metrics"]["ologlik"]["value"]
            assert one["over_realx_ologlik"]["value"] == pytest.approx(less)
    (pay,) = [p for p in results["speed"] if (p["method"], p["against"]) == ("REAL-X", "LIME")]
    lime = found.row("S1", "LIME")["seconds"]["row"]
    saved = lime - realx["seconds"]["row"]
    assert pay["pays_from_rows"] == pytest.approx(realx["seconds"]["training"] / saved)
    assert pay["times_quicker"] == pytest.approx(lime / realx["seconds"]["row"])
