"""From selections to rows of results: every evaluator on every explanation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unmasked.choosing import Candidate, choose
from unmasked.data.posterior import posterior
from unmasked.data.synthetic import CONTROL_FLOW, Synthetic
from unmasked.engine import Trained
from unmasked.evaluation.collection import run_each, subset_numbers
from unmasked.masking import Masker
from unmasked.metrics import auroc, hits, log_likelihoods, selection_quality
from unmasked.reproduce.recipes import Recipe
from unmasked.reproduce.training import Selections
from unmasked.reproduce.worlds import World, inputs_of, predicted

Masks = NDArray[np.bool_]
Probabilities = NDArray[np.float64]


def scores(p: Probabilities, y: NDArray[Any], letter: str = "") -> dict[str, float]:
    """AUROC, accuracy and mean log-likelihood of P(y = 1), each (R,); keys start with a letter."""
    both = np.stack([1 - p, p], axis=1)
    return {
        f"{letter}auroc": auroc(both, y),
        f"{letter}acc": float(hits(both, y).mean()),
        f"{letter}loglik": float(log_likelihoods(both, np.eye(2)[y]).mean()),
    }


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
        masker: Masker = self.recipe.masker
        by_letter: dict[str, Callable[[int, int], Probabilities]] = {}
        shown = self._evaluated(self.x, masks)
        by_letter["e"] = lambda w, s: shown[w, s]
        post_hoc = predicted(self.full.stacks["predictor"], masker, self.x, masks)
        by_letter["p"] = lambda w, s: post_hoc[w, s]
        by_letter["o"] = lambda w, s: exact(self.worlds[w], masks[w, s])
        found = []
        for w, world in enumerate(self.worlds):
            if w in self.collected:
                by_letter["c"] = lambda w, s: self._collected(w, masks[w, s])
            else:
                by_letter.pop("c", None)
            found.append(
                [
                    {
                        **quality(masks[w, s], world.test),
                        **{
                            key: value
                            for letter, evaluate in by_letter.items()
                            for key, value in scores(evaluate(w, s), world.test.y, letter).items()
                        },
                    }
                    for s in range(masks.shape[1])
                ]
            )
        return found

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
            both = np.stack([1 - p[w, s], p[w, s]], axis=1)
            candidates.append(
                Candidate(
                    level,
                    float(found.masks["valid"][w, s].mean()),
                    float(hits(both, world.valid.y).mean()),
                    log_likelihoods(both, target),
                )
            )
        chosen.append(choose(candidates, rule)[0])
    return np.array(chosen)
