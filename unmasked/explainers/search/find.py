"""Find sets: selectors at several prices, which kind to keep, what could stand in for a feature."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmasked.explainers.path import Candidate, choose
from unmasked.explainers.search.choice import (
    GAIN,
    ContextChoice,
    Questions,
    RowChoice,
    Split,
    Tree,
    chances_of,
    grow,
    prune,
    refine,
    renumbered,
    route,
    sets_of,
)
from unmasked.explainers.search.values import (
    LEAST,
    SetPredictor,
    batches,
    log_likelihoods,
    paths,
    set_values,
    summed,
)
from unmasked.metrics import gain_of
from unmasked.shapes import Float

Kind = Literal["context", "row"]
KINDS: tuple[Kind, ...] = ("context", "row")
MOST_SETS = 300
"""Sets that are chosen from."""
PLACED = 20_000
"""Rows whose targets say where a tree's thresholds lie and what of its sets pays, at the most."""
_SEARCHED, _VALUED = 1000, 4000  # rows
_NARROW = 30  # features; of wider tables fewer rows are searched, as each takes longer
_THINNED, _LEAST = 300_000, 2000  # rows × sets that say what is missed; rows at the least
_SHARE = 0.05  # of the features that are shown: so many may be dropped at once
PROVEN = 0.02
"""Nats that are lost rather than to choose in a way that may give something away.

A predictor is 0.01 nats from the truth, and a search for each row finds what suits its faults.
"""
_ONE_SIDED = 1.645  # standard errors that a normal distribution exceeds in 5% of draws
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
    tree: Tree,
    predictor: SetPredictor,
    x: Tensor,
    target: Tensor,
    sets: Tensor,
    price: float,
    asked: frozenset[int] = frozenset(),
) -> tuple[Tree, Tensor]:
    """The tree without what does not pay by the targets of held-out rows, and its own sets.

    A predictor believes in what it has overfitted to; these rows do not. What was asked about on
    the way to a leaf stays, or the choice would not follow from what is shown; a question goes,
    from the leaves up, where one set for both sides is as good within a standard error.
    """
    if isinstance(tree, int):
        return 0, _thin(predictor, x, target, sets[tree], asked, price)[None]
    low = x[:, tree.column] < tree.threshold
    feature = predictor.index[tree.column]
    (one, own), (other, more) = (
        thinned(side, predictor, x[here], target[here], sets, price, asked | {feature})
        for side, here in ((tree.low, low), (tree.high, ~low))
    )
    kept = Split(tree.column, tree.threshold, one, renumbered(other, len(own)))
    found = torch.cat([own, more])
    single = _thin(predictor, x, target, found.any(0), asked, price)
    tried = torch.cat([found, single[None]])
    utility = log_likelihoods(predictor, x, target, tried).double() - price * tried.sum(1)
    gains = utility.gather(1, route(kept, x)[:, None]).squeeze(1) - utility[:, -1]
    gain, error = gain_of(gains.cpu().numpy()) if len(x) else (0.0, 0.0)
    return (kept, found) if gain > error else (0, single[None])


