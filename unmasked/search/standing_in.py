"""Which hidden feature says as much as one that is shown: another seed may take either."""

from __future__ import annotations

import torch
from torch import Tensor

from unmasked.metrics import gain_of
from unmasked.search.find import LITTLE, evenly
from unmasked.search.values import LEAST, SetPredictor, batches, summed
from unmasked.shapes import Float

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
