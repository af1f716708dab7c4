"""Explanations of machine-learning predictions that can be checked.

The public names. They are imported when first used, so that ``import unmasked`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmasked.auditing import AuditResult, AuditSettings, audit
    from unmasked.augmentations import Retake, Shift
    from unmasked.data import Synthetic, synthetic
    from unmasked.engine import Training
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
    from unmasked.explanation import Explanation
    from unmasked.imagenetworks import CNN, DenseNet121, MonaiUNet, UNet
    from unmasked.masking import Groups, Masker, Token, Zero
    from unmasked.masklaws import Bernoulli, MaskLaw, Patches, UniformSize
    from unmasked.metrics import selection_quality
    from unmasked.networks import MLP, SetMLP
    from unmasked.superpixels import Blur, ImageMean, Superpixels

__version__ = "0.1.0"

_HOME = {
    "AuditResult": "auditing",
    "AuditSettings": "auditing",
    "BaseX": "explainers",
    "Bernoulli": "masklaws",
    "Blur": "superpixels",
    "CNN": "imagenetworks",
    "CoverageWarning": "errors",
    "DataWarning": "errors",
    "DenseNet121": "imagenetworks",
    "Encoding": "evaluation",
    "EvalX": "evaluation",
    "ExactPosterior": "evaluation",
    "Explanation": "explanation",
    "Full": "explainers",
    "Groups": "masking",
    "ImageMean": "superpixels",
    "InputError": "errors",
    "InterruptedWarning": "errors",
    "Invase": "explainers",
    "L2X": "explainers",
    "MLP": "networks",
    "MaskLaw": "masklaws",
    "Masker": "masking",
    "MemoryWarning": "errors",
    "MissingExtra": "errors",
    "MonaiUNet": "imagenetworks",
    "OutputError": "errors",
    "Patches": "masklaws",
    "PostHoc": "evaluation",
    "RealX": "explainers",
    "Retake": "augmentations",
    "Roar": "evaluation",
    "SavedError": "errors",
    "Scores": "evaluation",
    "SetMLP": "networks",
    "Shift": "augmentations",
    "Stability": "explainers",
    "SubsetCollection": "evaluation",
    "Superpixels": "superpixels",
    "Synthetic": "data",
    "Token": "masking",
    "Training": "engine",
    "UNet": "imagenetworks",
    "UniformSize": "masklaws",
    "UnmaskedError": "errors",
    "UnmaskedWarning": "errors",
    "Zero": "masking",
    "audit": "auditing",
    "encoding_test": "evaluation",
    "network_encoding_test": "evaluation",
    "selection_quality": "metrics",
    "stability": "explainers",
    "synthetic": "data",
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
