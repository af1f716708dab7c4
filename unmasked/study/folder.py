"""Read a study from disk, checked against its hashes, and the manifest that it is made from.

One line for each image and method. Paths are relative to the CSV's folder and stay in it. ``case``
names a case (by default the image's path) and ``label`` is what is true of it; neither is ever
shown to readers.
"""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sqlalchemy.engine import URL

from unmasked.errors import InputError, SavedError
from unmasked.study.answers import LETTERS
from unmasked.study.backends import database_url

COLUMNS = ("image", "method", "mask")
INSIDE = Path("study") / "manifest.csv"
"""Where other commands of this package leave a manifest in their output folder."""


@dataclass
class SourceCase:
    """An image with one mask for each method, as files."""

    name: str
    image: Path
    label: str = ""
    masks: dict[str, Path] = field(default_factory=dict)


def find_manifest(folder: Path) -> Path:
    """The manifest in the output folder of another command."""
    path = folder / INSIDE
    if not os.path.isfile(path):  # noqa: PTH113  # False for names that are too long
        raise InputError(
            f"{folder!s:.200} must be the output of `reproduce cxr` or `explain-images`, which "
            f"holds {INSIDE}, but it does not; give your own list with --manifest."
        )
    return path


def read_manifest(path: Path, methods: list[str] | None = None) -> list[SourceCase]:
    """The cases of a manifest, in its order, each with all methods (or with those asked for)."""
    rows = _rows(path)
    root = path.parent.resolve()
    cases: dict[str, SourceCase] = {}
    known: dict[str, None] = {}  # methods in the order in which they first come
    for number, row in rows:
        values = {name: (row.get(name) or "").strip() for name in (*COLUMNS, "case", "label")}
        if not all(values[name] for name in COLUMNS):
            empty = next(name for name in COLUMNS if not values[name])
            raise InputError(f"line {number} of {path} must have a {empty} but it is empty.")
        method = values["method"]
        known[method] = None
        if methods is not None and method not in methods:
            continue
        image = _inside(root, values["image"], path, number)
        mask = _inside(root, values["mask"], path, number)
        name = values["case"] or values["image"]
        case = cases.setdefault(name, SourceCase(name, image, values["label"]))
        if case.image != image:
            raise InputError(
                f"the case {name!r} must have one image but line {number} of {path} gives it "
                f"another, {values['image']}."
            )
        if method in case.masks:
            raise InputError(
                f"the case {name!r} must have one mask for each method but line {number} of "
                f"{path} is its second for {method!r}."
            )
        case.masks[method] = mask
    wanted = list(known) if methods is None else methods
    _check_methods(path, wanted, list(known))
    for case in cases.values():
        if missing := [method for method in wanted if method not in case.masks]:
            raise InputError(
                f"every case of {path} must have a mask of every method but {case.name!r} has "
                f"none of {missing[0]!r}; add the line or leave the method out with --methods."
            )
        case.masks = {method: case.masks[method] for method in wanted}
    return list(cases.values())


def _rows(path: Path) -> list[tuple[int, dict[str, str | None]]]:
    """(line number, {column: text}) of each row."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            rows = [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise InputError(
            f"the manifest {path!s:.200} cannot be read ({error.strerror}); give a CSV with "
            f"{_wanted()}."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"the manifest {path} must be a CSV in UTF-8 but is not ({error})."
        ) from error
    if missing := [name for name in COLUMNS if name not in header]:
        raise InputError(
            f"the manifest {path} must have {_wanted()} but lacks {missing[0]!r}; it has "
            f"{', '.join(header) or 'nothing'}."
        )
    if not rows:
        raise InputError(f"the manifest {path} must list images but has no rows.")
    return rows


def _wanted() -> str:
    return f"the columns {', '.join(COLUMNS)}"


def _inside(root: Path, text: str, manifest: Path, number: int) -> Path:
    """A file named by the manifest, which must lie in the manifest's folder."""
    try:
        path = (root / text).resolve()
        there = path.is_file()
    except (OSError, ValueError) as error:  # names that no file can have
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"line {number} of {manifest} must name a file but names {text!r:.80} ({reason})."
        ) from None
    if not path.is_relative_to(root):
        raise InputError(
            f"line {number} of {manifest} must name a file inside the manifest's folder but "
            f"{text!r} leads outside; copy the file there."
        )
    if not there:
        raise InputError(f"line {number} of {manifest} names {text!r}, which does not exist.")
    return path


