"""The page on the encoding test: its code runs and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "encoding-test.md"


def test_the_page_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(compile(block, PAGE.name, "exec"), names)
    (said,) = re.findall(r"```\n(random features.*?)```", text, re.S)
    assert printed.getvalue() == said
    assert (tmp_path / "encoding-test.png").stat().st_size > 1_000
    assert (PAGE.parent / "encoding-test.png").exists()


def test_the_pages_error_rates_are_the_measured_ones() -> None:
    results = json.loads((ROOT / "results" / "encoding" / "results.json").read_text())
    alarms = results["false_alarms"]
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{alarms['encodes']} false alarms in {alarms['trials']}" in text
    assert alarms["rate"]["value"] <= 0.05


def test_the_pages_figures_of_networks_are_the_measured_ones() -> None:
    results = json.loads((ROOT / "results" / "encoding" / "network" / "results.json").read_text())
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    alarms = results["false_alarms"]
    assert f"{alarms['encodes']} false alarms in {alarms['trials']} honest" in text
    part = text.split("--network`")[1]
    sizes = {"0 to 0.05": "below 0.05"}
    for size in ("0 to 0.05", "0.05 to 0.1", "0.1 to 0.2", "0.2 and more"):
        own = [e for e in results["by_size"] if e["size"] == size]
        cells = " | ".join(f"{e['encodes']} of {e['trials']}" for e in own)
        assert f"| {sizes.get(size, size)} | {cells} |" in part


def test_the_pages_figures_of_mnist_are_the_measured_ones() -> None:
    found = json.loads((ROOT / "results" / "mnist" / "encoding.json").read_text(encoding="utf-8"))
    rows = found["selections"]
    text = PAGE.read_text(encoding="utf-8")
    for name in {key.split(", seed")[0] for key in rows}:
        method, setting = name.split(" ", 1)
        nats = [rows[f"{name}, seed {seed}"]["nats"] for seed in (0, 1)]
        (line,) = re.findall(rf"^\| {method}, {setting} \|.*$", text, re.M)
        said = [float(number) for number in line.split("|")[3].split(",")]
        assert said == pytest.approx([abs(round(value, 3)) for value in nats], abs=1e-9), name
    least, most = (
        [rows[f"{name}, seed {seed}"]["nats"] for seed in (0, 1)]
        for name in ("REAL-X λ = 1", "L2X k = 1")
    )
    assert max(least) < min(most) / 5
    assert 35 < sum(most) / sum(least) < 50  # "a fortieth"
    assert {rows[f"L2X k = 1, seed {seed}"]["verdict"] for seed in (0, 1)} == {"encodes"}
