"""A study on disk: what is served, checked against its hashes. The key lies apart (`key`)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmasked.errors import SavedError

FORMAT = 1
MANIFEST, DIGEST, PICTURES, ANSWERS = "study.json", "study.sha256", "pictures", "answers.sqlite"


@dataclass(frozen=True)
class Option:
    """A selection as one reader is served it: identifiers of its two layers."""

    over: str
    hide: str


@dataclass(frozen=True)
class ReaderCase:
    """A case as one reader is served it. Identifiers are this reader's own."""

    id: str
    height: int
    width: int
    image: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Reader:
    """A reader's cases in this reader's order."""

    name: str
    cases: tuple[ReaderCase, ...]

    def number(self, case: str) -> int | None:
        """A case's number, from 1, or None where it is not this reader's."""
        return next((i for i, c in enumerate(self.cases, 1) if c.id == case), None)

    def pictures(self) -> frozenset[str]:
        """Identifiers of all pictures that this reader may see."""
        layers = (option for case in self.cases for option in case.options)
        shown = {identifier for option in layers for identifier in (option.over, option.hide)}
        return frozenset(shown | {case.image for case in self.cases})


@dataclass(frozen=True)
class Study:
    """Everything that readers are served, and nothing that tells a method."""

    folder: Path
    digest: str
    title: str
    question: str
    sufficient: str
    instructions: tuple[str, ...]
    options: int
    readers: tuple[Reader, ...]
    pictures: dict[str, str]
    """{identifier: file name}; identifiers differ from reader to reader."""
    files: dict[str, str]
    """{file name: SHA-256}."""
    key_digest: str

    @property
    def answers(self) -> Path:
        """Where answers are kept."""
        return self.folder / ANSWERS

    def picture(self, name: str) -> bytes:
        """A picture's bytes, checked."""
        data = (self.folder / PICTURES / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != self.files[name]:
            raise _edited(self.folder / PICTURES / name)
        return data


def sha256(data: bytes) -> str:
    """The digest of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_study(folder: Path) -> Study:
    """A study whose every file is as `study create` wrote it."""
    path = folder / MANIFEST
    if not path.is_file():
        raise SavedError(
            f"{folder} must be a folder made by `unmasked study create` but has no {MANIFEST}."
        )
    try:
        text = path.read_bytes()
        stated = (folder / DIGEST).read_text(encoding="ascii").split()[0]
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise SavedError(f"the study in {folder} cannot be read ({error}).") from error
    if sha256(text) != stated:
        raise _edited(path)
    content = json.loads(text)
    if content.get("format") != FORMAT:
        raise SavedError(
            f"{path} must have format {FORMAT} but has {content.get('format')!r}; use the version "
            "of unmasked that made it."
        )
    study = _study(folder, stated, content)
    for name in study.files:
        try:
            study.picture(name)
        except OSError as error:
            raise SavedError(
                f"the study in {folder} was changed after it was made: {PICTURES}/{name} cannot be "
                f"read ({error.strerror}); restore it from a copy."
            ) from error
    return study


def _edited(path: Path) -> SavedError:
    return SavedError(
        f"the study was changed after it was made: {path} differs from its hash; restore it from "
        "a copy, or make a new study."
    )


def _study(folder: Path, digest: str, content: dict[str, Any]) -> Study:
    readers = tuple(
        Reader(
            reader["name"],
            tuple(
                ReaderCase(
                    case["id"],
                    case["height"],
                    case["width"],
                    case["image"],
                    tuple(Option(option["over"], option["hide"]) for option in case["options"]),
                )
                for case in reader["cases"]
            ),
        )
        for reader in content["readers"]
    )
    return Study(
        folder=folder,
        digest=digest,
        title=content["title"],
        question=content["question"],
        sufficient=content["sufficient"],
        instructions=tuple(content["instructions"]),
        options=content["options"],
        readers=readers,
        pictures=content["pictures"],
        files=content["files"],
        key_digest=content["key"],
    )
