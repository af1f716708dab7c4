"""The synthetic tables from one call: all rows, figures that can be made by hand, safe folders."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_tables import assert_one_sentence

from unmasked import MLP, InputError, OutputError, Training
from unmasked.datasets.posterior import posterior
from unmasked.masks.maskers import Token
from unmasked.metrics import auroc, hits, log_likelihoods, selection_quality
from unmasked.reproduce import replicates as training
from unmasked.reproduce import synthetic as job
from unmasked.reproduce.recipes import (
    EXPLAINERS,
    PRESETS,
    Recipe,
    one_of,
    preset,
    quick,
    with_epochs,
)
from unmasked.reproduce.replicates import (
    PARTS,
    Place,
    World,
    draw_worlds,
    train_collection,
    train_evaluator,
    train_explainer,
)
from unmasked.reproduce.selections import Selections
from unmasked.reproduce.synthetic import NO_CONTROL_FLOW, Reproduction, run_synthetic
from unmasked.training import restart_seeds
from unmasked.training.step import Stepper

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = replace(
    quick(),
    rows=200,
    training=Training(epochs=3, batch_size=50, learning_rate=0.05, selector_learning_rate=0.05),
    predictor=MLP((8,)),
    selector=MLP((8,)),
    prices=(0.05, 1.0),
    numbers=(1, 3),
)
RICH = replace(TINY, members=2, collection=Training(epochs=1, batch_size=200))
SETS, SEEDS = ("S1", "S3"), (0, 1)
REFERENCES = ("true features", NO_CONTROL_FLOW, "random masks", "FULL", "optimum")
SHOWN = {"tpr", "fdr", "cfsr", "fraction"}


def run(folder: Path, recipe: Recipe = TINY, **changes: Any) -> Reproduction:
    return run_synthetic(folder, recipe, **{"device": "cpu", "show": False, **changes})


def keys(letters: str) -> set[str]:
    """Metric keys of evaluators by letter; a space stands for the method's own predictor."""
    forms = [letter.strip() for letter in letters]
    return {form + score for form in forms for score in ("auroc", "acc", "loglik")}


def rows_of(done: Reproduction, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in done.rows if all(row[name] == v for name, v in wanted.items())]


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """Everything: two sets, two seeds, all methods, EVAL-X of two networks, the collection."""
    return run(tmp_path_factory.mktemp("rich"), RICH, datasets=SETS, seeds=SEEDS)


