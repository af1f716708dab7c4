"""An image table of the paper: train, choose, judge; write results, tables and pictures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.evaluation.evaluator import same_size_masks
from unmasked.explainers.path import Candidate, choose
from unmasked.io.output_folder import (
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.metrics import (
    Statistic,
    auroc_statistic,
    bootstrap,
    hits,
    label_scores,
    log_likelihoods,
    mean_statistic,
    selection_quality,
)
from unmasked.reproduce.image_figures import Drawn, View, write_figures, write_masks
from unmasked.reproduce.image_recipes import EXPLAINERS, ImageRecipe
from unmasked.reproduce.image_tables import RANDOM, comparable, image_lead, image_tables
from unmasked.reproduce.image_training import Parts, Rows, Workshop
from unmasked.reproduce.judging import (
    Reproduction,
    begun,
    check_same_run,
    mark,
    result_row,
    run_digest,
)
from unmasked.reproduce.parallel import train_side_by_side
from unmasked.reproduce.recipes import check_grid
from unmasked.reproduce.render import OPTIMUM, TABLES, Subject, write_tables
from unmasked.reproduce.replicates import Place
from unmasked.reproduce.selections import Masks, Selections
from unmasked.training import Trained
from unmasked.training.device import choose_device
from unmasked.training.progress import Show

_DRAWS = 1000  # of the bootstrap over test images


@dataclass(frozen=True)
class Pictures:
    """The images of a table: as networks see them, and the test images as people do.

    raw : (R, channels, height, width), the test images.
    probability : (R, K), the true P(class) of the test images, where what decides is known too.
    remarks : what there is to know about the images, in sentences.
    patients : (R,) of the test images, where known: images of one are not independent.
    """

    parts: Parts
    raw: NDArray[np.float32]
    probability: NDArray[np.float64] | None = None
    remarks: tuple[str, ...] = ()
    patients: NDArray[np.str_] | None = None


Extra = Callable[[Path, "Workshop", Drawn], tuple[dict[str, Any], list[str]]]
"""Writes more files into the folder; returns more of ``results.json``, and sentences."""


PICTURES = ("samples.png", "single-pixel.png", "gallery.html", "study")
WRITES = (*PICTURES, "masks.npz", *TABLES, "results.json")


def run_images(
    folder: Path,
    recipe: ImageRecipe,
    pictures: Pictures,
    subject: Subject,
    *,
    explainers: tuple[str, ...] = EXPLAINERS,
    seeds: tuple[int, ...] = (0,),
    device: str = "auto",
    show: Show = "auto",
    command: str = "unmasked reproduce",
    extra: Extra | None = None,
    jobs: int = 1,
) -> Reproduction:
    """Train all methods, evaluate them, write results.json, tables, figures and the gallery.

    jobs : how many of them to train at a time, each in a process of its own.
    """
    started = time.monotonic()
    parts = pictures.parts
    features = parts.features(recipe.bound(parts.shape).masker)
    check_grid(recipe.prices, recipe.numbers, features)
    choose_device(device)
    run = run_digest(recipe.to_json(), parts.to_json(), sorted(explainers), seeds)
    prepare_folder(folder, writes=WRITES)
    check_same_run(folder, recipe.name, run)
    facts = provenance(command)
    checkpoints = checkpoint_folder(
        folder,
        recipe=recipe,
        shape=parts.shape,
        explainers=explainers,
        seeds=seeds,
        device=device,
        version=facts["version"],
    )
    place = Place(device, checkpoints, show)
    resumed = begun(place.checkpoints)
    mark(folder, recipe.name)
    work = Workshop(recipe, parts, seeds, place)
    if jobs > 1:
        train_side_by_side(work, explainers, jobs)
    full = work.full()
    judges = {ending: work.evaluator(ending) for ending in recipe.evaluators}
    rows = _full_rows(work, subject, full, judges)
    if pictures.probability is not None:
        rows += _optimum_rows(work, subject, pictures.probability, judges)
    accuracies = _validation_accuracy(work, full)
    drawn: dict[str, tuple[Selections, NDArray[np.int64]]] = {}
    for name in explainers:
        found = work.explainer(name)
        chosen, reasons = _choose(found, parts.valid, recipe.tolerance, accuracies)
        read = work.readers(name, found)
        rows += _rows(work, subject, found, chosen, reasons, judges, read, pictures)
        # the training images' masks are the largest thing here, and no longer needed
        found.masks.pop("train")
        drawn[name] = (found, chosen)
    words = [*pictures.remarks, *image_lead(rows, subject)]
    with all_or_nothing(folder, replaces=WRITES) as part:
        more, sentences = ({}, []) if extra is None else extra(part, work, drawn)
        words += sentences
        tables = image_tables(rows, recipe.tolerance, subject)
        title = comparable(subject, rows).title
        write_tables(part, tables, facts, words, recipe.deviations, title=title)
        view = View(subject, pictures.raw, parts.test.y, work.recipe.masker, parts.test.truth)
        write_figures(part, view, drawn, words, facts)
        write_masks(part / "masks.npz", drawn, seeds)
        head = {**facts, "run": run, "recipe": recipe.to_json(), "images": parts.to_json()}
        seconds = {**work.seconds, "all": time.monotonic() - started}
        head |= {"seconds": seconds, "summary": words}
        (part / "results.json").write_text(
            to_json({**head, **more, "rows": rows}), encoding="utf-8"
        )
    remove_checkpoints(folder, place.checkpoints)
    return Reproduction(rows, words, folder, seconds, resumed=resumed, jobs=jobs)


def _validation_accuracy(work: Workshop, full: Trained) -> list[float]:
    """FULL's accuracy on validation images, for each seed."""
    valid = work.parts.valid
    everything = _everything(work, len(valid.y))
    p = work.predict(full.stacks["predictor"], work.recipe.masker, valid.x, everything)
    return [float(hits(p[w, 0], valid.y).mean()) for w in range(len(work.seeds))]


