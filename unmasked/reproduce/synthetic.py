"""``unmasked reproduce synthetic``: the paper's synthetic tables from one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from unmasked.datasets.synthetic import CONTROL_FLOW
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.io.output_folder import (
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.reproduce.judging import (
    Judge,
    Masks,
    Reproduction,
    begun,
    check_same_run,
    choose_settings,
    exact,
    mark,
    quality,
    result_row,
    run_digest,
    scores,
)
from unmasked.reproduce.recipes import DATASETS, EXPLAINERS, FEATURES, Recipe, check_grid
from unmasked.reproduce.render import TABLES, write_tables
from unmasked.reproduce.replicates import (
    PARTS,
    Place,
    World,
    draw_worlds,
    inputs_of,
    predicted,
    train_collection,
    train_evaluator,
    train_explainer,
    train_roar,
)
from unmasked.reproduce.selections import Selections
from unmasked.reproduce.summary import lead
from unmasked.reproduce.tables import tables
from unmasked.training.device import choose_device
from unmasked.training.progress import Show

NO_CONTROL_FLOW = "true features without x11"


def run_synthetic(
    folder: Path,
    recipe: Recipe,
    *,
    datasets: tuple[str, ...] = DATASETS,
    explainers: tuple[str, ...] = EXPLAINERS,
    seeds: tuple[int, ...] = (0,),
    device: str = "auto",
    show: Show = "auto",
    command: str = "unmasked reproduce synthetic",
) -> Reproduction:
    """Train all methods, evaluate them in every way, write results.json and the tables."""
    started = time.monotonic()
    check_grid(recipe.prices, recipe.numbers, FEATURES)
    choose_device(device)
    run = run_digest(recipe.to_json(), sorted(datasets), sorted(explainers), seeds)
    prepare_folder(folder, writes=(*TABLES, "results.json"))
    check_same_run(folder, recipe.name, run)
    facts = provenance(command)
    checkpoints = checkpoint_folder(
        folder,
        recipe=recipe,
        datasets=datasets,
        explainers=explainers,
        seeds=seeds,
        device=device,
        version=facts["version"],
    )
    place = Place(device, checkpoints, show)
    resumed = begun(place.checkpoints)
    mark(folder, recipe.name)
    worlds = draw_worlds(datasets, seeds, recipe.rows)
    seconds: dict[str, float] = {}
    found: dict[str, Selections] = {}
    for name in explainers:
        found[name] = train_explainer(name, recipe, worlds, place)
        seconds[name] = found[name].seconds
    evaluator = train_evaluator("EVAL-X", recipe, worlds, place)
    full = train_evaluator("FULL", recipe, worlds, place)
    seconds |= {"EVAL-X": evaluator.seconds, "FULL": full.seconds}
    collection = None
    some = [w for w, world in enumerate(worlds) if world.seed in seeds[: recipe.collection_seeds]]
    if recipe.collection is not None:
        collection = train_collection(recipe, [worlds[w] for w in some], place)
        seconds["collection"] = collection.seconds
    judge = Judge(recipe, worlds, evaluator, full, collection, some if collection else [])
    chosen = {
        name: choose_settings(
            own,
            worlds,
            recipe.rule,
            judge.validation(own.masks["valid"]) if recipe.judge == "eval-x" else own.own["valid"],
        )
        for name, own in found.items()
    }
    rows = []
    for name, own in found.items():
        rows += _method_rows(name, own, chosen[name], judge)
    fixed = reference_masks(worlds, found, chosen)
    rows += _reference_rows(judge, {k: v for k, v in fixed.items() if k not in found})
    rows += _full_rows(judge)
    roar = train_roar(
        recipe, worlds, {part: _stack(fixed, part) for part in PARTS if part != "test"}, place
    )
    seconds["ROAR"] = roar.seconds
    p = predicted(
        roar.stacks["predictor"], recipe.masker, inputs_of(worlds, "test"), _stack(fixed, "test")
    )
    _add_roar(rows, worlds, list(fixed), p)
    words = lead(rows)
    with all_or_nothing(folder) as part:
        write_tables(part, tables(rows), facts, words, recipe.deviations)
        seconds["all"] = time.monotonic() - started
        head = {**facts, "run": run, "recipe": recipe.to_json()}
        head |= {"seconds": seconds, "summary": words}
        (part / "results.json").write_text(to_json({**head, "rows": rows}), encoding="utf-8")
    remove_checkpoints(folder, place.checkpoints)
    return Reproduction(rows, words, folder, seconds, resumed=resumed)


def reference_masks(
    worlds: list[World], found: dict[str, Selections], chosen: dict[str, Any]
) -> dict[str, dict[str, Masks]]:
    """Masks of every chosen explanation and reference, {name: {part: (W, R, F)}}."""
    masks: dict[str, dict[str, Masks]] = {
        name: {
            part: np.stack([own.masks[part][w, chosen[name][w]] for w in range(len(worlds))])
            for part in PARTS
        }
        for name, own in found.items()
    }
    truth = {part: np.stack([world.part(part).truth for world in worlds]) for part in PARTS}
    masks["true features"] = truth
    masks[NO_CONTROL_FLOW] = {
        part: value & (np.arange(value.shape[-1]) != CONTROL_FLOW) for part, value in truth.items()
    }
    like = masks.get("REAL-X", truth)
    masks["random masks"] = {
        part: np.stack(
            [
                same_size_masks(like[part][w], np.random.default_rng([world.seed, number]))
                for w, world in enumerate(worlds)
            ]
        )
        for number, part in enumerate(PARTS)
    }
    return masks


def _stack(masks: dict[str, dict[str, Masks]], part: str) -> Masks:
    return np.stack([own[part] for own in masks.values()], axis=1)  # (W, E, R, F)


def _row(
    world: World, method: str, chosen: bool, metrics: dict[str, float], **setting: float
) -> dict[str, Any]:
    return result_row(world.dataset, world.seed, method, chosen, metrics, **setting)


def _method_rows(
    name: str, own: Selections, chosen: np.ndarray[Any, Any], judge: Judge
) -> list[dict[str, Any]]:
    rows = []
    judged = judge(own.masks["test"])
    for w, world in enumerate(judge.worlds):
        for s, setting in enumerate(own.settings):
            metrics = {**scores(own.own["test"][w, s], world.test.y), **judged[w][s]}
            row = _row(world, name, s == chosen[w], metrics, **setting)
            row["epoch"] = int(own.epochs[w, s])
            rows.append(row)
    return rows


def _reference_rows(judge: Judge, masks: dict[str, dict[str, Masks]]) -> list[dict[str, Any]]:
    """Random masks, the truth, the truth without x11; and the optimum: exact on the truth."""
    rows = []
    judged = judge(_stack(masks, "test"))
    for w, world in enumerate(judge.worlds):
        for s, name in enumerate(masks):
            rows.append(_row(world, name, True, judged[w][s]))
        best = exact(world, world.test.truth)
        metrics = {**quality(world.test.truth, world.test), **scores(best, world.test.y)}
        rows.append(_row(world, "optimum", True, {**metrics, **scores(best, world.test.y, "o")}))
    return rows


def _full_rows(judge: Judge) -> list[dict[str, Any]]:
    everything = np.ones((len(judge.worlds), 1, *judge.x.shape[1:]), dtype=bool)
    own = predicted(judge.full.stacks["predictor"], judge.recipe.masker, judge.x, everything)
    judged = judge(everything)
    return [
        _row(world, "FULL", True, {**scores(own[w, 0], world.test.y), **judged[w][0]})
        for w, world in enumerate(judge.worlds)
    ]


def _add_roar(
    rows: list[dict[str, Any]], worlds: list[World], names: list[str], p: np.ndarray[Any, Any]
) -> None:
    """ROAR's figures go to the chosen rows: it is trained for those alone."""
    for w, world in enumerate(worlds):
        for e, name in enumerate(names):
            (row,) = (
                r
                for r in rows
                if r["chosen"]
                and (r["dataset"], r["method"], r["seed"]) == (world.dataset, name, world.seed)
            )
            row["metrics"] |= scores(p[w, e], world.test.y, "r")
