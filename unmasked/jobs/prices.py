"""The price λ in words, for explanations by a saved model."""

from __future__ import annotations

from unmasked.explainers import RealX


def said_price(explainer: RealX, price: float) -> str:
    """λ, and whether it is the one that was chosen when the model was trained."""
    chosen = explainer.sparsity_
    return f"{price:g}" if price == chosen else f"{price:g} (not the chosen {chosen:g})"