PLAIN = {"datasets": ("S1",), "explainers": ("REAL-X", "L2X"), "seeds": (1,)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """One set, one seed, two methods, nothing optional."""
    return run(tmp_path_factory.mktemp("plain"), **PLAIN)


# ---------------------------------------------------------------------- the rows


def test_there_is_a_row_for_everything(rich: Reproduction) -> None:
    settings = {
        name: [{"k": k} for k in (1, 3)] if name == "L2X" else
        [{"sparsity": price} for price in TINY.prices]
        for name in EXPLAINERS
    }  # fmt: skip
    for dataset in SETS:
        for seed in SEEDS:
            own = rows_of(rich, dataset=dataset, seed=seed)
            count = Counter(row["method"] for row in own)
            assert count == {**dict.fromkeys(EXPLAINERS, 2), **dict.fromkeys(REFERENCES, 1)}
            for name in EXPLAINERS:
                made = [row for row in own if row["method"] == name]
                assert [row["setting"] for row in made] == settings[name]
                assert sum(row["chosen"] for row in made) == 1
                assert all(row["epoch"] in (0, 1, 2) for row in made)
            assert all(row["chosen"] and not row["setting"] for row in own
                       if row["method"] in REFERENCES)  # fmt: skip
    assert len(rich.rows) == 4 * (2 * len(EXPLAINERS) + len(REFERENCES))


def test_every_evaluator_judges_every_row(rich: Reproduction, plain: Reproduction) -> None:
    """ROAR is for chosen rows, the collection for the first seed, the optimum is exact only."""
    for done, collected in ((rich, {0}), (plain, set[int]())):
        for row in done.rows:
            letters = " epo" + ("c" if row["seed"] in collected else "")
            letters += "r" if row["chosen"] else ""
            if row["method"] in REFERENCES:
                letters = letters.replace(" ", "")
            if row["method"] == "FULL":
                letters = letters.replace("r", "") + " "
            if row["method"] == "optimum":
                letters = " o"
            assert set(row["metrics"]) == SHOWN | keys(letters), row["method"]
            values = np.array(list(row["metrics"].values()))
            assert np.isfinite(values).all()
            shares = [v for key, v in row["metrics"].items() if "loglik" not in key]
            assert (np.array(shares) >= 0).all()
            assert (np.array(shares) <= 1).all()


def test_the_optimum_is_the_true_probability(rich: Reproduction) -> None:
    for world in draw_worlds(SETS, SEEDS, TINY.rows):
        found = rows_of(rich, dataset=world.dataset, seed=world.seed, method="optimum")
        (metrics,) = (row["metrics"] for row in found)
        expected = scored(world.test.probability, world.test.y)
        assert {key: metrics[key] for key in expected} == expected
        assert {key: metrics[f"o{key}"] for key in expected} == expected
        assert (metrics["tpr"], metrics["fdr"], metrics["cfsr"]) == (1, 0, 1)
        (truth,) = rows_of(rich, dataset=world.dataset, seed=world.seed, method="true features")
        assert {key: truth["metrics"][f"o{key}"] for key in expected} == expected


def scored(p: Any, y: Any) -> dict[str, float]:
    both = np.stack([1 - p, p], axis=1)
    return {
        "auroc": auroc(both, y),
        "acc": float(hits(both, y).mean()),
        "loglik": float(log_likelihoods(both, np.eye(2)[y]).mean()),
    }


def test_references_show_what_they_say(rich: Reproduction) -> None:
    for world in draw_worlds(SETS, SEEDS, TINY.rows):
        own = {row["method"]: row["metrics"] for row in
               rows_of(rich, dataset=world.dataset, seed=world.seed, chosen=True)}  # fmt: skip
        assert own["FULL"]["fraction"] == 1
        assert own[NO_CONTROL_FLOW]["cfsr"] == 0
        assert own[NO_CONTROL_FLOW]["fdr"] == 0
        missing = (world.test.truth.sum(1) - 1) / world.test.truth.sum(1)
        assert own[NO_CONTROL_FLOW]["tpr"] == pytest.approx(missing.mean())
        assert own["random masks"]["fraction"] == own["REAL-X"]["fraction"]
        # showing everything, the exact posterior knows the true probability too
        assert own["FULL"]["ologlik"] == own["optimum"]["loglik"]


def test_l2x_shows_exactly_k_of_eleven(rich: Reproduction) -> None:
    for row in rows_of(rich, method="L2X"):
        assert row["metrics"]["fraction"] == pytest.approx(row["setting"]["k"] / 11, abs=1e-12)


# ---------------------------------------------------------------------- figures by hand


def trained(recipe: Recipe, name: str, worlds: list[World], folder: Path) -> Selections:
    return train_explainer(name, recipe, worlds, Place("cpu", folder, False))


@pytest.mark.parametrize("name", ["REAL-X", "L2X"])
def test_of_several_restarts_the_best_on_validation_rows_is_kept(name: str, tmp_path: Path) -> None:
    """Each restart trained alone, on the same rows from its own seed, and the best one by hand."""
    worlds = draw_worlds(SETS[:2], (0,), 200)
    recipe = replace(RICH, restarts=3)
    found = trained(recipe, name, worlds, tmp_path / "all")
    alone = []
    for i in range(3):
        moved = [replace(world, seed=restart_seeds(world.seed, 3)[i]) for world in worlds]
        alone.append(trained(RICH, name, moved, tmp_path / str(i)))
    price = 0.0 if name == "L2X" else 1.0
    objectives = np.array([
        [
            [
                log_likelihoods(both(one.own["valid"][w, s]), np.eye(2)[world.valid.y]).mean()
                - price * level * one.masks["valid"][w, s].mean()
                for s, level in enumerate(one.levels)
            ]
            for w, world in enumerate(worlds)
        ]
        for one in alone
    ])  # fmt: skip
    best = objectives.argmax(0)  # (W, S)
    assert len(np.unique(best)) > 1  # else one restart for all would pass as well
    for (w, s), i in np.ndenumerate(best):
        for part in ("train", "valid", "test"):
            np.testing.assert_array_equal(found.masks[part][w, s], alone[i].masks[part][w, s])
        np.testing.assert_allclose(found.own["test"][w, s], alone[i].own["test"][w, s], atol=1e-6)
        assert found.epochs[w, s] == alone[i].epochs[w, s]


def both(p: np.ndarray) -> np.ndarray:
    return np.stack([1 - p, p], -1)


@pytest.mark.parametrize("name", ["BASE-X", "L2X"])
def test_a_rows_figures_are_those_of_its_masks(
    rich: Reproduction, name: str, tmp_path: Path
) -> None:
    """Train again, and judge masks with ordinary modules and public functions alone."""
    worlds = draw_worlds(SETS, SEEDS, RICH.rows)
    own = trained(RICH, name, worlds, tmp_path)
    networks = train_evaluator("EVAL-X", RICH, worlds, Place("cpu", tmp_path, False)).predictors
    assert len(networks) == 2 * len(worlds)
    for w in (0, 3):
        test = worlds[w].test
        found = rows_of(rich, dataset=worlds[w].dataset, seed=worlds[w].seed, method=name)
        for s, row in enumerate(found):
            masks = own.masks["test"][w, s]
            quality = selection_quality(masks, test.truth, 10)
            exact = scored(posterior(worlds[w].dataset, test.x, masks), test.y)
            shown = Token()(torch.from_numpy(test.x).float(), torch.from_numpy(masks).float())
            with torch.no_grad():
                members = [torch.softmax(net(shown).double(), -1)[:, 1] for net in
                           networks[2 * w : 2 * w + 2]]  # fmt: skip
            evalx = scored(torch.stack(members).mean(0).numpy(), test.y)
            expected = {
                "fraction": masks.mean(), **quality.to_json(),
                **scored(own.own["test"][w, s], test.y),
                **{f"o{key}": value for key, value in exact.items()},
                **{f"e{key}": value for key, value in evalx.items()},
            }  # fmt: skip
            # float32 logits differ by about 1e-6 between one network and many at once, which may
            # exchange two rows of the ranking: one in about 10,000 pairs
            assert {key: row["metrics"][key] for key in expected} == pytest.approx(
                expected, abs=2e-4
            )


def test_the_collection_asks_each_sets_own_models(rich: Reproduction, tmp_path: Path) -> None:
    """Bit j of a model's number is feature j; the models of S3 come after the 2,048 of S1."""
    worlds = draw_worlds(SETS, (0,), RICH.rows)
    stack = train_collection(RICH, worlds, Place("cpu", tmp_path, False)).stacks["predictor"]
    assert stack.count == 2 * 2048
    for w, world in enumerate(worlds):
        x, masks = torch.from_numpy(world.test.x).float(), torch.from_numpy(world.test.truth)
        p = np.empty(RICH.rows)
        for mask in masks.unique(dim=0):  # of the two branches
            rows = (masks == mask).all(1)
            number = sum(2**j for j in range(11) if mask[j])
            with torch.no_grad():
                logits = stack.module(2048 * w + number)(Token()(x[rows], masks[rows].float()))
            p[rows.numpy()] = torch.softmax(logits.double(), -1)[:, 1]
        (row,) = rows_of(rich, dataset=world.dataset, seed=0, method="true features")
        for key, value in scored(p, world.test.y).items():
            assert row["metrics"][f"c{key}"] == pytest.approx(value, abs=2e-4)  # as above


def by_hand(own: Selections, world: int, p: Any, y: Any) -> int:
    """The position of the largest validation accuracy; the sparser of equals."""
    accuracy = [((p[s] > 0.5) == y).mean() for s in range(len(own.levels))]
    shown = own.masks["valid"][world].mean((1, 2))
    return min(range(len(accuracy)), key=lambda s: (-accuracy[s], shown[s]))


def test_eval_x_chooses_by_its_own_validation_scores(tmp_path: Path) -> None:
    recipe = replace(TINY, judge="eval-x", rule="accuracy", prices=(0.05, 0.2, 1.0))
    worlds, names = draw_worlds(SETS, SEEDS, recipe.rows), ("BASE-X", "INVASE")
    done = run(tmp_path / "run", recipe, datasets=SETS, seeds=SEEDS, explainers=names)
    place = Place("cpu", tmp_path / "again", False)
    judges = train_evaluator("EVAL-X", recipe, worlds, place).predictors
    differs = 0
    for name in names:
        own = trained(recipe, name, worlds, tmp_path / "again")
        for w, world in enumerate(worlds):
            x = torch.from_numpy(world.valid.x).float()
            masks = torch.from_numpy(own.masks["valid"][w]).float()
            with torch.no_grad():
                p = [torch.softmax(judges[w](Token()(x, mask)), -1)[:, 1].numpy() for mask in masks]
            expected = by_hand(own, w, p, world.valid.y)
            found = rows_of(done, dataset=world.dataset, seed=world.seed, method=name)
            assert [row["chosen"] for row in found].index(True) == expected
            differs += expected != by_hand(own, w, own.own["valid"][w], world.valid.y)
    assert differs, "both judges choose alike everywhere: this test tests nothing"


# ---------------------------------------------------------------------- who feels whom


def test_worlds_depend_on_their_own_seed_alone() -> None:
    many = draw_worlds(("S1", "S2", "S3"), (0, 1, 2), 50)
    assert [(w.dataset, w.seed) for w in many[:4]] == [("S1", 0), ("S1", 1), ("S1", 2), ("S2", 0)]
    (alone,) = draw_worlds(("S2",), (2,), 50)
    for part in PARTS:
        np.testing.assert_array_equal(many[5].part(part).x, alone.part(part).x)
        np.testing.assert_array_equal(many[5].part(part).y, alone.part(part).y)
    own = [w.part(part).x for w in many if w.dataset == "S1" for part in PARTS]
    assert len(np.unique(np.concatenate(own)[:, 0])) == 9 * 50  # no row is drawn twice


def test_a_world_does_not_feel_the_worlds_beside_it(rich: Reproduction, tmp_path: Path) -> None:
    """The second seed of S3 alone: the same masks, and figures to float32.

    Stacked products round by about 1e-7 otherwise and 12 steps of training carry that on to less
    than 1e-5 of a probability. One exchanged pair of rows is 1e-4 of an AUROC.
    """
    alone = run(tmp_path, RICH, datasets=("S3",), seeds=(1,))
    beside = rows_of(rich, dataset="S3", seed=1)
    assert len(alone.rows) == len(beside)
    for row in alone.rows:
        (other,) = (r for r in beside if (r["method"], r["setting"]) ==
                    (row["method"], row["setting"]))  # fmt: skip
        assert row["chosen"] == other["chosen"]
        assert row.get("epoch") == other.get("epoch")
        for key, value in other["metrics"].items():
            rounding = 0 if key in SHOWN else 1e-4 if "loglik" in key else 3e-4
            assert row["metrics"][key] == pytest.approx(value, rel=0, abs=rounding), key


@pytest.mark.parametrize("name", EXPLAINERS)
def test_masks_do_not_depend_on_the_worlds_beside(name: str, tmp_path: Path) -> None:
    worlds = draw_worlds(SETS, SEEDS, TINY.rows)
    together = trained(TINY, name, worlds, tmp_path / "all")
    alone = trained(TINY, name, worlds[2:3], tmp_path / "one")
    for part in PARTS:
        np.testing.assert_array_equal(alone.masks[part][0], together.masks[part][2])
        assert 0 < alone.masks[part].mean() < 1
    for part, p in alone.own.items():
        np.testing.assert_allclose(p[0], together.own[part][2], rtol=0, atol=1e-5)  # float32


# ---------------------------------------------------------------------- killed runs


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every training step of the engine."""
    taken: list[int] = []
    step = Stepper.__call__

    def counted(self: Stepper, *arguments: Any) -> Any:
        taken.append(1)
        return step(self, *arguments)

    monkeypatch.setattr(Stepper, "__call__", counted)
    return taken


def test_a_killed_run_goes_on_where_it_stopped(
    plain: Reproduction, tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = job.train_explainer

    def killed(name: str, *rest: Any) -> Selections:
        if name == "L2X":
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr(job, "train_explainer", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, **PLAIN)
    before = len(steps)
    assert before == 12  # REAL-X: 3 epochs × 4 batches
    assert not (tmp_path / "results.json").exists()
    with pytest.raises(OutputError, match="an unfinished run of the preset 'quick', not 'tuned'"):
        run(tmp_path, replace(TINY, name="tuned"), **PLAIN)
    monkeypatch.setattr(job, "train_explainer", real)
    resumed = run(tmp_path, **PLAIN)
    assert len(steps) - before == 48  # L2X, EVAL-X, FULL and ROAR, 12 each; REAL-X is done
    assert resumed.rows == plain.rows
    assert resumed.lead == plain.lead
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert written["rows"] == plain.rows
    assert not (tmp_path / ".checkpoint").exists()
    assert (plain.resumed, resumed.resumed) == (False, True)


def test_a_run_killed_after_roar_goes_on_where_selectors_round_otherwise_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU near a half: ROAR has learned from masks that would not come again."""
    steady, calls = training.selected, iter(range(1000))

    def rounded_otherwise(*given: Any) -> NDArray[np.bool_]:
        masks = steady(*given)
        masks.reshape(-1)[next(calls)] ^= True
        return masks

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "selected", rounded_otherwise)
    with monkeypatch.context() as patch:
        patch.setattr(job, "write_tables", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, **PLAIN)
    assert list(tmp_path.rglob("roar.safetensors"))
    run(tmp_path, **PLAIN)
    assert (tmp_path / "results.json").is_file()


