"""An output folder: what is ours is replaced whole, what is somebody else's is not touched."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.cli.common import only_run
from unmasked.errors import OutputError
from unmasked.explainers.saving import FORMAT
from unmasked.io import output_folder as module
from unmasked.io.output_folder import all_or_nothing, prepare_folder

WRITES = ("masks", "page.html", "results.json")


def write(folder: Path, version: str) -> None:
    """What a command does: look, work, put in place."""
    prepare_folder(folder, writes=WRITES)
    with all_or_nothing(folder) as part:
        (part / "masks" / "deep").mkdir(parents=True)
        (part / "masks" / "deep" / f"{version}.png").write_text(version)
        (part / "page.html").write_text(version)
        content = {"command": version, "version": "0.1.0", "hardware": "none"}
        (part / "results.json").write_text(json.dumps(content))


def state(folder: Path) -> dict[str, str]:
    """Every file and link, but for the note of what is ours."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".unmasked.json"
    }


def said(folder: Path) -> set[str]:
    """Of which runs the files in place are."""
    return {
        json.loads(text)["command"] if name == "results.json" else text
        for name, text in state(folder).items()
        if not name.startswith(".")
    }


def test_what_was_written_is_replaced_whole(tmp_path: Path) -> None:
    for version in ("first", "second"):
        write(tmp_path, version)
        assert said(tmp_path) == {version}
        assert len(state(tmp_path)) == 3  # nothing of the run before, no part, no old
    assert sorted(path.name for path in tmp_path.iterdir()) == [".unmasked.json", *WRITES]


@pytest.mark.parametrize("strange", ["masks/answers.sqlite", "masks/deep/by-hand.png"])
@pytest.mark.parametrize("after", [False, True])
def test_a_folder_with_somebody_elses_file_is_left_alone(
    tmp_path: Path, strange: str, *, after: bool
) -> None:
    if after:
        write(tmp_path, "first")
    (tmp_path / strange).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / strange).write_text("dear to me")
    before = state(tmp_path)
    with pytest.raises(OutputError, match=f"{strange} exists and is not known to be a result"):
        write(tmp_path, "second")
    assert state(tmp_path) == before


