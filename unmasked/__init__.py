"""Explanations of machine-learning predictions that can be checked.

The public names. They are imported when first used, so that ``import unmasked`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unmasked._moved import allow_old_names

if TYPE_CHECKING:
    from unmasked.auditing import AuditResult, AuditSettings, audit
    from unmasked.datasets import Synthetic, synthetic
    from unmasked.errors import (
        CoverageWarning,
        DataWarning,
        InputError,
        InterruptedWarning,
        MemoryWarning,
        MissingExtra,
        OutputError,
        SavedError,
        UnmaskedError,
        UnmaskedWarning,
    )
    from unmasked.evaluation import (
        Encoding,
        EvalX,
        ExactPosterior,
        PostHoc,
        Roar,
        Scores,
        SubsetCollection,
        encoding_test,
        network_encoding_test,
    )
    from unmasked.explainers import L2X, BaseX, Full, Invase, RealX, Stability, stability
    from unmasked.explanation.explanation import Explanation
    from unmasked.inputs.augment import Retake, Shift
    from unmasked.masks.distributions import Bernoulli, MaskLaw, Patches, UniformSize
    from unmasked.masks.maskers import Groups, Masker, Token, Zero
    from unmasked.masks.superpixels import Blur, ImageMean, Superpixels
    from unmasked.metrics import selection_quality
    from unmasked.networks.images import CNN, DenseNet121, MonaiUNet, UNet
    from unmasked.networks.tables import MLP, SetMLP
    from unmasked.training import Training

__version__ = "0.1.0"

allow_old_names()

_HOME = {
    "AuditResult": "auditing",
    "AuditSettings": "auditing",
    "BaseX": "explainers",
    "Bernoulli": "masks.distributions",
    "Blur": "masks.superpixels",
    "CNN": "networks.images",
    "CoverageWarning": "errors",
    "DataWarning": "errors",
    "DenseNet121": "networks.images",
    "Encoding": "evaluation",
    "EvalX": "evaluation",
    "ExactPosterior": "evaluation",
    "Explanation": "explanation.explanation",
    "Full": "explainers",
    "Groups": "masks.maskers",
    "ImageMean": "masks.superpixels",
    "InputError": "errors",
    "InterruptedWarning": "errors",
    "Invase": "explainers",
    "L2X": "explainers",
    "MLP": "networks.tables",
    "MaskLaw": "masks.distributions",
    "Masker": "masks.maskers",
    "MemoryWarning": "errors",
    "MissingExtra": "errors",
    "MonaiUNet": "networks.images",
    "OutputError": "errors",
    "Patches": "masks.distributions",
    "PostHoc": "evaluation",
    "RealX": "explainers",
    "Retake": "inputs.augment",
    "Roar": "evaluation",
    "SavedError": "errors",
    "Scores": "evaluation",
    "SetMLP": "networks.tables",
    "Shift": "inputs.augment",
    "Stability": "explainers",
    "SubsetCollection": "evaluation",
    "Superpixels": "masks.superpixels",
    "Synthetic": "datasets",
    "Token": "masks.maskers",
    "Training": "training",
    "UNet": "networks.images",
    "UniformSize": "masks.distributions",
    "UnmaskedError": "errors",
    "UnmaskedWarning": "errors",
    "Zero": "masks.maskers",
    "audit": "auditing",
    "encoding_test": "evaluation",
    "network_encoding_test": "evaluation",
    "selection_quality": "metrics",
    "stability": "explainers",
    "synthetic": "datasets",
}

__all__ = [
    "CNN",
    "L2X",
    "MLP",
    "AuditResult",
    "AuditSettings",
    "BaseX",
    "Bernoulli",
    "Blur",
    "CoverageWarning",
    "DataWarning",
    "DenseNet121",
    "Encoding",
    "EvalX",
    "ExactPosterior",
    "Explanation",
    "Full",
    "Groups",
    "ImageMean",
    "InputError",
    "InterruptedWarning",
    "Invase",
    "MaskLaw",
    "Masker",
    "MemoryWarning",
    "MissingExtra",
    "MonaiUNet",
    "OutputError",
    "Patches",
    "PostHoc",
    "RealX",
    "Retake",
    "Roar",
    "SavedError",
    "Scores",
    "SetMLP",
    "Shift",
    "Stability",
    "SubsetCollection",
    "Superpixels",
    "Synthetic",
    "Token",
    "Training",
    "UNet",
    "UniformSize",
    "UnmaskedError",
    "UnmaskedWarning",
    "Zero",
    "audit",
    "encoding_test",
    "network_encoding_test",
    "selection_quality",
    "stability",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"unmasked.{_HOME[name]}"), name)
    raise AttributeError(f"module 'unmasked' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
