"""The rows of a table and what a run returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reproduction:
    """All rows (see ``results.json``), what they say in words, and where the files are.

    seconds : of training, by what was trained, and under "all" of this run.
    resumed : some of it was trained by an earlier run. jobs : how many were trained at a time.
    joined : the rows are of several runs, and so are the seconds.
    """

    rows: list[dict[str, Any]]
    lead: list[str]
    folder: Path
    seconds: dict[str, float]
    resumed: bool = False
    jobs: int = 1
    joined: bool = False


def result_row(
    dataset: str, seed: int, method: str, chosen: bool, metrics: dict[str, float], **setting: Any
) -> dict[str, Any]:
    """One row of ``results.json``."""
    return {
        "dataset": dataset,
        "method": method,
        "setting": setting,
        "seed": seed,
        "chosen": bool(chosen),
        "metrics": metrics,
    }
