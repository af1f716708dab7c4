"""Choose a set: the best for each row, or a tree that asks only about what its leaves show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from unmasked.explainers.search.values import SetPredictor, set_values
from unmasked.shapes import Float

_RARE = 1e-4  # share of the rows for which a set that is kept must be right
_LOOKED = 20  # iterations after which sets that are hardly used are left out
_SURE = 1e-3  # how far a chance of being shown stays from ½, at the least


@torch.no_grad()
def habits(
    utility: Float[Tensor, "rows sets"], price: float, steps: int = 300
) -> Float[Tensor, " sets"]:
    """Weigh sets by use, so that habit is worth ``price`` nats for each nat of surprise.

    Maximises E[utility] − price · I(row; set) by Blahut's and Arimoto's iteration: of sets that
    are equally good for a row the usual one is taken, and rows differ only where that pays.
    """
    weights = torch.full_like(utility[0], 1 / utility.shape[1])
    used = torch.arange(utility.shape[1], device=utility.device)
    shares, scores = weights, utility / price
    for step in range(1, steps + 1):
        before, shares = shares, torch.softmax(scores + shares.log(), dim=1).mean(0)
        if step % _LOOKED == 0:
            settled = bool((shares - before).abs().max() < _RARE / 100)
            more = shares > _RARE / 10
            used, shares, scores = used[more], shares[more], scores[:, more]
            if settled:
                break
    weights = torch.zeros_like(weights).index_copy(0, used, shares)
    weights = torch.where(weights > _RARE, weights, 0.0)
    return weights / weights.sum()


class RowChoice(nn.Module):
    """For each row the set that is worth most: a selector, (batch, columns) -> feature logits.

    A set is worth −KL(p(y | x) ‖ q(y | x_set)) − price · size + price · log habit. The logit of a
    feature is positive where it is shown; its chance is how much of the sets that are nearly as
    good show it.

    The predictor is shared with others: it moves along, but is not saved as a part of this.
    """

    sets: Tensor
    bonus: Tensor
    price: Tensor

    def __init__(self, predictor: SetPredictor, sets: Tensor, bonus: Tensor, price: float) -> None:
        super().__init__()
        self._shared = [predictor]
        self.register_buffer("sets", sets)  # (sets, features) bool
        self.register_buffer("bonus", bonus)  # (sets,), what a set is worth to every row
        self.register_buffer("price", torch.tensor(price))

    @classmethod
    def learn(
        cls, predictor: SetPredictor, sets: Tensor, values: Float[Tensor, "rows sets"], price: float
    ) -> RowChoice:
        """From the values of sets for rows that the predictor did not learn from."""
        cost = price * sets.sum(1)
        weights = habits(values - cost, price)
        kept = weights > 0
        return cls(predictor, sets[kept], (price * weights.log() - cost)[kept].cpu(), price)

    def _apply(self, fn: Any, recurse: bool = True) -> RowChoice:
        self._shared[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch features"]:
        """Logits of being shown; their signs are the set that is chosen."""
        worth = set_values(self._shared[0], x, self.sets) + self.bonus
        shown = self.sets[worth.argmax(1)]
        chances = torch.softmax(worth / self.price, dim=1) @ self.sets.to(x.dtype)
        return signed_logits(shown, chances)


def signed_logits(
    shown: Tensor, chances: Float[Tensor, "batch features"]
) -> Float[Tensor, "batch features"]:
    """Chances of being shown as logits, on the right side of ½."""
    sure = chances.clamp(_SURE, 1 - _SURE)
    sided = torch.where(shown, sure.clamp_min(0.5 + _SURE), sure.clamp_max(0.5 - _SURE))
    return torch.logit(sided)


_BINS = 32  # at most so many answers to a question
_LEAVES = 16
_LEAST = 0.02  # of the rows in a leaf
GAIN = 0.25  # prices of a feature that a split must bring, for each row of the table
_WINDOW = 0.05  # of the rows, on either side of a threshold that is moved


@dataclass(frozen=True)
class Questions:
    """Questions that may be asked: each column of the matrix, cut at thresholds.

    features : the feature of each column, (columns,).
    answers : (rows, columns), the number of thresholds that lie below or at the value.
    """

    features: Tensor
    thresholds: tuple[Tensor, ...]
    answers: Tensor
    hot: Tensor = field(repr=False)  # (rows, all columns' answers), where an answer is
    column: Tensor = field(repr=False)  # (all columns' answers,), whose answer it is

    @classmethod
    def about(cls, x: Float[Tensor, "rows columns"], index: Sequence[int]) -> Questions:
        """About every column of the matrix; ``index`` has the feature of each."""
        thresholds = tuple(_thresholds(x[:, column]) for column in range(x.shape[1]))
        answers = torch.stack(
            [
                torch.bucketize(x[:, column].contiguous(), own, right=True)
                for column, own in enumerate(thresholds)
            ],
            dim=1,
        )
        bins = torch.tensor([len(own) + 1 for own in thresholds], device=x.device)
        column = torch.arange(x.shape[1], device=x.device).repeat_interleave(bins)
        hot = torch.zeros(len(x), len(column), device=x.device)
        hot.scatter_(1, answers + bins.cumsum(0) - bins, 1.0)
        return cls(torch.tensor(index, device=x.device), thresholds, answers, hot, column)

    def up_to(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values of each answer, summed up to it, and over all answers to its question."""
        sums = torch.cat([values.new_zeros(1, *values.shape[1:]), values]).double().cumsum(0)
        ends = self.column.bincount().cumsum(0)
        starts = ends - self.column.bincount()
        before = sums[starts][self.column]
        return (sums[1:] - before).to(values), (sums[ends][self.column] - before).to(values)


