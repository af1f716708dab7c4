"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import unmasked
from unmasked._moved import MOVED

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


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_a_module_is_found_where_it_was_and_says_where_it_is(old, new):
    module = importlib.import_module(new)
    spec = module.__spec__
    known = [sys.modules.pop(name) for name in MOVED if name in sys.modules]
    assert not known
    with pytest.warns(DeprecationWarning, match="the old name goes") as said:
        found = importlib.import_module(old)
    assert f"{old} is now {new}; " in str(said[-1].message)
    for name in [name for name in sys.modules if name in MOVED]:
        del sys.modules[name]
    for name in dir(module):
        if not name.startswith("__"):
            assert getattr(found, name) is getattr(module, name)
    assert (module.__spec__, module.__name__) == (spec, new)


def test_a_module_under_an_old_name_hides_no_function():
    code = (
        "import warnings; warnings.simplefilter('ignore'); import unmasked.data.mnist; "
        "from unmasked.data.synthetic import CONTROL_FLOW; "
        "from unmasked.data import mnist; from unmasked.datasets import mnist as new; "
        "print(mnist is new, callable(mnist), CONTROL_FLOW)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "10"]


def test_a_module_below_an_old_name_is_not_loaded_twice():
    code = (
        "import warnings; warnings.simplefilter('ignore'); "
        "from unmasked.engine.options import Training as old; from unmasked import Training; "
        "from unmasked.engine import loop, fit; import unmasked.training.loop as new; "
        "print(old is Training, loop is new, callable(fit))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
    code = "import unmasked.engine.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'unmasked.engine.nothing'" in done.stderr
