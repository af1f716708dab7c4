"""Train the methods and evaluators of an image table, and apply them to the images.

Axes in the comments: W seeds, S settings, R images, F features, K classes.
"""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.evaluation.evaluator import SEED_SHIFT
from unmasked.masks.maskers import Masker, Zero
from unmasked.masks.samplers import Sampler
from unmasked.reproduce.image_recipes import ImageRecipe
from unmasked.reproduce.render import OPTIMUM
from unmasked.reproduce.replicates import Place, probabilities, selected
from unmasked.reproduce.selections import Masks, Selections, joined, kept
from unmasked.training import Data, Settings, Trained, Training, fit, methods
from unmasked.training.method import Method
from unmasked.training.stack import Stack


@dataclass(frozen=True)
class Rows:
    """Images as rows of numbers, with their classes and, where it is known, what decides them."""

    x: NDArray[np.float32]  # (R, channels · height · width)
    y: NDArray[np.int64]
    classes: int
    truth: NDArray[np.bool_] | None = None  # (R, F)

    def data(self, x: NDArray[np.float32] | None = None) -> Data:
        """Convert rows and classes for the engine; ``x`` stands in for the images where given."""
        target = torch.nn.functional.one_hot(torch.from_numpy(self.y), self.classes).float()
        return Data(torch.from_numpy(self.x if x is None else x), target)


@dataclass(frozen=True)
class Parts:
    """The images of a table, as rows, and the size that they had (channels, height, width)."""

    train: Rows
    valid: Rows
    test: Rows
    shape: tuple[int, int, int]

    def features(self, masker: Masker) -> int:
        """Count the features of an image that a masker shows or hides."""
        return masker.features(self.train.x.shape[1])

    def to_json(self) -> dict[str, Any]:
        """List the number of images in each part, their shape, and a digest of the test labels."""
        counts = {name: len(rows.y) for name, rows in self.by_name.items()}
        return {**counts, "shape": list(self.shape), "test_labels": label_digest(self.test.y)}

    @property
    def by_name(self) -> dict[str, Rows]:
        return {"train": self.train, "valid": self.valid, "test": self.test}


