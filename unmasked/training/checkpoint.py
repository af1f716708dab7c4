"""Checkpoints: one safetensors file, replaced as a whole, so that a kill can never tear it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unmasked.errors import OutputError, SavedError

_KEY = "unmasked-checkpoint"
_VERSION = 2


def fingerprint(description: str, tensors: list[Tensor]) -> str:
    """A digest of everything a run's result depends on."""
    # parts of the user's own say where they lie in memory, which is another place next time
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-fA-F]+", "", description).encode())
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(array.reshape(-1).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def _sum(tensors: dict[str, Tensor]) -> str:
    return fingerprint("", [tensors[name] for name in sorted(tensors)])


def check_writable(path: Path) -> None:
    """Refuse a place where no checkpoint can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(path.name + ".part")
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> OutputError:
    return OutputError(
        f"the checkpoint {path} cannot be written ({error}); "
        "free some space or choose another folder."
    )


def write(path: Path, run: str, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Replace the checkpoint at ``path`` in one atomic step."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        head = {"version": _VERSION, "run": run, "sum": _sum(plain), **values}
        save_file(plain, temporary, metadata={_KEY: json.dumps(head)})
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # half a file on a full disk only makes it fuller
        raise _unwritable(path, error) from error


def read(path: Path, run: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """The checkpoint at ``path``, or None where there is none; refuses one of another run."""
    if not path.exists():
        return None
    if path.is_dir():
        raise SavedError(f"the checkpoint {path} must be a file but is a folder; choose another.")
    try:
        with safe_open(path, framework="pt") as file:
            values = json.loads((file.metadata() or {})[_KEY])
            # a copy lies at an address as round as any tensor's; a file's numbers do not, and on
            # some processors sums come out otherwise in their last bit there
            tensors: dict[str, Tensor] = {
                name: file.get_tensor(name).clone()
                for name in file.keys()  # noqa: SIM118
            }
        version, owner = values["version"], values["run"]
        if version == _VERSION and values["sum"] != _sum(tensors):
            raise ValueError("its numbers do not add up")
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
