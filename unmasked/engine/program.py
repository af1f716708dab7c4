"""A method's networks for all settings, with their losses and validation scores.

This is the only place that knows the leading axes: *worlds* (one per seed; one predictor each)
and, inside a world, *settings* (one per λ; one selector each). Everything it calls is written
for one setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unmasked.engine import noise
from unmasked.engine.method import Data, Method, Settings
from unmasked.engine.stack import Stack, Weights, over_leading
from unmasked.networks import build, check_shapes
from unmasked.objectives import (
    log_likelihood,
    random_mask_loss,
    selection,
    selector_loss,
    shown_value,
)

_CHUNK = 8192  # rows evaluated at once
_VALIDATION_MASKS = 4000  # at least so many (row, mask) pairs judge a predictor


class Program:
    """Stacked networks of one method over worlds × settings, on one device."""

    def __init__(
        self,
        method: Method,
        settings: Settings,
        train: Data,
        valid: Data,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.method, self.settings = method, settings
        self.device, self.dtype = device, dtype
        self.train, self.valid = (
            Data(data.x.to(device, dtype), data.target.to(device, dtype)) for data in (train, valid)
        )
        columns, classes = train.x.shape[1], train.target.shape[1]
        self.features = method.masker.features(columns)
        width = method.masker.width(columns)
        probe = train.x[:2].float()
        shown = method.masker(probe, torch.ones(len(probe), self.features))

        predictors = [build(method.predictor, width, classes, seed) for seed in settings.seeds]
        check_shapes(predictors[0], "predictor", shown, classes)
        self.predictor = Stack(predictors, device, dtype)
        self.vectorise = maps(self.predictor, shown.to(device, dtype))
        self.selector: Stack | None = None
        if method.selector is not None:
            # The seed is shifted so that selector and predictor do not start from one stream.
            selectors = [
                build(method.selector, columns, self.features, seed + 1_000_003)
                for seed in settings.seeds
                for _ in settings.sparsities
            ]
            check_shapes(selectors[0], "selector", probe, self.features)
            self.selector = Stack(selectors, device, dtype)
            self.vectorise &= maps(self.selector, probe.to(device, dtype))
        self.reset()

    def reset(self) -> None:
        """Compute with all worlds and settings again."""
        self.worlds = list(range(len(self.settings.seeds)))
        self.columns = list(range(len(self.settings.sparsities)))

    @property
    def seeds(self) -> list[int]:
        """The seeds of the worlds that still compute."""
        return [self.settings.seeds[world] for world in self.worlds]

    @property
    def sparsities(self) -> Tensor:
        """The λ of the settings that still compute, (settings,)."""
        chosen = [self.settings.sparsities[column] for column in self.columns]
        return torch.tensor(chosen, dtype=self.dtype, device=self.device)

    def slots(self, trains: frozenset[str]) -> Tensor:
        """Numbers of what is judged apart: settings if a selector moves, else worlds."""
        if "selector" not in trains:
            return torch.tensor(self.worlds)
        total = len(self.settings.sparsities)
        return torch.tensor([w * total + c for w in self.worlds for c in self.columns])

    def compact(self, trains: frozenset[str], active: Tensor) -> dict[str, Tensor]:
        """Drop worlds and settings that have stopped everywhere.

        Returns, for each stack that shrank, which of its rows stayed.
        """
        grid = active[self.slots(trains)].reshape(len(self.worlds), -1)
        worlds = torch.nonzero(grid.any(1)).flatten()
        columns = torch.nonzero(grid.any(0)).flatten()
        if len(worlds) == grid.shape[0] and len(columns) == grid.shape[1]:
            return {}
        stay = torch.arange(grid.numel()).reshape(grid.shape)[worlds][:, columns].flatten()
        rows = {"predictor": worlds}
        self.worlds = [self.worlds[i] for i in worlds.tolist()]
        if "selector" in trains:
            self.columns = [self.columns[i] for i in columns.tolist()]
            rows["selector"] = stay
        for name, kept in rows.items():
            self.stack(name).take(kept.to(self.device))
        return rows

    def stack(self, name: str) -> Stack:
        """The stack called ``name``."""
        stack = self.predictor if name == "predictor" else self.selector
        if stack is None:
            raise KeyError(name)
        return stack

    def losses(
        self,
        trains: frozenset[str],
        leaves: dict[str, Weights],
        x: Tensor,
        target: Tensor,
        epoch: int,
        step: int,
    ) -> dict[str, Tensor]:
        """Losses of one step: "predictor" (worlds,), "selector" (worlds, settings).

        x is (worlds, batch, columns), target (worlds, batch, classes); ``leaves`` are the
        weights that take gradients.
        """
        batch = x.shape[1]
        law, sampler = self.method.law, self.method.sampler
        draws: dict[str, Tensor] = {}
        if "predictor" in trains:
            draws["law"] = self._noise(batch, law.noise_width(self.features), "law", epoch, step)
        if "selector" in trains:
            draws["sampler"] = self._noise(
                batch, sampler.noise_width(self.features), "sampler", epoch, step
            )
        selectors = self._by_world(leaves.get("selector", {}))
        buffers = self._by_world(self.selector.buffers if "selector" in trains else {})  # type: ignore[union-attr]
        predictors = leaves.get("predictor") or self.predictor.weights()
        arguments = (predictors, self.predictor.buffers, selectors, buffers, x, target, draws)
        run = over_leading(self._world_losses(trains), self.vectorise)
        result: dict[str, Tensor]
        if self.vectorise:  # then no layer is random: vmap would have refused it
            result = run(*arguments)
            return result
        with torch.random.fork_rng(devices=self._cuda()):
            # Random layers (dropout) see the same state in every setting of a step.
            source = noise.generator(torch.device("cpu"), 0, "layers", epoch, step)
            torch.manual_seed(source.initial_seed())
            result = run(*arguments)
        return result

    def _world_losses(self, trains: frozenset[str]) -> Callable[..., dict[str, Tensor]]:
        method, sparsities = self.method, self.sparsities

        def losses(
            weights: Weights,
            buffers: Weights,
            selectors: Weights,
            selector_buffers: Weights,
            x: Tensor,
            target: Tensor,
            draws: dict[str, Tensor],
        ) -> dict[str, Tensor]:
            result = {}
            if "predictor" in trains:
                mask = method.law(draws["law"], self.features)
                result["predictor"] = random_mask_loss(
                    lambda shown: self.predictor.apply(weights, buffers, shown, training=True),
                    method.masker,
                    x,
                    target,
                    mask,
                )
            if "selector" in trains:
                frozen = {name: value.detach() for name, value in weights.items()}
                value = shown_value(
                    lambda shown: self.predictor.apply(frozen, buffers, shown, training=False),
                    method.masker,
                    x,
                    target,
                )

                def setting(own: Weights, own_buffers: Weights, sparsity: Tensor) -> Tensor:
                    logits = self.stack("selector").apply(own, own_buffers, x, training=True)
                    return selector_loss(logits, value, method.sampler, draws["sampler"], sparsity)

                result["selector"] = over_leading(setting, self.vectorise)(
                    selectors, selector_buffers, sparsities
                )
            return result

        return losses

    @torch.no_grad()
    def validate(self, trains: frozenset[str]) -> dict[str, Tensor]:
        """Scores on validation rows with evaluation-mode networks, one for each slot.

        "score" is what decides the best epoch: for a predictor mean log q(y | x_r) over random
        masks that stay the same all through training; for a selector
        mean log q(y | x_s) − λ · fraction with test-time masks.
        """
        if "selector" not in trains:
            loglik = self._random_mask_loglik()
            return {"score": loglik, "loglik": loglik}
        per_row, fraction = self.shown_loglik()
        loglik = per_row.mean(-1)  # (worlds, settings)
        score = loglik - self.sparsities * fraction
        return {
            "score": score.flatten(),
            "loglik": loglik.flatten(),
            "fraction": fraction.flatten(),
        }

    def _random_mask_loglik(self) -> Tensor:
        rows = self.valid.rows
        repeats = max(1, math.ceil(_VALIDATION_MASKS / rows))
        width = self.method.law.noise_width(self.features)
        total = torch.zeros(len(self.worlds), dtype=torch.float64, device=self.device)

        def world(weights: Weights, buffers: Weights, x: Tensor, t: Tensor, u: Tensor) -> Tensor:
            shown = self.method.masker(x, self.method.law(u, self.features))
            logits = self.predictor.apply(weights, buffers, shown, training=False)
            return log_likelihood(logits, t)

        for start in range(0, rows * repeats, _CHUNK):
            stop = min(start + _CHUNK, rows * repeats)
            x, target = self._validation_rows(torch.arange(start, stop) % rows)
            u = self._noise(stop - start, width, "validation", start)
            loglik = over_leading(world, self.vectorise)(
                self.predictor.weights(), self.predictor.buffers, x, target, u
            )
            total += loglik.double().sum(-1)
        return total / (rows * repeats)

    @torch.no_grad()
    def shown_loglik(self) -> tuple[Tensor, Tensor]:
        """log q(y | x_s) of every validation row (worlds, settings, rows), and fraction shown."""
        selector = self.stack("selector")
        logliks, shown = [], []

        def world(
            weights: Weights, buffers: Weights, own: Weights, own_buffers: Weights, x: Tensor,
            target: Tensor,
        ) -> tuple[Tensor, Tensor]:  # fmt: skip
            def setting(w: Weights, b: Weights) -> tuple[Tensor, Tensor]:
                mask = selection(selector.apply(w, b, x, training=False))
                logits = self.predictor.apply(
                    weights, buffers, self.method.masker(x, mask), training=False
                )
                return log_likelihood(logits, target), mask.mean(-1)

            result: tuple[Tensor, Tensor] = over_leading(setting, self.vectorise)(own, own_buffers)
            return result

        for start in range(0, self.valid.rows, _CHUNK):
            rows = torch.arange(start, min(start + _CHUNK, self.valid.rows))
            x, target = self._validation_rows(rows)
            loglik, fraction = over_leading(world, self.vectorise)(
                self.predictor.weights(),
                self.predictor.buffers,
                self._by_world(selector.weights()),
                self._by_world(selector.buffers),
                x,
                target,
            )
            logliks.append(loglik)
            shown.append(fraction)
        return torch.cat(logliks, -1), torch.cat(shown, -1).mean(-1)

    def _validation_rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Some validation rows, the same for every world: (worlds, rows, …)."""
        rows = rows.to(self.device)
        x, target = self.valid.x[rows], self.valid.target[rows]
        worlds = len(self.worlds)
        return x.expand(worlds, *x.shape), target.expand(worlds, *target.shape)

    def _noise(self, rows: int, width: int, stream: str, *numbers: int) -> Tensor:
        """Uniform noise (worlds, rows, width), each world's from its own seed."""
        return torch.stack(
            [
                noise.uniform((rows, width), self.dtype, self.device, seed, stream, *numbers)
                for seed in self.seeds
            ]
        )

    def _by_world(self, weights: Weights) -> Weights:
        """(worlds × settings, …) -> (worlds, settings, …)."""
        worlds = len(self.worlds)
        return {
            name: value.reshape(worlds, value.shape[0] // worlds, *value.shape[1:])
            for name, value in weights.items()
        }

    def _cuda(self) -> list[Any]:
        return [self.device] if self.device.type == "cuda" else []


def maps(stack: Stack, x: Tensor) -> bool:
    """Whether ``torch.vmap`` can run this architecture in training; tried, not guessed."""
    twice = {name: torch.cat([v[:1], v[:1]]) for name, v in stack.weights().items()}
    buffers = {name: torch.cat([v[:1], v[:1]]) for name, v in stack.buffers.items()}
    try:
        torch.vmap(lambda w, b: stack.apply(w, b, x, training=True))(twice, buffers)
    except Exception:  # whatever a user's module raises under vmap means: one at a time
        return False
    return True
