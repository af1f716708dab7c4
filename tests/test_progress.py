"""Progress in a log: when something begins, once a minute, and when it ends."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from small_tables import quick, rows

from unmasked import Training
from unmasked.cli.common import shown
from unmasked.datasets.films import file_bar
from unmasked.training import progress
from unmasked.training.progress import Bar, Show, watched


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_lines_begin_come_once_a_minute_and_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Bar("REAL-X", 40, "lines") as bar:
        bar.update(0)
        for epoch in range(40):
            clock.now += 4
            bar.update(epoch + 1, 0.5, 0.1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "REAL-X: 40 epochs",
        "REAL-X: 15 of 40 epochs",
        "REAL-X: 30 of 40 epochs",
        "REAL-X: trained in 160 s",
    ]


def test_lines_of_a_run_that_goes_on(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("FULL", 8, "lines") as bar:  # it was finished before
        bar.update(8)
    with Bar("EVAL-X", 8, "lines") as bar:
        bar.update(5)
        clock.now += 3
        bar.update(6)  # all settings stopped early
    with suppress(KeyboardInterrupt), Bar("L2X", 8, "lines") as bar:
        bar.update(0)
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines() == [
        "EVAL-X: 8 epochs, 5 of them before",
        "EVAL-X: trained in 3 s",
        "L2X: 8 epochs",
    ]


def test_files_are_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for total in (1200, 0):
        with file_bar(total, "lines", "films") as advance:
            advance()
    assert capsys.readouterr().err == "reading 1,200 films\n"


@pytest.mark.parametrize(
    ("quiet", "json", "terminal", "expected"),
    [
        (False, False, True, "auto"),
        (False, False, False, "lines"),
        (True, False, True, False),
        (False, True, False, False),
    ],
)
def test_commands_show_bars_on_terminals_and_lines_elsewhere(
    quiet: bool, json: bool, terminal: bool, expected: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert shown(quiet=quiet, json=json) == expected
    assert watched(expected) == (expected == "auto")


def test_what_was_finished_before_is_not_said_to_be_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it had stopped early: 50 epochs were allowed."""
    said = []
    for _ in range(2):
        x, y = rows()
        quick(
            training=Training(epochs=50, patience=1, batch_size=20),
            progress="lines",
            checkpoint=tmp_path,
        ).fit(x, y)
        said.append(capsys.readouterr().err)
    assert "50 epochs" in said[0]
    assert said[1] == ""
