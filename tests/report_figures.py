"""What tests of the report on the paper's tables share: its sections, and the results' rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


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


def prose(text: str) -> str:
    """What is said, without the tables."""
    return " ".join(" ".join(x for x in text.splitlines() if not x.startswith("|")).split())


def interval(difference: dict[str, float]) -> str:
    words = "{value:.3f} [{low:.3f}, {high:.3f}]".format(**difference)
    return words.replace("-", "−")


def chosen(table: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in table if row["method"] == name and row["chosen"]]


def measured(table: list[dict[str, Any]], name: str, *, chosen: bool) -> dict[str, Any]:
    """The figures of a method's rows, seed by seed: all that were chosen, or of one setting."""
    method, _, setting = name.partition(", ")
    values = numbers(setting)
    own, like = (
        [
            row
            for row in table
            if row["method"] == which
            and (row["chosen"] if chosen else list(row["setting"].values()) == values)
        ]
        for which in (method, f"random, as {method}")
    )
    if chosen and values:
        assert [value for row in own for value in row["setting"].values()] == values
    keys = ("acc", "auroc", "eacc", "eauroc", "eacc_varied", "eauroc_varied", "fraction")
    found = {key: [row["metrics"][key] for row in own] for key in keys}
    for key in ("macc", "iou", "tpr", "fdr"):
        found[key] = [row["metrics"][key] for row in own if key in row["metrics"]]
    found["random"] = [[row["metrics"][key] for key in keys[2:6]] for row in like]
    return found


def assert_row_of_films(columns: list[str], found: dict[str, Any]) -> None:
    """A line of a table like the paper's: superpixels of each seed, then means over seeds."""
    shown, predictor, paper, varied, random, alone = columns
    shares = found["fraction"] if found["random"] else [1.0]  # FULL's is said once
    assert numbers(shown) == pytest.approx([256 * share for share in shares], abs=0.051)
    for cell, ending, start in ((predictor, "", ""), (paper, "", "e"), (varied, "_varied", "e")):
        means = [np.mean(found[f"{start}{key}{ending}"]) for key in ("acc", "auroc")]
        assert numbers(cell) == pytest.approx(means, abs=5.1e-4)
    if found["random"]:
        assert numbers(random) == pytest.approx(np.mean(found["random"], axis=0), abs=5.1e-4)
        assert numbers(alone) == pytest.approx([np.mean(found["macc"])], abs=5.1e-4)


def mean_and_error(seeds: list[float]) -> tuple[float, float]:
    """Over seeds, with the mean's standard error."""
    return float(np.mean(seeds)), float(np.std(seeds, ddof=1) / np.sqrt(len(seeds)))


def mean(table: list[dict[str, Any]], name: str, key: str) -> float:
    return float(np.mean(measured(table, name, chosen=name == "FULL")[key]))


def films() -> tuple[str, str, str, str, str]:
    """The report on real films, with scattered masks, on an earlier run, on drawn ones, and on
    larger superpixels."""
    real, scattered, earlier, drawn, large = section("Chest X-rays").split("\n### ")
    return real, scattered, earlier, drawn, large


def measured_full(table: list[dict[str, Any]], key: str) -> list[float]:
    return [row["metrics"][key] for row in table if row["method"] == "FULL"]
