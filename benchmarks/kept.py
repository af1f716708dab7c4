"""Rows that benchmarks keep in a file as they find them, so that the same command goes on.

A process may be killed while it writes, which leaves a line that was cut short: it is not read,
and nothing is ever written onto it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file, if it is there; lines that cannot be read are left out."""
    found: list[Row] = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found += value if isinstance(value, list) else [value]
    return found


def add_rows(path: Path, *rows: Row) -> None:
    """Add a line that holds a row, or several: they are found together or not at all.

    A single write at the end of the file: several processes may add at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(rows[0] if len(rows) == 1 else rows) + "\n"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        data = line.encode() if _ends_a_line(file) else f"\n{line}".encode()
        if os.write(file, data) < len(data):
            raise OSError(f"{path} could not be written whole; is the disk full?")
    finally:
        os.close(file)


def _ends_a_line(file: int) -> bool:
    """Whether an open file is empty or ends in a whole line."""
    size = os.fstat(file).st_size
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"


def commit(told: str = "") -> str:
    """Name the commit that runs: as told, or as git says where it is there and knows."""
    if told:
        return told
    command = ["git", "describe", "--always", "--dirty"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    except OSError:
        return ""
    return done.stdout.strip()
