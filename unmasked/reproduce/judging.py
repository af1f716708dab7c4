"""Turn selections into rows of results: every evaluator on every explanation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import CONTROL_FLOW, Synthetic
from unmasked.errors import OutputError
from unmasked.evaluation.subsets import run_each, subset_numbers
from unmasked.explainers.path import Candidate, choose
from unmasked.io.output_folder import CHECKPOINTS, to_json
from unmasked.metrics import label_scores, selection_quality
from unmasked.reproduce.recipes import Recipe
from unmasked.reproduce.replicates import World, inputs_of, predicted
from unmasked.reproduce.selections import Selections
from unmasked.training import Trained


@dataclass(frozen=True)
class Reproduction:
    """All rows (see ``results.json``), what they say in words, and where the files are.

    seconds : of training, by what was trained, and under "all" of this run.
    resumed : some of it was trained by an earlier run. jobs : how many were trained at a time.
    joined : the rows are of several runs, and so are the seconds.
    """

    rows: list[dict[str, Any]]
    lead: list[str]
    folder: Path
    seconds: dict[str, float]
    resumed: bool = False
    jobs: int = 1
    joined: bool = False


def result_row(
    dataset: str, seed: int, method: str, chosen: bool, metrics: dict[str, float], **setting: Any
) -> dict[str, Any]:
    """One row of ``results.json``."""
    return {
        "dataset": dataset,
        "method": method,
        "setting": setting,
        "seed": seed,
        "chosen": bool(chosen),
        "metrics": metrics,
    }


_MARK = "preset.json"


def run_digest(recipe: Mapping[str, Any], *more: Any) -> str:
    """Hash what tells runs apart: the recipe as in ``results.json``, and what else decides one.

    Deviations are left out: they are words, which a later version may put better.
    """
    own = {name: value for name, value in recipe.items() if name != "deviations"}
    return hashlib.sha256(to_json([own, *more]).encode()).hexdigest()[:12]


def check_same_run(folder: Path, preset: str, run: str) -> None:
    """Refuse a folder with results of another run, or with an unfinished run of another preset.

    Results of earlier versions do not say of which run they are; their preset is compared.
    """
    content = _read(folder / "results.json")
    if content is not None:
        _check_preset(folder, "results", content.get("recipe"), preset)
        if content.get("run", run) != run:
            raise OutputError(
                f"{folder} holds results of another run ({content.get('command')}); choose another "
                "folder with --out, or remove it."
            )
    content = _read(folder / CHECKPOINTS / _MARK)
    if content:  # one that says nothing, as a kill may leave it, is no reason to forget training
        _check_preset(folder, "an unfinished run", content, preset)


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None where there is no file, {} where it cannot be read."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = {}
    return content if isinstance(content, dict) else {}


def _check_preset(folder: Path, kind: str, content: Any, preset: str) -> None:
    there = content.get("preset") if isinstance(content, dict) else None
    if there != preset:
        raise OutputError(
            f"{folder} holds {kind} of the preset {there or 'something else'!r}, not {preset!r}; "
            "choose another folder with --out, or remove it."
        )


def mark(folder: Path, preset: str) -> None:
    """Say whose unfinished run a folder holds, in a file that appears whole or not at all."""
    path = folder / CHECKPOINTS / _MARK
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({"preset": preset}), encoding="utf-8")
    os.replace(part, path)


def begun(checkpoints: Path) -> bool:
    """Tell whether an earlier try of a run has left any training among its checkpoints."""
    return checkpoints.is_dir() and any(checkpoints.iterdir())


Masks = NDArray[np.bool_]
Probabilities = NDArray[np.float64]


def scores(p: Probabilities, y: NDArray[Any], letter: str = "") -> dict[str, float]:
    """AUROC, accuracy and mean log-likelihood of P(y = 1), each (R,); keys start with a letter."""
    return label_scores(_both(p), y, letter)


def _both(p: Probabilities) -> Probabilities:
    """P(y = 1), (R,) -> probabilities of both classes, (R, 2)."""
    return np.stack([1 - p, p], axis=1)


def quality(masks: Masks, rows: Synthetic) -> dict[str, float]:
    """Selection quality against the truth, and the fraction shown."""
    found = selection_quality(masks, rows.truth, CONTROL_FLOW).to_json()
    return {**found, "fraction": float(masks.mean())}


def exact(world: World, masks: Masks) -> Probabilities:
    """P(y = 1 | shown) for test rows, exactly."""
    return posterior(world.dataset, world.test.x, masks)


class Judge:
    """Evaluators that judge masks of test rows, for each world.

    Each adds keys with its letter: e EVAL-X, o exact posterior, p post-hoc, c collection.
    """

    def __init__(
        self,
        recipe: Recipe,
        worlds: list[World],
        evaluator: Trained,
        full: Trained,
        collection: Trained | None = None,
        collected: list[int] | None = None,
    ) -> None:
        self.recipe, self.worlds = recipe, worlds
        self.evaluator, self.full, self.collection = evaluator, full, collection
        self.collected = collected or []  # the worlds that the collection was trained on
        self.x = inputs_of(worlds, "test")

    def __call__(self, masks: Masks) -> list[list[dict[str, float]]]:
        """Masks (W, S, R, F) -> metrics for each world and setting."""
        shown = self._evaluated(self.x, masks)
        post_hoc = predicted(self.full.stacks["predictor"], self.recipe.masker, self.x, masks)

        def judged(w: int, s: int) -> dict[str, float]:
            own, rows = masks[w, s], self.worlds[w].test
            by_letter = {"e": shown[w, s], "p": post_hoc[w, s], "o": exact(self.worlds[w], own)}
            if w in self.collected:
                by_letter["c"] = self._collected(w, own)
            metrics = quality(own, rows)
            for letter, p in by_letter.items():
                metrics |= scores(p, rows.y, letter)
            return metrics

        settings = range(masks.shape[1])
        return [[judged(w, s) for s in settings] for w in range(len(self.worlds))]

    def _collected(self, world: int, masks: Masks) -> Probabilities:
        assert self.collection is not None
        stack = self.collection.stacks["predictor"]
        first = self.collected.index(world) * (stack.count // len(self.collected))
        own = first + subset_numbers(masks)
        x = self.x[world].numpy()
        return run_each(stack, own, self.recipe.masker, x, masks)[:, 1]

    def validation(self, masks: Masks) -> Probabilities:
        """EVAL-X's P(y = 1 | shown) for masks of validation rows, (W, S, R)."""
        return self._evaluated(inputs_of(self.worlds, "valid"), masks)

    def _evaluated(self, x: Tensor, masks: Masks) -> Probabilities:
        stack = self.evaluator.stacks["predictor"]
        return predicted(stack, self.recipe.masker, x, masks, self.recipe.members)


def choose_settings(
    found: Selections, worlds: list[World], rule: str, p: Probabilities
) -> NDArray[np.int64]:
    """The chosen setting of each world by P(y = 1 | shown) of validation rows, (W, S, R)."""
    chosen = []
    for w, world in enumerate(worlds):
        target = np.eye(2)[world.valid.y]
        candidates = []
        for s, level in enumerate(found.levels):
            masks = found.masks["valid"][w, s]
            candidates.append(Candidate.judged(level, masks, _both(p[w, s]), target))
        chosen.append(choose(candidates, rule)[0])
    return np.array(chosen)