def _check_methods(path: Path, wanted: list[str], known: list[str]) -> None:
    for method in wanted:
        if method not in known:
            raise InputError(
                f"--methods must name methods of {path} ({', '.join(known)}) but has {method!r}."
            )
    if len(set(wanted)) != len(wanted) or not 2 <= len(wanted) <= 8:
        raise InputError(
            f"a study must compare 2 to 8 different methods but has {len(wanted)} "
            f"({', '.join(wanted)}); choose them with --methods."
        )


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
    in_postgres: bool = False
    """Whether answers are in a PostgreSQL database instead of a file."""

    @property
    def answers(self) -> Path:
        """The file in which answers are kept."""
        return self.folder / ANSWERS

    def where(self, database: str | None) -> Path | URL:
        """Return the place of the answers: the folder's file, or the PostgreSQL of ``database``."""
        if self.in_postgres and database is None:
            raise InputError(
                f"the answers of {self.folder} are in a PostgreSQL database; give its address with "
                "--database."
            )
        if not self.in_postgres and database is not None:
            raise InputError(
                f"the answers of {self.folder} are in its own file {ANSWERS}; leave --database "
                "out, or UNMASKED_STUDY_DATABASE unset."
            )
        return self.answers if database is None else database_url(database)

    def picture(self, name: str) -> bytes:
        """A picture's bytes, checked."""
        data = (self.folder / PICTURES / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != self.files[name]:
            raise _edited(self.folder / PICTURES / name)
        return data


def sha256(data: bytes) -> str:
    """The digest of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class _Manifest(BaseModel):
    """`study.json`, as `study create` writes it."""

    model_config = ConfigDict(strict=True, frozen=True)

    format: Literal[1]
    title: str
    question: str
    sufficient: str
    instructions: tuple[str, ...]
    options: int = Field(ge=2, le=len(LETTERS))
    readers: tuple[Reader, ...] = Field(min_length=1)
    pictures: dict[str, str]
    files: dict[Annotated[str, Field(pattern=r"^\w+\.png$")], str]
    key: str
    database: Literal["postgresql"] | None = None

    @model_validator(mode="after")
    def _fits(self) -> _Manifest:
        if not set(self.pictures.values()) <= set(self.files):
            raise ValueError("names pictures that are not among its files")
        for reader in self.readers:
            if not reader.pictures() <= set(self.pictures):
                raise ValueError(f"shows {reader.name} pictures that it does not have")
            if any(len(case.options) != self.options for case in reader.cases):
                raise ValueError(f"has cases of {reader.name} without {self.options} options")
        return self


def read_study(folder: Path) -> Study:
    """A study whose every file is as `study create` wrote it."""
    path = folder / MANIFEST
    try:
        if not all(stat.S_ISREG(own.stat().st_mode) for own in (path, folder / DIGEST)):
            raise FileNotFoundError
        text = path.read_bytes()
        stated = (folder / DIGEST).read_text(encoding="ascii").split()[0]
    except (FileNotFoundError, NotADirectoryError):
        raise SavedError(
            f"{folder} must be a folder made by `unmasked study create` but has no {MANIFEST} with "
            f"its {DIGEST}."
        ) from None
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SavedError(f"the study in {folder!s:.200} cannot be read ({reason}).") from error
    if sha256(text) != stated:
        raise _edited(path)
    study = _study(folder, stated, _parse(path, text))
    for name in study.files:
        try:
            study.picture(name)
        except OSError as error:
            raise SavedError(
                f"the study in {folder} was changed after it was made: {PICTURES}/{name} cannot be "
                f"read ({error.strerror}); restore it from a copy."
            ) from error
    return study


def _parse(path: Path, text: bytes) -> _Manifest:
    try:
        return _Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        if where == "format":
            raise SavedError(
                f"{path} must have format {FORMAT} but has {first['input']!r:.40}; use the version "
                "of unmasked that made it."
            ) from None
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise SavedError(
            f"{path} must be as `unmasked study create` wrote it but is not ({what:.200}); restore "
            "it from a copy, or make a new study."
        ) from None


def _edited(path: Path) -> SavedError:
    return SavedError(
        f"the study was changed after it was made: {path} differs from its hash; restore it from "
        "a copy, or make a new study."
    )


def _study(folder: Path, digest: str, manifest: _Manifest) -> Study:
    return Study(
        folder=folder,
        digest=digest,
        title=manifest.title,
        question=manifest.question,
        sufficient=manifest.sufficient,
        instructions=manifest.instructions,
        options=manifest.options,
        readers=manifest.readers,
        pictures=manifest.pictures,
        files=manifest.files,
        key_digest=manifest.key,
        in_postgres=manifest.database is not None,
    )
