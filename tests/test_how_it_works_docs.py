"""The pages on how it works and on sparsity: their code runs and shows what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
DOCS = Path(__file__).resolve().parents[1] / "docs"


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, page, "exec"), names)
    drawn = re.findall(r"\]\((how-it-works/\S+\.png)\)", text)
    assert drawn
    for picture in drawn:
        assert (DOCS / picture).exists()
        assert (folder / Path(picture).name).stat().st_size > 1_000
    return names


def test_how_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("how-it-works", tmp_path, monkeypatch)
    truth, without, code = (s["eloglik"].value for s in names["scores"].values())
    nothing = names["scores"]["without x11"].rows["nothing"]["eloglik"].value
    # exactly, x11 is worth 0.105 nats and nothing shown −0.69
    assert truth > without + 0.08
    assert code < nothing + 0.03
    explanation, test = names["explanation"], names["test"]
    assert explanation.masks[:, 10].mean() > 0.95
    left = test.x[:, 10] < 0
    counts = np.array([2, 3, 4, 5]), np.array([6, 8, 9])
    for side, own, others in ((left, *counts), (~left, *counts[::-1])):
        assert explanation.masks[side][:, own].mean() > 0.8
        assert explanation.masks[side][:, others].mean() < 0.2
    assert names["fidelity"].over_random["eloglik"].low > 0.1


def test_sparsity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("sparsity", tmp_path, monkeypatch)
    path = names["path"]
    assert path["chosen"].sum() == 1
    assert names["few"].masks.sum() < names["usual"].masks.sum()
    assert names["usual"].masks.mean() < 0.5