def _everything(work: Workshop, rows: int) -> Masks:
    features = work.parts.features(work.recipe.masker)
    return np.ones((len(work.seeds), 1, rows, features), dtype=bool)


def _choose(
    found: Selections, valid: Rows, tolerance: float, accuracies: list[float]
) -> tuple[NDArray[np.int64], list[str]]:
    """For each seed the setting by the paper's rule, and why."""
    chosen, reasons = [], []
    target = np.eye(valid.classes)[valid.y]
    for w, accuracy in enumerate(accuracies):
        candidates = [
            Candidate.judged(
                next(iter(setting.values())),
                found.masks["valid"][w, s],
                found.own["valid"][w, s],
                target,
            )
            for s, setting in enumerate(found.settings)
        ]
        best, reason = choose(candidates, "tolerance", tolerance=tolerance, full_accuracy=accuracy)
        chosen.append(best)
        reasons.append(reason)
    return np.array(chosen), reasons


@dataclass(frozen=True)
class Judged:
    """Evaluators' verdict on masks: figures for each seed and setting, and P(class | shown)."""

    metrics: list[list[dict[str, float]]]
    predicted: dict[str, NDArray[np.float64]]  # by the evaluator's ending, (W, S, R, K)


def _judged(work: Workshop, judges: dict[str, Trained], masks: Masks) -> Judged:
    """Judge masks (W, S, R, F) of test images with every evaluator."""
    test = work.parts.test
    result: list[list[dict[str, float]]] = [[{} for _ in seed] for seed in masks]
    predicted = {}
    for ending, judge in judges.items():
        masker = work.recipe.evaluators[ending].masker
        p = work.predict(judge.stacks["predictor"], masker, test.x, masks)
        predicted[ending] = p
        for w in range(masks.shape[0]):
            for s in range(masks.shape[1]):
                scores = label_scores(p[w, s], test.y, "e")
                result[w][s] |= {f"{key}{ending}": value for key, value in scores.items()}
    return Judged(result, predicted)


def _over_random(
    own: dict[str, NDArray[np.float64]],
    random: dict[str, NDArray[np.float64]],
    y: NDArray[np.int64],
    seed: int,
    patients: NDArray[np.str_] | None,
) -> dict[str, dict[str, float]]:
    """Paired differences on the same images, P(class | shown) by evaluator, each (R, K)."""
    statistics: dict[str, Statistic] = {}
    pairs = {}
    for ending in own:
        for side, p in (("own", own[ending]), ("random", random[ending])):
            target = np.eye(p.shape[1])[y]
            statistics[f"{side} eacc{ending}"] = mean_statistic(hits(p, y).astype(float))
            statistics[f"{side} eloglik{ending}"] = mean_statistic(log_likelihoods(p, target))
            if p.shape[1] == 2:
                statistics[f"{side} eauroc{ending}"] = auroc_statistic(p, y)
        keys = [key.removeprefix("own ") for key in statistics if key.startswith("own ")]
        pairs.update({key: (f"own {key}", f"random {key}") for key in keys})
    found = bootstrap(
        statistics, len(y), draws=_DRAWS, seed=seed, differences=pairs, groups=patients
    )
    return {
        key: {"value": found[key].value, "low": found[key].low, "high": found[key].high}
        for key in pairs
    }