def _thresholds(values: Float[Tensor, " rows"]) -> Tensor:
    """Between the values, or at quantiles where there are many."""
    different = torch.unique(values)
    if len(different) <= _BINS:
        return (different[1:] + different[:-1]) / 2
    ranks = torch.linspace(0, len(values) - 1, _BINS + 1, device=values.device)
    return torch.unique(values.sort().values[ranks.long()[1:-1]])


@dataclass(frozen=True)
class Split:
    """A question: rows whose value lies below the threshold go one way, the others the other."""

    column: int
    threshold: float
    low: Tree
    high: Tree


Tree: TypeAlias = "Split | int"
"""A question, or the number of the set that a leaf shows."""


@dataclass
class _Leaf:
    """A leaf of a tree that grows; when it is split it says how."""

    rows: Tensor  # (rows,) bool
    allowed: Tensor  # (sets,) bool: those that show all that was asked on the way
    chosen: int = 0
    total: float = 0.0  # utility of the chosen set, summed over the rows
    gain: float = 0.0  # what the best split adds to it
    split: tuple[int, int] = (0, 0)  # of that: the column, and the answer up to which rows go left
    children: tuple[_Leaf, _Leaf] | None = None


@torch.no_grad()
def grow(
    questions: Questions, utility: Float[Tensor, "rows sets"], sets: Tensor, price: float
) -> Tree:
    """Split where it pays most, as long as it pays: leaves that each show one set.

    utility : of each set for each row, its price included. A split counts only sets that show the
    feature it asks about, so that the choice follows from what is shown.
    """
    rows = torch.ones(len(utility), dtype=torch.bool, device=utility.device)
    allowed = torch.ones(len(sets), dtype=torch.bool, device=utility.device)
    root = _leaf(rows, allowed, questions, utility, sets)
    leaves = [root]
    while len(leaves) < _LEAVES:
        leaf = max(leaves, key=lambda own: own.gain)
        if leaf.gain < GAIN * price * len(utility):
            break
        column, answer = leaf.split
        low = questions.answers[:, column] <= answer
        allowed = leaf.allowed & sets[:, questions.features[column]]
        one, other = (
            _leaf(leaf.rows & side, allowed, questions, utility, sets) for side in (low, ~low)
        )
        leaf.children = one, other
        leaves = [own for own in leaves if own is not leaf] + [one, other]
    return _tree(root, questions)


