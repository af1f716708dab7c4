"""``unmasked explain-images`` takes care: of what is not its own, of words, of half-done work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from small_pictures import write_films, write_labels
from typer.testing import CliRunner

from unmasked import EvalX
from unmasked.cli import app
from unmasked.cli.common import only_run
from unmasked.jobs import images as job
from unmasked.jobs.imagefiles import plain_names

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = ["--size", 16, "--superpixels", 4, "--device", "cpu", "--epochs", 1, "--sparsity", 0.3]


def run(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["explain-images", *map(str, arguments)])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done


def refused(*arguments: object) -> str:
    (line,) = run(*arguments, code=2).stderr.splitlines()
    return str(line)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


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
    assert f"{own / 'film0000.png'} exists and is not known to be a result" in words
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
        ("group", "x"),
    ],
)
def test_options_of_training_are_refused_beside_a_model(
    trained: Path, films: Path, tmp_path: Path, option: str, value: object
) -> None:
    words = refused(films, "--model", trained, f"--{option}", value, "--out", tmp_path / "out")
    assert f"--{option} belongs to training and cannot be given beside --model" in words


def test_new_pictures_are_read_as_the_models_were(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(trained / "model", tmp_path / "model")
    said = model / "pictures.json"
    asked = (films, "--model", model, "--device", "cpu")
    run(*asked, "--out", tmp_path / "as-saved")
    assert results(tmp_path / "as-saved")["pictures"]["fit"] == "crop"
    assert "were read with --fit crop" in refused(*asked, "--fit", "none", "--out", tmp_path / "x")
    said.write_text("[1]")
    assert "pictures.json must say how" in refused(*asked, "--out", tmp_path / "x")
    said.unlink()
    done = run(*asked, "--fit", "crop", "--out", tmp_path / "as-asked")
    assert "does not say how its pictures were made square, so --fit crop was taken" in done.stdout
    assert results(tmp_path / "as-asked")["pictures"]["fit"] == "crop"
    assert "does not exist" in refused(films, "--model", tmp_path / "gone")
    assert "is a file" in refused(films, "--model", films / "film0000.png")


def test_one_picture_proves_nothing(trained: Path, films: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    shutil.copy(films / "film0000.png", one)
    out = tmp_path / "out"
    label = films.with_suffix(".csv").read_text().splitlines()[1]
    labels = tmp_path / "labels.csv"
    labels.write_text(f"image,label\n{label}\n")
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
