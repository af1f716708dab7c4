"""Checkpoints: one safetensors file, replaced as a whole, so that a kill can never tear it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unmasked.errors import OutputError, SavedError

_KEY = "unmasked-checkpoint"
_VERSION = 1


def fingerprint(description: str, tensors: list[Tensor]) -> str:
    """A digest of everything a run's result depends on."""
    digest = hashlib.sha256(description.encode())
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write(path: Path, run: str, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Replace the checkpoint at ``path`` in one atomic step."""
    text = json.dumps({"version": _VERSION, "run": run, **values})
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        save_file(plain, temporary, metadata={_KEY: text})
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise OutputError(
            f"the checkpoint {path} cannot be written ({error}); "
            "free some space or choose another folder."
        ) from error


def read(path: Path, run: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """The checkpoint at ``path``, or None where there is none; refuses one of another run."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            values = json.loads((file.metadata() or {})[_KEY])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version, owner = values["version"], values["run"]
    except (SafetensorError, KeyError, ValueError, OSError, TypeError) as error:
        raise SavedError(
            f"the checkpoint {path} is damaged or not ours ({type(error).__name__}: {error}); "
            "delete it to start from the beginning."
        ) from error
    if version != _VERSION:
        raise SavedError(
            f"the checkpoint {path} has version {version} but this program reads {_VERSION}; "
            "delete it to start from the beginning."
        )
    if owner != run:
        raise SavedError(
            f"the checkpoint {path} belongs to a run with other data or options; "
            "delete it, or choose another folder."
        )
    return values, tensors


def as_tensor(values: list[int]) -> Tensor:
    """A list of indices as a tensor."""
    return torch.tensor(values, dtype=torch.int64)
