"""What is done where nobody says otherwise: one recipe, and what of it depends on the table."""

from __future__ import annotations

from dataclasses import replace

from unmasked.engine import Training
from unmasked.networks import SetMLP

NETWORK = SetMLP(inner=16, embedding=128, activation="gelu", bins=True)
"""What learns from random masks of a table."""
TRAINING = Training(learning_rate=1e-2, weight_decay=0.3)
"""How `NETWORK` is trained."""
MEMBERS = 4
"""Networks whose mean predicts."""
NARROW, SCREENED = 30, 200
"""Features up to which a search drops none, and how many it looks at, at the most."""
ROUNDS = 4
"""How often a search drops features and learns again, at the most."""


def training(asked: Training | None) -> Training:
    """How to train `NETWORK`: as asked, or by the recipe with as many epochs as asked."""
    options = asked or Training()
    only_epochs = options == Training(epochs=options.epochs)
    return replace(TRAINING, epochs=options.epochs) if only_epochs else options
