"""``unmasked reproduce synthetic`` as a user runs it; one process, so that libraries load once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from unmasked import __version__
from unmasked.cli import app
from unmasked.cli.reproduce import _time
from unmasked.reproduce.judging import Reproduction
from unmasked.training.step import Stepper

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = [
    "--preset", "quick", "--rows", "200", "--epochs", "1", "--sets", "S1", "--device", "cpu",
    "--methods", "REAL-X,L2X", "--sparsities", "0.1", "--ks", "2",
]  # fmt: skip
FILES = ("results.json", "tables.txt", "tables.md", "tables.html")


def invoke(*arguments: object, code: int = 0) -> Result:
    words = ["reproduce", *map(str, arguments)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})
    assert done.exit_code == code, f"{done.exit_code}\n{done.output}\n{done.exception!r}"
    return done


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("made") / "out"
    command = ["unmasked", "reproduce", "synthetic", *SMALL, "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        return folder, invoke("synthetic", *SMALL, "--out", folder)


# ---------------------------------------------------------------------- a run


def test_a_small_run_writes_everything(made: tuple[Path, Result]) -> None:
    folder, done = made
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert "note:" not in done.stderr
    assert done.stdout.startswith((folder / "tables.txt").read_text(encoding="utf-8"))
    last = done.stdout.strip().splitlines()[-1]
    assert "s of training" in last
    assert last.endswith(f"Tables: {folder / 'tables.html'}")


def test_results_tell_how_they_came_about(made: tuple[Path, Result]) -> None:
    folder, _ = made
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    said = f"unmasked reproduce synthetic {' '.join(SMALL)} --out {folder.name}"
    assert results["command"] == said  # where it lies on the machine is left out
    assert results["version"] == __version__
    assert "CPU cores" in results["hardware"]
    recipe = results["recipe"]
    assert (recipe["preset"], recipe["rows"], recipe["judge"]) == ("quick", 200, "own")
    assert (recipe["sparsities"], recipe["ks"]) == ([0.1], [2])
    assert "epochs=1," in recipe["training"]
    chosen = {row["method"]: row for row in results["rows"]}
    assert set(chosen) == {
        "REAL-X", "L2X", "FULL", "random masks", "true features", "true features without x11",
        "optimum",
    }  # fmt: skip
    assert len(results["rows"]) == 7
    assert {(row["dataset"], row["seed"]) for row in results["rows"]} == {("S1", 0)}
    assert chosen["L2X"]["setting"] == {"k": 2}
    assert chosen["L2X"]["metrics"]["fraction"] == pytest.approx(2 / 11)


def test_json_is_all_that_is_printed(made: tuple[Path, Result]) -> None:
    """In the same folder: results of the same run are replaced, and of no other."""
    folder, _ = made
    before = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    done = invoke("synthetic", *SMALL, "--out", folder, "--json")
    assert json.loads(done.stdout)["rows"] == before["rows"]  # and so everything is repeatable
    assert done.stderr == ""
    other = ["--quiet", "--methods", "L2X", "--seeds", 2, "--choose-by", "EVAL-X"]
    done = invoke("synthetic", *SMALL, "--out", folder, *other, code=2)
    assert_one_sentence(done, "holds results of another run (")
    done = invoke("synthetic", *SMALL, "--out", folder.with_name("other"), *other)
    assert done.output == ""
    after = json.loads((folder.with_name("other") / "results.json").read_text(encoding="utf-8"))
    assert after["recipe"]["deviations"][-1].startswith(
        "Of this run: --epochs 1, --sparsities 0.1, --ks 2, --rows 200, --choose-by eval-x instead"
    )
    assert after["recipe"]["judge"] == "eval-x"
    assert {row["seed"] for row in after["rows"]} == {0, 1}
    assert "REAL-X" not in {row["method"] for row in after["rows"]}


def test_a_folder_of_another_preset_is_left_alone(made: tuple[Path, Result]) -> None:
    folder, _ = made
    before = (folder / "results.json").read_bytes()
    done = invoke("synthetic", "--preset", "paper", "--out", folder, code=2)
    assert_one_sentence(done, "holds results of the preset 'quick', not 'paper'")
    assert (folder / "results.json").read_bytes() == before
    assert not (folder / ".checkpoint").exists()


def test_the_folder_is_named_after_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is asked for reaches the work: the presets are not run here."""
    asked: dict[str, Any] = {}

    def work(folder: Path, recipe: Any, **more: Any) -> Any:
        asked.update(more, folder=folder, recipe=recipe)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unmasked.reproduce.synthetic.run_synthetic", work)
    done = invoke("synthetic", "--preset", "TUNED", "--no-collection", "--seeds", 3, code=130)
    assert done.stderr.startswith("stopped. Run the same command again to go on")
    assert asked["folder"] == Path("synthetic-tuned")
    assert asked["seeds"] == (0, 1, 2)
    assert asked["datasets"] == ("S1", "S2", "S3")
    assert asked["recipe"].collection is None
    assert asked["recipe"].members == 10
    assert "Of this run: --no-collection instead" in asked["recipe"].deviations[-1]
    invoke("synthetic", "--collection", "--epochs", 7, "--sets", "s3,S1", code=130)
    assert asked["folder"] == Path("synthetic-quick")
    assert asked["recipe"].collection.epochs == asked["recipe"].training.epochs == 7
    assert asked["datasets"] == ("S3", "S1")


