"""`reproduce cxr` on small drawn films: rows, truth, the study folder, resuming, bad input."""

from __future__ import annotations

import csv
import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score
from small_cxr import FILMS, GRID, OPTIONS, PARTS, SIZE, tiny
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.cli.reproduce import _names
from unmasked.datasets.phantom import phantom, truth_of_superpixels
from unmasked.errors import InputError, OutputError
from unmasked.masks.distributions import Bernoulli, MaskLaw, Patches, UniformSize
from unmasked.masks.samplers import ConcreteTopK
from unmasked.masks.superpixels import Superpixels
from unmasked.metrics import selection_quality
from unmasked.networks.images import DenseNet121, MonaiUNet
from unmasked.reproduce import image_sets as films_job
from unmasked.reproduce import images as job
from unmasked.reproduce.cxr_recipes import cells, paper, preset, quick, tuned, with_cells
from unmasked.reproduce.image_figures import read_masks
from unmasked.reproduce.image_recipes import EXPLAINERS, OURS, ImageRecipe, with_epochs
from unmasked.reproduce.image_sets import drawn_films, run_cxr
from unmasked.reproduce.image_tables import _paired, sentences
from unmasked.reproduce.judging import check_same_run
from unmasked.reproduce.render import CXR
from unmasked.reproduce.selections import Selections
from unmasked.training.method import Exchanged


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("cxr") / "out"
    result = run_cxr(folder, tiny(), FILMS, drawn=PARTS, **OPTIONS)
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


def test_the_optimum_is_the_truth_judged_as_selections_are(done: Any) -> None:
    """Its own figures are of the true probabilities; judges are shown the true cells."""
    folder, rows = done
    (row,) = (row for row in rows if row["method"] == "optimum")
    assert row["chosen"]
    assert not row["setting"]
    (full,) = (row for row in rows if row["method"] == "FULL")
    true, y = PARTS[2].probability, PARTS[2].y
    metrics, cells = row["metrics"], truth_of_superpixels(PARTS[2].truth, GRID)
    assert metrics["auroc"] == pytest.approx(roc_auc_score(y, true))
    assert metrics["loglik"] == pytest.approx(np.log(np.where(y, true, 1 - true)).mean())
    assert metrics["fraction"] == pytest.approx(cells.mean())
    assert [metrics[key] for key in ("iou", "tpr", "fdr")] == [1, 1, 0]
    judged = {key for key in full["metrics"] if key.startswith("e")}
    assert judged <= metrics.keys()
    assert 0 <= metrics["macc"] <= 1
    # an evaluator that was shown other cells would say something else
    assert metrics["eloglik"] != pytest.approx(full["metrics"]["eloglik"], abs=1e-9)
    text = " ".join((folder / "tables.txt").read_text(encoding="utf-8").split())
    assert f"optimum {metrics['acc']:.3f} {metrics['auroc']:.3f} {metrics['eacc']:.3f}" in text
    assert "which no prediction beats on average" in text
    assert f"The true superpixels, {metrics['fraction']:.2%} of all, have eAUROC" in text


@pytest.mark.parametrize(("truth", "blind"), [(0.75, True), (0.85, False)])
def test_an_evaluator_that_cannot_read_the_truth_is_told(truth: float, blind: bool) -> None:
    def row(method: str, area: float) -> dict[str, Any]:
        metrics = {"auroc": 0.95, "eauroc": area, "eauroc_varied": area, "fraction": 0.1}
        return {"dataset": "CXR", "method": method, "setting": {}, "seed": 0, "chosen": True} | {
            "metrics": metrics
        }

    *_, said = sentences([row("FULL", 0.9), row("optimum", truth)], CXR)
    assert ("From everything the other has 0.900: it has not learned to read" in said) == blind


def test_the_optimum_of_fewer_films_is_of_those() -> None:
    some = films_job._with_truth(films_job._cxr_parts(FILMS, 40), PARTS, GRID, 40)
    places = films_job._evenly(len(PARTS[0].y), 40)
    every = truth_of_superpixels(PARTS[0].truth, GRID)
    assert some.train.truth is not None
    np.testing.assert_array_equal(some.train.truth, every[places])
    np.testing.assert_array_equal(some.train.y, PARTS[0].y[places])


