"""Predict from sets of features: many sets of many rows at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from unmasked.networks.tables import TableSet
from unmasked.shapes import Float

LEAST = 1e-7
"""The smallest probability whose logarithm is taken."""
_NUMBERS = 2**26  # of what is held at once
_HEAD = 200  # numbers that a head holds for each set, about
_NARROW, _SHARE = 30, 0.15  # of more features than that, such a share is hidden at once


class SetPredictor(nn.Module):
    """The mean of several `TableSet` networks, as one network and as a function of sets.

    ``index[c]`` is the feature that matrix column c belongs to. In front of its head such a network
    adds up one term for each shown feature, so the terms of a row are computed once for all sets.
    """

    _order: Tensor  # the inputs of a network, those of one feature beside each other

    def __init__(self, members: Sequence[TableSet], index: Sequence[int]) -> None:
        super().__init__()
        self.members = cast(Sequence[TableSet], nn.ModuleList(members))
        *_, last = (own for own in members[0].head.modules() if isinstance(own, nn.Linear))
        each = members[0].join.out_features + _HEAD + last.out_features
        self.width = len(members) * each  # numbers held for one set of one row, about
        self.index = tuple(index)
        self.features = max(index) + 1
        owner = torch.tensor(self.index, device=members[0].owner.device)[members[0].owner]
        self.register_buffer("_order", owner.argsort(stable=True), persistent=False)
        self._counts = owner.bincount(minlength=self.features).tolist()

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch classes"]:
        """Logits of the mean of the members' probabilities."""
        logits = torch.stack([member(x) for member in self.members])
        return torch.logsumexp(logits.log_softmax(-1), 0) - math.log(len(self.members))

    def terms(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, "members rows features n"]:
        """Compute the term that each feature of each row adds, where shown, before the head."""
        found = []
        for member in self.members:
            inputs = member.inputs(x, torch.ones_like(x))[:, self._order]
            weight = member.join.weight.T[self._order]  # (inputs, n)
            parts = zip(
                torch.split(inputs, self._counts, 1), torch.split(weight, self._counts), strict=True
            )
            found.append(torch.stack([own @ several for own, several in parts], dim=1))
        return torch.stack(found)

    def read(self, sums: Float[Tensor, "members rows n"]) -> Float[Tensor, "rows classes"]:
        """Probabilities from the sums of the shown features' terms."""
        each = [
            member.head(own + member.join.bias).softmax(-1)
            for member, own in zip(self.members, sums, strict=True)
        ]
        return torch.stack(each).mean(0)

    def rows_at_once(self, sets: int) -> int:
        """Return the number of rows that memory allows at once, each asked about so many sets."""
        return max(1, _NUMBERS // (self.width * max(sets, self.features)))


def closeness(
    full: Float[Tensor, "*rows classes"], shown: Float[Tensor, "*rows classes"]
) -> Float[Tensor, "*rows"]:
    """−KL(full ‖ shown): 0 where nothing is lost by hiding the rest."""
    full = full.clamp_min(LEAST)
    return (full * (shown.clamp_min(LEAST).log() - full.log())).sum(-1)


@torch.no_grad()
def everything_shown(
    predictor: SetPredictor, x: Float[Tensor, "rows columns"]
) -> Float[Tensor, "rows classes"]:
    """Probabilities from all features."""
    masks = torch.ones(len(x), predictor.features, dtype=torch.bool, device=x.device)
    return shown_alone(predictor, x, masks)


@torch.no_grad()
def shown_alone(
    predictor: SetPredictor,
    x: Float[Tensor, "rows columns"],
    masks: Tensor,  # (rows, features) bool
) -> Float[Tensor, "rows classes"]:
    """Probabilities from what a mask for each row shows."""
    size = predictor.rows_at_once(1)
    found = []
    for rows, own in zip(batches(x, size), batches(masks, size), strict=True):
        found.append(predictor.read(summed(predictor.terms(rows), own)))
    return torch.cat(found)


def summed(terms: Tensor, masks: Tensor) -> Float[Tensor, "members rows n"]:
    """The terms of what a mask for each row shows, (rows, features), added up."""
    return torch.einsum("mrfn,rf->mrn", terms, masks.to(terms.dtype))


@torch.no_grad()
def set_values(
    predictor: SetPredictor,
    x: Float[Tensor, "rows columns"],
    sets: Tensor,  # (sets, features) bool
) -> Float[Tensor, "rows sets"]:
    """Return for each row how near each set brings the prediction to that from everything."""
    parts = [x.new_zeros(0, len(sets))]
    for rows in batches(x, predictor.rows_at_once(len(sets))):
        terms = predictor.terms(rows)
        full = predictor.read(terms.sum(2))
        parts.append(closeness(full[:, None], _answers(predictor, terms, sets)))
    return torch.cat(parts)


@torch.no_grad()
def log_likelihoods(
    predictor: SetPredictor,
    x: Float[Tensor, "rows columns"],
    target: Float[Tensor, "rows classes"],
    sets: Tensor,  # (sets, features) bool
) -> Float[Tensor, "rows sets"]:
    """Of the targets, from what each set shows."""
    size = predictor.rows_at_once(len(sets))
    parts = [x.new_zeros(0, len(sets))]
    for rows, own in zip(batches(x, size), batches(target, size), strict=True):
        answers = _answers(predictor, predictor.terms(rows), sets)
        parts.append((own[:, None] * answers.clamp_min(LEAST).log()).sum(-1))
    return torch.cat(parts)


def _answers(
    predictor: SetPredictor, terms: Tensor, sets: Tensor
) -> Float[Tensor, "rows sets classes"]:
    """Probabilities from what each set shows."""
    shown = torch.einsum("mrfn,sf->mrsn", terms, sets.to(terms.dtype))
    members, count, several, width = shown.shape
    answers = predictor.read(shown.reshape(members, count * several, width))
    return answers.view(count, several, -1)


def batches(x: Tensor, size: int) -> Iterator[Tensor]:
    """Rows in parts of at most ``size``."""
    return (x[start : start + size] for start in range(0, len(x), size))


@torch.no_grad()
def paths(predictor: SetPredictor, x: Float[Tensor, "rows columns"]) -> Tensor:
    """Sets that lie on the way from nothing to everything and back, (sets, features) bool.

    For each row features are shown one after the other, each time the one that brings the
    prediction nearest to that from everything, up to `_NARROW`; and hidden one after the other,
    each time the one that is missed least, which finds features that only mean something together.
    Of more than `_NARROW` a share is hidden at once. Each set comes once, those of most rows first.
    """
    features = predictor.features
    found = []
    for rows in batches(x, predictor.rows_at_once(features)):
        terms = predictor.terms(rows)  # (members, rows, features, n)
        full = predictor.read(terms.sum(2))
        steps = [1] * min(features, _NARROW)
        found.append(_walk(predictor, terms, full, steps, show=True))
        found.append(_walk(predictor, terms, full, _descent(features), show=False))
    return by_frequency(torch.cat(found))


def by_frequency(masks: Tensor) -> Tensor:
    """The different ones of masks (rows, features), the most frequent first.

    Of those that are as frequent the smaller come first, then those that came first: the order of
    the columns must not matter.
    """
    sets, place, counts = torch.unique(masks, dim=0, return_inverse=True, return_counts=True)
    rows = torch.arange(len(masks), device=masks.device)
    first = torch.full_like(counts, len(masks)).scatter_reduce(0, place, rows, "amin")
    order = first.argsort()
    order = order[sets[order].sum(1).argsort(stable=True)]
    return sets[order[counts[order].argsort(descending=True, stable=True)]]


@torch.no_grad()
def of_size(
    predictor: SetPredictor, x: Float[Tensor, "rows columns"], size: int
) -> tuple[Tensor, Float[Tensor, "rows features"]]:
    """For each row a set of so many features, and how much each of them is missed.

    The better of two: features hidden until so many are left, and, up to `_NARROW`, shown one after
    the other.
    """
    features = predictor.features
    masks, missed = [], []
    for rows in batches(x, predictor.rows_at_once(features)):
        terms = predictor.terms(rows)  # (members, rows, features, n)
        full = predictor.read(terms.sum(2))
        found = _walk(predictor, terms, full, _descent(features, size), show=False)[-len(rows) :]
        if size <= _NARROW and size < features:
            forth = _walk(predictor, terms, full, [1] * size, show=True)[-len(rows) :]
            worth = [closeness(full, predictor.read(summed(terms, own))) for own in (forth, found)]
            found = torch.where((worth[0] >= worth[1])[:, None], forth, found)
        masks.append(found)
        missed.append(_missed(predictor, terms, full, found))
    return torch.cat(masks), torch.cat(missed)


def _missed(
    predictor: SetPredictor, terms: Tensor, full: Tensor, masks: Tensor
) -> Float[Tensor, "rows features"]:
    """Return the closeness lost by hiding each of the shown features; 0 for the others."""
    members, count, features, width = terms.shape
    sums = summed(terms, masks)
    without = (sums.unsqueeze(2) - terms).reshape(members, count * features, width)
    values = closeness(full[:, None], predictor.read(without).view(count, features, -1))
    lost = closeness(full, predictor.read(sums))[:, None] - values
    return torch.where(masks, lost.clamp_min(0), 0)


def _descent(features: int, left: int = 0) -> list[int]:
    """Plan how many features to hide in each step until ``left`` stay: one of few, a share of many.

    >>> _descent(3), sum(_descent(1000)), len(_descent(1000)) < 60
    ([1, 1, 1], 1000, True)
    >>> sum(_descent(1000, 7)), sum(_descent(100, 99))
    (993, 1)
    """
    steps = []
    while features > left:
        several = 1 if features <= _NARROW else max(1, int(_SHARE * features))
        steps.append(min(several, features - left))
        features -= steps[-1]
    return steps


def _walk(
    predictor: SetPredictor, terms: Tensor, full: Tensor, steps: Sequence[int], *, show: bool
) -> Tensor:
    """Show (or hide) the best features, so many in each step: (rows × (steps + 1), features)."""
    members, count, features, width = terms.shape
    masks = torch.full((count, features), not show, device=terms.device)
    sums = torch.zeros_like(terms[:, :, 0]) if show else terms.sum(2)
    sign = 1 if show else -1
    passed = [masks.clone()]
    for several in steps:
        tried = (sums.unsqueeze(2) + sign * terms).reshape(members, count * features, width)
        values = closeness(full[:, None], predictor.read(tried).view(count, features, -1))
        values = values.masked_fill(masks if show else ~masks, -torch.inf)
        best = values.topk(several, dim=1).indices  # (rows, several)
        chosen = terms.gather(2, best[None, :, :, None].expand(members, -1, -1, width))
        sums = sums + sign * chosen.sum(2)
        masks.scatter_(1, best, show)
        passed.append(masks.clone())
    return torch.cat(passed)