def test_ctrl_c_stops_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, taken = Stepper.__call__, []

    def pressed(self: Stepper, *arguments: Any) -> Any:
        taken.append(1)
        if len(taken) == 8:  # of 10 steps, after the selector has started
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *arguments)

    monkeypatch.setattr(Stepper, "__call__", pressed)
    done = invoke("synthetic", *SMALL, "--out", tmp_path, "--methods", "L2X", code=130)
    assert "Run the same command again" in done.stderr
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "88 s of training, 29 s in all."),
        ({"jobs": 3}, "88 s of training (3 at a time), 29 s in this run."),
        (
            {"jobs": 3, "resumed": True},
            "88 s of training (some of it in an earlier run; 3 at a time), 29 s in this run.",
        ),
        ({"joined": True}, "88 s of training in the runs that are joined."),
    ],
)
def test_how_long_it_took_is_true(how: dict[str, Any], said: str) -> None:
    seconds = {"REAL-X": 80.0, "FULL": 8.0, "all": 29.0}
    assert _time(Reproduction([], [], Path(), seconds, **how)) == said


# ---------------------------------------------------------------------- refusals


def assert_one_sentence(done: Result, words: str) -> None:
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert ". " not in line.removesuffix(".")
    assert done.stdout == ""


BAD: dict[str, tuple[list[str], str]] = {
    "unknown preset": (["--preset", "tunned"], "'tunned'; did you mean tuned?"),
    "unknown set": (["--sets", "S1,S4"], "set must be one of S1, S2, S3 but is 'S4'; did you mean"),
    "unknown method": (["--methods", "REALX"], "is 'REALX'; did you mean REAL-X?"),
    "a method far from all": (["--methods", "qqq"], "REAL-X-STEP but is 'qqq'."),
    "a method twice": (["--methods", "L2X,l2x"], "--methods must list different names"),
    "no set": (["--sets", ","], "--sets must list different names of S1, S2, S3 but is ','"),
    "no method": (["--methods", ""], "--methods must list different names of REAL-X, L2X"),
    "k above the features": (["--ks", "3,12"], "at most the number of features, 11, but is 12"),
    "half a feature": (["--ks", "1.5"], "--ks must be whole numbers with commas between them"),
    "k of 0": (["--ks", "0"], "k must be a whole number above 0 but is 0"),
    "k twice": (["--ks", "2,2"], "k must list different whole numbers but is [2, 2]"),
    "sparsity twice": (["--sparsities", "0.1,0.10"], "must list different numbers"),
    "sparsity below 0": (["--sparsities", "-1"], "at least 0 but is -1.0"),
    "sparsity not a number": (["--sparsities", "nan"], "at least 0 but is nan"),
    "sparsity in words": (["--sparsities", "a few"], "--sparsities must be numbers with commas"),
    "no seeds": (["--seeds", "0"], "--seeds must be at least 1"),
    "few rows": (["--rows", "99"], "--rows at least 100 but are 1 and 99"),
    "unknown judge": (["--choose-by", "evalx"], "but is 'evalx'; did you mean eval-x?"),
    "unknown device": (["--device", "abacus", "--rows", "100"], "'abacus'"),
}


@pytest.mark.parametrize("case", BAD)
def test_user_errors_are_one_sentence_with_exit_code_2(case: str, tmp_path: Path) -> None:
    arguments, words = BAD[case]
    done = invoke("synthetic", *arguments, "--out", tmp_path / "out", code=2)
    assert_one_sentence(done, words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--ks", "--sparsities"])
def test_an_empty_grid_is_refused(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmasked.reproduce.synthetic.draw_worlds", lambda *_: pytest.fail("work"))
    for nothing in (",", ""):
        done = invoke("synthetic", option, nothing, "--out", tmp_path / "out", code=2)
        assert_one_sentence(done, f"{option} must be ")
        assert f"numbers with commas between them but is {nothing!r}" in done.stderr


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    done = invoke("synthetic", "--out", tmp_path / "file", code=2)
    assert_one_sentence(done, "is a file")
    assert (tmp_path / "file").read_text() == "precious"


# ---------------------------------------------------------------------- help


def test_help_tells_what_can_be_asked() -> None:
    for arguments in (["--help"], ["synthetic", "--help"]):
        text = invoke(*arguments).stdout
        assert "synthetic" in text
    for option in ("--preset", "--seeds", "--sets", "--methods", "--ks", "--choose-by", "--rows"):
        assert option in text