def test_the_truth_is_drawn_beside_the_selections(done: Any) -> None:
    page = (done[0] / "gallery.html").read_text(encoding="utf-8")
    cells = truth_of_superpixels(PARTS[2].truth, GRID)
    first = int(np.flatnonzero(PARTS[2].y == 0)[0])
    assert f"with the {cells[first].sum()} superpixels that decide it marked" in page
    assert page.count("that decide it marked") >= 10


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
    for words in ("Table 3", "less random masks", "IoU", "counted as 0 for an image of which"):
        assert words in text.replace("\n  ", " ")
    for words in (", paper", "(paper", "0.777", "beside the p"):  # of other films than these
        assert words not in text
    assert not any("(paper" in words for words in results["summary"])
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
    assert "FULL, paper" in text
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
    asked: list[str] = []
    kept = tmp_path / "out" / ".checkpoint"

    class Stops(job.Workshop):
        def explainer(self, name: str) -> Selections:
            if name == "L2X" and not asked:
                asked.append(name)
                raise KeyboardInterrupt
            return super().explainer(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "Workshop", Stops)
        with pytest.raises(KeyboardInterrupt):
            run_cxr(tmp_path / "out", tiny(), FILMS, drawn=PARTS, **OPTIONS)
        (own,) = (path for path in kept.iterdir() if path.is_dir())
        (kept / "of another run").mkdir()
        clock = [0.0]
        patch.setattr(job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        patch.setattr(job, "write_masks", lambda *_: clock.append(clock.pop() + 1000))
        again = run_cxr(tmp_path / "out", tiny(), FILMS, drawn=PARTS, **OPTIONS)
    assert again.rows == done[1]
    assert again.resumed
    assert again.seconds["all"] == 1000  # all that is written is counted
    assert sorted(path.name for path in kept.iterdir()) == ["of another run", "preset.json"]
    assert not own.exists()


def test_results_of_another_run_are_not_replaced(
    done: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = done
    before = (folder / "results.json").read_bytes()
    results = json.loads(before)
    check_same_run(folder, "tuned", results["run"])  # its own are
    monkeypatch.setattr(job, "Workshop", None)  # fails where anything is trained
    fewer = replace(FILMS, test=FILMS.test._replace(y=1 - FILMS.test.y))
    for films, recipe, options in (
        (FILMS, tiny(), {"seeds": (1,)}),
        (FILMS, tiny(), {"explainers": ("L2X",)}),
        (FILMS, replace(tiny(), prices=(0.5, 10.0)), {}),
        (fewer, tiny(), {}),
    ):
        with pytest.raises(
            OutputError, match=r"results of another run \(unmasked reproduce cxr\);"
        ):
            run_cxr(folder, recipe, films, **{**OPTIONS, **options})
    assert (folder / "results.json").read_bytes() == before
    del results["run"]  # as earlier versions wrote them
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    check_same_run(tmp_path, "tuned", "any")
    with pytest.raises(InputError, match="device must be"):
        run_cxr(tmp_path / "out", tiny(), FILMS, **{**OPTIONS, "device": "abacus"})
    assert not (tmp_path / "out").exists()


def test_differences_have_a_true_minus_and_no_minus_nothing() -> None:
    over = {
        "eacc": {"value": -0.0002, "low": -0.0456, "high": 0.0123},
        "eauroc": {"value": None, "low": None, "high": None},
    }
    row = {"method": "L2X", "seed": 0, "chosen": True, "over_random": over}
    assert _paired([row]).rows == [["L2X, seed 0", "0.000 [−0.046, +0.012]", "–"]]


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
    with pytest.raises(OutputError, match="a run without --hearts would lose; give --hearts"):
        run_cxr(tmp_path / "out", tiny(), FILMS, **options)
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8")) == results


# ---------------------------------------------------------------------- recipes


def test_no_more_films_are_drawn_than_a_recipe_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films_job, "_PHANTOMS", (7, 4, 3))
    for most, expected in ((5, 5), (9, 7), (None, 7)):
        found, drawn = drawn_films(SIZE, most=most)
        assert [len(part.y) for part in (found.train, found.valid, found.test)] == [expected, 4, 3]
        np.testing.assert_array_equal(found.train.x, phantom(expected, SIZE, 0).x)
        for films, part in zip((found.train, found.valid, found.test), drawn, strict=True):
            np.testing.assert_array_equal(films.x, part.x)
        np.testing.assert_array_equal(drawn[2].truth, phantom(3, SIZE, 2).truth)


def test_fewer_films_are_taken_from_all_of_them() -> None:
    """Packed films lie sorted by label; half of them must not be those without the finding."""
    order = np.argsort(PARTS[0].y, kind="stable")
    train = FILMS.train._replace(x=FILMS.train.x[order], y=FILMS.train.y[order])
    sorted_films = replace(FILMS, train=train)
    rows = films_job._cxr_parts(sorted_films, 40).train
    assert rows.y.mean() == pytest.approx(train.y.mean(), abs=1 / 40)
    every = films_job._cxr_parts(sorted_films, None).train
    assert np.array_equal(every.y, train.y)
    places = films_job._evenly(len(train.y), 40)
    assert np.array_equal(rows.x, every.x[places])
    assert np.array_equal(films_job._cxr_parts(sorted_films, 1000).train.x, every.x)


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


def test_patches_are_of_the_grid_and_other_laws_of_any() -> None:
    def laws(recipe: ImageRecipe) -> list[MaskLaw]:
        return [recipe.law, *(how.law for how in recipe.evaluators.values())]

    assert laws(tuned()) == [Patches(16), Bernoulli(0.5), Patches(16)]  # the paper's judge: its own
    assert laws(with_cells(tuned(), 8)) == [Patches(8), Bernoulli(0.5), Patches(8)]
    assert laws(with_cells(quick(), 8)) == laws(quick())  # few steps: scattered masks
    assert laws(quick()) == [UniformSize(), Bernoulli(0.5), UniformSize()]
    assert with_cells(paper(), 8).law == paper().law


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((128, None, None), 16), ((128, 4, None), 4), ((100, None, 20), 5), ((64, None, 64), 1)],
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
        (["--superpixel-size", "24"], "must divide the film's 64 pixels but is 24; give 16 or 32."),
        (["--sparsities", ""], "--sparsities must be numbers with commas between them but is ''"),
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


