"""Seeds or methods that were run apart and joined are the table of all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_reproduce_cxr import FILMS, OPTIONS, PARTS, tiny
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.reproduce.image_figures import read_masks
from unmasked.reproduce.image_sets import run_cxr
from unmasked.reproduce.image_tables import sentences
from unmasked.reproduce.render import CXR, REFERENCES


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


def join(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", "join", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both seeds at once, and each alone; of the first seed, each method alone."""
    folder = tmp_path_factory.mktemp("join")
    for name in ("REAL-X", "L2X"):
        options = {**OPTIONS, "explainers": (name,)}
        run_cxr(folder / name, tiny(), FILMS, drawn=PARTS, seeds=(0,), **options)
    for name, seeds in (("both", (0, 1)), ("first", (0,)), ("second", (1,))):
        run_cxr(folder / name, tiny(), FILMS, drawn=PARTS, seeds=seeds, **OPTIONS)
    return {name: folder / name for name in ("both", "first", "second", "REAL-X", "L2X")}


def by_name(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {(r["method"], r["seed"], *r["setting"].values()): r for r in rows}


def test_joined_seeds_are_those_of_one_run(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = join(runs["first"], runs["second"], "--out", out)
    assert done.exit_code == 0, done.output
    joined, whole = by_name(results(out)["rows"]), by_name(results(runs["both"])["rows"])
    assert joined.keys() == whole.keys()
    for key, row in whole.items():
        own = joined[key]
        assert own["chosen"] == row["chosen"], key
        assert own["metrics"] == pytest.approx(row["metrics"], abs=1e-5), key
    for name in ("tables.txt", "tables.md", "tables.html", "samples.png", "gallery.html", "study"):
        assert (out / name).exists(), name
    text = (out / "tables.txt").read_text(encoding="utf-8")
    assert "2 seeds" in text
    for one, other in zip(
        read_masks(out / "masks.npz"), read_masks(runs["both"] / "masks.npz"), strict=True
    ):
        assert (one.method, one.seed, one.setting) == (other.method, other.seed, other.setting)
        assert one.chosen == other.chosen
        assert np.array_equal(one.masks, other.masks)


def test_the_summary_is_of_all_seeds_and_keeps_the_remarks(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert join(runs["first"], runs["second"], "--out", out).exit_code == 0
    assert results(out)["summary"] == results(runs["both"])["summary"]
    commands = [results(runs[name])["command"] for name in ("first", "second")]
    assert results(out)["joined"] == commands


def test_what_was_joined_before_can_be_joined_again(runs: dict[str, Path], tmp_path: Path) -> None:
    third, two, all_three = (tmp_path / name for name in ("third", "two", "all"))
    found = results(runs["second"])
    found["command"] = "the third"
    for row in found["rows"]:
        row["seed"] = 2
    third.mkdir()
    (third / "results.json").write_text(json.dumps(found), encoding="utf-8")
    assert join(runs["first"], runs["second"], "--out", two).exit_code == 0
    assert join(two, third, "--out", all_three).exit_code == 0
    commands = [results(runs[name])["command"] for name in ("first", "second")]
    assert results(all_three)["joined"] == [*commands, "the third"]
    assert {row["seed"] for row in results(all_three)["rows"]} == {0, 1, 2}


def test_joined_methods_are_those_of_one_run(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = join(runs["REAL-X"], runs["L2X"], "--out", out)
    assert done.exit_code == 0, done.output
    joined, whole = results(out), results(runs["first"])
    assert [row["method"] for row in joined["rows"]] == [row["method"] for row in whole["rows"]]
    assert by_name(joined["rows"]) == by_name(whole["rows"])
    assert joined["summary"] == whole["summary"]
    assert not (out / "samples.png").exists()  # there is none of both methods
    for one, other in zip(
        read_masks(out / "masks.npz"), read_masks(runs["first"] / "masks.npz"), strict=True
    ):
        assert (one.method, one.seed, one.setting) == (other.method, other.seed, other.setting)
        assert np.array_equal(one.masks, other.masks)


def test_methods_that_other_networks_judged_are_refused(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs["L2X"], other)
    changed = results(other)
    full = next(row for row in changed["rows"] if row["method"] == "FULL")
    full["metrics"]["eloglik"] += 1e-6
    (other / "results.json").write_text(json.dumps(changed), encoding="utf-8")
    done = join(runs["REAL-X"], other, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "were judged by other networks" in " ".join(done.output.split())
    changed["rows"] = [row for row in changed["rows"] if row["method"] != "optimum"]
    (other / "results.json").write_text(json.dumps(changed), encoding="utf-8")
    done = join(runs["REAL-X"], other, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "optimum is in one of" in " ".join(done.output.split())
    done = join(runs["first"], runs["L2X"], "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "method L2X is in" in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def _without_a_method(run: dict[str, Any]) -> None:
    run["rows"] = [row for row in run["rows"] if row["method"] != "L2X"]


def _other_recipe(run: dict[str, Any]) -> None:
    run["recipe"]["rebar_temperature"] = 0.3


def _same_seed(run: dict[str, Any]) -> None:
    for row in run["rows"]:
        row["seed"] = 0


def _no_truth(run: dict[str, Any]) -> None:
    for row in run["rows"]:
        row["metrics"].pop("iou", None)


def _other_size(run: dict[str, Any]) -> None:
    run["images"]["shape"] = [1, 64, 64]


def _no_version(run: dict[str, Any]) -> None:
    del run["version"]


def _no_seed(run: dict[str, Any]) -> None:
    del run["rows"][3]["seed"]


def _put(value: Any, *keys: Any) -> Callable[[dict[str, Any]], None]:
    """A value in the wrong place."""

    def change(run: dict[str, Any]) -> None:
        place: Any = run
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def _nothing_chosen(run: dict[str, Any]) -> None:
    for row in run["rows"]:
        row["chosen"] = row["chosen"] and row["method"] != "L2X"


def _chosen_twice(run: dict[str, Any]) -> None:
    for row in run["rows"]:
        row["chosen"] = True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without_a_method, "other methods"),
        (_other_recipe, "another recipe"),
        (_same_seed, "seed 0 is in"),
        (_no_truth, "other figures"),
        (_other_size, "other images"),
        (_no_version, "it lacks version"),
        (_no_seed, "its row 4 lacks seed"),
        (_put(None, "rows", 1, "metrics"), "row 2 has as metrics None, not named numbers or null"),
        (_put("high", "rows", 1, "metrics", "acc"), "has as metrics {"),
        (_put(None, "rows", 1, "setting"), "has as setting None"),
        (_put(None, "rows", 0, "seed"), "has as seed None, not a whole number"),
        (_put("x", "rows", 1, "over_random"), "has as over_random 'x'"),
        (_put(None, "rows", 2), "its row 3 is None"),
        (_put([], "rows"), "it has as rows [], not a list of rows"),
        (_put(None, "seconds"), "it has as seconds None"),
        (_put(None, "seconds", "all"), "it has as seconds {"),
        (_put("1", "seconds", "FULL"), "it has as seconds {"),
        (_put(None, "summary"), "it has as summary None, not a list of texts"),
        (_put(None, "recipe"), "it has as recipe None"),
        (_put(None, "recipe", "deviations"), "its recipe has as deviations None"),
        (_nothing_chosen, "it has 0 chosen rows of L2X, seed 1, not one"),
        (_chosen_twice, "it has 2 chosen rows of REAL-X, seed 1, not one"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    change: Callable[[dict[str, Any]], None], words: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs["second"], other)
    changed = results(other)
    change(changed)
    (other / "results.json").write_text(json.dumps(changed), encoding="utf-8")
    done = join(runs["first"], other, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.exception
    assert words in done.output
    assert str(other) in done.output
    assert not (tmp_path / "out").exists()


def test_a_figure_that_does_not_exist_is_none_in_the_table(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """A mean over what is not a number is written as null, and read back."""
    folders = []
    for name in ("first", "second"):
        found = results(runs[name])
        for row in found["rows"]:
            if row["method"] == "L2X":
                row["metrics"]["macc"] = None
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "results.json").write_text(json.dumps(found), encoding="utf-8")
    done = join(*folders, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.exception
    assert "The mask alone names the class in –." in " ".join(done.output.split())
    assert "s of training in the runs that are joined. Tables:" in done.output


def test_masks_that_cannot_be_read_are_refused_before_anything_is_written(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs["second"], other)
    whole = (other / "masks.npz").read_bytes()
    for damaged in (b"not masks", whole[:200], whole[: len(whole) // 2], b""):
        (other / "masks.npz").write_bytes(damaged)
        done = join(runs["first"], other, "--out", tmp_path / "out")
        assert done.exit_code == 2, done.exception
        assert f"{other / 'masks.npz'} must be the masks.npz" in done.output
        assert not (tmp_path / "out").exists()
    (other / "masks.npz").unlink()  # none at all: the table alone is joined
    assert join(runs["first"], other, "--out", tmp_path / "out").exit_code == 0
    assert not (tmp_path / "out" / "masks.npz").exists()


def test_results_of_another_preset_are_not_overwritten(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    there = results(runs["first"])
    there["recipe"]["preset"] = "paper"
    (tmp_path / "results.json").write_text(json.dumps(there), encoding="utf-8")
    done = join(runs["first"], runs["second"], "--out", tmp_path)
    assert done.exit_code == 2
    assert "holds results of the preset 'paper'" in " ".join(done.output.split())
    assert results(tmp_path)["recipe"]["preset"] == "paper"


def test_folders_without_results_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    done = join(runs["first"], tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "must hold the results.json" in done.output
    done = join(runs["first"], "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "two folders or more" in done.output


def test_the_first_seed_is_checked(tmp_path: Path) -> None:
    call = ["reproduce", "cxr", "--first-seed", "-1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 2
    assert "--first-seed at least 0" in " ".join(done.output.split())


def test_a_folder_that_is_joined_is_not_written_into(runs: dict[str, Path]) -> None:
    before = (runs["first"] / "results.json").read_bytes()
    done = join(runs["first"], runs["second"], "--out", runs["first"] / ".." / "first")
    assert done.exit_code == 2
    assert "--out must be another folder than those that are joined" in done.output
    assert (runs["first"] / "results.json").read_bytes() == before


def test_of_what_was_joined_before_nothing_stays(runs: dict[str, Path], tmp_path: Path) -> None:
    """The same join again replaces all; another, or a run, is refused there."""
    out, bare = tmp_path / "out", tmp_path / "bare"
    assert join(runs["first"], runs["second"], "--out", out).exit_code == 0
    done = join(runs["REAL-X"], runs["L2X"], "--out", out)
    assert done.exit_code == 2
    assert "holds results of another run (" in done.output
    bare.mkdir()
    shutil.copy(runs["first"] / "results.json", bare)
    done = join(runs["second"], bare, "--out", out)
    assert done.exit_code == 0, done.output
    assert (out / "gallery.html").is_file()  # of the first, which has pictures
    done = join(bare, runs["second"], "--out", out)
    assert done.exit_code == 0, done.output
    assert "pictures:" not in done.output
    names = {path.name for path in out.iterdir()} - {".unmasked.json"}
    assert names == {"results.json", "tables.txt", "tables.md", "tables.html"}


def _only(source: Path, folder: Path, method: str, *, turned: bool) -> None:
    """What a run of one method would have written, its seeds in order or the other way round."""
    found = results(source)
    found["rows"] = [
        row
        for row in found["rows"]
        if row["method"] in (*REFERENCES, method, f"random, as {method}")
    ]
    found["rows"].sort(key=lambda row: -row["seed"] if turned else row["seed"])
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(found), encoding="utf-8")
    step = -1 if turned else 1
    with np.load(source / "masks.npz") as arrays:
        own = {name: arrays[name][::step] for name in ("seeds", method, f"{method} chosen")}
        own |= {name: arrays[name] for name in ("features", f"{method} settings")}
    np.savez(folder / "masks.npz", **own)


def test_methods_are_joined_seed_by_seed(runs: dict[str, Path], tmp_path: Path) -> None:
    """In whatever order their seeds come."""
    one, other, out = (tmp_path / name for name in ("one", "other", "out"))
    _only(runs["both"], one, "REAL-X", turned=False)
    _only(runs["both"], other, "L2X", turned=True)
    done = join(one, other, "--out", out)
    assert done.exit_code == 0, done.output
    assert by_name(results(out)["rows"]) == by_name(results(runs["both"])["rows"])
    joined, whole = (
        {(m.method, m.seed, m.setting): m for m in read_masks(folder / "masks.npz")}
        for folder in (out, runs["both"])
    )
    assert joined.keys() == whole.keys()
    for key, expected in whole.items():
        assert joined[key].chosen == expected.chosen
        assert np.array_equal(joined[key].masks, expected.masks)
    np.savez(other / "masks.npz", **{**np.load(other / "masks.npz"), "seeds": np.array([4, 5])})
    done = join(one, other, "--out", tmp_path / "more")
    assert done.exit_code == 2
    assert "must hold masks that belong with those of" in done.output


def test_drawn_films_are_not_set_beside_the_papers(runs: dict[str, Path], tmp_path: Path) -> None:
    """Nor are what earlier versions said of them."""
    old = tmp_path / "old"
    shutil.copytree(runs["first"], old)
    found = results(old)
    found["summary"] = ["Drawn.", *sentences(found["rows"], CXR)]
    assert "(paper" in found["summary"][1]
    (old / "results.json").write_text(json.dumps(found), encoding="utf-8")
    assert join(old, runs["second"], "--out", tmp_path / "out").exit_code == 0
    assert results(tmp_path / "out")["summary"] == results(runs["both"])["summary"]
    text = (tmp_path / "out" / "tables.txt").read_text(encoding="utf-8")
    assert "(paper" not in text
    assert ", paper" not in text
