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


FILMS = ("FULL", "REAL-X, λ = 1, 0.1, 0.1", "L2X, k = 5, 50, 100", "INVASE, λ = 0.5, 0.5")
FILMS += ("BASE-X, λ = 2.5, 1, 0.75",)
DRAWN = ("FULL", "REAL-X, λ = 1", "REAL-X, λ = 2", "REAL-X, λ = 4", "L2X, k = 16")
ALIKE = ("REAL-X, λ = 0.5", "REAL-X, λ = 0.75", "REAL-X, λ = 1", "L2X, k = 5", "L2X, k = 15")
ALIKE += ("BASE-X, λ = 0.5", "BASE-X, λ = 1", "BASE-X, λ = 2.5")
OWN = ("REAL-X-EXCHANGE", "BASE-X")
EXCHANGED = ("REAL-X, λ = 0.5", "REAL-X, λ = 1", "L2X, k = 5", "L2X, k = 15")
EXCHANGED += tuple(f"{own}, λ = {price:g}" for own in OWN for price in (0.5, 1, 2.5))


def films() -> tuple[str, str, str]:
    """The report on real films, on them with exchanged masks, and on drawn ones."""
    real, exchanged, drawn = section("Chest X-rays").split("\n### ")
    return real, exchanged, drawn


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


@pytest.mark.parametrize("name", FILMS)
def test_the_table_of_films_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr"), name, chosen=True)
    shown, predictor, paper, varied, random, alone = cells(films()[0], name)
    assert numbers(shown) == pytest.approx(
        [256.0] if name == "FULL" else [256 * share for share in found["fraction"]], abs=0.051
    )
    for cell, ending, start in ((predictor, "", ""), (paper, "", "e"), (varied, "_varied", "e")):
        means = [np.mean(found[f"{start}{key}{ending}"]) for key in ("acc", "auroc")]
        assert numbers(cell) == pytest.approx(means, abs=5.1e-4)
    if name != "FULL":
        assert numbers(random) == pytest.approx(np.mean(found["random"], axis=0), abs=5.1e-4)
        assert numbers(alone) == pytest.approx([np.mean(found["macc"])], abs=5.1e-4)


@pytest.mark.parametrize("name", ALIKE)
def test_films_at_equal_settings_are_the_measured_ones(name: str) -> None:
    found = measured(rows("cxr"), name, chosen=False)
    shown, *columns, random = cells(films()[0], name)
    assert numbers(shown) == pytest.approx([256 * np.mean(found["fraction"])], abs=0.051)
    keys = ("acc", "eacc", "eacc_varied", "eauroc", "eauroc_varied")
    for cell, key in zip(columns, keys, strict=True):
        seeds = found[key]
        assert len(seeds) == 3
        error = np.std(seeds, ddof=1) / np.sqrt(3)
        assert numbers(cell) == pytest.approx([np.mean(seeds), error], abs=5.1e-4), key
    _, e, _, varied = np.mean(found["random"], axis=0)
    assert numbers(random) == pytest.approx([e, varied], abs=5.1e-4)


@pytest.mark.parametrize("name", EXCHANGED)
def test_the_table_of_exchanged_masks_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr/exchange"), name, chosen=False)
    shown, *columns, random = cells(films()[1], name)
    assert numbers(shown) == pytest.approx([256 * share for share in found["fraction"]], abs=0.051)
    keys = ("acc", "eacc", "eacc_varied", "eauroc", "eauroc_varied")
    for cell, key in zip(columns, keys, strict=True):
        assert numbers(cell) == pytest.approx(found[key], abs=5.1e-4), key
    assert numbers(random) == pytest.approx([like[3] for like in found["random"]], abs=5.1e-4)


def test_what_the_report_says_of_exchanged_masks_holds() -> None:
    text, table = " ".join(films()[1].split()), rows("cxr/exchange")
    chosen = {(row["seed"], row["method"]): row for row in table if "over_random" in row}
    for seed, method in ((0, "REAL-X-EXCHANGE"), (1, "REAL-X-EXCHANGE"), (1, "REAL-X")):
        own = chosen[seed, method]["over_random"]["eauroc"]
        said = f"{own['value']:.3f} [{own['low']:.3f}, {own['high']:.3f}]".replace("-", "−")
        assert said in text, (seed, method)
    for method in ("REAL-X-EXCHANGE", "REAL-X"):
        assert [chosen[seed, method]["setting"]["sparsity"] for seed in (0, 1)] == [1.0, 0.1]
        own = chosen[0, method]["metrics"]
        said = f"{method} has (eAUROC )?{own['eauroc']:.3f} and (eACC )?{own['eacc']:.3f}"
        assert re.search(said, text)
    for seed, valid in enumerate(("0.813", "0.850")):
        assert f"{valid} with seed {seed}" in text
        assert chosen[seed, "L2X"]["reason"].endswith(f"the full model's {valid}")
    full = [f"{row['metrics']['acc']:.3f}" for row in table if row["method"] == "FULL"]
    assert f"{full[0]} and {full[1]}" in text
    assert [chosen[1, name]["setting"] for name in ("L2X", "BASE-X")] == [
        {"k": 100},
        {"sparsity": 0.1},
    ]


@pytest.mark.parametrize("name", DRAWN)
def test_the_table_of_drawn_films_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr/phantom"), name, chosen=False)
    shown, overlap, truth, predictor, paper, varied = cells(films()[2], name)
    assert numbers(shown) == pytest.approx([256 * found["fraction"][0]], abs=0.051)
    assert numbers(overlap) == pytest.approx(found["iou"], abs=5.1e-4)
    assert numbers(truth) == pytest.approx(found["tpr"] + found["fdr"], abs=5.1e-4)
    for cell, ending, start in ((predictor, "", ""), (paper, "", "e"), (varied, "_varied", "e")):
        values = [found[f"{start}{key}{ending}"][0] for key in ("acc", "auroc")]
        assert numbers(cell) == pytest.approx(values, abs=5.1e-4)


def test_what_the_report_says_of_films_holds() -> None:
    text = " ".join(films()[0].split())
    table = rows("cxr")
    full = measured(table, "FULL", chosen=True)
    sparse = measured(table, "REAL-X, λ = 0.5", chosen=False)
    assert np.mean(full["auroc"]) - np.mean(sparse["eauroc"]) < 0.05
    alone = measured(table, "REAL-X, λ = 1", chosen=False)
    for key in ("eacc", "eauroc"):
        assert "({}, {}, {}".format(*(f"{value:.3f}" for value in alone[key])) in text
    over = [row["over_random"]["eauroc"] for row in table if "over_random" in row]
    ours = [row["method"] for row in table if "over_random" in row]
    said = [
        f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]".replace("-", "−")
        for value, method in zip(over, ours, strict=True)
        if method == "REAL-X"
    ]
    assert len(said) == 3
    assert all(words in text for words in said[1:])
