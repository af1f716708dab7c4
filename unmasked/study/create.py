"""``unmasked study create``: from images with masks to a folder that can be served.

Cases follow from the seed. The order of cases and options and all identifiers follow from a secret
of 256 bits that is drawn for each study and kept in the key: were they to follow from the seed, a
reader could guess it and work out the order with this software.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmasked.errors import DataWarning, InputError, OutputError
from unmasked.study.backends import POSTGRES, database_url
from unmasked.study.database import create_database, remove_database
from unmasked.study.folder import ANSWERS, DIGEST, FORMAT, MANIFEST, PICTURES, SourceCase, sha256
from unmasked.study.images import (
    balanced_orders,
    hide_png,
    image_png,
    is_graded,
    over_png,
    read_image,
    read_mask,
    regions,
)
from unmasked.study.key import key_path

OWNER = "owner"
"""What no reader may be called."""
_TIME = 946_684_800  # all files carry the same date, 2000-01-01: when one was made tells nothing


@dataclass(frozen=True)
class Wording:
    """Title, question and instructions that readers are shown."""

    title: str = "Which explanation would you rather have?"
    question: str = (
        "Rank the options: which selection shows best what you need for the diagnosis? "
        "Options that are equally good may share a place."
    )
    sufficient: str = "Sufficient for the diagnosis"
    instructions: tuple[str, ...] = (
        "Each case is one image with several options. An option marks the parts of the image that "
        "a method selected to explain its prediction. You are not told which method made which "
        "option, and their order is drawn anew for every case.",
        "For each case, rank the options from best to worst, and tick those whose selected parts "
        "alone would be sufficient for the diagnosis. A remark is welcome but never needed.",
        "There is no time limit. Everything is saved as you go, and you can pause at any time: "
        "your personal link brings you back to where you stopped.",
    )


@dataclass(frozen=True)
class Created:
    """A study that was made: where it is, and the secrets of its links, which are shown once."""

    folder: Path
    key: Path
    cases: int
    methods: tuple[str, ...]
    readers: tuple[tuple[str, str], ...]
    """(name, secret of the link) of each reader."""
    owner: str


def create_study(
    folder: Path,
    cases: Sequence[SourceCase],
    readers: Sequence[str],
    *,
    number: int | None = None,
    seed: int = 0,
    wording: Wording | None = None,
    key: Path | None = None,
    secret: bytes | None = None,
    database: str | None = None,
) -> Created:
    """Make a study of ``number`` cases (all, if None), drawn from ``cases`` by ``seed``.

    ``database`` is the address of a PostgreSQL database; None keeps answers in the folder. The
    folder and the key appear whole or not at all, and overwrite nothing.
    """
    key = key or key_path(folder)
    _check_names(readers)
    for path in (folder, key):
        if os.path.lexists(path):
            raise OutputError(f"{path} exists already; choose another name for the study.")
    if key.resolve().is_relative_to(folder.resolve()):
        raise InputError(
            f"the key must lie outside the study's folder, which is what is served, but {key} "
            "lies in it."
        )
    url = None if database is None else database_url(database)
    drawn = _draw(cases, number, seed)
    secret = secrets.token_bytes(32) if secret is None else secret
    part = folder.resolve().with_name(f".{folder.resolve().name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        plan = _Plan(drawn, list(readers), wording or Wording(), secret, seed)
        study, secrets_of_links = plan.write(part)
        key_text = json.dumps(plan.key(), indent=1, ensure_ascii=False).encode()
        study["key"] = sha256(key_text)
        if url is not None:
            study["database"] = POSTGRES
        text = json.dumps(study, indent=1, ensure_ascii=False).encode()
        (part / MANIFEST).write_bytes(text)
        (part / DIGEST).write_text(f"{sha256(text)}  {MANIFEST}\n", encoding="ascii")
        tokens, owner = secrets_of_links
        create_database(url or part / ANSWERS, sha256(text), tokens, owner)
        try:
            # The key first: answers to a study whose key was never written could not be read.
            _write_key(key, key_text)
            try:
                os.replace(part, folder)
            except BaseException:
                key.unlink()
                raise
        except BaseException:
            if url is not None:
                remove_database(url, sha256(text))
            raise
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise OutputError(
            f"the study cannot be written to {folder} ({error.strerror or error}); nothing was "
            "left behind."
        ) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if plan.graded:
        warnings.warn(
            f"{len(plan.graded)} masks, such as {plan.graded[0]}, have more than two values; "
            "whatever is not zero is shown to readers, so give them as two values if some of it "
            "should not be.",
            DataWarning,
            stacklevel=2,
        )
    methods = tuple(drawn[0].masks)
    named = tuple(zip(readers, tokens, strict=True))
    return Created(folder, key, len(drawn), methods, named, owner)


def _check_names(readers: Sequence[str]) -> None:
    different = len(set(readers)) == len(readers) and OWNER not in readers
    if not readers or not different or not all(name.strip() for name in readers):
        raise InputError(
            f"a study must have readers with different names but has {', '.join(readers) or 'none'}"
            "; name each with --reader."
        )


def _draw(cases: Sequence[SourceCase], number: int | None, seed: int) -> list[SourceCase]:
    """The cases of the study, in the manifest's order."""
    if number is None:
        return list(cases)
    if not 1 <= number <= len(cases):
        raise InputError(
            f"--cases must be from 1 to the {len(cases)} cases of the manifest but is {number}."
        )
    chosen = np.random.default_rng(seed).choice(len(cases), number, replace=False)
    return [cases[i] for i in sorted(chosen)]


