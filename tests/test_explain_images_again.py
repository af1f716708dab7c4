"""A saved model of pictures used again: what it learned from, what was found, where results go."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_commands import SHORT, refused, results, run
from PIL import Image
from small_pictures import write_films, write_labels

from unmasked import EvalX
from unmasked.cli.workflows import explain_images as job
from unmasked.cli.workflows.advice import over_random
from unmasked.evaluation import Scores
from unmasked.metrics import Interval

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 films of 20 patients and their labels beside them."""
    folder = tmp_path_factory.mktemp("again") / "films"
    lines = [(*line, f"p{i // 2}") for i, line in enumerate(write_films(folder, 40))]
    write_labels(folder.with_suffix(".csv"), lines, ("image", "label", "patient"))
    return folder


@pytest.fixture(scope="module")
def trained(films: Path) -> Path:
    out = films.with_name("trained")
    run(films, "--labels", films.with_suffix(".csv"), "--out", out, *SHORT)
    return out


def held_out(trained: Path) -> set[str]:
    with open(trained / "explained.csv", newline="", encoding="utf-8") as file:
        return {line["image"] for line in csv.DictReader(file)}


# ---------------------------------------------------------------------- pictures learned from


@pytest.mark.parametrize("deep", [False, True])
def test_pictures_learned_from_are_left_out_of_the_figures(
    trained: Path, films: Path, tmp_path: Path, deep: bool
) -> None:
    """Also where a picture of 16 bits comes beside them, so that all are stored in 16."""
    own = shutil.copytree(films, tmp_path / "renamed")
    lines = [*csv.reader(films.with_suffix(".csv").read_text().splitlines())][1:]
    if deep:
        pixels = np.random.default_rng(0).integers(65536, size=(32, 32)).astype(np.uint16)
        Image.fromarray(pixels).save(own / "deep.png")
        lines.append(["deep.png", "normal", "q"])
    labels = write_labels(tmp_path / "l.csv", [(n, label) for n, label, _ in lines])
    out = tmp_path / "out"
    done = run(own, "--model", trained, "--labels", labels, "--out", out, "--device", "cpu")
    left = len(held_out(trained)) + deep
    words = f"32 of {40 + deep} pictures are among those that the model learned from and are left"
    assert words in done.stdout
    assert f"EVAL-X on {left:,} rows" in done.stdout
    assert f"{40 + deep} pictures explained" in done.stdout
    assert results(out)["learned_from"] == 32
    with open(out / "explained.csv", newline="", encoding="utf-8") as file:
        new = {line["image"] for line in csv.DictReader(file) if line["learned_from"] == "no"}
    assert new == held_out(trained) | ({"deep.png"} if deep else set())


def test_where_the_model_learned_from_all_none_are_evaluated(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(films, tmp_path / "own")
    for name in held_out(trained):
        (own / name).unlink()
    labels, out = films.with_suffix(".csv"), tmp_path / "out"
    done = run(own, "--model", trained, "--labels", labels, "--out", out, "--device", "cpu")
    assert "were not evaluated: the model learned from all of them" in done.stdout
    assert "All 32 pictures are among those that the model learned from." in done.stdout
    assert "eacc" not in results(out)["rows"][0]["metrics"]


def test_a_model_of_an_older_program_cannot_tell(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    old = shutil.copytree(trained, tmp_path / "old")
    notes = json.loads((old / "model" / "pictures.json").read_text())
    del notes["learned"]
    (old / "model" / "pictures.json").write_text(json.dumps(notes))
    (old / "model" / "tested.json").unlink()
    asked = (films, "--model", old, "--device", "cpu")
    done = run(*asked, "--labels", films.with_suffix(".csv"), "--out", tmp_path / "out")
    assert "does not say which pictures it learned from" in done.stdout
    assert "EVAL-X on 40 rows" in done.stdout
    assert "learned from" not in run(*asked, "--out", tmp_path / "unlabelled").stdout


# ---------------------------------------------------------------------- the verdict


def scored(low: float, high: float) -> Scores:
    one = Interval((low + high) / 2, low, high)
    return Scores({}, {"eloglik": one}, 0.5, 40, False)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.1, 0.3, "say more about the label than random ones: by 0.200 nats a picture [0.100,"),
        (-0.1, 0.3, "could not be told from random ones of the same sizes (difference 0.100"),
        (
            -0.3,
            -0.1,
            "say less about the label than random ones of the same sizes: by 0.200 nats a "
            "picture [0.100, 0.300]: do not",
        ),
        (np.nan, np.nan, "One group of pictures is too few"),
    ],
)
def test_selections_are_better_worse_or_not_told_from_random_ones(
    low: float, high: float, words: str
) -> None:
    said = over_random(scored(low, high), "picture", "label")
    assert words in said
    assert ("do not rely on them" in said) == (low <= 0)


