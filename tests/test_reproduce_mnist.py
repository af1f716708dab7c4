"""`reproduce mnist` on small pictures: rows, the paper's rule, resuming, tables, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.datasets.mnist import Images, Mnist
from unmasked.errors import InputError, OutputError
from unmasked.masks.maskers import Zero
from unmasked.networks.tables import MLP
from unmasked.reproduce import images as job
from unmasked.reproduce.image_figures import View, read_masks
from unmasked.reproduce.image_recipes import ImageRecipe, paper, preset, quick, tuned
from unmasked.reproduce.image_sets import run_mnist
from unmasked.reproduce.image_tables import image_tables
from unmasked.reproduce.image_training import Parts, Rows, Workshop
from unmasked.reproduce.images import _choose
from unmasked.reproduce.recipes import check_grid
from unmasked.reproduce.render import CXR, MNIST, Subject, to_text
from unmasked.reproduce.replicates import Place
from unmasked.reproduce.selections import Selections
from unmasked.training import Training

SIDE = 5
SHARED = Path(__file__).parents[2] / "shared"


def pictures(count: int, seed: int) -> Images:
    """Ten classes: a bright pixel at one of ten places, in noise."""
    random = np.random.default_rng(seed)
    y = np.arange(count) % 10
    x = random.uniform(0, 0.3, (count, 1, SIDE, SIDE)).astype(np.float32)
    x.reshape(count, -1)[np.arange(count), 2 * y] += 0.7
    return Images(x, y.astype(np.int64))


DATA = Mnist(pictures(300, 0), pictures(100, 1), pictures(80, 2))


def tiny(**changes: Any) -> ImageRecipe:
    values: dict[str, Any] = {
        "predictor": MLP((16,)),
        "selector": MLP((16,)),
        "training": Training(epochs=4, batch_size=50, learning_rate=1e-2),
        "own_training": {},
        "prices": (0.5, 50.0),
        "numbers": (1, 3),
        **changes,
    }
    return replace(tuned(), **values)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("mnist") / "out"
    result = run_mnist(folder, tiny(), DATA, seeds=(0, 1), device="cpu", show=False)
    return folder, result.rows


def test_every_setting_has_a_row_and_random_masks_of_its_sizes(done: Any) -> None:
    _, rows = done
    for method in ("REAL-X", "INVASE", "BASE-X", "L2X"):
        levels = [{"k": 1}, {"k": 3}] if method == "L2X" else [{"sparsity": 0.5}, {"sparsity": 50}]
        for seed in (0, 1):
            own = [r for r in rows if r["method"] == method and r["seed"] == seed]
            like = [r for r in rows if r["method"] == f"random, as {method}" and r["seed"] == seed]
            assert [r["setting"] for r in own] == [r["setting"] for r in like] == levels
            assert [r["chosen"] for r in own] == [r["chosen"] for r in like]
            assert sum(r["chosen"] for r in own) == 1
            for one, other in zip(own, like, strict=True):
                assert one["metrics"]["fraction"] == other["metrics"]["fraction"]
    keys = {
        f"{e}{m}{v}" for m in ("acc", "auroc", "loglik") for e, v in (("e", ""), ("e", "_varied"))
    }
    for row in rows:
        assert keys <= row["metrics"].keys()
        assert all(np.isfinite(v) for v in row["metrics"].values())


def test_l2x_shows_exactly_k(done: Any) -> None:
    for row in done[1]:
        if row["method"] == "L2X":
            k = row["setting"]["k"]
            assert row["metrics"]["fraction"] == pytest.approx(k / SIDE**2, abs=1e-12)
            assert row["metrics"]["shown_low"] == row["metrics"]["shown_high"] == k


def test_a_high_price_shows_less(done: Any) -> None:
    for method in ("REAL-X", "BASE-X"):
        low, high = (
            np.mean([
                r["metrics"]["fraction"]
                for r in done[1]
                if r["method"] == method and r["setting"] == {"sparsity": price}
            ])
            for price in (0.5, 50.0)
        )  # fmt: skip
        assert high < low


def test_the_files_are_there_and_speak_of_the_paper(done: Any) -> None:
    folder, rows = done
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "results.json", "tables.txt", "tables.md", "tables.html", "samples.png",
        "single-pixel.png", "gallery.html", "masks.npz",
    }  # fmt: skip
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["rows"] == json.loads(json.dumps(rows))
    assert results["recipe"]["preset"] == "tuned"
    assert {"command", "commit", "hardware", "seconds", "summary"} <= results.keys()
    text = (folder / "tables.txt").read_text(encoding="utf-8")
    assert "L2X, paper" in text
    assert "0.960" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "1. λ multiplies the fraction" in text


def test_masks_come_back_as_they_were_judged(done: Any) -> None:
    folder, rows = done
    found = read_masks(folder / "masks.npz")
    own = [r for r in rows if r["method"] in ("REAL-X", "L2X", "INVASE", "BASE-X")]
    by = {(s.method, s.seed, s.setting): s for s in found}
    assert len(by) == len(found) == len(own)
    for row in own:
        one = by[row["method"], row["seed"], float(next(iter(row["setting"].values())))]
        assert one.chosen == row["chosen"]
        assert one.masks.mean() == pytest.approx(row["metrics"]["fraction"], abs=1e-12)
        assert one.masks.shape == (len(DATA.test.y), SIDE**2)


def test_a_file_without_masks_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "masks.npz", seeds=np.arange(2))
    with pytest.raises(InputError, match="cannot be read"):
        read_masks(tmp_path / "masks.npz")


def test_a_stopped_run_goes_on_to_the_same_result(done: Any, tmp_path: Path) -> None:
    """The second method fails once; what was trained before is read back."""
    asked = []

    class Stops(job.Workshop):
        def explainer(self, name: str) -> Selections:
            if name == "INVASE" and not asked:
                asked.append(name)
                raise KeyboardInterrupt
            return super().explainer(name)

    settings: dict[str, Any] = {"seeds": (0, 1), "device": "cpu", "show": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "Workshop", Stops)
        with pytest.raises(KeyboardInterrupt):
            run_mnist(tmp_path / "out", tiny(), DATA, **settings)
        assert not (tmp_path / "out" / "results.json").exists()
        again = run_mnist(tmp_path / "out", tiny(), DATA, **settings)
    assert again.rows == done[1]


def test_readers_see_the_choice_and_nothing_else(tmp_path: Path) -> None:
    """Masks that are the class are read without fault, masks that are drawn are not; on images
    whose values say nothing, as the values are not shown."""
    random, features = np.random.default_rng(0), SIDE**2
    parts, codes, chances = {}, {}, {}
    for name, count in (("train", 300), ("valid", 100), ("test", 200)):
        y = np.arange(count) % 10
        parts[name] = Rows(np.zeros((count, features), dtype=np.float32), y.astype(np.int64), 10)
        codes[name] = (np.arange(features) == 2 * y[:, None])[None, None]
        chances[name] = (random.uniform(size=(count, features)) < 0.5)[None, None]
    both = {name: np.concatenate([codes[name], chances[name]], axis=1) for name in parts}
    found = Selections(
        "REAL-X", [{"sparsity": 1.0}, {"sparsity": 2.0}], both, {}, np.zeros((1, 2)), 0.0
    )
    recipe = tiny(training=Training(epochs=30, batch_size=50, learning_rate=1e-2))
    place = Place("cpu", tmp_path, False)
    read = Workshop(recipe, Parts(**parts, shape=(1, SIDE, SIDE)), (0,), place).readers("a", found)
    assert read.shape == (1, 2, 200, 10)
    right = (read[0].argmax(-1) == parts["test"].y).mean(1)
    assert right[0] == 1
    assert right[1] < 0.1 + 5 * np.sqrt(0.1 * 0.9 / 200)  # chance, five standard errors


# ---------------------------------------------------------------------- the paper's rule


def candidates(accuracies: list[float], fractions: list[float]) -> tuple[Selections, Rows]:
    """One seed; settings whose validation accuracy and fraction shown are as given."""
    rows = 100
    y = np.zeros(rows, dtype=np.int64)
    own = np.zeros((1, len(accuracies), rows, 2), dtype=np.float32)
    masks = np.zeros((1, len(accuracies), rows, 10), dtype=bool)
    for s, (accuracy, fraction) in enumerate(zip(accuracies, fractions, strict=True)):
        right = np.arange(rows) < round(accuracy * rows)
        own[0, s] = np.where(right[:, None], (0.9, 0.1), (0.1, 0.9))
        masks[0, s, :, : round(10 * fraction)] = True
    settings: list[dict[str, int | float]] = [
        {"sparsity": float(s)} for s in range(len(accuracies))
    ]
    found = Selections("REAL-X", settings, {"valid": masks}, {"valid": own}, np.zeros((1, 1)), 0.0)
    return found, Rows(np.zeros((rows, 4), dtype=np.float32), y, 2)


@pytest.mark.parametrize(
    ("accuracies", "fractions", "full", "chosen", "word"),
    [
        ([0.98, 0.94, 0.80], [0.9, 0.5, 0.1], 0.98, 1, "within 0.05"),
        ([0.98, 0.92, 0.80], [0.9, 0.5, 0.1], 0.98, 0, "within 0.05"),
        ([0.70, 0.90, 0.90], [0.9, 0.5, 0.4], 0.98, 2, "none is within"),
    ],
)
def test_the_sparsest_within_five_points_of_full_is_chosen(
    accuracies: list[float], fractions: list[float], full: float, chosen: int, word: str
) -> None:
    found, valid = candidates(accuracies, fractions)
    best, reasons = _choose(found, valid, 0.05, [full])
    assert best.tolist() == [chosen]
    assert word in reasons[0]


def test_a_fallback_is_said_in_the_table() -> None:
    rows = [
        {
            "dataset": "MNIST", "method": "L2X", "setting": {"k": 1}, "seed": 0, "chosen": True,
            "metrics": {"acc": 0.5}, "reason": "the largest validation accuracy, as none is within",
        }
    ]  # fmt: skip
    assert "none was for L2X" in to_text(image_tables(rows)[0]).replace("\n  ", " ")


# ---------------------------------------------------------------------- recipes


@pytest.mark.parametrize(("name", "subject"), [("mnist", MNIST), ("chest_xray", CXR)])
def test_published_figures_are_the_papers(name: str, subject: Subject) -> None:
    path = SHARED / "paper" / "published.json"
    if not path.is_file():
        pytest.skip("the paper's tables are not here")
    paper_table = json.loads(path.read_text(encoding="utf-8"))[name]
    assert set(subject.published) == set(paper_table)
    for method, own in subject.published.items():
        theirs = paper_table[method]
        assert own["acc"] == pytest.approx(theirs["ACC"] / 100)
        assert own["auroc"] == theirs["AUROC"]
        if method != "FULL":
            assert own["eacc"] == pytest.approx(theirs["eACC"] / 100)
            assert own["eauroc"] == theirs["eAUROC"]
            assert own.get("sparsity", own.get("k")) == theirs.get("lambda", theirs.get("k"))


def test_the_paper_preset_is_the_papers() -> None:
    recipe = paper()
    assert recipe.prices == (0.1, 1, 5, 10, 25, 50)
    assert recipe.numbers == (1, 5, 15, 50, 100, 200)
    assert recipe.training.epochs == 500
    assert recipe.training.learning_rate == recipe.training.selector_learning_rate == 1e-4
    assert recipe.temperature == 0.1
    assert [len(MLP.hidden) for MLP in (recipe.predictor, recipe.selector)] == [2, 3]  # type: ignore[attr-defined]
    assert quick().rows == 10_000
    assert preset("Paper") == recipe


def test_each_k_is_a_program_of_its_own() -> None:
    for (method, levels), k in zip(paper().programs("L2X"), paper().numbers, strict=True):
        assert levels == (k,)
        assert method.selector is not None
        assert method.selector.sampler.noise_shape(784)[0] == k


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prices": (1.0, 1.0)}, "different numbers"),
        ({"prices": ()}, "different numbers"),
        ({"prices": (-1.0,)}, "at least 0"),
        ({"numbers": (1, 1)}, "different whole numbers"),
        ({"numbers": (0,)}, "a whole number above 0"),
        ({"numbers": (785,)}, "at most the number of features, 784"),
    ],
)
def test_impossible_grids_are_refused(changes: dict[str, Any], words: str) -> None:
    recipe = replace(paper(), **changes)
    with pytest.raises(InputError, match=words):
        check_grid(recipe.prices, recipe.numbers, 784)


def test_two_samples_of_each_class_are_the_first_ones() -> None:
    y = np.array([1, 0, 1, 1, 0, 0])
    view = View(MNIST, np.zeros((6, 1, 2, 2), dtype=np.float32), y, Zero())
    assert view.samples().tolist() == [1, 4, 0, 2]


def test_a_chosen_row_says_what_it_has_over_random_masks(done: Any) -> None:
    for row in done[1]:
        if row["method"] in ("REAL-X", "L2X", "INVASE", "BASE-X") and row["chosen"]:
            random = next(
                r for r in done[1]
                if r["method"] == f"random, as {row['method']}"
                and (r["seed"], r["setting"]) == (row["seed"], row["setting"])
            )  # fmt: skip
            for key, found in row["over_random"].items():
                difference = row["metrics"][key] - random["metrics"][key]
                assert found["value"] == pytest.approx(difference, abs=1e-12)
                assert found["low"] <= found["value"] <= found["high"]
        else:
            assert "over_random" not in row


# ---------------------------------------------------------------------- the command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", "mnist", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "papr"], "did you mean paper?"),
        (["--methods", "REALX"], "did you mean REAL-X?"),
        (["--methods", "L2X,L2X"], "different names"),
        (["--seeds", "0"], "at least 1"),
        (["--ks", "1,1000"], "at most the number of features, 784"),
        (["--ks", "1.5"], "whole numbers"),
        (["--sparsities", "1,1"], "different numbers"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = run(*arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_preset_is_refused(done: Any) -> None:
    with pytest.raises(OutputError, match="'tuned', not 'quick'"):
        run_mnist(done[0], replace(tiny(), name="quick"), DATA, device="cpu", show=False)
