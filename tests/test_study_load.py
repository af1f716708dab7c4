"""Many readers at once, servers that are killed: `benchmarks/study_load.py` in small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_postgres import POSTGRES, Postgres

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "study_load.py"


def load(*arguments: object) -> dict:
    """What the benchmark found; it fails where an answer is lost or a server ends by itself."""
    small = ["--cases", "2", "--size", "64"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *small, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check(found: dict) -> None:
    assert found["crashes"] == []
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["acknowledged"] >= found["readers"]
    assert not any(status.endswith("507") for status in found["statuses"])


def test_fifty_readers_at_once():
    found = load("--readers", 50, "--seconds", 5, "--think", 0.2)
    check(found)
    assert found["stored"] == found["acknowledged"]
    assert {status.split()[1] for status in found["statuses"]} == {"200"}
    assert found["files_afterwards"] == ["answers.sqlite"]


def test_servers_that_are_killed_lose_nothing():
    check(
        load(
            "--readers",
            20,
            "--seconds",
            8,
            "--think",
            0.2,
            "--kills",
            3,
            "--workers",
            2,
            "--port",
            8920,
        )
    )


def test_fifty_readers_at_once_in_postgres():
    if POSTGRES is None:
        pytest.skip("PostgreSQL is not installed")
    postgres = Postgres(8430)
    try:
        more = ("--kills", 1, "--port", 8940, "--database", postgres.database())
        check(load("--readers", 50, "--seconds", 5, "--think", 0.2, *more))
    finally:
        postgres.remove()
