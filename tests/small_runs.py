"""Tiny training runs that the tests of the engine share, also from other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmasked.engine import Data, Method, Settings, Trained, Training, fit
from unmasked.masking import Token
from unmasked.masklaws import Bernoulli
from unmasked.networks import MLP
from unmasked.objectives import log_likelihood

torch.set_num_threads(1)  # networks this small only wait for a second thread

COLUMNS = 4
TINY = MLP(hidden=(6,), activation="tanh")
TINY_BATCH = MLP(hidden=(6,), activation="tanh", normalisation="batch")
SIX = Settings(sparsities=(0.0, 0.2, 1.0), seeds=(0, 1))
FAST = Training(epochs=10, batch_size=20, learning_rate=0.05, selector_learning_rate=0.02)


class Dropped(nn.Module):
    """A user's network with a random layer, which ``torch.vmap`` refuses."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 6), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        result: Tensor = self.last(nn.functional.dropout(hidden, 0.3, self.training))
        return result


def data(rows: int = 100, seed: int = 0) -> Data:
    """Labels that depend on x1·x2 and a little on x3; x4 means nothing."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, COLUMNS, dtype=torch.float64, generator=source)
    noise = 0.5 * torch.randn(rows, dtype=torch.float64, generator=source)
    label = (x[:, 0] * x[:, 1] + 0.5 * x[:, 2] + noise > 0).long()
    return Data(x, nn.functional.one_hot(label, 2).double())


def method(network: Any = TINY, *, predictor_first: bool = False, explains: bool = True) -> Method:
    return Method(
        Token(),
        Bernoulli(),
        predictor=network,
        selector=network if explains else None,
        predictor_first=predictor_first,
    )


def train(
    what: Method,
    settings: Settings = SIX,
    training: Training = FAST,
    path: Path | None = None,
    rows: int = 100,
) -> Trained:
    """Fit in double precision on the CPU, where equal means equal."""
    return fit(
        what,
        settings,
        data(rows),
        data(400, seed=1),
        training,
        device="cpu",
        dtype=torch.float64,
        path=path,
        show=False,
    )


def numbers(networks: list[nn.Module]) -> list[dict[str, Tensor]]:
    """Parameters and buffers of each network."""
    return [network.state_dict() for network in networks]


def score_by_hand(predictor: nn.Module, selector: nn.Module, sparsity: float, rows: Data) -> float:
    """mean log q(y | x_s) − λ · fraction shown, with ordinary modules and no engine."""
    with torch.no_grad():
        mask = (selector(rows.x) > 0).double()
        shown = torch.cat([rows.x * mask, mask], 1)
        value = log_likelihood(predictor(shown), rows.target).mean() - sparsity * mask.mean()
    return float(value)
