"""SHAP, LIME and Captum in the guide: its code runs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")
with warnings.catch_warnings():  # their imports call what newer versions of others dislike
    warnings.simplefilter("ignore")
    for library in ("shap", "lime.lime_tabular", "captum.attr"):
        pytest.importorskip(library)

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[1]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


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
