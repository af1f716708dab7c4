"""Evaluators of explanations."""

from unmasked.evaluation.evalx import EvalX
from unmasked.evaluation.exact import ExactPosterior
from unmasked.evaluation.posthoc import PostHoc
from unmasked.evaluation.scores import Scores

__all__ = ["EvalX", "ExactPosterior", "PostHoc", "Scores"]
