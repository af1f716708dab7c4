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


FILMS = ("FULL", "REAL-X, λ = 1, 0.25, 0.1", "REAL-X-EXCHANGE, λ = 1, 1, 0.25")
FILMS += ("L2X, k = 5, 100, 100", "INVASE, λ = 0.5, 0.1, 0.25", "BASE-X, λ = 2.5, 1, 2.5")
HONEST = ("REAL-X", "REAL-X-EXCHANGE")
ALIKE = tuple(f"{name}, λ = {price:g}" for name in HONEST for price in (0.25, 0.5, 1, 2.5))
ALIKE += tuple(f"BASE-X, λ = {price:g}" for price in (0.5, 1, 2.5))
ALIKE += ("L2X, k = 1", "L2X, k = 5", "L2X, k = 15", "INVASE, λ = 0.5")
TWICE = tuple(f"{name}, λ = {price:g}" for name in HONEST for price in (0.5, 1, 2.5))
DRAWN = ("FULL", "REAL-X-K, k = 16", "L2X, k = 16")
DRAWN += tuple(f"{name}, λ = {price}" for name in HONEST for price in (1, 2, 4))


def films() -> tuple[str, str, str]:
    """The report on real films, on an earlier run of them, and on drawn ones."""
    real, earlier, drawn = section("Chest X-rays").split("\n### ")
    return real, earlier, drawn


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


@pytest.mark.parametrize("name", TWICE)
def test_the_table_of_two_runs_is_the_measured_one(name: str) -> None:
    runs = [measured(rows(folder), name, chosen=False) for folder in ("cxr/earlier", "cxr")]
    columns = cells(films()[1], name)
    for (shown, judged), found in zip((columns[::2], columns[1::2]), runs, strict=True):
        shares = [256 * share for share in found["fraction"][:2]]
        assert numbers(shown) == pytest.approx(shares, abs=0.051)
        assert numbers(judged) == pytest.approx(found["eauroc_varied"][:2], abs=5.1e-4)


@pytest.mark.parametrize("name", DRAWN)
def test_the_table_of_drawn_films_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr/phantom"), name, chosen=False)
    shown, *columns = cells(films()[2], name)
    if name == "FULL":
        assert shown == "256"
    else:
        assert numbers(shown) == pytest.approx([256 * v for v in found["fraction"]], abs=0.051)
    keys = ("iou", "tpr", "fdr", "auroc", "eauroc", "eauroc_varied", "macc")
    for cell, key in zip(columns, keys, strict=True):
        assert numbers(cell) == pytest.approx(found[key], abs=5.1e-4), key


def interval(difference: dict[str, float]) -> str:
    words = "{value:.3f} [{low:.3f}, {high:.3f}]".format(**difference)
    return words.replace("-", "−")


def test_what_the_report_says_of_chosen_films_holds() -> None:
    text, table = " ".join(films()[0].split()), rows("cxr")
    for name in HONEST:
        own = [row for row in table if row["method"] == name and row["chosen"]]
        assert len(own) == 3
        assert all(interval(row["over_random"]["eauroc"]) in text for row in own)
        clear = [row["over_random"]["eauroc"]["low"] > 0 for row in own]
        assert clear == ([True, False, False] if name == "REAL-X" else [True] * 3)
        metrics = [row["metrics"] for row in own]
        for row, above in zip(metrics, clear, strict=True):
            assert not (above and row["eauroc"] >= 0.8 and row["eacc"] >= 0.72)  # "No seed …"
        assert f"{np.mean([row['eauroc'] for row in metrics]):.3f}" in text
    luck = [row["reason"][-5:] for row in own]
    full = [f"{row['metrics']['acc']:.3f}" for row in table if row["method"] == "FULL"]
    for three in (luck, full):
        assert "{}, {} and {}".format(*three) in text


def test_what_the_report_says_of_sparse_films_holds() -> None:
    text, table = " ".join(films()[0].split()), rows("cxr")
    means = {
        name: {
            key: float(np.mean(values))
            for key, values in measured(table, name, chosen=name == "FULL").items()
            if values and key != "random"
        }
        for name in ("FULL", *ALIKE)
    }
    full, eighth = means["FULL"]["auroc"], means["REAL-X, λ = 0.5"]
    assert f"{full - eighth['eauroc']:.3f} less than FULL by the paper's judge" in text
    assert f"{full - eighth['eauroc_varied']:.3f} by the other" in text
    assert f"an AUROC of {means['L2X, k = 1']['eauroc_varied']:.3f}." in text
    base = means["BASE-X, λ = 2.5"]
    assert f"an AUROC of {base['auroc']:.3f} by its own predictor, {base['eauroc']:.3f}" in text
    sure = means["REAL-X, λ = 1"]
    assert f"({sure['acc']:.3f} and {sure['eacc_varied']:.3f} at λ = 1)" in text
    alone = measured(table, "REAL-X, λ = 1", chosen=False)
    for key in ("eacc", "eauroc"):
        assert "({}, {}, {}".format(*(f"{value:.3f}" for value in alone[key])) in text
    blank = [
        row["metrics"]["eloglik"]
        for row in table
        if row["method"] == "REAL-X" and row["setting"] == {"sparsity": 50.0}
    ]
    assert "{}, {} and {}".format(*(f"−{-value:.2f}" for value in blank)) in text
    one = measured(table, "L2X, k = 1", chosen=False)
    for key in ("acc", "macc"):
        error = np.std(one[key], ddof=1) / np.sqrt(3)
        assert f"{np.mean(one[key]):.3f} ± {error:.3f}" in text
