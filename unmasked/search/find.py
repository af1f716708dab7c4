"""From a predictor to selectors at several prices, and which kind of them to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.choosing import Candidate
from unmasked.metrics import gain_of
from unmasked.search.choice import RowChoice
from unmasked.search.context import (
    GAIN,
    ContextChoice,
    Questions,
    Tree,
    chances_of,
    grow,
    inside,
    leaves_of,
    prune,
    refine,
    renumbered,
    sets_of,
)
from unmasked.search.values import SetPredictor, log_likelihoods, paths, set_values

Kind = Literal["context", "row"]
KINDS: tuple[Kind, ...] = ("context", "row")
MOST_SETS = 300
"""Sets that are chosen from."""
PLACED = 20_000
"""Rows whose targets say where a tree's thresholds lie and what of its sets pays, at the most."""
_SEARCHED, _VALUED = 1000, 4000  # rows
_NARROW = 30  # features; of wider tables fewer rows are searched, as each takes longer
SURE = 1.0
"""Standard errors that a feature must bring on held-out rows, beside its price."""
_THINNED, _LEAST = 300_000, 2000  # rows × sets that say what is missed; rows at the least
_SHARE = 0.05  # of the features that are shown: so many may be dropped at once
WORTH = 3.0
"""Prices of a feature that a choice by context may lose at the lowest price."""
SHARE = 0.2
"""Of what choosing for each row is worth, the least that a choice by context must have."""
LITTLE = 0.002
"""Nats that nobody would choose for each row for."""


@dataclass(frozen=True)
class Found:
    """At each price: a selector that chooses by context, one that chooses for each row, and the
    best single set for all rows, (features,) bool."""

    context: list[ContextChoice]
    row: list[RowChoice]
    fixed: list[Tensor]

    def of(self, kind: Kind) -> Sequence[ContextChoice | RowChoice]:
        """The selectors of one kind."""
        return self.context if kind == "context" else self.row


