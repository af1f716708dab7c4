"""``unmasked explain-images`` takes care: of what is not its own, of words, of half-done work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_commands import SHORT, refused, results, run
from small_pictures import write_films, write_labels

from unmasked import EvalX
from unmasked.cli.common import only_run
from unmasked.cli.workflows import explain_images as job
from unmasked.cli.workflows.image_files import plain_names
from unmasked.cli.workflows.image_text import class_sentences, skipped_sentences
from unmasked.io.image_lists import Skipped

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("care") / "films"
    write_labels(folder.with_suffix(".csv"), write_films(folder, 30))
    return folder


@pytest.fixture(scope="module")
def trained(films: Path) -> Path:
    out = films.with_name("trained")
    run(films, "--labels", films.with_suffix(".csv"), "--out", out, "--fit", "crop", *SHORT)
    return out


def test_where_things_lie_on_the_machine_is_not_passed_on(trained: Path, films: Path) -> None:
    new = films.with_name("again")
    run(films, "--model", trained, "--out", new, "--device", "cpu")
    for folder in (trained, new):
        for name in ("results.json", "gallery.html", "explained.csv"):
            assert str(films.parent) not in (folder / name).read_text(encoding="utf-8"), name
    assert results(new)["model"] == "trained/model"


def test_pictures_to_be_explained_are_not_replaced(films: Path, tmp_path: Path) -> None:
    """The folder bears a name that is written into the output folder around it."""
    own = shutil.copytree(films, tmp_path / "masks")
    words = refused(own, "--labels", films.with_suffix(".csv"), "--out", tmp_path, *SHORT)
    assert f"the pictures' folder {own} lies where results are written to" in words
    assert len(list(own.iterdir())) == 30
    assert [path.name for path in tmp_path.iterdir()] == ["masks"]


def test_the_answers_of_a_study_are_not_replaced(trained: Path, films: Path) -> None:
    answers = trained / "study" / "answers.sqlite"
    answers.write_text("of six readers")
    try:
        words = refused(films, "--labels", films.with_suffix(".csv"), "--out", trained, *SHORT)
        assert f"{answers} exists" in words
        assert answers.read_text() == "of six readers"
    finally:
        answers.unlink()
    kept = trained / "cache" / "pictures-2023.tar"
    kept.write_text("mine")
    run(films, "--labels", films.with_suffix(".csv"), "--out", trained, "--fit", "crop", *SHORT)
    assert kept.read_text() == "mine"
    kept.unlink()


def test_labels_among_the_results_are_not_replaced(trained: Path, films: Path) -> None:
    for name in ("explained.csv", "study/manifest.csv"):
        words = refused(films, "--labels", trained / name, "--out", trained, *SHORT)
        assert "lie where results are written to" in words


def test_a_second_run_on_the_same_folder_is_refused(films: Path, tmp_path: Path) -> None:
    with only_run(tmp_path / "out"):
        words = refused(films, "--labels", films.with_suffix(".csv"), "--out", tmp_path / "out")
    assert "another run of unmasked is working on" in words


def test_a_half_trained_evaluator_judges_nobody(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(EvalX):
        def fit(self, *arguments: Any, **options: Any) -> EvalX:
            super().fit(*arguments, **options)
            self.interrupted_ = True  # as after Ctrl-C
            return self

    out = tmp_path / "out"
    monkeypatch.setattr(job, "EvalX", Stopped)
    asked = (films, "--labels", films.with_suffix(".csv"), "--out", out, *SHORT)
    done = run(*asked, code=130)
    assert "Run the same command again" in done.stderr
    assert not (out / "results.json").exists()
    assert (out / ".checkpoint").is_dir()
    monkeypatch.undo()
    run(*asked)
    assert results(out)["pictures"]["used"] == 30


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("size", 64),
        ("size", 128),
        ("superpixels", 4),
        ("network", "nonsense"),
        ("epochs", 2),
    ],
)
def test_options_of_training_are_refused_beside_a_model(
    trained: Path, films: Path, tmp_path: Path, option: str, value: object
) -> None:
    words = refused(films, "--model", trained, f"--{option}", value, "--out", tmp_path / "out")
    assert f"--{option} belongs to training and cannot be given beside --model" in words


def test_the_help_says_what_is_taken_by_default() -> None:
    """Square brackets would be taken for markup, and not be shown."""
    words = " ".join(run("--help").stdout.replace("│", " ").split())
    assert "By default pad; with --model as its pictures were read." in words
    assert "by default 8, for unet-densenet 16." in words
    assert "A CSV, TSV or Parquet file with a column of file names and one of labels." in words


@pytest.mark.parametrize("option", ["--image-column", "--label-column", "--group"])
def test_columns_of_no_table_are_refused(
    trained: Path, films: Path, tmp_path: Path, option: str
) -> None:
    words = refused(films, "--model", trained, option, "x", "--out", tmp_path / "out")
    assert f"{option} names the column 'x' of a table of labels but none came" in words
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, []),
        (["a"], ["1 picture: 1 of 'a'."]),
        (["b", "a", "b"], ["3 pictures: 2 of 'b', 1 of 'a'."]),
        (
            list("abcdefg"),
            ["7 pictures: 1 of 'a', 1 of 'b', 1 of 'c', 1 of 'd', 1 of 'e', 1 of 'f', "
             "1 of another class."],
        ),
        (
            [*"aaccddeeffgg", "b", "b", *"hij"],
            ["17 pictures: 2 of 'a', 2 of 'b', 2 of 'c', 2 of 'd', 2 of 'e', 2 of 'f', "
             "5 of 4 other classes."],
        ),
        (
            ["0", "0.0", "1", "nan", "NaN", "-"],
            ["6 pictures: 1 of '-', 1 of '0', 1 of '0.0', 1 of '1', 1 of 'NaN', 1 of 'nan'.",
             "The labels '0' and '0.0' are the same number but count as two classes.",
             "The labels 'NaN' and 'nan' differ in capitals only but count as two classes."],
        ),
        (
            ["Sick", "sick", "well", "SICK"],
            ["4 pictures: 1 of 'SICK', 1 of 'Sick', 1 of 'sick', 1 of 'well'.",
             "The labels 'SICK', 'Sick' and 'sick' differ in capitals only but count as 3 "
             "classes."],
        ),
        (
            ["1", "01", "1.0", "9007199254740993", "9007199254740992"],
            ["5 pictures: 1 of '01', 1 of '1', 1 of '1.0', 1 of '9007199254740992', "
             "1 of '9007199254740993'.",
             "The labels '01', '1' and '1.0' are the same number but count as 3 classes."],
        ),
    ],
)  # fmt: skip
def test_classes_are_counted_and_looked_at(labels: list[str] | None, said: list[str]) -> None:
    assert class_sentences(None if labels is None else np.array(labels)) == said


def test_one_number_written_in_two_ways_is_told(films: Path, tmp_path: Path) -> None:
    lines = films.with_suffix(".csv").read_text().splitlines()[1:]
    cells = [(line.partition(",")[0], ("0", "1", "1.0")[i % 3]) for i, line in enumerate(lines)]
    table, out = write_labels(tmp_path / "l.csv", cells), tmp_path / "out"
    words = "The labels '1' and '1.0' are the same number but count as two classes."
    assert words in run(films, "--labels", table, "--out", out, *SHORT).stdout
    assert words in results(out)["remarks"]
    again = run(films, "--model", out, "--labels", table, "--out", tmp_path / "new")
    assert words in again.stdout


@pytest.mark.parametrize(
    ("more", "words"), [(1, "1 more picture was skipped"), (2, "2 more pictures were skipped")]
)
def test_what_is_not_named_is_counted(more: int, words: str) -> None:
    *named, last = skipped_sentences([Skipped(f"{i}.png", "is empty") for i in range(10 + more)])
    assert len(named) == 10
    assert last == f"{words}; results.json lists them all."


def test_new_pictures_are_read_as_the_models_were(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(trained / "model", tmp_path / "model")
    said = model / "pictures.json"
    asked = (films, "--model", model, "--device", "cpu")
    run(*asked, "--out", tmp_path / "as-saved")
    assert results(tmp_path / "as-saved")["pictures"]["fit"] == "crop"
    for other in ("none", "pad"):
        words = refused(*asked, "--fit", other, "--out", tmp_path / "x")
        assert f"were read with --fit crop, so new ones cannot be read with --fit {other}" in words
    said.write_text("[1]")
    assert "pictures.json must say how" in refused(*asked, "--out", tmp_path / "x")
    said.unlink()
    done = run(*asked, "--fit", "crop", "--out", tmp_path / "as-asked")
    assert "does not say how its pictures were made square, so --fit crop was taken" in done.stdout
    assert results(tmp_path / "as-asked")["pictures"]["fit"] == "crop"
    done = run(*asked, "--out", tmp_path / "unasked")
    assert "so --fit pad was taken" in done.stdout
    assert "does not exist" in refused(films, "--model", tmp_path / "gone")
    assert "is a file" in refused(films, "--model", films / "film0000.png")


def test_one_picture_proves_nothing(trained: Path, films: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    out = tmp_path / "out"
    labels = write_labels(tmp_path / "labels.csv", write_films(one, 1, seed=9))
    done = run(one, "--model", trained, "--labels", labels, "--out", out, "--device", "cpu")
    assert "1 picture explained" in done.stdout
    assert "nan" not in done.stdout
    assert "too few to tell the selections from random ones" in done.stdout


def test_scores_of_new_pictures_are_written_whole(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    labels, out = films.with_suffix(".csv"), tmp_path / "out"
    run(films, "--model", trained, "--labels", labels, "--out", out, "--device", "cpu")
    found = results(out)
    methods = {row["method"]: row["metrics"] for row in found["rows"]}
    assert set(methods) == {"REAL-X", "random masks", "everything shown", "nothing shown"}
    gain = methods["REAL-X"]["eloglik"]["value"] - methods["random masks"]["eloglik"]["value"]
    assert found["over_random"]["eloglik"]["value"] == pytest.approx(gain, abs=1e-9)


def test_the_folder_one_stands_in_has_a_name(
    trained: Path, films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(films)
    run(".", "--model", trained, "--out", tmp_path / "out", "--device", "cpu")
    assert results(tmp_path / "out")["folder"] == "films"


def test_pictures_of_other_kinds_are_named(trained: Path, films: Path, tmp_path: Path) -> None:
    own = shutil.copytree(films, tmp_path / "own")
    (own / "scan.tif").write_bytes(b"II*\0")
    (own / "notes.txt").write_text("nothing to see")
    done = run(own, "--model", trained, "--out", tmp_path / "out", "--device", "cpu")
    assert "scan.tif was skipped: it is no PNG, JPEG or DICOM picture." in done.stdout
    assert "notes.txt" not in done.stdout


def test_deep_folders_have_names_that_a_disk_takes() -> None:
    uid = "1.2.840." + "7" * 56
    names = [f"PAT{i}/{uid}/{uid}/{uid}/{uid}.png" for i in range(3)]
    names += [f"{'ö' * 120}/{i}.dcm" for i in range(3)] + ["a.png"]
    found = plain_names(names)
    assert len({name.lower() for name in found}) == len(names)
    assert max(len(name.encode()) for name in found) <= 255
    assert found[-1] == "a.png"
