"""Count the modules that a job enters, and how often it goes from one to another.

    python benchmarks/walk.py               # RealX().fit(X, y).explain(X)
    python benchmarks/walk.py explain       # unmasked explain table.csv --target y

A tracer notes each function of the package when it is entered for the first time, in order. A
switch is a step from one module to another in that order. What importing runs is not counted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import unmasked
from unmasked import RealX, Training
from unmasked.datasets import synthetic

HOME = Path(unmasked.__file__).parent


def walked(work: Callable[[], Any]) -> list[tuple[str, str]]:
    """(module, function) of each function of the package that the work enters, in order."""
    seen: set[CodeType] = set()
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(str(HOME)):
            return
        seen.add(code)
        if code.co_name != "<module>":
            module = Path(code.co_filename).relative_to(HOME).with_suffix("")
            found.append((".".join(module.parts), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def fit_and_explain() -> None:
    """Do the core: a table is learned from and explained."""
    rows = synthetic("S3", 300, seed=0)
    RealX(training=Training(epochs=2), progress=False).fit(rows.x, rows.y).explain(rows.x)


def explain_table() -> None:
    """Do the main job of the command line."""
    import pandas as pd

    from unmasked.cli import main

    rows = synthetic("S3", 300, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        pd.DataFrame(rows.x, columns=rows.feature_names).assign(y=rows.y).to_csv(path, index=False)
        out = str(Path(folder) / "out")
        sys.argv = [
            "unmasked",
            "explain",
            str(path),
            "--target",
            "y",
            "--epochs",
            "2",
            "--out",
            out,
        ]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


def main() -> None:
    job = explain_table if sys.argv[1:] == ["explain"] else fit_and_explain
    job()  # imports, caches
    steps = walked(job)
    modules = [module for module, _ in steps]
    switches = sum(a != b for a, b in pairwise(modules))
    for module, function in steps:
        print(f"{module}: {function}")
    print(f"{len(steps)} functions in {len(set(modules))} modules, {switches} switches")


if __name__ == "__main__":
    main()