def _thin(
    predictor: SetPredictor,
    x: Tensor,
    target: Tensor,
    shown: Tensor,
    fixed: Collection[int],
    price: float,
) -> Tensor:
    """Drop the feature that is missed least, as long as it is worth less than its price.

    Of many a share is dropped at once where it is not missed together either.
    """

    def worth(sets: Tensor, hidden: int) -> NDArray[np.float64]:
        """Of showing all, beyond each other set, which hides so many more: below 0 it goes."""
        some = evenly(len(x), max(_LEAST, _THINNED // len(sets)))
        means = log_likelihoods(predictor, x[some], target[some], sets).double().mean(0)
        found: NDArray[np.float64] = (means[0] - means[1:] - hidden * price).cpu().numpy()
        return found

    while len(x):
        loose = [int(j) for j in shown.nonzero() if int(j) not in fixed]
        if not loose:
            break
        without = shown.repeat(len(loose), 1)
        without[range(len(loose)), loose] = False
        paid = worth(torch.cat([shown[None], without]), 1)
        several = paid.argsort(kind="stable")[: max(1, int(_SHARE * len(loose)))]
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


def better_kind(context: list[Candidate], row: list[Candidate]) -> Kind:
    """Choose between a choice by context and one for each row, by what held-out rows say.

    Of each kind the sparsest setting within one standard error of the best is looked at. A choice
    by context tells nothing beyond what is shown, so it is kept unless the other is better by more
    than `PROVEN`, and surely better (one-sided, 95%), after both pay for what they show, at the
    lowest price that was tried.
    """
    own, other = (kind[choose(kind, "one-standard-error")[0]] for kind in (context, row))
    price = min(tried.sparsity for tried in context)
    paid = price * (other.fraction - own.fraction)
    gain, error = gain_of(other.logliks - own.logliks - paid)
    return "row" if gain > max(PROVEN, _ONE_SIDED * error) else "context"


_OFTEN = 0.1  # share of the rows: what is shown in fewer is not asked about
_ROWS = 500  # for each feature, at most
_LEAST_ROWS = 30


@torch.no_grad()
def interchangeable(
    predictor: SetPredictor,
    x: Float[Tensor, "rows columns"],
    target: Float[Tensor, "rows classes"],
    masks: Tensor,  # (rows, features) bool
) -> dict[int, list[int]]:
    """For features that are often shown, those that could be shown instead, the best first.

    Held-out rows judge, by the log-likelihood of ``target``: j can stand for i where, over the rows
    that show i and not j, hiding i surely loses something (by two standard errors, and at least
    `LITTLE` nats), and showing j in its place loses, a standard error added, at most `LITTLE` nats
    or a quarter of that, and less than half of it.
    """
    found: dict[int, list[int]] = {}
    for i in (masks.float().mean(0) >= _OFTEN).nonzero().flatten().tolist():
        rows = masks[:, i].nonzero().flatten()
        rows = rows[evenly(len(rows), _ROWS)]
        hidden, lost = _losses(predictor, x[rows], target[rows], masks[rows], i)
        missed, error = gain_of(hidden.numpy())
        if len(rows) < _LEAST_ROWS or missed <= max(2 * error, LITTLE):
            continue
        able: dict[int, float] = {}
        for j in range(masks.shape[1]):
            free = ~masks[rows, j].cpu()
            if int(free.sum()) < max(_LEAST_ROWS, len(rows) // 2):
                continue
            loss, error = gain_of(lost[free, j].numpy())
            if loss + error <= max(LITTLE, missed / 4) and loss < missed / 2:
                able[j] = loss
        if able:
            found[i] = sorted(able, key=able.__getitem__)
    return found


def _losses(
    predictor: SetPredictor, x: Tensor, target: Tensor, masks: Tensor, i: int
) -> tuple[Tensor, Tensor]:
    """In nats: of hiding feature i, (rows,), and of showing each other in its place."""
    hidden, instead = [], []
    size = predictor.rows_at_once(masks.shape[1])
    parts = zip(batches(x, size), batches(target, size), batches(masks, size), strict=True)
    for rows, own, shown in parts:
        terms = predictor.terms(rows)  # (members, rows, features, n)
        whole = summed(terms, shown)
        without = (whole - terms[:, :, i])[:, :, None]
        sums = torch.cat([whole[:, :, None], without, without + terms], 2)
        members, count, sets, width = sums.shape
        answers = predictor.read(sums.reshape(members, count * sets, width))
        answers = answers.view(count, sets, -1).clamp_min(LEAST)
        loglik = (own[:, None] * answers.log()).sum(-1).double()
        lost = loglik[:, :1] - loglik[:, 1:]
        hidden.append(lost[:, 0])
        instead.append(lost[:, 1:])
    return torch.cat(hidden).cpu(), torch.cat(instead).cpu()
