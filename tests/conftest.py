"""Shapes in the signatures are checked at run time while testing, before anything is imported."""

from __future__ import annotations

from jaxtyping import install_import_hook

install_import_hook(
    [
        "unmasked.masking",
        "unmasked.masklaws",
        "unmasked.samplers",
        "unmasked.objectives",
    ],
    "beartype.beartype",
)