def test_deviations_say_what_a_run_does_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def stops(folder: Path, recipe: Any, films: Any, **more: Any) -> None:
        asked.append(recipe.deviations)
        raise InputError("far enough.")

    monkeypatch.setattr(films_job, "drawn_films", lambda *_, **more: (FILMS, None))
    monkeypatch.setattr(films_job, "run_cxr", stops)
    for arguments in (
        ["--epochs", "3", "--ks", "4, 2", "--size", "96", "--superpixel-size", "8"],
        ["--size", "64", "--superpixels", "16", "--sparsities", "0.1,0.30,1"],  # the preset's own
        ["--first-seed", "3", "--methods", "L2X", "--jobs", "2", "--device", "cpu"],
    ):
        call = ["reproduce", "cxr", *arguments, "--out", str(tmp_path)]
        assert CliRunner().invoke(app, call).exit_code == 2
    said = "--epochs 3, --ks 4,2, --size 96, --superpixel-size 8 instead of the preset's; what is"
    assert asked[0][:-1] == asked[1] == asked[2] == quick().deviations
    assert asked[0][-1].startswith(f"Of this run: {said}")


@pytest.mark.parametrize("name", ["places", "hearts"])
def test_errors_of_the_benchmarks_are_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).resolve().parents[1] / "benchmarks" / f"{name}.py"
    nowhere = ["nowhere"] * (4 if name == "places" else 2)
    monkeypatch.setattr("sys.argv", [str(script), *nowhere])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script), run_name="__main__")
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: nowhere must be")
