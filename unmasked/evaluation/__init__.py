"""Evaluators of explanations."""

from unmasked.evaluation.evalx import EvalX
from unmasked.evaluation.scores import Scores

__all__ = ["EvalX", "Scores"]