def label_digest(y: NDArray[np.int64]) -> str:
    """Hash the labels of test images, which tells the images of a table from others."""
    return hashlib.sha256(y.astype("<i8").tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Task:
    """Something to train that a table needs, and what must have been trained before it."""

    name: str
    after: str | None = None


class Workshop:
    """Trains and runs everything of one table."""

    def __init__(
        self, recipe: ImageRecipe, parts: Parts, seeds: tuple[int, ...], place: Place
    ) -> None:
        self.recipe = recipe.bound(parts.shape)
        self.parts, self.seeds, self.place = parts, seeds, place
        self.seconds: dict[str, float] = {}

    def _fit(
        self,
        name: str,
        method: Method,
        settings: Settings,
        training: Training,
        train: Data | list[Data] | None = None,
        valid: Data | list[Data] | None = None,
        start: dict[str, Stack] | None = None,
    ) -> Trained:
        return fit(
            method,
            settings,
            self.parts.train.data() if train is None else train,
            self.parts.valid.data() if valid is None else valid,
            training,
            device=self.place.device,
            path=self.place.checkpoint(name),
            show=self.place.show,
            title=name,
            start=start,
            whole=True,
        )

    def full(self) -> Trained:
        """FULL, one network for each seed."""
        recipe = self.recipe
        method = methods.full(recipe.masker, recipe.networks_of("FULL")[0])
        seeds = tuple(seed + SEED_SHIFT for seed in self.seeds)
        trained = self._fit("FULL", method, Settings(seeds=seeds), recipe.options("FULL"))
        self.seconds["FULL"] = trained.seconds
        return trained

    def evaluator(self, ending: str) -> Trained:
        """EVAL-X, one network for each seed."""
        how = self.recipe.evaluators[ending]
        network = how.network or self.recipe.predictor
        method = methods.eval_x(how.masker, how.law, network)
        seeds = tuple(seed + SEED_SHIFT for seed in self.seeds)
        name = _evaluator_tag(ending)
        training = how.training or self.recipe.training
        trained = self._fit(name, method, Settings(seeds=seeds), training)
        self.seconds[name] = trained.seconds
        return trained

    def tasks(self, explainers: tuple[str, ...]) -> list[Task]:
        """All that is to be trained for these methods, such that what is needed comes first."""
        starts = {name: self._start_tag(name) for name in explainers if name in self.recipe.warm}
        return [
            *(Task(tag) for tag in dict.fromkeys(starts.values())),
            *(Task(_evaluator_tag(ending)) for ending in self.recipe.evaluators),
            *(Task(name, starts.get(name)) for name in explainers),
            Task("FULL"),
            *([] if self.truth is None else [Task(OPTIMUM)]),
        ]

    def do(self, task: Task) -> None:
        """Train what a task names, into its checkpoints."""
        evaluators = {_evaluator_tag(ending): ending for ending in self.recipe.evaluators}
        starts = {self._start_tag(name): name for name in self.recipe.warm}
        if task.name == "FULL":
            self.full()
        elif task.name in evaluators:
            self.evaluator(evaluators[task.name])
        elif task.name in starts:
            self._start(starts[task.name])
        elif task.name == OPTIMUM:
            assert self.truth is not None
            self.readers(OPTIMUM, self.truth)
        else:
            self.readers(task.name, self.explainer(task.name))

    @property
    def truth(self) -> Selections | None:
        """Return the true features as if a method had selected them with each seed, if known."""
        masks = {}
        for part, rows in self.parts.by_name.items():
            if rows.truth is None:
                return None
            masks[part] = np.repeat(rows.truth[None, None], len(self.seeds), axis=0)  # (W, 1, R, F)
        return Selections(OPTIMUM, [{}], masks, {}, np.zeros((len(self.seeds), 1), np.int64), 0.0)

    def silent(self) -> Workshop:
        """Copy the workshop, without its display of progress."""
        own = copy(self)
        own.place = replace(self.place, show=False)
        return own

    def _start_tag(self, name: str) -> str:
        """Under which name a method's start is kept: that of the first method that shares it."""
        recipe = self.recipe
        network = recipe.networks_of(name)[0]
        return f"start of {next(of for of in recipe.warm if recipe.networks_of(of)[0] == network)}"

    def _start(self, name: str) -> Stack:
        """Train the predictor from which a method's learners start, one network for each seed.

        Methods with the same network share it; the evaluators' are others, of other seeds.
        """
        recipe, tag = self.recipe, self._start_tag(name)
        network = recipe.networks_of(name)[0]
        method = methods.eval_x(recipe.masker, recipe.law, network)
        trained = self._fit(tag, method, Settings(seeds=self.seeds), recipe.options("start"))
        self.seconds[tag] = trained.seconds
        return trained.stacks["predictor"]

    def explainer(self, name: str) -> Selections:
        """Train a method in all settings and select on all images."""
        pieces: list[Selections] = []
        begun = self._start(name) if name in self.recipe.warm else None
        for method, levels in self.recipe.programs(name):
            assert method.selector is not None
            sampler = method.selector.sampler
            tag = name if len(self.recipe.programs(name)) == 1 else f"{name} {levels[0]:g}"
            trained = self._fit(
                tag,
                method,
                Settings(levels, self.seeds),
                self.recipe.options(name),
                start={} if begun is None else dict.fromkeys(method.learners, begun),
            )
            pieces.append(self._found(name, tag, trained, sampler, levels))
        self.seconds[name] = sum(piece.seconds for piece in pieces)
        return joined(pieces)

    def _found(
        self, name: str, tag: str, trained: Trained, sampler: Sampler, levels: tuple[float, ...]
    ) -> Selections:
        """Select and predict with trained networks once; read the result back when asked again."""

        def compute() -> Selections:
            masks, own = {}, {}
            for part, rows in self.parts.by_name.items():
                masks[part] = selected(trained, sampler, levels, self._of_every_seed(rows.x))
                if part != "train":
                    own[part] = self.predict(
                        trained.stacks["predictor"], self.recipe.masker, rows.x, masks[part]
                    )
            return Selections(
                name,
                [sampler.named(level) for level in levels],
                masks,
                own,
                np.array(trained.epochs).reshape(len(self.seeds), len(levels)),
                trained.seconds,
            )

        path = self.place.checkpoint(f"selections of {tag}")
        images = (torch.from_numpy(rows.x) for rows in self.parts.by_name.values())
        return kept(path, f"{tag} {levels}", trained, images, compute)

    def readers(self, name: str, found: Selections) -> NDArray[np.float64]:
        """P(class | mask alone) on test images, (W, S, R, K): what the choice itself gives away."""
        return np.stack([self._readers_of(name, found, w) for w in range(len(self.seeds))])

    def _readers_of(self, name: str, found: Selections, w: int) -> NDArray[np.float64]:
        """The readers of one seed, one for each setting: masks of all images are large."""
        parts, settings = self.parts, range(found.masks["train"].shape[1])
        train, valid = (
            [rows.data(found.masks[part][w, s].astype(np.float32)) for s in settings]
            for part, rows in (("train", parts.train), ("valid", parts.valid))
        )
        tag = f"mask of {name}" + (f" {self.seeds[w]}" if len(self.seeds) > 1 else "")
        trained = self._fit(
            tag,
            methods.full(Zero(), self.recipe.reader or self.recipe.predictor),
            Settings(seeds=(self.seeds[w] + SEED_SHIFT,) * len(settings)),
            self.recipe.options("mask"),
            train,
            valid,
        )
        self.seconds[f"mask of {name}"] = self.seconds.get(f"mask of {name}", 0.0) + trained.seconds
        test = found.masks["test"][w : w + 1]
        white = torch.ones(1, *test.shape[2:])  # all that is left of an image is its mask
        return probabilities(trained.stacks["predictor"], Zero(), white, test)[0]

    # ------------------------------------------------------------------ running networks

    def _of_every_seed(self, x: NDArray[np.float32]) -> Tensor:
        """Repeat images for each seed, without copying them: (R, numbers) -> (W, R, numbers)."""
        return torch.from_numpy(x).expand(len(self.seeds), -1, -1)

    def predict(
        self, stack: Stack, masker: Masker, x: NDArray[np.float32], masks: Masks
    ) -> NDArray[np.float64]:
        """P(class | shown) for masks (W, S, R, F); a network for each seed, or each setting."""
        return probabilities(stack, masker, self._of_every_seed(x), masks)


def _evaluator_tag(ending: str) -> str:
    return f"EVAL-X{ending}"
