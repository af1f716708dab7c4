"""Keep the old names of modules importable for one release, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

MOVED = {
    "unmasked.augmentations": "unmasked.inputs.augment",
    "unmasked.binarysamplers": "unmasked.masks.binary_samplers",
    "unmasked.choosing": "unmasked.explainers.path",
    "unmasked.columns": "unmasked.inputs.table",
    "unmasked.data": "unmasked.datasets",
    "unmasked.data.picture_folder": "unmasked.io.image_folder",
    "unmasked.data.stored": "unmasked.inputs.stored",
    "unmasked.data.tables": "unmasked.io.tables",
    "unmasked.defaults": "unmasked.explainers.defaults",
    "unmasked.engine": "unmasked.training",
    "unmasked.estimator": "unmasked.explainers.estimator",
    "unmasked.imagenetworks": "unmasked.networks.images",
    "unmasked.masking": "unmasked.masks.maskers",
    "unmasked.masklaws": "unmasked.masks.distributions",
    "unmasked.methods": "unmasked.training.methods",
    "unmasked.pictures": "unmasked.plots.overlays",
    "unmasked.pixels": "unmasked.inputs.images",
    "unmasked.report": "unmasked.io",
    "unmasked.samplers": "unmasked.masks.samplers",
    "unmasked.sparsity": "unmasked.explainers.path",
    "unmasked.storage": "unmasked.explainers.saving",
    "unmasked.superpixels": "unmasked.masks.superpixels",
    "unmasked.targets": "unmasked.inputs.targets",
}
"""Old name -> new name."""


class _Package(ModuleType):
    """A package under its old name, with all that the new one has.

    It is not the new one itself: whatever imports a module of it makes that an attribute of it,
    and ``datasets.mnist`` is to stay the function. Nothing lies below it, or its modules would be
    loaded twice.
    """

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(MOVED[self.__name__]), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)


def _place(old: str) -> str | None:
    """Return the new name of a module, or of one below a package that moved."""
    package, _, module = old.rpartition(".")
    new = MOVED.get(old) or (f"{MOVED[package]}.{module}" if package in MOVED else None)
    return new if new and find_spec(new) else None


@dataclass
class _Same(Loader):
    """Loads nothing: under its old name it is the module ``new``."""

    new: str
    spec: ModuleSpec | None = None  # of the module under its new name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} is now {self.new}; the old name goes with the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
        module = import_module(self.new)
        if hasattr(module, "__path__"):
            return _Package(spec.name, module.__doc__)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if not isinstance(module, _Package):
            module.__spec__ = self.spec  # the import machinery has put the old name there


class _Moved(MetaPathFinder):
    """Finds modules under their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = _place(fullname)
        return ModuleSpec(fullname, _Same(new)) if new else None


def allow_old_names() -> None:
    """Let modules be imported by their old names, too."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
