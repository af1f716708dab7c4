"""Make links of readers and of the owner anew, or revoke them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from unmasked.errors import InputError
from unmasked.study.create import OWNER
from unmasked.study.database import open_database
from unmasked.study.folder import read_study


def renew_links(
    folder: Path,
    names: Sequence[str] = (),
    *,
    revoke: bool = False,
    database: str | None = None,
) -> list[tuple[str, str]]:
    """(name, path of the new link) of each; the path is empty where links were only revoked.

    ``names`` are those of readers, or ``OWNER``; none means everybody.
    """
    study = read_study(folder)
    known: dict[str, int | None] = {reader.name: i for i, reader in enumerate(study.readers)}
    known[OWNER] = None
    for name in names:
        if name not in known:
            raise InputError(f"a link's reader must be one of {', '.join(known)} but is {name!r}.")
    opened = open_database(study.where(database), study.digest)
    result = []
    try:
        for name in names or known:
            number = known[name]
            path = ""
            if revoke:
                opened.revoke_links(number)
            else:
                fresh = secrets.token_urlsafe(32)
                opened.renew_link(number, fresh)
                path = f"/{'o' if number is None else 'r'}/{fresh}"
            result.append((name, path))
    finally:
        opened.close()
    return result
