"""The report on the synthetic tables says what the results say."""

from __future__ import annotations

import numpy as np
import pytest
from report_figures import cells, numbers, rows, section

SETS = ("S1", "S2", "S3")
COLUMNS = ("cfsr", "tpr", "fdr", "auroc", "eauroc", "loglik", "eloglik", "ologlik")


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
