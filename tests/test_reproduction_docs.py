"""The report on the paper's tables says what the results say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
SETS = ("S1", "S2", "S3")
COLUMNS = ("cfsr", "tpr", "fdr", "auroc", "eauroc", "loglik", "eloglik", "ologlik")


def rows(folder: str) -> list[dict[str, Any]]:
    path = ROOT / "results" / folder / "results.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return found


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}")[1].split("\n## ")[0]


def cells(text: str, name: str) -> list[str]:
    (line,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.M)
    return [cell.strip() for cell in line.split("|")]


def numbers(cell: str) -> list[float]:
    return [float(text.replace("−", "-")) for text in re.findall(r"[−\d.]*\d", cell)]


@pytest.mark.parametrize(
    ("heading", "folder"),
    [
        ("S1, S2, S3: the tuned preset", "synthetic"),
        ("S1, S2, S3: the paper preset", "synthetic/paper"),
    ],
)
@pytest.mark.parametrize("method", ["REAL-X", "INVASE", "BASE-X", "L2X"])
def test_the_synthetic_tables_are_the_measured_ones(heading: str, folder: str, method: str) -> None:
    chosen = [row for row in rows(folder) if row["method"] == method and row["chosen"]]
    for cell, key in zip(cells(section(heading), method), COLUMNS, strict=True):
        means = [
            np.mean([row["metrics"][key] for row in chosen if row["dataset"] == name])
            for name in SETS
        ]
        assert numbers(cell) == pytest.approx(means, abs=5.1e-4), key


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("FULL", "FULL"),
        ("REAL-X, λ = 1", "REAL-X"),
        ("L2X, k = 5", "L2X"),
        ("INVASE, λ = 0.5", "INVASE"),
        ("BASE-X, λ = 2.5", "BASE-X"),
    ],
)
def test_the_table_of_films_is_the_measured_one(name: str, method: str) -> None:
    found = {row["method"]: row for row in rows("cxr") if row["chosen"]}
    own = found[method]["metrics"]
    if method != "FULL":
        assert name.endswith(f"= {next(iter(found[method]['setting'].values())):g}")
    shown, predictor, paper, varied, random, alone = cells(section("Chest X-rays"), name)
    assert numbers(shown)[0] == pytest.approx(256 * own["fraction"], abs=0.051)
    expected = [
        [own["acc"], own["auroc"]],
        [own["eacc"], own["eauroc"]],
        [own["eacc_varied"], own["eauroc_varied"]],
    ]
    for cell, values in zip((predictor, paper, varied), expected, strict=True):
        assert numbers(cell) == pytest.approx(values, abs=5.1e-4)
    if method != "FULL":
        like = found[f"random, as {method}"]["metrics"]
        keys = ("eacc", "eauroc", "eacc_varied", "eauroc_varied")
        assert numbers(random) == pytest.approx([like[key] for key in keys], abs=5.1e-4)
        assert numbers(alone) == pytest.approx([own["macc"]], abs=5.1e-4)


def test_what_the_report_says_of_films_holds() -> None:
    text = " ".join(section("Chest X-rays").split())
    table = rows("cxr")
    found = {row["method"]: row for row in table if row["chosen"]}
    over = found["REAL-X"]["over_random"]
    for key in ("eauroc", "eauroc_varied"):
        low, high = over[key]["low"], over[key]["high"]
        assert f"{over[key]['value']:.3f} [{low:.3f}, {high:.3f}]" in text
    sparse = {
        row["setting"]["sparsity"]: row["metrics"] for row in table if row["method"] == "REAL-X"
    }
    full = found["FULL"]["metrics"]["auroc"]
    assert 256 * sparse[0.5]["fraction"] == pytest.approx(27, abs=0.5)
    assert full - sparse[0.5]["eauroc"] < 0.05
    assert found["REAL-X"]["metrics"]["eauroc"] > 0.80
    assert found["REAL-X"]["metrics"]["eacc"] > 0.72
