"""How `RealX` searches: learn from random masks, drop columns that nothing shows, learn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked import defaults, methods
from unmasked.columns import Columns
from unmasked.engine import Data, Settings, Trained, Training, fit, restart_seeds
from unmasked.engine.device import choose_device
from unmasked.engine.progress import Show
from unmasked.estimator import checkpoint_file
from unmasked.masking import Groups, Token
from unmasked.masklaws import MaskLaw
from unmasked.metrics import log_likelihoods
from unmasked.networks import SetMLP, TableSet
from unmasked.search.find import Found, Kind, evenly, find
from unmasked.search.narrow import Part, PartSelector
from unmasked.search.screen import best_features, second_moments
from unmasked.search.values import SetPredictor, everything_shown
from unmasked.softening import boosting_adds, may_soften, softened

_PROBES = 2  # networks of a round, of those that are trained in the end
_TREES = 2  # of the lowest prices: what they show is kept
_SPARED = 20  # features that the first round keeps for their second moments
_MOST_STAY = 0.9
_ASKED = 5000  # held-out rows that a round is judged by, at most


@dataclass(frozen=True)
class Round:
    """What came of one round: from how many features to how many, and what all of them tell.

    loglik : mean log-likelihood of held-out rows with everything shown, before features are
        dropped; None where the table was only screened.
    """

    features: int
    kept: int
    loglik: float | None


@dataclass(frozen=True)
class Learned:
    """Networks that learned from some of the features, by random masks.

    train : what they learned from. valid : held-out rows. predicted : of these, with everything
    shown, (rows, classes).
    """

    part: Part
    predictor: SetPredictor
    trained: Trained
    train: Data
    valid: Data
    predicted: Tensor

    @cached_property
    def logliks(self) -> NDArray[np.float64]:
        """Of held-out rows, with everything shown, (rows,)."""
        return log_likelihoods(self.predicted.numpy(), self.valid.target.numpy())

    @property
    def loglik(self) -> float:
        """Its mean."""
        return float(self.logliks.mean())

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended their training."""
        return self.trained.interrupted

    def worse_than(self, other: Learned) -> bool:
        """Whether they know less of held-out rows, by more than one standard error."""
        lost = other.logliks - self.logliks
        return bool(lost.mean() > lost.std() / np.sqrt(len(lost)))


@dataclass(frozen=True)
class Searched:
    """What a search came to: networks, and for each price a selector of either kind."""

    learned: Learned
    found: Found
    rounds: list[Round]

    def selectors(self, kind: Kind, features: int) -> list[PartSelector]:
        """Of one kind, from whole rows to logits of all the table's features."""
        own = self.found.context if kind == "context" else self.found.row
        return [PartSelector(selector, self.learned.part, features) for selector in own]


