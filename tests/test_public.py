"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import unmasked

NAMES = [
    "CNN", "L2X", "MLP", "AuditResult", "AuditSettings", "BaseX", "Bernoulli", "Blur",
    "CoverageWarning", "DataWarning",
    "DenseNet121", "Encoding", "EvalX", "ExactPosterior", "Explanation", "Full", "Groups",
    "ImageMean", "InputError", "InterruptedWarning", "Invase", "MaskLaw", "Masker", "MemoryWarning",
    "MissingExtra", "MonaiUNet", "OutputError", "Patches", "PostHoc", "RealX", "Retake", "Roar",
    "SavedError", "Scores", "SetMLP", "Shift", "Stability", "SubsetCollection", "Superpixels",
    "Synthetic",
    "Token", "Training", "UNet", "UniformSize", "UnmaskedError", "UnmaskedWarning", "Zero",
    "audit", "encoding_test", "network_encoding_test", "selection_quality", "stability",
    "synthetic",
]  # fmt: skip


def test_public_names_are_pinned_and_importable():
    assert unmasked.__all__ == NAMES
    for name in NAMES:
        assert getattr(unmasked, name).__name__ == name
    assert set(NAMES) <= set(dir(unmasked))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        unmasked.Nothing  # noqa: B018


def test_import_and_help_do_not_load_torch():
    code = (
        "import sys, unmasked, unmasked.cli; "
        "print([m for m in ('torch', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_is_the_package_metadata():
    from importlib.metadata import version

    assert version("unmasked") == unmasked.__version__
