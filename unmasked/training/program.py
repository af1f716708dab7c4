"""A method's networks for all settings, with their losses and validation scores.

This is the only place that knows the leading axes: *worlds* (one per seed and data set) and,
inside a world, *settings* (one per λ or k). Maskers, laws and samplers are written for one
setting and mapped over them; networks run as stacks.

Axes in the comments: W worlds, S settings, D draws, B rows, F features, C columns, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from unmasked.errors import InputError
from unmasked.masks.samplers import Draw
from unmasked.networks.tables import build, check_shapes
from unmasked.training import noise
from unmasked.training.device import in_parts
from unmasked.training.method import (
    Data,
    Everything,
    Exchanged,
    Given,
    Method,
    Network,
    Random,
    Selected,
    Settings,
    Subset,
    check_method,
)
from unmasked.training.methods import log_likelihood
from unmasked.training.rows import Batch, Rows
from unmasked.training.stack import Networks, Stack, Weights, over_leading

_CHUNK = 8192  # rows of one network evaluated at once, fewer where memory is short
_CHUNK_NUMBERS = 2**24  # and so many numbers of their inputs
_CHUNK_ALL = 2**21  # rows of all networks evaluated at once
_VALIDATION_MASKS = 4000  # so many (row, mask) pairs judge a predictor, unless there are more rows
_VALIDATION_EPOCHS = 4  # where rows are wide, as pictures are, no more than these times the epoch's
_VALIDATION_NUMBERS = 2**21  # or so many numbers of them
_SEEDS = {"selector": 1_000_003, "baseline": 2_000_003}  # no two start from one stream


class Program:
    """Stacked networks of one method over worlds × settings, on one device."""

    def __init__(
        self,
        method: Method,
        settings: Settings,
        train: Sequence[Data],
        valid: Sequence[Data],
        device: torch.device,
        dtype: torch.dtype,
        pieces: int = 1,
        precision: torch.dtype | None = None,
        start: Mapping[str, Stack] | None = None,
    ) -> None:
        self.precision = precision
        self._start = start or {}
        self.method, self.settings, self.pieces = method, settings, pieces
        self.device, self.dtype = device, dtype
        self.train, self.valid = Rows(train, device, dtype), Rows(valid, device, dtype)
        for data in (train, valid):
            if len(data) not in (1, len(settings.seeds)):
                raise InputError(
                    f"one data set, or one for each of the {len(settings.seeds)} worlds, is "
                    f"needed, but {len(data)} came."
                )
        first = train[0]
        columns, classes = first.x.shape[1], first.target.shape[1]
        self.features = method.masker.features(columns)
        probe = first.x[:2].float()
        shown = method.masker(probe, torch.ones(len(probe), self.features))
        self.width = max(columns, shown.shape[1])
        check_method(method, settings, columns, self.train.explanations)

        self.stacks: dict[str, Stack] = {}
        for name, learner in method.learners.items():
            self.stacks[name] = self._stack(name, learner.network, shown, classes)
        if method.selector is not None:
            self.stacks["selector"] = self._stack(
                "selector", method.selector.network, probe, self.features
            )
        if method.exchanges and _looks_at_batches(self.stacks["selector"]):
            raise InputError(
                "a selector that exchanges masks must look at one row at a time, but this one has "
                "BatchNorm, through which the next row's label could travel; use GroupNorm or "
                "LayerNorm."
            )
        self.orders = noise.Orders(self.train.rows, device)
        self._tapes: dict[str, noise.Tape] = {}
        self._levels: dict[tuple[int, ...], Tensor] = {}
        self._chunk = _CHUNK
        self.price_share: Tensor | None = None  # a captured step reads it from its place
        self.reset()

    def _stack(self, name: str, network: Network, probe: Tensor, outputs: int) -> Stack:
        """One network for each world, or for each setting; settings of a seed start alike."""
        copies = 1 if self.method.shared(name) else len(self.settings.levels)
        networks = []
        for seed in self.settings.seeds:
            one = build(network, probe.shape[1], outputs, seed + _SEEDS.get(name, 0))
            networks += [one] * copies
        check_shapes(networks[0], name, probe, outputs)
        stack = Stack(networks, self.device, self.dtype, probe, self.precision)
        if name in self._start:
            stack.begin_as(self._start[name], name)
        return stack

    # ------------------------------------------------------------------ which settings compute

    def reset(self) -> None:
        """Compute with all worlds and settings again."""
        self.worlds = list(range(len(self.settings.seeds)))
        self.columns = list(range(len(self.settings.levels)))

    @property
    def seeds(self) -> list[int]:
        """The seeds of the worlds that still compute."""
        return [self.settings.seeds[world] for world in self.worlds]

    @property
    def levels(self) -> Tensor:
        """The level of the settings that still compute, (1, S): the same in every world."""
        key = tuple(self.columns)
        if key not in self._levels:  # made once: a captured step cannot copy from the host
            chosen = [self.settings.levels[column] for column in self.columns]
            self._levels[key] = torch.tensor([chosen], dtype=self.dtype, device=self.device)
        return self._levels[key]

    def per_setting(self, trains: frozenset[str]) -> bool:
        """Return True if what moves is judged setting by setting, False if world by world."""
        return any(not self.method.shared(name) for name in trains)

    def slots(self, trains: frozenset[str]) -> Tensor:
        """Numbers of what is judged apart: settings, or worlds."""
        if not self.per_setting(trains):
            return torch.tensor(self.worlds)
        total = len(self.settings.levels)
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
        if self.device.type == "cuda" and 2 * len(worlds) * len(columns) > grid.numel():
            return {}  # a smaller program must be compiled again, which pays when half has gone
        stay = torch.arange(grid.numel()).reshape(grid.shape)[worlds][:, columns].flatten()
        self.worlds = [self.worlds[i] for i in worlds.tolist()]
        if self.per_setting(trains):
            self.columns = [self.columns[i] for i in columns.tolist()]
        rows = {}
        for name, stack in self.stacks.items():
            if name not in trains and not self.method.shared(name):
                continue  # a selector that has not started: all of its settings still come
            rows[name] = (worlds if self.method.shared(name) else stay).to(self.device)
            stack.take(rows[name])
        return rows

    # ------------------------------------------------------------------ what a step sees

    def noise(
        self, trains: frozenset[str], rows: int, phase: int, step: int, augments: int = 0
    ) -> dict[str, Tensor]:
        """Uniform noise of a step of a phase, each (W, D, B, width).

        ``augments`` is how many numbers of a row go to what changes the rows.
        """
        found = {}
        shapes = self._noise_shapes(trains)
        if augments:
            shapes["augment"] = (1, augments)
        for name, (draws, width) in shapes.items():
            tape = self._tapes.get(name)
            if tape is None or tape.shape[1] != rows:
                tape = noise.Tape(draws, rows, width, self.dtype, self.device)
                self._tapes[name] = tape
            found[name] = tape(self.seeds, name, phase, step)
        return found

    def _noise_shapes(self, trains: frozenset[str]) -> dict[str, tuple[int, int]]:
        shapes = {}
        for name, learner in self.method.learners.items():
            if name in trains and isinstance(learner.source, Random | Exchanged):
                shapes[name] = (1, learner.source.law.noise_width(self.features))
        if "selector" in trains and self.method.selector is not None:
            shapes["selector"] = self.method.selector.sampler.noise_shape(self.features)
        return shapes

    # ------------------------------------------------------------------ losses

    def losses(
        self, trains: frozenset[str], leaves: dict[str, Weights], batch: Batch
    ) -> dict[str, Tensor]:
        """The loss of every network that moves: (W,) where a world shares it, else (W, S).

        A predictor that learns from the selector's masks has no loss of its own: the value of the
        selector's masks is what both climb, each with its own gradient.
        ``leaves`` are the weights that take gradients.
        """
        result: dict[str, Tensor] = {}
        logliks: dict[str, Tensor] = {}
        selects = "selector" in trains
        drawn = self._draw(leaves, batch) if selects and self.method.exchanges else None
        for name, learner in self.method.learners.items():
            if name not in trains or isinstance(learner.source, Selected):
                continue
            mask = self._source_masks(name, batch, None if drawn is None else drawn[1].mask)
            shown = self._mask(batch.x, mask)
            networks = Networks(self.stacks[name], leaves[name])
            loglik = self._loglik(networks, shown, batch.target)
            logliks[name] = loglik.detach()
            result[name] = -loglik.mean(-1)
        if selects:  # last: a predictor with dropout draws as it would without a selector
            drawn = drawn or self._draw(leaves, batch)
            result["selector"] = self._selector_loss(leaves, batch, logliks, *drawn)
        return result

    def _source_masks(self, name: str, batch: Batch, drawn: Tensor | None = None) -> Tensor:
        """Masks (W, B, F), or (W, S, B, F) where each setting has its own.

        ``drawn`` are the selector's for the same rows, (W, S, B, F).
        """
        source = self.method.learners[name].source
        worlds, rows = batch.x.shape[:2]
        if isinstance(source, Random | Exchanged):
            law, features = source.law, self.features
            u = batch.noise[name][:, 0]
            mask = law(u.flatten(0, 1), features).reshape(*u.shape[:2], features)
            if isinstance(source, Random):
                return mask
            assert drawn is not None  # `Method` wants a selector that moves beside it
            random = torch.arange(rows, device=mask.device) % 2 == 0
            return torch.where(random[:, None], mask.unsqueeze(1), drawn.detach().roll(1, dims=2))
        if isinstance(source, Everything):
            return batch.x.new_ones(worlds, rows, self.features)
        if isinstance(source, Subset):
            return self._subset_masks(batch.x)
        assert isinstance(source, Given)
        if batch.masks is None:
            raise InputError("a learner on given masks needs Data(masks=…), but none came.")
        return batch.masks

    def _subset_masks(self, x: Tensor) -> Tensor:
        """Bit j of a setting's level says whether it shows feature j."""
        worlds, rows = x.shape[:2]
        bits = torch.arange(self.features, device=x.device)
        mask = (self.levels[0].long().unsqueeze(1) >> bits) & 1  # (S, F)
        return mask.to(x.dtype).unsqueeze(1).expand(worlds, -1, rows, -1)

    def _draw(self, leaves: dict[str, Weights], batch: Batch) -> tuple[Tensor, Draw]:
        """The selectors' logits (W, S, B, F) and what is drawn from them."""
        assert self.method.selector is not None
        logits = self._logits(Networks(self.stacks["selector"], leaves["selector"]), batch.x)
        draw: Draw = over_leading(
            self.method.selector.sampler.draw,
            2,
            logits,
            batch.noise["selector"].unsqueeze(1),
            self.levels,
        )
        return logits, draw

    def _selector_loss(
        self,
        leaves: dict[str, Weights],
        batch: Batch,
        logliks: dict[str, Tensor],
        logits: Tensor,
        draw: Draw,
    ) -> Tensor:
        selector = self.method.selector
        assert selector is not None
        sampler, levels = selector.sampler, self.levels
        stack = self.stacks["predictor"]
        joint, several = self.method.joint, bool(draw.others.shape[2])
        # a predictor that learns from these masks is moved by them; otherwise it only judges
        judge = Networks(stack) if several or not joint else None
        own = self._loglik(
            Networks(stack, leaves["predictor"]) if judge is None or joint else judge,
            self._mask(batch.x, draw.mask),
            batch.target,
        )  # (W, S, B)
        others = own.new_zeros(*own.shape[:2], 0, own.shape[2])  # (W, S, D, B)
        if judge is not None and several:
            others = self._loglik(judge, self._mask(batch.x, draw.others), batch.target)
        baseline: Tensor | float = 0.0
        if selector.baseline is not None:
            baseline = logliks[selector.baseline].unsqueeze(1)  # (W, 1, B)
            others = others - baseline.unsqueeze(1)
        carrier = over_leading(
            sampler.carrier,
            2,
            logits,
            draw,
            own.detach() - baseline,
            others,
        )
        climbed = own + carrier - carrier.detach()
        cost = over_leading(sampler.cost, 2, logits, levels)
        if self.price_share is not None:
            cost = cost * self.price_share
        return cost - climbed.mean(-1)

    def _logits(self, networks: Networks, x: Tensor) -> Tensor:
        """Selectors' logits (W, S, B, F) for rows (W, B, C)."""
        worlds, rows, columns = x.shape
        settings = networks.count // worlds
        spread = x.unsqueeze(1).expand(worlds, settings, rows, columns)
        logits = networks(spread.reshape(worlds * settings, rows, columns))
        return logits.reshape(worlds, settings, rows, -1)

    def _mask(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the masker to x (W, B, C) under masks (W, …, B, F) -> (W, …, B, width).

        A masker looks at one row at a time, so settings and draws are more rows to it.
        """
        between = mask.dim() - 3
        x = x.reshape(x.shape[0], *[1] * between, *x.shape[1:])
        x = x.expand(*mask.shape[:-1], x.shape[-1])
        shown = self.method.masker(x.flatten(0, -2), mask.flatten(0, -2))
        return shown.reshape(*mask.shape[:-1], -1)

    def _loglik(self, networks: Networks, shown: Tensor, target: Tensor) -> Tensor:
        """log q(target | shown): shown (W, …, B, width), target (W, B, K) -> (W, …, B)."""
        logits = networks(shown.reshape(networks.count, -1, shown.shape[-1]))
        logits = logits.reshape(*shown.shape[:-1], logits.shape[-1])
        between = shown.dim() - 3
        target = target.reshape(target.shape[0], *[1] * between, *target.shape[1:])
        return log_likelihood(logits, target.expand_as(logits))

    # ------------------------------------------------------------------ validation

    @torch.no_grad()
    def validate(self, trains: frozenset[str]) -> dict[str, Tensor]:
        """Scores on validation rows with evaluation-mode networks, one for each slot.

        "score" is what decides the best epoch: for a predictor mean log q(y | x_m) over masks of
        its source (random ones stay the same all through training); for a selector
        mean log q(y | x_s) − its price, with test-time masks.
        """
        if "selector" not in trains:
            loglik = self._predictor_loglik().flatten()
            return {"score": loglik, "loglik": loglik}
        loglik, fraction = self._shown_loglik()  # (W, S) each
        assert self.method.selector is not None
        price = self.method.selector.sampler.price
        score = loglik - over_leading(price, 2, fraction, self.levels.double())
        return {
            "score": score.flatten(),
            "loglik": loglik.flatten(),
            "fraction": fraction.flatten(),
        }

    def _predictor_loglik(self) -> Tensor:
        """Mean validation log-likelihood on masks of the predictor's source, (W,) or (W, S)."""
        rows, repeats = self.valid.rows, 1
        source = self.method.learners["predictor"].source
        u = torch.zeros(0)
        if isinstance(source, Random):
            repeats = math.ceil(self._validation_pairs() / rows)
            u = self._validation_noise(rows * repeats, source.law.noise_width(self.features))
        networks = Networks(self.stacks["predictor"])

        def summed(start: int, stop: int) -> Tensor:
            which = torch.arange(start, stop, device=self.device) % rows
            x, target, masks = self.valid.take(self.worlds, self.columns, which)
            part = {"predictor": u[:, :, start:stop]} if isinstance(source, Random) else {}
            mask = self._source_masks("predictor", Batch(x, target, masks, part))
            return self._loglik(networks, self._mask(x, mask), target).double().sum(-1)

        return self._over_chunks(summed, rows * repeats, networks.count) / (rows * repeats)

    @property
    def judged_by(self) -> str:
        """Say for the checkpoint how many pairs judge, where earlier versions had more of them."""
        pairs, usual = self._validation_pairs(), max(self.valid.rows, _VALIDATION_MASKS)
        return "" if pairs == usual else f"{pairs} pairs "

    def _validation_pairs(self) -> int:
        """Return the number of (row, mask) pairs that judge a predictor.

        Of a few pictures to learn from, thousands to judge by would take most of the time.
        """
        affordable = max(_VALIDATION_EPOCHS * self.train.rows, _VALIDATION_NUMBERS // self.width)
        return max(self.valid.rows, min(_VALIDATION_MASKS, affordable))

    def _shown_loglik(self) -> tuple[Tensor, Tensor]:
        """Mean log q(y | x_s) and fraction shown over validation rows, (W, S) each."""
        assert self.method.selector is not None
        sampler, levels = self.method.selector.sampler, self.levels
        predictors, selectors = (Networks(self.stacks[name]) for name in ("predictor", "selector"))

        def summed(start: int, stop: int) -> Tensor:
            which = torch.arange(start, stop, device=self.device)
            x, target, _ = self.valid.take(self.worlds, self.columns, which)
            logits = self._logits(selectors, x)
            mask = over_leading(sampler.select, 2, logits, levels)
            loglik = self._loglik(predictors, self._mask(x, mask), target)
            return torch.stack([loglik.double().sum(-1), mask.double().mean(-1).sum(-1)])

        sums = self._over_chunks(summed, self.valid.rows, selectors.count)  # (2, W, S)
        total, shown = sums / self.valid.rows
        return total, shown

    def _over_chunks(
        self, summed: Callable[[int, int], Tensor], rows: int, networks: int
    ) -> Tensor:
        """The sum over all rows of what is ``summed`` over some: networks in evaluation mode look
        at one row at a time, so where memory is short fewer go at once, from then on."""
        most = min(_CHUNK, max(16, _CHUNK_NUMBERS // self.width)) // self.pieces
        size = max(min(128, most), min(most, _CHUNK_ALL // max(1, networks)), 1)
        size = min(size, self._chunk)
        parts, fitted = in_parts(summed, rows, size, self.device)
        if fitted < size:
            self._chunk = fitted
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _validation_noise(self, rows: int, width: int) -> Tensor:
        """Draw the noise of validation masks once for all of training: (W, 1, rows, width)."""
        key = (tuple(self.seeds), rows, width)
        if getattr(self, "_validation_key", None) != key:
            self._validation_key = key
            self._validation_u = torch.stack(
                [
                    noise.uniform((1, rows, width), self.dtype, self.device, seed, "validation")
                    for seed in self.seeds
                ]
            )
        return self._validation_u

    @property
    def needs_whole_batches(self) -> bool:
        """Return True if a batch cannot be cut up: BatchNorm, or masks that go from row to row."""
        return self.method.exchanges or any(map(_looks_at_batches, self.stacks.values()))

    @property
    def random_layers(self) -> bool:
        """Return True if a network may hold layers that draw (dropout), so runs one at a time."""
        return any(stack.mode == "random" for stack in self.stacks.values())


def _looks_at_batches(stack: Stack) -> bool:
    """Return True if a network has BatchNorm: a row's result depends on others of its batch."""
    norms = nn.modules.batchnorm._BatchNorm
    return any(isinstance(module, norms) for module in stack.template.modules())
