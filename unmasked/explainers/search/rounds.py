"""Search for `RealX`: learn from random masks, drop columns that nothing shows, learn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.explainers import defaults
from unmasked.explainers.estimator import checkpoint_file
from unmasked.explainers.path import Candidate
from unmasked.explainers.search.choice import ContextChoice, RowChoice
from unmasked.explainers.search.find import LITTLE, PLACED, Found, Kind, better_kind, evenly, find
from unmasked.explainers.search.screen import Part, PartSelector, best_features, evidence
from unmasked.explainers.search.values import SetPredictor, everything_shown, shown_alone
from unmasked.explainers.softening import boosting_adds, may_soften, softened
from unmasked.inputs.table import Columns
from unmasked.masks.distributions import MaskLaw
from unmasked.masks.maskers import Groups, Token
from unmasked.metrics import gain_of, log_likelihoods
from unmasked.networks.tables import SetMLP, TableSet
from unmasked.training import Data, Settings, Trained, Training, fit, methods, restart_seeds
from unmasked.training.device import choose_device
from unmasked.training.progress import Show, tell

_PROBES = 2  # networks of a round, of those that are trained in the end
_TREES = 2  # of the lowest prices: what they show is kept
_SPARED = 20  # features that the first round keeps because screening likes them
_MOST_STAY = 0.9
_JUDGED = 5000  # held-out rows that what is found is judged by, at most
_FREE = 1e-6  # the price of a feature where λ is 0: what brings less is noise
_ASKED = 5000  # held-out rows that a round is judged by, at most
_FEW = 4  # held-out rows that cannot be halved
_TOLD = {"soft": "softened labels", "rest": "more networks"}
"""What learns, beside the number of features."""


@dataclass(frozen=True)
class Round:
    """One round of a search: the features before and after it, and what all of them tell.

    loglik : mean log-likelihood of held-out rows with everything shown, before features are
        dropped; None where the table was only screened.
    """

    features: int
    kept: int
    loglik: float | None


@dataclass(frozen=True)
class Learned:
    """Networks that learned from some of the features, by random masks.

    train : what they learned from. soft : whether its labels were softened. valid : held-out rows
    that judge them. predicted : of these, with everything shown, (rows, classes).
    """

    part: Part
    predictor: SetPredictor
    trained: Trained
    train: Data
    soft: bool
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
        """Return True if Ctrl-C ended the training of these networks."""
        return self.trained.interrupted

    def better_than(self, other: Learned) -> bool:
        """Return True if these know more of held-out rows, by more than one standard error."""
        gain, error = gain_of(self.logliks - other.logliks)
        return gain > error

    def after(self, before: Learned) -> Learned:
        """Add the training history and time of the networks ``before`` that led to these."""
        return replace(self, trained=self.trained.after(before.trained))

    def rather_than(self, tried: Learned) -> Learned:
        """Add the time of networks tried in vain, and note whether Ctrl-C cut those short."""
        seconds = self.trained.seconds + tried.trained.seconds
        trained = replace(self.trained, seconds=seconds, interrupted=tried.interrupted)
        return replace(self, trained=trained)


@dataclass(frozen=True)
class Searched:
    """The result of a search: networks, and for each price a selector of either kind.

    dropped : the features that took no part in it, those first that screening likes best.
    """

    learned: Learned
    found: Found
    rounds: list[Round]
    dropped: list[int]

    def selectors(self, kind: Kind, features: int) -> list[PartSelector]:
        """Of one kind, from whole rows to logits of all the table's features."""
        part = self.learned.part
        return [PartSelector(selector, part, features) for selector in self.found.of(kind)]


@dataclass(frozen=True)
class Judged:
    """Candidates that a search finds at each λ, of either kind, and the best single set for all."""

    context: list[Candidate]
    row: list[Candidate]
    fixed: list[Candidate]

    def of(self, kind: Kind) -> list[Candidate]:
        """Those of one kind."""
        return self.context if kind == "context" else self.row

    @property
    def better(self) -> Kind:
        """Return the kind of selector to keep, by context or for each row, as held-out rows say."""
        return better_kind(self.context, self.row)


@dataclass(frozen=True)
class PerRow:
    """The worth of choosing for each row, in nats a row on held-out rows, prices paid.

    worth : of a search for each row, beyond the best single set for all. captured : of what is
    shown, beyond the same. error : standard error of ``worth``.
    """

    worth: float
    captured: float
    error: float

    @classmethod
    def of(cls, fixed: Candidate, own: Candidate, row: Candidate) -> PerRow:
        """From all three at one λ, as one predictor sees them."""

        def gain(one: Candidate) -> NDArray[Any]:
            paid = one.sparsity * (one.fraction - fixed.fraction)
            return one.logliks - fixed.logliks - paid

        worth, error = gain_of(gain(row))
        return cls(worth, float(gain(own).mean()), error)

    @property
    def little(self) -> bool:
        """Return True if one set for all rows is as good, up to `LITTLE` or two standard errors."""
        return self.worth < max(LITTLE, 2 * self.error)

    def __str__(self) -> str:
        if self.little:
            most = max(self.worth + 2 * self.error, 0.0)
            return (
                f"By held-out rows choosing for each row gains at most {most:.3f} nats over one "
                "set for all."
            )
        return (
            f"By held-out rows a search for each row gains {self.worth:.3f} nats over one set for "
            f"all, and this choice {self.captured:.3f}."
        )