def test_the_verdict_of_training_comes_again_without_labels(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    verdict = json.loads((trained / "model" / "tested.json").read_text())["verdict"]
    said = results(trained)["summary"]
    assert " ".join(one for one in said if one in verdict) == verdict
    out = tmp_path / "out"
    words = f"When the model was trained, on {len(held_out(trained))} test pictures: {verdict}"
    assert words in run(films, "--model", trained, "--out", out, "--device", "cpu").stdout
    assert "When the model was trained, on" in (out / "gallery.html").read_text(encoding="utf-8")


def test_pictures_of_one_class_have_no_auroc(trained: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    labels = write_labels(
        tmp_path / "l.csv", [(n, "normal") for n, _ in write_films(new, 12, seed=4)]
    )
    asked = (new, "--model", trained, "--labels", labels, "--out", tmp_path / "out")
    done = run(*asked, "--device", "cpu")
    assert "the rows are all of one class, so there is no AUROC." in done.stdout
    assert "nan" not in done.stdout


# ---------------------------------------------------------------------- groups


def test_groups_are_resampled_together_with_a_model_too(
    trained: Path, films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Noted(EvalX):
        def evaluate(self, *arguments: Any, **options: Any) -> Scores:
            given.append(options["groups"])
            return super().evaluate(*arguments, **options)

    monkeypatch.setattr(job, "EvalX", Noted)
    asked = (films, "--model", trained, "--group", "patient", "--device", "cpu")
    done = run(*asked, "--labels", films.with_suffix(".csv"), "--out", tmp_path / "out")
    (groups,) = given
    assert len(groups) == len(held_out(trained))
    assert set(groups) <= {f"p{i}" for i in range(20)}
    assert "Fewer than 10 groups with labels are too few" in done.stdout
    assert results(tmp_path / "out")["pictures"]["group"] == "patient"
    words = refused(*asked, "--out", tmp_path / "x")
    assert "--group names the column 'patient' of a table of labels but none came" in words


# ---------------------------------------------------------------------- where results go


@pytest.mark.parametrize(
    "inside", ["cache", "model/new", "evaluator", "overlays/a/b", "masks", "study/new"]
)
def test_results_do_not_go_into_the_models_own(trained: Path, films: Path, inside: str) -> None:
    before = sorted(trained.rglob("*"))
    words = refused(films, "--model", trained, "--out", trained / inside, "--device", "cpu")
    assert "of the model and its results, which goes when they are replaced" in words
    assert sorted(trained.rglob("*")) == before


def test_results_do_not_replace_those_of_another_model(
    trained: Path, films: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(trained, tmp_path / "other")
    before = {path: path.stat().st_mtime_ns for path in other.rglob("*")}
    words = refused(films, "--model", trained, "--out", other, "--device", "cpu")
    assert "other holds a model of its own and its results; choose another folder" in words
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*")} == before


def test_an_empty_folder_is_no_model(films: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = refused(films, "--model", tmp_path / "empty", "--out", tmp_path / "out")
    assert "--model must be the folder of earlier results" in words
    assert "save()" not in words


def test_pictures_among_the_results_are_refused(trained: Path, films: Path) -> None:
    before = sorted(trained.rglob("*"))
    labels = films.with_suffix(".csv")
    for name in ("overlays", "masks", "study"):
        words = refused(trained / name, "--labels", labels, "--out", trained, *SHORT)
        assert f"folder {trained / name} lies where results are written to" in words
    assert sorted(trained.rglob("*")) == before


def test_shrunken_pictures_have_a_folder_of_their_own(films: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "file"
    file.write_text("mine")
    before = sorted(films.rglob("*"))
    asked = (films, "--labels", films.with_suffix(".csv"), "--out", out, *SHORT, "--cache")
    for cache, words in (
        (films / "cache", "must lie outside of the pictures' folder"),
        (file, "file is a file; choose another"),
        (file / "below", "file is a file; choose another"),
        (out / "masks", "lies where results are written to"),
    ):
        assert words in refused(*asked, cache)
    assert sorted(films.rglob("*")) == before
    assert sorted(tmp_path.iterdir()) == [file]


def test_unfinished_training_of_another_command_is_not_forgotten_silently(
    films: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / ".checkpoint" / "0123456789ab").mkdir(parents=True)
    asked = (films, "--labels", films.with_suffix(".csv"), "--out", out, *SHORT)
    assert "holds the unfinished training of a command with other options" in run(*asked).stderr
    assert not (out / ".checkpoint").exists()
    assert "unfinished" not in run(*asked).stderr