def _leaf(
    rows: Tensor, allowed: Tensor, questions: Questions, utility: Tensor, sets: Tensor
) -> _Leaf:
    """Rows with the set that is best for them, and their best split."""
    own = utility[rows]
    total, chosen = own.sum(0).masked_fill(~allowed, -torch.inf).max(0)
    leaf = _Leaf(rows, allowed, int(chosen), float(total))
    least = max(int(_LEAST * len(rows)), 20)
    if len(own) < 2 * least:
        return leaf
    hot = questions.hot[rows]  # (rows, places)
    sums, whole = questions.up_to(hot.T @ own)  # (answers, sets)
    count, every = questions.up_to(hot.sum(0))
    fits = (count >= least) & (every - count >= least)
    hidden = ~(allowed & sets[:, questions.features[questions.column]].T)  # (answers, sets)
    left = sums.masked_fill(hidden, -torch.inf).amax(-1)
    right = (whole - sums).masked_fill(hidden, -torch.inf).amax(-1)
    gain, place = (left + right - leaf.total).masked_fill(~fits, -torch.inf).max(0)
    column = int(questions.column[place])
    answer = int((questions.column[:place] == column).sum())
    leaf.gain, leaf.split = float(gain), (column, answer)
    return leaf


def _tree(leaf: _Leaf, questions: Questions) -> Tree:
    if leaf.children is None:
        return leaf.chosen
    column, answer = leaf.split
    low, high = (_tree(own, questions) for own in leaf.children)
    return Split(column, float(questions.thresholds[column][answer]), low, high)


def sets_of(tree: Tree) -> set[int]:
    """The numbers of the sets that a tree shows."""
    return {tree} if isinstance(tree, int) else sets_of(tree.low) | sets_of(tree.high)


def route(tree: Tree, x: Float[Tensor, "rows columns"]) -> Tensor:
    """The number of the set that each row shows, (rows,)."""
    if isinstance(tree, int):
        return torch.full((len(x),), tree, device=x.device)
    low = x[:, tree.column] < tree.threshold
    return torch.where(low, route(tree.low, x), route(tree.high, x))


def refine(tree: Tree, x: Float[Tensor, "rows columns"], utility: Tensor) -> Tree:
    """Move each threshold to where the rows near it want it, from the root down.

    utility : (rows, sets), of the tree's sets at least.
    """
    if isinstance(tree, int) or len(x) < 40:
        return tree
    values, order = x[:, tree.column].sort()
    at = int((values < tree.threshold).sum())
    reach = max(10, int(_WINDOW * len(x)))
    start, stop = max(1, at - reach), min(len(x) - 1, at + reach)
    sides = [
        utility.gather(1, route(side, x)[:, None]).squeeze(1) for side in (tree.low, tree.high)
    ]
    # worth of a cut before each place: what lies below it is better off below
    worth = (sides[0] - sides[1])[order].cumsum(0)[start - 1 : stop]
    between = values[start - 1 : stop] < values[start : stop + 1]
    threshold = tree.threshold
    if between.any():
        place = start + int(worth.masked_fill(~between, -torch.inf).argmax())
        threshold = float((values[place - 1] + values[place]) / 2)
    low = x[:, tree.column] < threshold
    return Split(
        tree.column,
        threshold,
        refine(tree.low, x[low], utility[low]),
        refine(tree.high, x[~low], utility[~low]),
    )


def prune(tree: Tree, x: Float[Tensor, "rows columns"], utility: Tensor, least: float) -> Tree:
    """Undo splits, from the leaves up, that gain less than ``least`` over the best single set."""
    if isinstance(tree, int):
        return tree
    low = x[:, tree.column] < tree.threshold
    kept = Split(
        tree.column,
        tree.threshold,
        prune(tree.low, x[low], utility[low], least),
        prune(tree.high, x[~low], utility[~low], least),
    )
    own = sorted(sets_of(kept))
    total, best = utility[:, own].sum(0).max(0)
    gain = utility.gather(1, route(kept, x)[:, None]).sum() - total
    return own[int(best)] if gain < least else kept