@pytest.mark.parametrize("name", ["page.html", "results.json", "masks"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(OutputError, match=f"{name} exists and is not known to be a result"):
        write(tmp_path, "first")
    assert state(tmp_path) == {name: '{"mine": 1}'}


def test_a_link_is_not_followed_nor_replaced(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "masks").symlink_to(elsewhere)
    with pytest.raises(OutputError, match="masks exists and is not known"):
        write(out, "first")
    assert (out / "masks").is_symlink()


def test_files_beside_our_results_are_ours(tmp_path: Path) -> None:
    """As in a checkout of published results, which has no note."""
    write(tmp_path, "first")
    (tmp_path / ".unmasked.json").unlink()
    (tmp_path / "masks" / "deep" / "first.png").unlink()  # an empty folder is nobody's
    write(tmp_path, "second")
    assert said(tmp_path) == {"second"}


def test_what_comes_while_we_work_is_not_lost(tmp_path: Path) -> None:
    prepare_folder(tmp_path, writes=WRITES)

    def work() -> None:
        with all_or_nothing(tmp_path) as part:
            (part / "masks").mkdir()
            (tmp_path / "masks").mkdir()
            (tmp_path / "masks" / "answers.sqlite").write_text("dear to me")

    with pytest.raises(OutputError, match=r"answers.sqlite exists.* lie in .*\.unmasked\.part"):
        work()
    assert state(tmp_path) == {"masks/answers.sqlite": "dear to me"}
    assert (tmp_path / ".unmasked.part" / "masks").is_dir()


def test_what_systems_put_into_folders_is_nobodys(tmp_path: Path) -> None:
    write(tmp_path, "first")
    for name in (".DS_Store", "Thumbs.db", "._first.png"):
        (tmp_path / "masks" / name).write_text("of a system")
    write(tmp_path, "second")
    assert said(tmp_path) == {"second"}


def test_notes_beside_a_saved_model_are_kept(tmp_path: Path) -> None:
    def save(version: str) -> None:
        prepare_folder(tmp_path, {"model": "RealX"})
        with all_or_nothing(tmp_path) as part:
            (part / "model").mkdir()
            kind = {"format": FORMAT, "kind": "RealX", "of": version}
            (part / "model" / "config.json").write_text(json.dumps(kind))

    save("first")
    save("second")
    (tmp_path / "model" / "notes.txt").write_text("dear to me")
    with pytest.raises(OutputError, match=r"notes.txt exists"):
        save("third")
    (tmp_path / "model" / "notes.txt").unlink()
    (tmp_path / ".unmasked.json").unlink()  # as models were saved before there were notes
    save("fourth")
    assert "fourth" in (tmp_path / "model" / "config.json").read_text()


def test_somebodys_folder_called_old_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".old").mkdir()
    (tmp_path / ".old" / "thesis.txt").write_text("dear to me")
    (tmp_path / "page.html").write_text("dear to me")
    with pytest.raises(OutputError, match=r"page.html exists"):
        write(tmp_path, "first")
    (tmp_path / "page.html").unlink()
    write(tmp_path, "first")
    assert (tmp_path / ".old" / "thesis.txt").read_text() == "dear to me"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("fresh", [False, True])
def test_moves_that_fail_leave_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], *, fresh: bool
) -> None:
    """Whichever rename it is: 1 of the note, 3 of what was there, 3 of what comes."""
    for number in range(4 if fresh else 7):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not fresh:
            write(folder, "first")
        before = state(folder)
        left = [number]

        def replace(source: Path, target: Path, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise error
            Path(source).rename(target)

        monkeypatch.setattr(module.os, "replace", replace)
        with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else OutputError):
            write(folder, "second")
        monkeypatch.undo()
        assert state(folder) == before
        write(folder, "third")  # the same command again
        assert said(folder) == {"third"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_a_kill_between_moves_leaves_no_mixture_that_looks_finished(tmp_path: Path) -> None:
    seen = set()
    for number in range(8):
        folder = tmp_path / str(number)
        write(folder, "first")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which do nothing here
            child = os.fork()
        if child == 0:  # killed before a rename
            left = [number]

            def replace(source: Path, target: Path, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == -1:
                    os.kill(os.getpid(), signal.SIGKILL)
                Path(source).rename(target)

            module.os.replace = replace  # type: ignore[assignment]
            try:
                write(folder, "second")
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) == (number < 7)
        assert len(said(folder)) <= 1
        finished = (folder / "results.json").exists()
        assert not finished or len(state(folder)) >= 3
        seen.add((finished, *said(folder)))
        write(folder, "third")  # the same command again
        assert said(folder) == {"third"}
        assert sorted(path.name for path in folder.iterdir()) == [".unmasked.json", *WRITES]
    assert seen == {
        (True, "first"),
        (False, "first"),
        (False,),
        (False, "second"),
        (True, "second"),
    }


def test_two_runs_do_not_work_on_one_folder(tmp_path: Path) -> None:
    with (
        only_run(tmp_path / "a"),
        only_run(tmp_path / "b"),
        pytest.raises(OutputError, match="another run of unmasked is working on"),
        only_run(tmp_path / "x" / ".." / "a"),
    ):
        pass
    with only_run(tmp_path / "a"):  # it ended
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_not_replaced_by_its_explanation(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    text = "a,b,y\n" + "".join(f"{i},{-i},{i % 2}\n" for i in range(40))
    table.write_text(text)
    asked = ["explain", str(table), "--target", "y", "--epochs", "1", "--device", "cpu"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "has the name of a result" in done.stderr
    (tmp_path / "masks.csv").write_text("mine")
    other = tmp_path / "rows-of-mine.csv"
    other.write_text(text)
    table.unlink()
    asked[1] = str(other)
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "masks.csv exists and is not known to be a result" in done.stderr
    assert state(tmp_path) == {"masks.csv": "mine", "rows-of-mine.csv": text}


@pytest.mark.usefixtures("one_thread")
def test_unfinished_training_on_a_table_is_not_forgotten_silently(tmp_path: Path) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "out"
    table.write_text("a,b,y\n" + "".join(f"{i},{-i},{i % 2}\n" for i in range(40)))
    (out / ".checkpoint" / "0123456789ab").mkdir(parents=True)
    asked = ["explain", table, "--target", "y", "--epochs", 1, "--device", "cpu", "--out", out]
    words = "holds the unfinished training of a command with other options"
    done = CliRunner().invoke(app, [*map(str, asked), "--sparsity", "0.1"])
    assert done.exit_code == 0
    assert words in done.stderr
    done = CliRunner().invoke(app, [*map(str, asked), "--sparsity", "0.1"])
    assert words not in done.stderr
