"""``unmasked reproduce mnist``: the paper's Table 2 and its figures from one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.choosing import Candidate, choose
from unmasked.data.mnist import Images, Mnist
from unmasked.engine import Trained
from unmasked.engine.progress import Show
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.metrics import hits, label_scores
from unmasked.report.results import (
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.reproduce.folder import check_same_preset, mark
from unmasked.reproduce.imagefigures import write_figures
from unmasked.reproduce.imagerecipes import EXPLAINERS, ImageRecipe, check_grid
from unmasked.reproduce.imagetables import DATASET, RANDOM, image_lead, image_tables
from unmasked.reproduce.imagetraining import Found, Masks, Parts, Rows, Workshop
from unmasked.reproduce.render import write_tables
from unmasked.reproduce.rows import Reproduction, result_row
from unmasked.reproduce.training import Place

TITLE = "MNIST: ours beside the paper's"


def run_mnist(
    folder: Path,
    recipe: ImageRecipe,
    data: Mnist,
    *,
    explainers: tuple[str, ...] = EXPLAINERS,
    seeds: tuple[int, ...] = (0,),
    device: str = "auto",
    show: Show = "auto",
    command: str = "unmasked reproduce mnist",
) -> Reproduction:
    """Train all methods, evaluate them, write results.json, tables, figures and the gallery."""
    started = time.monotonic()
    parts = _parts(data, recipe.rows)
    check_grid(recipe, parts.train.x.shape[1])
    prepare_folder(folder)
    check_same_preset(folder, recipe.name)
    facts = provenance(command)
    description = f"{recipe} {explainers} {seeds} {device} {facts['version']}"
    place = Place(device, checkpoint_folder(folder, description), show)
    mark(folder, recipe.name)
    work = Workshop(recipe, parts, seeds, place)
    full = work.full()
    judges = {ending: work.evaluator(ending) for ending in recipe.evaluators}
    rows = _full_rows(work, full, judges)
    accuracies = _validation_accuracy(work, full)
    drawn: dict[str, tuple[Found, NDArray[np.int64]]] = {}
    for name in explainers:
        found = work.explainer(name)
        chosen, reasons = _choose(found, parts.valid, recipe.tolerance, accuracies)
        read = work.readers(name, found)
        rows += _rows(work, found, chosen, reasons, judges, read)
        # the training images' masks are the largest thing here, and no longer needed
        found.masks.pop("train")
        drawn[name] = (found, chosen)
    seconds = {**work.seconds, "all": time.monotonic() - started}
    words = image_lead(rows)
    with all_or_nothing(folder) as part:
        head = {**facts, "recipe": recipe.to_json(), "seconds": seconds, "summary": words}
        (part / "results.json").write_text(to_json({**head, "rows": rows}), encoding="utf-8")
        write_tables(
            part, image_tables(rows, recipe.tolerance), facts, words, recipe.deviations, title=TITLE
        )
        write_figures(part, data.test, drawn, words, facts)
    remove_checkpoints(folder)
    return Reproduction(rows, words, folder, seconds)


def _parts(data: Mnist, most: int | None) -> Parts:
    """Images as rows; at most so many to learn from."""

    def rows(images: Images, most: int | None = None) -> Rows:
        x = images.x[:most]
        return Rows(x.reshape(len(x), -1), images.y[:most], 10)

    channels, height, width = data.train.x.shape[1:]
    return Parts(
        rows(data.train, most), rows(data.valid), rows(data.test), (channels, height, width)
    )


def _validation_accuracy(work: Workshop, full: Trained) -> list[float]:
    """FULL's accuracy on validation images, for each seed."""
    valid = work.parts.valid
    everything = _everything(work, len(valid.y))
    p = work.predict(full.stacks["predictor"], work.recipe.masker, valid.x, everything)
    return [float(hits(p[w, 0], valid.y).mean()) for w in range(len(work.seeds))]


def _everything(work: Workshop, rows: int) -> Masks:
    return np.ones((len(work.seeds), 1, rows, work.parts.train.x.shape[1]), dtype=bool)


def _choose(
    found: Found, valid: Rows, tolerance: float, accuracies: list[float]
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


def _judged(
    work: Workshop, judges: dict[str, Trained], masks: Masks
) -> list[list[dict[str, float]]]:
    """Metrics of both evaluators for masks (W, S, R, F) of test images."""
    test = work.parts.test
    result: list[list[dict[str, float]]] = [[{} for _ in seed] for seed in masks]
    for ending, judge in judges.items():
        masker = work.recipe.evaluators[ending].masker
        p = work.predict(judge.stacks["predictor"], masker, test.x, masks)
        for w in range(masks.shape[0]):
            for s in range(masks.shape[1]):
                scores = label_scores(p[w, s], test.y, "e")
                result[w][s] |= {f"{key}{ending}": value for key, value in scores.items()}
    return result


def _rows(
    work: Workshop,
    found: Found,
    chosen: NDArray[np.int64],
    reasons: list[str],
    judges: dict[str, Trained],
    read: NDArray[np.float64],
) -> list[dict[str, Any]]:
    """A row for each setting, and one for random masks of the same sizes."""
    test, masks = work.parts.test, found.masks["test"]
    judged = _judged(work, judges, masks)
    random = np.empty_like(masks)
    for w, seed in enumerate(work.seeds):
        for s in range(masks.shape[1]):
            random[w, s] = same_size_masks(masks[w, s], np.random.default_rng([seed, s]))
    by_chance = _judged(work, judges, random)
    rows = []
    for w, seed in enumerate(work.seeds):
        for s, setting in enumerate(found.settings):
            shown = masks[w, s].sum(1)
            metrics = {
                **label_scores(found.own["test"][w, s], test.y),
                **judged[w][s],
                "fraction": float(masks[w, s].mean()),
                "shown_low": float(np.quantile(shown, 0.05)),
                "shown_high": float(np.quantile(shown, 0.95)),
                "macc": float(hits(read[w, s], test.y).mean()),
            }
            row = result_row(DATASET, seed, found.method, s == chosen[w], metrics, **setting)
            row["epoch"] = int(found.epochs[w, s])
            if s == chosen[w]:
                row["reason"] = reasons[w]
            rows.append(row)
            like = {**by_chance[w][s], "fraction": metrics["fraction"]}
            name = RANDOM.format(found.method)
            rows.append(result_row(DATASET, seed, name, s == chosen[w], like, **setting))
    return rows


def _full_rows(work: Workshop, full: Trained, judges: dict[str, Trained]) -> list[dict[str, Any]]:
    test = work.parts.test
    everything = _everything(work, len(test.y))
    own = work.predict(full.stacks["predictor"], work.recipe.masker, test.x, everything)
    judged = _judged(work, judges, everything)
    return [
        result_row(
            DATASET,
            seed,
            "FULL",
            True,
            {**label_scores(own[w, 0], test.y), **judged[w][0], "fraction": 1.0},
        )
        for w, seed in enumerate(work.seeds)
    ]
