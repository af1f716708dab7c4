"""From selections to rows of results: every evaluator on every explanation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unmasked.choosing import Candidate, choose
from unmasked.data.posterior import posterior
from unmasked.data.synthetic import CONTROL_FLOW, Synthetic
from unmasked.engine import Trained
from unmasked.evaluation.collection import run_each, subset_numbers
from unmasked.metrics import label_scores, selection_quality
from unmasked.reproduce.recipes import Recipe
from unmasked.reproduce.selections import Selections
from unmasked.reproduce.worlds import World, inputs_of, predicted

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