class ContextChoice(nn.Module):
    """Leaves as a selector, (batch, columns) -> feature logits.

    What is shown alone decides which set is shown: the questions on the way to a leaf are about
    features that it shows. So the choice tells nothing beyond what is shown.
    """

    column: Tensor
    threshold: Tensor
    below: Tensor
    asked: Tensor
    logits: Tensor

    def __init__(self, leaves: int, depth: int, features: int) -> None:
        super().__init__()
        shape = (leaves, depth)
        self.register_buffer("column", torch.zeros(shape, dtype=torch.long))
        self.register_buffer("threshold", torch.zeros(shape))
        self.register_buffer("below", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("asked", torch.zeros(shape, dtype=torch.bool))
        self.register_buffer("logits", torch.zeros(leaves, features))

    @classmethod
    def of(cls, tree: Tree, sets: Tensor, chances: Tensor) -> ContextChoice:
        """From a tree; ``chances`` (leaves, features) order the features of each leaf."""
        leaves = leaves_of(tree)
        depth = max(1, *(len(asked) for asked, _ in leaves))
        made = cls(len(leaves), depth, sets.shape[1])
        for i, (asked, _) in enumerate(leaves):
            for j, (column, threshold, below) in enumerate(asked):
                made.column[i, j], made.threshold[i, j] = column, threshold
                made.below[i, j], made.asked[i, j] = below, True
        shown = sets[[chosen for _, chosen in leaves]].cpu()
        made.logits.copy_(signed_logits(shown, chances.cpu()))
        return made

    def forward(self, x: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch features"]:
        """Logits of being shown; their signs are the set of the row's leaf."""
        low = x[:, self.column] < self.threshold  # (batch, leaves, depth)
        inside = ((low == self.below) | ~self.asked).all(-1)
        return self.logits[inside.to(torch.uint8).argmax(1)]


Asked: TypeAlias = tuple[tuple[int, float, bool], ...]
"""(matrix column, threshold, whether below it) of each question on the way to a leaf."""


def leaves_of(tree: Tree, asked: Asked = ()) -> list[tuple[Asked, int]]:
    """List the leaves of a tree: the questions on the way to each and the number of its set."""
    if isinstance(tree, int):
        return [(asked, tree)]
    return [
        leaf
        for side, below in ((tree.low, True), (tree.high, False))
        for leaf in leaves_of(side, (*asked, (tree.column, tree.threshold, below)))
    ]


def inside(asked: Asked, x: Float[Tensor, "rows columns"]) -> Tensor:
    """Mark the rows that come to the leaf at the end of these questions, (rows,) bool."""
    here = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for column, threshold, below in asked:
        here &= (x[:, column] < threshold) == below
    return here


def renumbered(tree: Tree, first: int = 0) -> Tree:
    """Number the sets of a tree's leaves in their order, from ``first`` on; questions stay."""
    if isinstance(tree, int):
        return first
    low = renumbered(tree.low, first)
    high = renumbered(tree.high, first + len(leaves_of(tree.low)))
    return Split(tree.column, tree.threshold, low, high)


def flips(shown: Float[Tensor, " features"]) -> Float[Tensor, "features features"]:
    """A set with one feature shown or hidden, for each feature."""
    return shown ^ torch.eye(len(shown), dtype=torch.bool, device=shown.device)


def chances_of(
    tree: Tree, predictor: SetPredictor, x: Tensor, sets: Tensor, price: float
) -> Float[Tensor, "leaves features"]:
    """Weigh what showing each feature gains in each leaf against its price: above ½ it pays."""
    found = []
    for asked, chosen in leaves_of(tree):
        tried = torch.cat([sets[chosen][None], flips(sets[chosen])])
        own, *others = set_values(predictor, x[inside(asked, x)], tried).mean(0).nan_to_num(0.0)
        change = torch.stack(others) - own
        gain = torch.where(sets[chosen], -change, change).clamp_min(0)
        found.append(gain / (gain + price))
    return torch.stack(found)