def _iou(masks: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Mean over images of |shown ∩ true| / |shown ∪ true|."""
    return float(((masks & truth).sum(1) / np.maximum((masks | truth).sum(1), 1)).mean())


def _of_truth(masks: NDArray[np.bool_], truth: NDArray[np.bool_]) -> dict[str, float]:
    """Score selections (images, features) against the true features: IoU, TPR and FDR."""
    return {"iou": _iou(masks, truth), **selection_quality(masks, truth).to_json()}


def _rows(
    work: Workshop,
    subject: Subject,
    found: Selections,
    chosen: NDArray[np.int64],
    reasons: list[str],
    judges: dict[str, Trained],
    read: NDArray[np.float64],
    pictures: Pictures,
) -> list[dict[str, Any]]:
    """A row for each setting, and one for random masks of the same sizes."""
    test, masks, truth = work.parts.test, found.masks["test"], work.parts.test.truth
    judged = _judged(work, judges, masks)
    random = np.empty_like(masks)
    for w, seed in enumerate(work.seeds):
        for s in range(masks.shape[1]):
            random[w, s] = same_size_masks(masks[w, s], np.random.default_rng([seed, s]))
    by_chance = _judged(work, judges, random)
    rows = []
    for w, seed in enumerate(work.seeds):
        for s, setting in enumerate(found.settings):
            metrics = {
                **label_scores(found.own["test"][w, s], test.y),
                **judged.metrics[w][s],
                **_sizes(masks[w, s]),
                "macc": float(hits(read[w, s], test.y).mean()),
            }
            like = {**by_chance.metrics[w][s], "fraction": metrics["fraction"]}
            if truth is not None:
                metrics |= _of_truth(masks[w, s], truth)
                like |= _of_truth(random[w, s], truth)
            row = result_row(
                subject.dataset, seed, found.method, s == chosen[w], metrics, **setting
            )
            row["epoch"] = int(found.epochs[w, s])
            if s == chosen[w]:
                row["reason"] = reasons[w]
                own, others = (
                    {ending: p[w, s] for ending, p in one.predicted.items()}
                    for one in (judged, by_chance)
                )
                row["over_random"] = _over_random(own, others, test.y, seed, pictures.patients)
            rows.append(row)
            name = RANDOM.format(found.method)
            rows.append(result_row(subject.dataset, seed, name, s == chosen[w], like, **setting))
    return rows


def _sizes(masks: NDArray[np.bool_]) -> dict[str, float]:
    """Measure selections (images, features): mean fraction shown, 90% interval of the number."""
    shown = masks.sum(1)
    return {
        "fraction": float(masks.mean()),
        "shown_low": float(np.quantile(shown, 0.05)),
        "shown_high": float(np.quantile(shown, 0.95)),
    }


def _optimum_rows(
    work: Workshop, subject: Subject, probability: NDArray[np.float64], judges: dict[str, Trained]
) -> list[dict[str, Any]]:
    """For each seed the true probabilities, and the true features as a method's are judged."""
    test, found = work.parts.test, work.truth
    assert found is not None
    assert test.truth is not None
    read = work.readers(OPTIMUM, found)
    judged = _judged(work, judges, found.masks["test"])
    agreement = _of_truth(test.truth, test.truth)
    known = {**label_scores(probability, test.y), **_sizes(test.truth), **agreement}
    return [
        result_row(
            subject.dataset,
            seed,
            OPTIMUM,
            True,
            {**known, **judged.metrics[w][0], "macc": float(hits(read[w, 0], test.y).mean())},
        )
        for w, seed in enumerate(work.seeds)
    ]


def _full_rows(
    work: Workshop, subject: Subject, full: Trained, judges: dict[str, Trained]
) -> list[dict[str, Any]]:
    test = work.parts.test
    everything = _everything(work, len(test.y))
    own = work.predict(full.stacks["predictor"], work.recipe.masker, test.x, everything)
    judged = _judged(work, judges, everything)
    return [
        result_row(
            subject.dataset,
            seed,
            "FULL",
            True,
            {**label_scores(own[w, 0], test.y), **judged.metrics[w][0], "fraction": 1.0},
        )
        for w, seed in enumerate(work.seeds)
    ]