@dataclass(frozen=True)
class Search:
    """A table and how to search it.

    prices : of one feature, in nats. rounds : how often features may be dropped; 0 keeps all.
    """

    train: Data
    valid: Data
    columns: Columns
    network: SetMLP
    law: MaskLaw
    training: Training | None
    prices: Sequence[float]
    rounds: int
    seed: int
    device: str
    checkpoint: str | Path | None
    show: Show
    title: str

    def run(self) -> Searched:
        """Drop what nothing shows, round by round, then search among what is left."""
        index = self.columns.index
        part = Part.of(range(max(index) + 1), index)
        told: list[Round] = []
        if self.rounds and len(part.features) > defaults.SCREENED:
            part = self._screened(part, defaults.SCREENED)
            told.append(Round(max(index) + 1, len(part.features), None))
        learned = self._probe(part, len(told))
        if len(part.features) > defaults.NARROW:
            learned = self._narrowed(learned, told)
        if not learned.interrupted:
            learned = self._completed(learned)
        return Searched(learned, self._find(learned, self.prices), told)

    def _narrowed(self, learned: Learned, told: list[Round]) -> Learned:
        """Drop features and learn again, as long as nothing is lost by it; add what was done."""
        best, first = learned, True
        while len(told) < self.rounds and not learned.interrupted:
            kept = self._kept(learned, first=first)
            if not kept or len(kept) > _MOST_STAY * len(learned.part.features):
                break
            fewer = self._probe(Part.of(kept, self.columns.index), len(told) + 1)
            if fewer.worse_than(best) and not fewer.interrupted:
                break  # something was dropped that is needed
            told.append(Round(len(learned.part.features), len(kept), learned.loglik))
            learned, first = fewer, False
            best = max(best, learned, key=lambda own: own.loglik)
        return learned

    def _probe(self, part: Part, number: int) -> Learned:
        """A few networks on some of the features."""
        return self._learn(part, self._of(self.train, part), (0, _PROBES), f"{number}")

    def _completed(self, learned: Learned) -> Learned:
        """The same with all members, and with softened labels where these are better."""
        train, part, before = learned.train, learned.part, learned
        predicted = learned.predicted.numpy()
        if may_soften(train) and boosting_adds(train, learned.valid, predicted, self.seed):
            soft = self._learn(part, softened(train, self.seed), (0, _PROBES), "soft")
            if soft.loglik > learned.loglik or soft.interrupted:
                learned = soft
        if learned.interrupted:
            return learned
        more = self._learn(part, learned.train, (_PROBES, defaults.MEMBERS), "rest")
        members = [*learned.predictor.members, *more.predictor.members]
        return self._asked(part, members, more.trained.after(before.trained), more.train)

    def _learn(self, part: Part, train: Data, members: tuple[int, int], name: str) -> Learned:
        """Train members from the first number to before the second, on some of the features."""
        masker = Token() if part.plain else Groups(part.index, Token())
        network = self.network.bound(part.numeric(self.columns.numeric))
        first, last = members
        trained = fit(
            methods.eval_x(masker, self.law, network),
            Settings(seeds=restart_seeds(self.seed, last)[first:]),
            train,
            self._of(self.valid, part),
            defaults.training(self.training),
            device=self.device,
            path=checkpoint_file(self.checkpoint, f"realx-predictor-{name}"),
            show=self.show,
            title=self.title,
        )
        return self._asked(part, cast(list[TableSet], trained.predictors), trained, train)

    def _asked(
        self, part: Part, members: Sequence[TableSet], trained: Trained, train: Data
    ) -> Learned:
        """Networks with what they make of held-out rows."""
        valid = self._of(self.valid, part)
        some = evenly(valid.rows, _ASKED)
        valid = Data(valid.x[some], valid.target[some])
        device = choose_device(self.device)
        predictor = SetPredictor(members, part.index).to(device)
        predicted = everything_shown(predictor, valid.x.to(device)).cpu()
        return Learned(part, predictor.to("cpu"), trained, train, valid, predicted)

    def _find(self, learned: Learned, prices: Sequence[float], *, each_row: bool = True) -> Found:
        train, valid = (self._of(rows, learned.part) for rows in (self.train, self.valid))
        return find(
            learned.predictor,
            (train.x, train.target),
            (valid.x, valid.target),
            prices,
            device=choose_device(self.device),
            each_row=each_row,
        )

    def _kept(self, learned: Learned, *, first: bool) -> list[int]:
        """The features that the trees of the lowest prices show, and some that look promising."""
        found = self._find(learned, sorted(self.prices)[:_TREES], each_row=False)
        shown = torch.cat([choice.logits > 0 for choice in found.context]).any(0)
        kept = {learned.part.features[i] for i in shown.nonzero().flatten().tolist()}
        if first and kept:
            kept |= set(self._screened(learned.part, _SPARED).features)
        return sorted(kept)

    def _screened(self, part: Part, most: int) -> Part:
        """The features with the largest second moments, at most so many."""
        device = choose_device(self.device)
        rows = self._of(self.train, part)
        scores = second_moments(rows.x.to(device), rows.target.to(device))
        best = best_features(scores, part.index, most)
        return Part.of([part.features[i] for i in best], self.columns.index)

    def _of(self, rows: Data, part: Part) -> Data:
        if len(part.columns) == rows.x.shape[1]:
            return rows
        return Data(rows.x[:, list(part.columns)].contiguous(), rows.target)
