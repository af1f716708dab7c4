"""Shapes in the signatures are checked at run time while testing, before anything is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

install_import_hook(
    [
        "unmasked.masks.maskers",
        "unmasked.masks.distributions",
        "unmasked.masks.samplers",
        "unmasked.masks.binary_samplers",
        "unmasked.training.methods",
    ],
    "beartype.beartype",
)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that fit tiny networks hundreds of times: two threads only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_was_said() -> None:
    """What is said once in a process is said once in each test."""
    memory = sys.modules.get("unmasked.training.device")
    if memory is not None:
        memory._said.clear()
