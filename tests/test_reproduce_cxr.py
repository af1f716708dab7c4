"""`reproduce cxr` on small drawn films: rows, truth, the study folder, resuming, bad input."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_cxr import FILMS, GRID, OPTIONS, PARTS, SIZE, tiny
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.cli.reproduce import _names
from unmasked.data.phantom import phantom, truth_of_superpixels
from unmasked.engine.method import Exchanged
from unmasked.errors import InputError
from unmasked.imagenetworks import DenseNet121, MonaiUNet
from unmasked.metrics import selection_quality
from unmasked.reproduce import cxr as films_job
from unmasked.reproduce import images as job
from unmasked.reproduce.cxr import drawn_films, run_cxr
from unmasked.reproduce.cxrrecipes import cells, paper, preset, quick, tuned, with_cells
from unmasked.reproduce.imagemasks import read_masks
from unmasked.reproduce.imagerecipes import (
    EXPLAINERS,
    OURS,
    with_epochs,
)
from unmasked.reproduce.imagetraining import Found
from unmasked.samplers import ConcreteTopK
from unmasked.superpixels import Superpixels


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("cxr") / "out"
    result = run_cxr(folder, tiny(), FILMS, truth=PARTS[2].truth, **OPTIONS)
    return folder, result.rows


def test_rows_have_both_evaluators_the_truth_and_random_masks(done: Any) -> None:
    _, rows = done
    assert {row["dataset"] for row in rows} == {"CXR"}
    for method in ("REAL-X", "L2X"):
        own = [row for row in rows if row["method"] == method]
        like = [row for row in rows if row["method"] == f"random, as {method}"]
        assert len(own) == len(like) == 2
        assert sum(row["chosen"] for row in own) == 1
        for row in own + like:
            keys = {"eauroc", "eacc", "eloglik", "eauroc_varied", "eacc_varied", "iou", "fraction"}
            keys |= {"tpr", "fdr"}
            assert keys <= row["metrics"].keys()
            assert all(np.isfinite(value) for value in row["metrics"].values())
    (chosen,) = (row for row in rows if row["method"] == "REAL-X" and row["chosen"])
    assert {"eauroc", "eacc", "eauroc_varied"} <= chosen["over_random"].keys()


def test_the_overlap_with_the_truth_is_of_the_cells(done: Any) -> None:
    """Showing exactly the true cells would be 1; a k-cell selection's is bounded by its size."""
    truth = truth_of_superpixels(PARTS[2].truth, GRID)
    assert job._iou(truth, truth) == 1
    assert job._iou(np.zeros_like(truth), truth) == 0
    half = truth & (np.cumsum(truth, axis=1) <= truth.sum(1, keepdims=True) // 2)
    expected = np.mean((truth.sum(1) // 2) / truth.sum(1))
    assert job._iou(half, truth) == pytest.approx(expected)
    kept = {(own.method, own.setting): own.masks for own in read_masks(done[0] / "masks.npz")}
    for row in done[1]:
        if row["method"] in ("REAL-X", "L2X"):
            masks = kept[row["method"], next(iter(row["setting"].values()))]
            quality = selection_quality(masks, truth)
            expected = [job._iou(masks, truth), quality.tpr, quality.fdr]
            found = [row["metrics"][key] for key in ("iou", "tpr", "fdr")]
            assert found == pytest.approx(expected, abs=1e-12)
        if row["method"] == "L2X":
            most = np.mean(np.minimum(1, row["setting"]["k"] / truth.sum(1)))
            assert row["metrics"]["iou"] <= most + 1e-12


def test_the_files_are_there_and_speak_of_table_3(done: Any) -> None:
    folder, _ = done
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "results.json", "tables.txt", "tables.md", "tables.html", "samples.png", "gallery.html",
        "masks.npz", "study", ".unmasked.json",
    }  # fmt: skip
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["summary"][0] == "Drawn."
    text = (folder / "tables.txt").read_text(encoding="utf-8")
    for words in ("Table 3", "REAL-X, paper", "0.777", "less random masks", "IoU"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 120
    page = (folder / "gallery.html").read_text(encoding="utf-8")
    assert page.count("Test image") == 10  # five of each class
    assert "cardiomegaly" in page


@pytest.mark.parametrize("own", OURS)
def test_a_method_of_ours_has_a_row_but_no_figure_of_the_papers(own: str, tmp_path: Path) -> None:
    """It is trained where it is asked for; its predictor starts as one of random masks."""
    recipe = tiny()
    (method, levels), *others = recipe.programs(own)
    assert isinstance(method.learners["predictor"].source, Exchanged)
    assert method.selector is not None
    if own == "REAL-X-K":
        assert method.selector.sampler == ConcreteTopK(
            recipe.numbers[0], recipe.concrete_temperature
        )
        assert [levels, *(more for _, more in others)] == [(float(k),) for k in recipe.numbers]
    else:
        assert (levels, others) == (recipe.prices, [])
    assert own in tuned().warm
    assert tuned().options(own) == tuned().options("BASE-X")
    result = run_cxr(tmp_path / "out", recipe, FILMS, **{**OPTIONS, "explainers": (own,)})
    assert [row["method"] for row in result.rows if row["chosen"]] == [
        "FULL",
        own,
        f"random, as {own}",
    ]
    assert {"start of L2X", own} <= result.seconds.keys()
    text = (tmp_path / "out" / "tables.txt").read_text(encoding="utf-8")
    assert f"{own}: every setting" in text
    assert f"{own}, paper" not in text
    (sentence,) = (words for words in result.lead if words.startswith(own))
    assert "under its own predictor, eAUROC" in sentence
    assert "(paper" not in sentence
    assert sentence.startswith(f"{own} at {'k' if own == 'REAL-X-K' else 'λ'} = ")


def test_a_predictor_that_does_not_start_trained_learns_from_random_masks_first() -> None:
    for recipe, first in ((tuned(), False), (replace(tuned(), warm=()), True)):
        for own in OURS:
            assert {what.predictor_first for what, _ in recipe.programs(own)} == {first}


def test_other_epochs_hold_for_all_that_is_trained() -> None:
    assert tuned().options("REAL-X").predictor_epochs == tuned().options("start").epochs == 96
    recipe = with_epochs(tuned(), 3)
    every = [recipe.training, *recipe.own_training.values()]
    every += [how.training for how in recipe.evaluators.values() if how.training]
    assert len(every) > 8
    assert {(one.epochs, one.predictor_epochs) for one in every} == {(3, None)}


def test_methods_of_ours_are_run_where_they_are_asked_for() -> None:
    assert _names("method", None, EXPLAINERS, OURS) == EXPLAINERS
    assert _names("method", "real-x-exchange,L2X", EXPLAINERS, OURS) == ("REAL-X-EXCHANGE", "L2X")
    with pytest.raises(InputError, match="REAL-X-EXCHANGE"):
        _names("method", "REAL-Y", EXPLAINERS, OURS)


def test_the_study_folder_is_what_a_study_takes(done: Any) -> None:
    study = done[0] / "study"
    with (study / "manifest.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["case", "image", "method", "mask", "label"]
    assert {line["method"] for line in lines} == {"REAL-X", "L2X"}
    y = PARTS[2].y
    assert len(lines) == 2 * (min(25, int((y == 0).sum())) + min(25, int((y == 1).sum())))
    regions = Superpixels(GRID).bound((1, SIZE, SIZE)).map
    for line in lines:
        image, mask = (np.asarray(Image.open(study / line[k])) for k in ("image", "mask"))
        assert image.shape == mask.shape == (SIZE, SIZE, 3)
        shown = mask[..., 0] > 0
        for cell in range(GRID**2):  # a superpixel is shown whole or not at all
            assert shown[regions == cell].all() or not shown[regions == cell].any()
        if line["method"] == "L2X":
            assert len(np.unique(regions[shown])) in (1, 3)
    named = {path.name for path in study.iterdir()} - {"manifest.csv"}
    assert named == {line[key] for line in lines for key in ("image", "mask")}


def test_a_stopped_run_goes_on_to_the_same_result(done: Any, tmp_path: Path) -> None:
    asked = []

    class Stops(job.Workshop):
        def explainer(self, name: str) -> Found:
            if name == "L2X" and not asked:
                asked.append(name)
                raise KeyboardInterrupt
            return super().explainer(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "Workshop", Stops)
        with pytest.raises(KeyboardInterrupt):
            run_cxr(tmp_path / "out", tiny(), FILMS, truth=PARTS[2].truth, **OPTIONS)
        again = run_cxr(tmp_path / "out", tiny(), FILMS, truth=PARTS[2].truth, **OPTIONS)
    assert again.rows == done[1]


def test_where_the_selections_lie_is_told(tmp_path: Path) -> None:
    """Hearts are outlined on other films; here on drawn ones, by a network that saw few."""
    part = phantom(24, SIZE, 9)
    line = np.arange(SIZE)
    across = (line[None, :] >= part.heart[:, :1]) & (line[None, :] <= part.heart[:, 1:])
    heart = np.repeat(across[:, None], SIZE, 1) & (line[None, :, None] > SIZE // 2)
    lungs = ~heart & (line[None, :, None] > SIZE // 4)
    np.savez(
        tmp_path / "hearts.npz",
        images=(255 * part.x[:, 0]).astype(np.uint8),
        heart=heart,
        lungs=lungs,
        source=np.repeat(["one", "other"], 12),
        ctr_from_masks=part.ratio,
        ctr_groundtruth=np.full(24, np.nan),
    )
    options = {**OPTIONS, "explainers": ("REAL-X",)}
    run_cxr(tmp_path / "out", tiny(), FILMS, hearts=tmp_path / "hearts.npz", **options)
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert set(results["places"]["methods"]) == {"REAL-X"}
    assert any("Dice" in sentence for sentence in results["summary"])


# ---------------------------------------------------------------------- recipes


def test_no_more_films_are_drawn_than_a_recipe_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films_job, "_PHANTOMS", (7, 4, 3))
    for most, expected in ((5, 5), (9, 7), (None, 7)):
        found, truth = drawn_films(SIZE, most=most)
        assert [len(part.y) for part in (found.train, found.valid, found.test)] == [expected, 4, 3]
        np.testing.assert_array_equal(found.train.x, phantom(expected, SIZE, 0).x)
        np.testing.assert_array_equal(truth, phantom(3, SIZE, 2).truth)


def test_fewer_films_are_taken_from_all_of_them() -> None:
    """Packed films lie sorted by label; half of them must not be those without the finding."""
    order = np.argsort(PARTS[0].y, kind="stable")
    train = FILMS.train._replace(x=FILMS.train.x[order], y=FILMS.train.y[order])
    sorted_films = replace(FILMS, train=train)
    rows = films_job._parts(sorted_films, 40).train
    assert rows.y.mean() == pytest.approx(train.y.mean(), abs=1 / 40)
    every = films_job._parts(sorted_films, None).train
    assert np.array_equal(every.y, train.y)
    places = films_job._evenly(len(train.y), 40)
    assert np.array_equal(rows.x, every.x[places])
    assert np.array_equal(films_job._parts(sorted_films, 1000).train.x, every.x)


def test_drawn_films_are_as_many_as_the_preset_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def stops(size: int, *, most: int | None) -> None:
        asked.append(most)
        raise InputError("far enough.")

    monkeypatch.setattr(films_job, "drawn_films", stops)
    for name in ("quick", "paper"):
        result = CliRunner().invoke(app, ["reproduce", "cxr", "--preset", name])
        assert result.exit_code == 2
    assert asked == [quick().rows, None]


def test_the_paper_preset_is_the_papers() -> None:
    recipe = paper()
    assert recipe.prices == (0.1, 1, 2.5, 5, 50)
    assert set(recipe.numbers) == {1, 5, 10, 15, 50, 100}
    assert recipe.training.epochs == 50
    assert recipe.training.learning_rate == recipe.training.selector_learning_rate == 1e-4
    assert recipe.temperature == 0.1
    assert recipe.predictor == DenseNet121()
    assert recipe.selector == MonaiUNet()
    assert isinstance(recipe.masker, Superpixels)
    assert recipe.masker.grid == (16, 16)
    assert not recipe.predictor_first
    assert preset("TUNED").predictor_first
    assert quick().rows == 1500


def test_another_grid_reaches_the_methods_and_the_evaluators() -> None:
    recipe = with_cells(tuned(), 8).bound((1, 64, 64))
    maskers = [recipe.masker, *(how.masker for how in recipe.evaluators.values())]
    assert [masker.features(64 * 64) for masker in maskers] == [64] * 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((128, None, None), 16), ((128, 4, None), 4), ((100, None, 16), 7), ((64, None, 64), 1)],
)
def test_cells(arguments: tuple[int, int | None, int | None], expected: int) -> None:
    assert cells(*arguments) == expected


# ---------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "papr"], "did you mean paper?"),
        (["--data", "nowhere"], "nowhere"),
        (["--superpixels", "8", "--superpixel-size", "8"], "both came"),
        (["--superpixels", "65"], "from 1 to the film's 64"),
        (["--superpixel-size", "0"], "from 1 to the film's 64"),
        (["--size", "16"], "at least 32"),
        (["--seeds", "0"], "at least 1"),
        (["--superpixels", "4", "--ks", "1,17"], "at most the number of features, 16"),
        (["--sparsities", "1,1"], "different numbers"),
        (["--hearts", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    call = ["reproduce", "cxr", *arguments, "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()