class _Plan:
    """Plan of a study: each reader's order of cases and options, and the pictures for it."""

    def __init__(
        self,
        cases: list[SourceCase],
        readers: list[str],
        wording: Wording,
        secret: bytes,
        seed: int,
    ) -> None:
        self.cases, self.readers, self.wording = cases, readers, wording
        self.secret, self.seed = secret, seed
        self.methods = list(cases[0].masks)
        self.graded: list[Path] = []  # masks that say more than shown or not
        count = len(cases)
        rng = np.random.default_rng(int.from_bytes(hmac.digest(secret, b"order", "sha256")))
        self.places = [rng.permutation(count) for _ in readers]  # which case comes when
        self.orders = [balanced_orders(count, len(self.methods), rng) for _ in readers]

    def _id(self, *parts: object) -> str:
        """An identifier that only the secret could foretell."""
        text = "/".join(map(str, parts)).encode()
        return hmac.digest(self.secret, text, "sha256").hex()[:24]

    def write(self, folder: Path) -> tuple[dict[str, Any], tuple[list[str], str]]:
        """Write the pictures; return the served manifest, and the secrets of the links."""
        sizes, files = self._write_pictures(folder / PICTURES)
        pictures: dict[str, str] = {}

        def served(reader: int, name: str) -> str:
            """The identifier by which one reader is served a file."""
            identifier = self._id("served", reader, name)
            pictures[identifier] = name
            return identifier

        readers = []
        for r, name in enumerate(self.readers):
            cases = []
            for place, case in enumerate(self.places[r]):
                layers = [
                    {
                        layer: served(r, self._file(case, self.methods[method], layer))
                        for layer in ("over", "hide")
                    }
                    for method in self.orders[r][place]
                ]
                height, width = sizes[case]
                image = served(r, self._file(case, "", "image"))
                identifier = self._id("case", r, case)
                cases.append(
                    {"id": identifier, "height": height, "width": width, "image": image}
                    | {"options": layers}
                )
            readers.append({"name": name, "cases": cases})
        wording = self.wording
        study = {
            "format": FORMAT,
            "title": wording.title,
            "question": wording.question,
            "sufficient": wording.sufficient,
            "instructions": list(wording.instructions),
            "options": len(self.methods),
            "readers": readers,
            "pictures": dict(sorted(pictures.items())),
            "files": dict(sorted(files.items())),
        }
        tokens = [secrets.token_urlsafe(32) for _ in self.readers]
        return study, (tokens, secrets.token_urlsafe(32))

    def key(self) -> dict[str, Any]:
        """Return the key: the method behind each option, for each reader and case."""
        return {
            "format": FORMAT,
            "seed": self.seed,
            "secret": self.secret.hex(),
            "methods": self.methods,
            "cases": [{"name": case.name, "label": case.label} for case in self.cases],
            "readers": [
                {
                    "name": name,
                    "cases": {
                        self._id("case", r, case): {
                            "case": int(case),
                            "methods": [self.methods[m] for m in self.orders[r][place]],
                        }
                        for place, case in enumerate(self.places[r])
                    },
                }
                for r, name in enumerate(self.readers)
            ],
        }

    def _file(self, case: object, method: str, layer: str) -> str:
        return self._id("file", case, method, layer) + ".png"

    def _write_pictures(self, folder: Path) -> tuple[list[tuple[int, int]], dict[str, str]]:
        """(height, width) of each case, and {file name: digest}."""
        folder.mkdir()
        sizes, files = [], {}
        for i, case in enumerate(self.cases):
            image = read_image(case.image)
            size = (image.shape[0], image.shape[1])
            sizes.append(size)
            made = {self._file(i, "", "image"): image_png(image)}
            for method, path in case.masks.items():
                values = regions(read_mask(path, size))
                if is_graded(path):
                    self.graded.append(path)
                made[self._file(i, method, "over")] = over_png(values)
                made[self._file(i, method, "hide")] = hide_png(values)
            for name in sorted(made):  # an order that has nothing to do with the methods'
                (folder / name).write_bytes(made[name])
                os.utime(folder / name, (_TIME, _TIME))
                files[name] = sha256(made[name])
        return sizes, files


def _write_key(path: Path, data: bytes) -> None:
    """A new file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
