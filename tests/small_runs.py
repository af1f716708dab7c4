"""Tiny training runs that the tests of the engine share, also from other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmasked.masks.distributions import Bernoulli
from unmasked.masks.maskers import Token
from unmasked.networks.tables import MLP
from unmasked.training import Data, Method, Settings, Trained, Training, fit, methods
from unmasked.training.methods import log_likelihood

torch.set_num_threads(1)  # networks this small only wait for a second thread

COLUMNS = 4
TINY = MLP(hidden=(6,), activation="tanh")
TINY_BATCH = MLP(hidden=(6,), activation="tanh", normalisation="batch")
SIX = Settings(levels=(0.0, 0.2, 1.0), seeds=(0, 1))
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
    """REAL-X, or the predictor alone (EVAL-X)."""
    if not explains:
        return methods.eval_x(Token(), Bernoulli(), network)
    return methods.real_x(Token(), Bernoulli(), network, network, predictor_first=predictor_first)


def exchanged(network: Any = TINY, *, predictor_first: bool = False) -> Method:
    """REAL-X whose predictor learns from other rows' selections too."""
    return methods.real_x(
        Token(), Bernoulli(), network, network, predictor_first=predictor_first, exchange=True
    )


# Every composition with levels that suit it: prices, numbers of features, subsets, explanations.
METHODS: dict[str, tuple[Callable[[Any], Method], tuple[float, ...]]] = {
    "REAL-X": (method, (0.0, 0.2, 1.0)),
    "REAL-X-STEP": (lambda net: method(net, predictor_first=True), (0.0, 0.2, 1.0)),
    "REAL-X, exchanged": (lambda net: exchanged(net), (0.0, 0.2, 1.0)),
    "BASE-X": (lambda net: methods.base_x(Token(), net, net), (0.0, 0.2, 1.0)),
    "INVASE": (lambda net: methods.invase(Token(), net, net), (0.0, 0.2, 1.0)),
    "L2X": (lambda net: methods.l2x(Token(), net, net, 3, 0.5), (1, 2, 3)),
    "EVAL-X": (lambda net: method(net, explains=False), (0.0,)),
    "FULL": (lambda net: methods.full(Token(), net), (0.0,)),
    "ROAR": (lambda net: methods.roar(Token(), net), (0, 1, 2)),
    "subsets": (lambda net: methods.subsets(Token(), net), (0, 5, 15)),
}


def data_for(name: str, rows: int = 100, seed: int = 0) -> Data:
    """Rows for one of METHODS; ROAR's come with as many explanations as it has levels."""
    plain = data(rows, seed)
    if name != "ROAR":
        return plain
    source = torch.Generator().manual_seed(1000 + seed)
    return replace(plain, masks=torch.rand(3, rows, COLUMNS, generator=source) < 0.5)


def cut(rows: Data, level: int) -> Data:
    """The same rows for one level alone, with its own explanation if there are any."""
    return rows if rows.masks is None else replace(rows, masks=rows.masks[level : level + 1])


def train(
    what: Method,
    settings: Settings = SIX,
    training: Training = FAST,
    path: Path | None = None,
    rows: int = 100,
    learn: Any = None,
    validate: Any = None,
    start: Any = None,
) -> Trained:
    """Fit in double precision on the CPU, where equal means equal."""
    return fit(
        what,
        settings,
        data(rows) if learn is None else learn,
        data(400, seed=1) if validate is None else validate,
        training,
        device="cpu",
        dtype=torch.float64,
        path=path,
        show=False,
        start=start,
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