def test_a_method_killed_in_the_middle_goes_on_from_its_last_epoch(
    plain: Reproduction, tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmasked.training.loop._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr("unmasked.training.loop._SAVING_SHARE", 0)
    counted = Stepper.__call__

    def dies(self: Stepper, *arguments: Any) -> Any:
        if len(steps) == 7:  # in the second of REAL-X's epochs of 4 steps
            raise MemoryError
        return counted(self, *arguments)

    monkeypatch.setattr(Stepper, "__call__", dies)
    with pytest.raises(MemoryError):
        run(tmp_path, **PLAIN)
    monkeypatch.setattr(Stepper, "__call__", counted)
    assert run(tmp_path, **PLAIN).rows == plain.rows
    assert len(steps) - 7 == 5 * 12 - 4  # five programs, less the epoch that was done


def test_ctrl_c_in_training_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second epoch of BASE-X: no tables of half-trained networks, and it can go on."""
    step, taken = Stepper.__call__, []

    def pressed(self: Stepper, *arguments: Any) -> Any:
        taken.append(1)
        if len(taken) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *arguments)

    monkeypatch.setattr(Stepper, "__call__", pressed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, datasets=("S1",), explainers=("BASE-X",))
    assert not (tmp_path / "results.json").exists()
    assert (tmp_path / ".checkpoint").exists()


# ---------------------------------------------------------------------- folders and refusals


def test_files_tell_where_figures_come_from(plain: Reproduction) -> None:
    content = json.loads((plain.folder / "results.json").read_text(encoding="utf-8"))
    assert content["rows"] == plain.rows
    assert content["summary"] == plain.lead
    assert content["recipe"] == json.loads(json.dumps(TINY.to_json()))
    assert {"command", "version", "hardware", "torch", "seconds"} <= set(content)
    assert set(content["seconds"]) == {"REAL-X", "L2X", "EVAL-X", "FULL", "ROAR", "all"}
    for name in ("tables.txt", "tables.md", "tables.html"):
        text = (plain.folder / name).read_text(encoding="utf-8")
        assert all(word in text for word in ("REAL-X", "L2X", "optimum", "S1"))
        assert plain.lead[0].split(":")[0] in text.replace("\n", " ")
    assert not (plain.folder / ".unmasked.part").exists()


def test_the_summary_tells_the_figures_of_the_rows(plain: Reproduction) -> None:
    (chosen,) = rows_of(plain, method="REAL-X", chosen=True)
    assert plain.lead[0].startswith(
        f"REAL-X (S1): shows the control-flow feature x11 in {chosen['metrics']['cfsr']:.3f} of"
    )
    assert f"eAUROC {chosen['metrics']['eauroc']:.3f}" in plain.lead[0]


def no_training(*arguments: Any, **more: Any) -> None:
    raise AssertionError("training started")


def test_a_folder_of_another_preset_is_refused(
    plain: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "train_explainer", no_training)
    before = (plain.folder / "results.json").read_bytes()
    with pytest.raises(OutputError, match="results of the preset 'quick', not 'paper'") as caught:
        run(plain.folder, replace(TINY, name="paper"), **PLAIN)
    assert_one_sentence(caught.value)
    for other in ({"seeds": (2,)}, {"explainers": ("L2X",)}, {"recipe": replace(TINY, rows=300)}):
        with pytest.raises(OutputError, match=r"results of another run \(unmasked reproduce syn"):
            run(plain.folder, **{**PLAIN, **other})
    assert (plain.folder / "results.json").read_bytes() == before


OTHER_JOB = '{"command": "unmasked demo", "version": "0.1.0", "hardware": "2 CPU cores"}'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text, "is not known to be a result of unmasked")
        for text in ("{}", "[]", "no json", '{"recipe": null}')
    ]
    + [(OTHER_JOB, "'something else', not 'quick'")],
)
def test_results_of_something_else_are_not_overwritten(
    content: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(OutputError, match=words):
        run(tmp_path)
    assert (tmp_path / "results.json").read_text() == content


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prices": (0.1, 0.2, 0.1)}, "sparsity must list different numbers"),
        ({"prices": ()}, "sparsity must list different numbers"),
        ({"prices": (-0.1,)}, "at least 0 but is -0.1"),
        ({"prices": (float("nan"),)}, "at least 0 but is nan"),
        ({"prices": (float("inf"),)}, "at least 0 but is inf"),
        ({"numbers": (2, 2)}, "k must list different whole numbers"),
        ({"numbers": (3, 12)}, "at most the number of features, 11, but is 12"),
        ({"numbers": (0,)}, "k must be a whole number above 0 but is 0"),
        ({"numbers": (1.5,)}, "k must be a whole number above 0 but is 1.5"),
        ({"numbers": ()}, "k must list different whole numbers"),
    ],
)
def test_impossible_grids_are_refused_before_any_work(
    changes: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "train_explainer", no_training)
    with pytest.raises(InputError, match=words) as caught:
        run(tmp_path / "out", replace(TINY, **changes))
    assert_one_sentence(caught.value)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------- recipes


@pytest.mark.parametrize("name", ["paper", "tuned"])
def test_the_presets_run_as_they_are_on_few_rows(name: str, tmp_path: Path) -> None:
    """Their networks, maskers, laws and options; one epoch, and no 2,048 networks of this size."""
    recipe = with_epochs(replace(preset(name), rows=100, collection=None), 1)
    recipe = replace(recipe, prices=(0.1,), numbers=(2,))
    done = run(tmp_path, recipe, datasets=("S2",), explainers=("REAL-X", "BASE-X"))
    assert len(done.rows) == 2 + len(REFERENCES)
    assert all(np.isfinite(list(row["metrics"].values())).all() for row in done.rows)


def test_other_epochs_are_for_everything_that_is_trained() -> None:
    for name in PRESETS:
        recipe = with_epochs(preset(name), 3)
        every = [recipe.options(method) for method in (*EXPLAINERS, "EVAL-X", "FULL", "ROAR")]
        every += [] if recipe.collection is None else [recipe.collection]
        assert {training.epochs for training in every} == {3}
        assert (recipe.collection is None) == (name == "quick")
        assert replace(recipe.options("REAL-X"), epochs=None) == replace(
            preset(name).options("REAL-X"), epochs=None
        )


def test_a_name_is_known_whatever_its_case_and_else_the_nearest_is_offered() -> None:
    assert one_of("method", "real-x-step", EXPLAINERS) == "REAL-X-STEP"
    with pytest.raises(InputError, match="but is 'INVASION'; did you mean INVASE") as caught:
        one_of("method", "INVASION", EXPLAINERS)
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="but is 'qqq'") as caught:
        one_of("method", "qqq", EXPLAINERS)
    assert "did you mean" not in str(caught.value)
