"""Choose one of many sets for each row, at a price for every feature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unmasked.search.values import SetPredictor, set_values
from unmasked.shapes import Float

_RARE = 1e-4  # share of the rows for which a set that is kept must be right
_LOOKED = 20  # iterations after which sets that are hardly used are left out
_SURE = 1e-3  # how far a chance of being shown stays from ½, at the least


@torch.no_grad()
def habits(
    utility: Float[Tensor, "rows sets"], price: float, steps: int = 300
) -> Float[Tensor, " sets"]:
    """How often to use each set, so that habit is worth ``price`` nats for each nat of surprise.

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