def find(
    predictor: SetPredictor,
    learned: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    prices: Sequence[float],
    *,
    device: torch.device,
    each_row: bool = True,
) -> Found:
    """Search for sets with rows that the predictor did not learn from.

    Both kinds of rows come with their targets, (rows, columns) and (rows, classes); those that
    were learned from only help to place the thresholds of a tree.
    prices : of one feature, in nats. each_row : whether to look for the best set of each row, too.
    """
    predictor = predictor.to(device).eval()
    some = evenly(len(held_out[0]), PLACED)
    x, target = (part[some].to(device) for part in held_out)
    searched = max(_SEARCHED * _NARROW // max(_NARROW, predictor.features), 100)
    sets = paths(predictor, x[evenly(len(x), searched)])[:MOST_SETS]
    rows = x[evenly(len(x), _VALUED)]
    values = set_values(predictor, rows, sets)
    questions = Questions.about(rows, predictor.index)
    more = evenly(len(learned[0]), PLACED)
    every = torch.cat([learned[0][more].to(device), x])
    targets = torch.cat([learned[1][more].to(device), target])
    context, row, fixed = [], [], []
    for price in prices:
        utility = values - price * sets.sum(1)
        best = sets[utility.mean(0).argmax()]
        fixed.append(_thin(predictor, x, target, best, set(), price).cpu())
        tree = grow(questions, utility, sets, price)
        tree = placed(tree, predictor, every, targets, sets, price)
        tree, own = thinned(tree, predictor, x, target, sets, price)
        chances = chances_of(tree, predictor, rows, own, price)
        context.append(ContextChoice.of(tree, own, chances))
        if each_row:
            row.append(RowChoice.learn(predictor, sets.cpu(), values.cpu(), price))
    predictor.to("cpu")
    return Found(context, row, fixed)


def placed(
    tree: Tree, predictor: SetPredictor, x: Tensor, target: Tensor, sets: Tensor, price: float
) -> Tree:
    """The tree with its thresholds where the targets want them.

    What the predictor expects changes slowly from one side of a border to the other; the targets
    themselves see it sharply. Splits that do not pay by them are undone.
    """
    if isinstance(tree, int):
        return tree
    used = sorted(sets_of(tree))
    utility = torch.full((len(x), len(sets)), -torch.inf, device=x.device)
    utility[:, used] = log_likelihoods(predictor, x, target, sets[used]) - price * sets[used].sum(1)
    tree = refine(tree, x, utility)
    tree = prune(tree, x, utility, GAIN * price * len(x))
    return refine(tree, x, utility)


def thinned(
    tree: Tree, predictor: SetPredictor, x: Tensor, target: Tensor, sets: Tensor, price: float
) -> tuple[Tree, Tensor]:
    """The tree without features that do not pay by the targets of held-out rows, and its own sets.

    A predictor believes in what it has overfitted to; these rows do not. What was asked about on
    the way to a leaf stays, or the choice would not follow from what is shown.
    """
    kept = []
    for asked, chosen in leaves_of(tree):
        here = inside(asked, x)
        fixed = {predictor.index[column] for column, _, _ in asked}
        kept.append(_thin(predictor, x[here], target[here], sets[chosen], fixed, price))
    return renumbered(tree), torch.stack(kept)


def _thin(
    predictor: SetPredictor, x: Tensor, target: Tensor, shown: Tensor, fixed: set[int], price: float
) -> Tensor:
    """Drop the feature that is missed least, as long as it is not surely worth its price.

    Of many a share is dropped at once where it is not missed together either.
    """

    def worth(sets: Tensor, hidden: int) -> NDArray[np.float64]:
        """Of showing all, beyond each other set, which hides so many more: below 0 it goes."""
        some = evenly(len(x), max(_LEAST, _THINNED // len(sets)))
        logliks = log_likelihoods(predictor, x[some], target[some], sets).double().cpu().numpy()
        lost = (gain_of(logliks[:, 0] - own) for own in logliks.T[1:])
        return np.array([loss - max(hidden * price, SURE * error) for loss, error in lost])

    while len(x):
        loose = [int(j) for j in shown.nonzero() if int(j) not in fixed]
        if not loose:
            break
        without = shown.repeat(len(loose), 1)
        without[range(len(loose)), loose] = False
        paid = worth(torch.cat([shown[None], without]), 1)
        several = paid.argsort()[: max(1, int(_SHARE * len(loose)))]
        several = several[paid[several] < 0]
        if not len(several):
            break
        fewer = shown & without[several].all(0)
        if len(several) > 1 and worth(torch.stack([shown, fewer]), len(several))[0] >= 0:
            fewer = without[several[0]]
        shown = fewer
    return shown


def evenly(rows: int, most: int) -> NDArray[np.int64]:
    """At most so many rows, spread over all."""
    return np.linspace(0, rows - 1, min(rows, most)).astype(np.int64)


def better_kind(
    context: Sequence[Candidate],
    row: Sequence[Candidate],
    fixed: Sequence[Candidate],
    features: int,
) -> Kind:
    """Whether to choose by context or for each row, by what held-out rows say at several prices.

    A choice by context tells nothing beyond what is shown, so it is kept unless too much is lost:

    - at the lowest price its log-likelihood is worse by more than the price of `WORTH` features,
      and by more than two standard errors; or
    - of what choosing for each row gains over the best single set for all, prices paid, it has less
      than a `SHARE`, surely (by two standard errors): the mean over the prices at which it shows
      anything.

    context, row, fixed : the same prices in each; ``fixed`` is the best single set for all rows.
    """
    least = int(np.argmin([own.sparsity for own in context]))
    lost, error = gain_of(row[least].logliks - context[least].logliks)
    price = context[least].sparsity / features
    if lost > max(WORTH * price, 2 * error):
        return "row"
    shown = [i for i, own in enumerate(context) if own.fraction > 0]
    if not shown:
        return "context"
    gained, has = (
        np.mean([_gains(kind[i], fixed[i]) for i in shown], axis=0) for kind in (row, context)
    )
    missing, error = gain_of(SHARE * gained - has)
    return "row" if gained.mean() > LITTLE and missing > 2 * error else "context"


def _gains(own: Candidate, other: Candidate) -> NDArray[np.float64]:
    """Nats of one choice over another at the same price, prices paid, for each row."""
    paid = own.sparsity * (own.fraction - other.fraction)
    gains: NDArray[np.float64] = own.logliks - other.logliks - paid
    return gains
