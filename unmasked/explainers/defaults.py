"""Hold the defaults of training and evaluation: one recipe, and what of it depends on the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked.masks.samplers import BernoulliSampler, RebarBernoulli
from unmasked.metrics import gain_of
from unmasked.networks.tables import MLP, Factory, SetMLP
from unmasked.training import Training

NETWORK = SetMLP(inner=16, embedding=128, activation="gelu", bins=True)
"""What learns from random masks of a table."""
TRAINING = Training(learning_rate=1e-2, weight_decay=0.3)
"""How `NETWORK` is trained on few rows."""
MANY_ROWS, DECAY = 5000, 0.1
"""With more rows to learn from than the first its weights decay by the second."""
SAMPLER: BernoulliSampler = RebarBernoulli()
"""What a selector learns by, where one is trained."""
MEMBERS = 4
"""Networks whose mean predicts."""
NARROW, SCREENED = 30, 200
"""Features up to which a search drops none, and how many it looks at, at the most."""
ROUNDS = 4
"""How often a search drops features and learns again, at the most."""
SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the boosted trees in what EVAL-X says, beside the networks."""
DOUBTS = (0.05, 0.1, 0.2, 0.4)
"""Of the class shares in what EVAL-X says, where it is too sure."""
LEAST_GAIN = 0.002
"""Nats on validation rows for which boosted trees, or doubts, are worth having."""
COPIES = 20
"""Masked copies of each row that boosted trees learn from, at most."""
_MANY_INPUTS, _MOST_INPUTS = 1000, 3000  # of `NETWORK`: fewer members, another network
_MOST_WORK = 64_000_000  # numbers that one more tree of each class looks at: half a second
_TREE = 4096  # rows that take as long as what a tree does however few there are


def training(asked: Training | None, rows: int) -> Training:
    """Say how to train `NETWORK`: as asked, or by the recipe with as many epochs as asked.

    rows : to learn from. Few are easily learned by heart, so decay must be strong; with many it
        would hide what they say.

    >>> training(None, 5000).weight_decay, training(None, 5001).weight_decay
    (0.3, 0.1)
    """
    options = asked or Training()
    if options != Training(epochs=options.epochs):
        return options
    recipe = TRAINING if rows <= MANY_ROWS else replace(TRAINING, weight_decay=DECAY)
    return replace(recipe, epochs=options.epochs)


def networks(inputs: int) -> tuple[Factory, int]:
    """Choose the network that learns p(y | what is shown), and how many: minutes on two cores.

    inputs : numbers that `NETWORK` would add up for a row (`networks.set_inputs`).

    >>> networks(200)[1], networks(2000)[1], networks(20_000)[0] == MLP()
    (4, 2, True)
    """
    if inputs > _MOST_INPUTS:
        return MLP(), MEMBERS // 2
    return NETWORK, MEMBERS if inputs <= _MANY_INPUTS else MEMBERS // 2


def boosting() -> HistGradientBoostingClassifier:
    """The boosted trees that are tried beside the networks; they stop on validation rows."""
    return HistGradientBoostingClassifier(
        max_iter=300, min_samples_leaf=40, l2_regularization=1.0, early_stopping=True
    )


def copies(rows: int, columns: int, classes: int) -> int:
    """Return how many masked copies of each row boosted trees learn from; 0: they take too long.

    >>> copies(10_000, 11, 2), copies(300_000, 50, 2), copies(10_000, 11, 2_000)
    (20, 4, 0)
    """
    most = _MOST_WORK * _TREE // tree_work(0, columns, classes) - _TREE  # rows
    return int(min(COPIES, max(0, most) // rows))


def tree_work(rows: int, columns: int, classes: int) -> int:
    """Count the numbers an iteration of boosting looks at, a tree for each class of several."""
    return (classes if classes > 2 else 1) * columns * (rows + _TREE)


def share(gains: Mapping[float, NDArray[np.float64]]) -> float:
    """Return the best share of EVAL-X to give to something else, or 0 where none surely helps.

    gains : for each share the log-likelihoods of validation rows (rows,), less those without it.
        The best must gain more than one standard error, and than `LEAST_GAIN`.
    """
    best = max(gains, key=lambda own: float(gains[own].mean()))
    gain, error = gain_of(gains[best])
    return best if gain > max(error, LEAST_GAIN) else 0.0
