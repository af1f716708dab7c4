"""Explainers: learn to select features, explain in one forward pass."""

from unmasked.explainers.base import DEFAULT_SELECTOR, Explainer, Fitted
from unmasked.explainers.full import Full
from unmasked.explainers.l2x import L2X
from unmasked.explainers.penalised import BaseX, Invase
from unmasked.explainers.realx import RealX
from unmasked.explainers.stability import Stability, stability

__all__ = [
    "DEFAULT_SELECTOR",
    "L2X",
    "BaseX",
    "Explainer",
    "Fitted",
    "Full",
    "Invase",
    "RealX",
    "Stability",
    "stability",
]
