"""Evaluators of explanations."""

from unmasked.evaluation.encoding import Encoding, encoding_test, network_encoding_test
from unmasked.evaluation.evaluator import Scores
from unmasked.evaluation.evalx import EvalX
from unmasked.evaluation.exact import ExactPosterior
from unmasked.evaluation.posthoc import PostHoc
from unmasked.evaluation.roar import Roar
from unmasked.evaluation.subsets import SubsetCollection

__all__ = [
    "Encoding",
    "EvalX",
    "ExactPosterior",
    "PostHoc",
    "Roar",
    "Scores",
    "SubsetCollection",
    "encoding_test",
    "network_encoding_test",
]