@dataclass(frozen=True)
class Search:
    """A table and how to search it.

    levels : λ, the prices of showing all features, in nats. rounds : how often features may be
    dropped; 0 keeps all.
    """

    train: Data
    valid: Data
    columns: Columns
    network: SetMLP
    law: MaskLaw
    training: Training | None
    levels: Sequence[float]
    rounds: int
    seed: int
    device: str
    checkpoint: str | Path | None
    show: Show
    title: str

    @property
    def prices(self) -> list[float]:
        """Of one feature, at each level."""
        return self._prices(self.levels)

    def _prices(self, levels: Sequence[float]) -> list[float]:
        return [max(level / self.features, _FREE) for level in levels]

    @property
    def features(self) -> int:
        """Of the whole table."""
        return len(self.columns.features)

    def run(self, levels: Sequence[float] | None = None) -> Searched:
        """Drop what nothing shows, round by round, then search among what is left.

        levels : those of the search's own that selectors are wanted for; all by default.
        """
        index = self.columns.index
        part = Part.of(range(self.features), index)
        told: list[Round] = []
        if self.rounds and len(part.features) > defaults.SCREENED:
            part = Part.of(self._promising[: defaults.SCREENED], index)
            told.append(Round(self.features, len(part.features), None))
        learned = self._probe(part, len(told))
        if len(part.features) > defaults.NARROW:
            learned = self._narrowed(learned, told)
        if not learned.interrupted:
            learned = self._completed(learned)
        count = len(learned.part.features)
        tell(self.title, f"searching for the sets of {count:,} features to show", self.show)
        prices = self._prices(self.levels if levels is None else levels)
        found = self._find(learned, prices, self._of(self.held_out, learned.part))
        kept = set(learned.part.features)
        dropped = [i for i in self._promising if i not in kept] if told else []
        return Searched(learned, found, told, dropped)

    @cached_property
    def held_out(self) -> Data:
        """Held-out rows in random order."""
        order = np.random.default_rng(self.seed).permutation(self.valid.rows)
        return Data(self.valid.x[order], self.valid.target[order])

    @cached_property
    def _halves(self) -> tuple[Data, Data]:
        """Of the held-out rows; the same rows twice where there are hardly any."""
        x, target = self.held_out.x, self.held_out.target
        if len(x) < _FEW:
            return self.held_out, self.held_out
        return Data(x[::2], target[::2]), Data(x[1::2], target[1::2])

    @cached_property
    def _promising(self) -> list[int]:
        """All features of the table, those first that surely go with a class."""
        return self._screen(Part.of(range(self.features), self.columns.index))

    def _narrowed(self, learned: Learned, told: list[Round]) -> Learned:
        """Drop features and learn again, as long as that helps; add what was done to ``told``.

        Useless columns are noise to a network, which surely knows more without them. Where it does
        not, they may be of use: dropping what merely is not missed loses a little in each round.
        One half of the held-out rows says what to drop, the other whether that helps.
        """
        first = True
        while len(told) < self.rounds and not learned.interrupted:
            kept = self._kept(learned, first=first)
            if not kept or len(kept) > _MOST_STAY * len(learned.part.features):
                break
            fewer = self._probe(Part.of(kept, self.columns.index), len(told) + 1)
            if not fewer.better_than(learned):
                return learned.rather_than(fewer)
            told.append(Round(len(learned.part.features), len(kept), learned.loglik))
            learned, first = fewer.after(learned), False
        return learned

    def _probe(self, part: Part, number: int) -> Learned:
        """Networks on some of the features: a few, where others may be dropped."""
        count = _PROBES if self.features > defaults.NARROW else defaults.MEMBERS
        return self._learn(part, self._of(self.train, part), (0, count), f"{number}")

    def _completed(self, learned: Learned) -> Learned:
        """Train the members that are missing, all on softened labels where these prove better."""
        train, part = learned.train, learned.part
        predicted, count = learned.predicted.numpy(), len(learned.predictor.members)
        if may_soften(train) and boosting_adds(train, learned.valid, predicted, self.seed):
            soft = self._learn(part, softened(train, self.seed), (0, count), "soft")
            better = soft.loglik > learned.loglik
            learned = soft.after(learned) if better else learned.rather_than(soft)
        if learned.interrupted or count == defaults.MEMBERS:
            return learned
        more = self._learn(part, learned.train, (count, defaults.MEMBERS), "rest")
        if more.interrupted:  # too young to be averaged with the others
            return learned.rather_than(more)
        members = [*learned.predictor.members, *more.predictor.members]
        trained = more.trained.after(learned.trained)
        return self._asked(part, members, trained, learned.train, soft=learned.soft)

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
            defaults.training(self.training, train.rows),
            device=self.device,
            path=checkpoint_file(self.checkpoint, f"realx-predictor-{name}"),
            show=self.show,
            title=f"{self.title}, {_TOLD.get(name, f'{len(part.features):,} features')}",
        )
        made = cast(list[TableSet], trained.predictors)
        return self._asked(part, made, trained, train, soft=name == "soft")

    def _asked(
        self,
        part: Part,
        members: Sequence[TableSet],
        trained: Trained,
        train: Data,
        *,
        soft: bool,
    ) -> Learned:
        """Networks with what they make of held-out rows."""
        valid = self._of(self._halves[1], part)
        some = evenly(valid.rows, _ASKED)
        valid = Data(valid.x[some], valid.target[some])
        device = choose_device(self.device)
        predictor = SetPredictor(members, part.index).to(device)
        predicted = everything_shown(predictor, valid.x.to(device)).cpu()
        return Learned(part, predictor.to("cpu"), trained, train, soft, valid, predicted)

    def _find(
        self, learned: Learned, prices: Sequence[float], valid: Data, *, each_row: bool = True
    ) -> Found:
        some = evenly(self.train.rows, PLACED)
        train = self._of(Data(self.train.x[some], self.train.target[some]), learned.part)
        return find(
            learned.predictor,
            (train.x, train.target),
            (valid.x, valid.target),
            prices,
            device=choose_device(self.device),
            each_row=each_row,
        )

    def judged(self, learned: Learned) -> Judged:
        """Judge what a search finds by rows that it did not see: half by half of the held-out."""
        halves = [self._of(half, learned.part) for half in self._halves]
        some = [evenly(half.rows, _JUDGED // 2) for half in halves]
        every = [Data(x.x[own], x.target[own]) for x, own in zip(halves, some, strict=True)]
        found = [self._find(learned, self.prices, own) for own in every]
        target = torch.cat([own.target for own in every[::-1]]).numpy()

        def judge(choices: Sequence[Callable[[Tensor], Tensor]], level: float) -> Candidate:
            """By one choice for each half, x -> masks, on the other half."""
            parts = [
                self._shown(learned, choice, own.x)
                for choice, own in zip(choices, every[::-1], strict=True)
            ]
            masks, predicted = (np.concatenate(part) for part in zip(*parts, strict=True))
            whole = np.zeros((len(masks), self.features), dtype=bool)
            whole[:, list(learned.part.features)] = masks
            return Candidate.judged(level, whole, predicted, target)

        def of(kind: Kind) -> list[Candidate]:
            return [
                judge([_masks(own.of(kind)[i]) for own in found], level)
                for i, level in enumerate(self.levels)
            ]

        fixed = [
            judge([_same(own.fixed[i]) for own in found], level)
            for i, level in enumerate(self.levels)
        ]
        return Judged(of("context"), of("row"), fixed)

    def _shown(
        self, learned: Learned, choice: Callable[[Tensor], Tensor], x: Tensor
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Masks of rows, and what is predicted from what they show."""
        device = choose_device(self.device)
        x, predictor = x.to(device), learned.predictor.to(device)
        masks = choice(x)
        predicted = shown_alone(predictor, x, masks)
        predictor.to("cpu")
        return masks.cpu().numpy(), predicted.cpu().numpy()

    def _kept(self, learned: Learned, *, first: bool) -> list[int]:
        """The features that the trees of the lowest prices show, and at first some promising ones.

        Among many columns networks may know too little for any tree, but screening already does.
        """
        valid = self._of(self._halves[0], learned.part)
        found = self._find(learned, sorted(self.prices)[:_TREES], valid, each_row=False)
        shown = torch.cat([choice.logits > 0 for choice in found.context]).any(0)
        kept = {learned.part.features[i] for i in shown.nonzero().flatten().tolist()}
        if first:
            kept |= set(self._screen(learned.part)[:_SPARED])
        return sorted(kept)

    def _screen(self, part: Part) -> list[int]:
        """Its features, those first that surely go with a class."""
        device = choose_device(self.device)
        rows = self._of(self.train, part)
        scores = evidence(rows.x.to(device), rows.target.to(device))
        return [part.features[i] for i in best_features(scores, part.index)]

    def _of(self, rows: Data, part: Part) -> Data:
        if len(part.columns) == rows.x.shape[1]:
            return rows
        return Data(rows.x[:, list(part.columns)].contiguous(), rows.target)


def _masks(selector: ContextChoice | RowChoice) -> Callable[[Tensor], Tensor]:
    """Return a function from rows to a selector's masks, True where its logits are positive."""

    def choose(x: Tensor) -> Tensor:
        with torch.no_grad():
            return selector.to(x.device)(x) > 0

    return choose


def _same(shown: Tensor) -> Callable[[Tensor], Tensor]:
    """One set for all rows."""
    return lambda x: shown.to(x.device).expand(len(x), -1)
