"""REAL-X held to its figures: minutes of training, so run with `make test-slow`.

Thresholds are those the project promises; the sampling noise of an AUROC on 10,000 rows is
0.004 (standard deviation), and the measured figures lie further above them than that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split

from unmasked import EvalX, RealX, Scores, selection_quality, synthetic
from unmasked.datasets.synthetic import CONTROL_FLOW

pytestmark = pytest.mark.slow
PAPER_GRID = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25)


@pytest.mark.parametrize(
    ("name", "least"), [("S1", 0.80), ("S2", 0.80), ("S3", 0.885)], ids=["S1", "S2", "S3"]
)
def test_synthetic_truth_is_found(name, least):
    train, valid, test = (synthetic(name, 10_000, 100 + part) for part in range(3))
    validation = (valid.x, valid.y)
    explainer = RealX(PAPER_GRID, random_state=0)
    explainer.fit(train.x, train.y, validation=validation)
    explanation = explainer.explain(test.x)
    quality = selection_quality(explanation.masks, test.truth, CONTROL_FLOW)
    scores = EvalX(random_state=0).fit(train.x, train.y, validation=validation)
    found = scores.evaluate(explanation, test.x, test.y, bootstrap_draws=200)
    print(f"\n{name}: λ = {explainer.sparsity_:g}, {quality}, eAUROC {found['eauroc']}")
    assert quality.cfsr is not None
    assert quality.cfsr >= 0.99
    assert quality.tpr >= 0.95
    assert quality.fdr <= 0.05
    assert found["eauroc"].value >= least
    assert found.over_random["eloglik"].low > 0


def test_the_first_lines_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they save a picture
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    space: dict[str, object] = {}
    exec(code.group(1), space)
    scores = space["scores"]
    assert isinstance(scores, Scores)
    assert scores["eauroc"].value > 0.9
    assert list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine], ids=["cancer", "wine"])
def test_small_tables_lose_little(load):
    """Accuracy from what is shown within 3 points of everything shown, mean of 3 splits."""
    losses = []
    for seed in range(3):
        X, y = load(return_X_y=True, as_frame=True)
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed, stratify=y)
        explainer = RealX(random_state=seed).fit(X_train, y_train)
        evaluator = EvalX(random_state=seed).fit(X_train, y_train)
        scores = evaluator.evaluate(explainer.explain(X_test), X_test, y_test, bootstrap_draws=200)
        losses.append(scores.rows["everything"]["eacc"].value - scores["eacc"].value)
    print(f"\n{load.__name__}: accuracy lost {[round(loss, 3) for loss in losses]}")
    assert sum(losses) / len(losses) <= 0.03
