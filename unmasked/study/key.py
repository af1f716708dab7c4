"""The key: which option is which method. It lies beside the study's folder, never in it.

`create` writes it and `analysis` reads it; nothing that serves imports this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unmasked.errors import SavedError
from unmasked.study.folder import Study, sha256


def key_path(folder: Path) -> Path:
    """Return the path at which `study create` keeps a key by default: beside the study's folder."""
    folder = folder.resolve()
    return folder.with_name(folder.name + ".key.json")


def read_key(path: Path, study: Study) -> dict[str, Any]:
    """The key of a study: which option is which method. For `study analyse` only."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SavedError(
            f"the key of the study must be at {path!s:.200} but cannot be read there "
            f"({error.strerror}); say where with --key."
        ) from None
    if sha256(data) != study.key_digest:
        raise SavedError(
            f"the key {path} is not the one that this study was made with, or was changed since; "
            "restore it from a copy."
        )
    result: dict[str, Any] = json.loads(data)
    return result
