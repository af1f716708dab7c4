"""Answers, append-only, each record bound to the one before it.

A record's digest covers its content and the digest before it, and triggers refuse to change or
delete a record. So a change leaves a trace, even one made with another program. A transaction is
on the disk before it is reported as done.

Links are stored as SHA-256 of their secret, which has 256 random bits.

Reads take a connection from a queue, in whichever thread asks; everything that is written goes
through one thread (`writer`). No connection is ever used, or closed, by a thread while another one
has it. `backends` has what differs between SQLite and PostgreSQL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Exists,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    exists,
    func,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from unmasked.errors import SavedError
from unmasked.study.backends import Place, PostgresSchema, SQLiteFile
from unmasked.study.writer import Refused, Writer

T = TypeVar("T")
READERS = 8
"""Connections for reading; a request that finds all of them in use waits for one."""
MOST_VERSIONS = 1000
"""How often a reader may answer one case: far more than work needs, and no disk is filled by it."""
MOST_BYTES = 1_000_000
"""What all versions of one answer may take together; a remark is most of it."""
_metadata = MetaData()
_study = Table("study", _metadata, Column("digest", String, nullable=False))
_links = Table(
    "link",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("reader", Integer),  # None: the owner's
    Column("hash", String, nullable=False, unique=True),
    Column("made", String, nullable=False),
    Column("revoked", String),
)
_records = Table(
    "record",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("time", String, nullable=False),
    Column("reader", Integer),
    Column("kind", String, nullable=False),  # answer, finish, close, link, revoke
    Column("case", String),
    Column("change", String),
    Column("content", Text, nullable=False),
    Column("digest", String, nullable=False),
    Index("record_of_case", "kind", "reader", "case"),
    sqlite_autoincrement=True,
)


@dataclass(frozen=True)
class Record:
    """Something that happened."""

    id: int
    time: str
    reader: int | None
    kind: str
    case: str | None
    change: str | None
    content: str
    digest: str


@dataclass(frozen=True)
class Version:
    """The answer to a case that counts, and how many there have been, it included.

    Readers are told this number, never a record's, which would tell how busy the others are.
    """

    number: int
    record: Record


@dataclass(frozen=True)
class Link:
    """A link that works; ``reader`` is its reader's number, from 0, or None for the owner's."""

    reader: int | None


@dataclass(frozen=True)
class Standing:
    """A reader's progress: the answers so far, and whether they can still change."""

    reader: int
    over: bool
    """Whether the reader has finished, or the study is closed."""
    answers: dict[str, Version]
    """{case: the last answer to it}."""


class Conflict(Refused):
    """An answer was changed elsewhere since the page was loaded."""


class Finished(Refused):
    """The reader has finished, or the study is closed: nothing can be changed any more."""


class Full(Refused):
    """A case was answered so often that no more is kept."""


def place_of(where: Path | URL, digest: str) -> Place:
    """The database at a path, or in PostgreSQL, of the study whose manifest has ``digest``."""
    return SQLiteFile(where) if isinstance(where, Path) else PostgresSchema(where, digest)


def create_database(where: Path | URL, digest: str, readers: list[str], owner: str) -> None:
    """A new database of a study whose manifest has ``digest``, with a link for each secret."""
    place = place_of(where, digest)
    place.begin()
    engine = place.engine(1, write=True)
    try:
        with engine.begin() as connection:
            place.make_room(connection)
            _metadata.create_all(connection)
            place.protect(connection)
            connection.execute(_study.insert().values(digest=digest))
            for number, secret in [*enumerate(readers), (None, owner)]:
                _add_link(connection, number, secret)
        place.leave(engine)
    except SQLAlchemyError as error:
        raise place.problem(error) from error
    finally:
        engine.dispose()


def remove_database(where: Path | URL, digest: str) -> None:
    """Take back what `create_database` made outside the study's folder."""
    place = place_of(where, digest)
    engine = place.engine(1, write=True)
    place.remove(engine)
    engine.dispose()


def open_database(where: Path | URL, digest: str, *, write: bool = True) -> Database:
    """The database of the study whose manifest has ``digest``."""
    place = place_of(where, digest)
    if not place.exists():
        raise SavedError(
            f"the answers of the study must be in {place.name} but there is no such file."
        )
    database = Database(place, write=write)
    try:
        if database.study() != digest:
            raise SavedError(
                f"the database {place.name} belongs to another study, or study.json was changed "
                "since; restore the folder from a copy."
            )
        if write:  # find out now that it cannot be written, not at the first answer
            database.write(place.check)
    except BaseException:
        database.close()
        raise
    return database


class Database:
    """Reads and appends. All methods are safe to call from several threads and processes."""

    def __init__(self, place: Place, *, write: bool = True) -> None:
        self.place = place
        self._engine = place.engine(READERS, write=False)
        self._writer = Writer(place) if write else None

    def close(self) -> None:
        """Let go of the database; what was submitted is written before."""
        self._engine.dispose()
        if self._writer is not None:
            self._writer.close()

    def study(self) -> str:
        """The digest of the study that this is a database of; all that is needed is there."""
        with self.reading() as connection:
            for table in _metadata.sorted_tables:
                connection.execute(select(func.count()).select_from(table)).scalar_one()
            return str(connection.execute(select(_study.c.digest)).scalar_one())

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One state of the database, to read from; writers are not kept waiting."""
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except SQLAlchemyError as error:
            raise self.place.problem(error) from error

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Have something written; it is on the disk when the future has its result."""
        if self._writer is None:
            raise SavedError(f"the database {self.place.name} was opened for reading only.")
        return self._writer.submit(work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run work in a transaction; return its result once that is on the disk."""
        return self.submit(work).result()

    # ------------------------------------------------------------------ links

    def revoke_links(self, reader: int | None) -> int:
        """Make all links of a reader (or of the owner) useless; how many there were."""
        return self.write(lambda connection: _revoke_links(connection, reader))

    def renew_link(self, reader: int | None, secret: str) -> None:
        """Give a reader (or the owner) a link instead of all earlier ones, or change nothing."""

        def renew(connection: Connection) -> None:
            _revoke_links(connection, reader)
            _add_link(connection, reader, secret)

        self.write(renew)

    def link(self, secret: str) -> Link | None:
        """Look up the link with this secret; None if there is none, or it was revoked."""
        with self.reading() as connection:
            return _link(connection, secret)

    def standing(self, secret: str) -> Standing | None:
        """Read the progress of the reader with this link; None if it is no reader's."""
        with self.reading() as connection:
            link = _link(connection, secret)
            if link is None or link.reader is None:
                return None
            over, answers = _over(connection, link.reader), _answers(connection, link.reader)
            return Standing(link.reader, over, answers)

    def has_link(self, reader: int | None) -> bool:
        """Return true if a reader, or the owner, has a link that works."""
        with self.reading() as connection:
            rows = connection.execute(select(_links.c.reader).where(_links.c.revoked.is_(None)))
            return reader in {row.reader for row in rows}

    # ------------------------------------------------------------------ records

    def submit_answer(
        self, reader: int, case: str, content: dict[str, Any], *, base: int, change: str
    ) -> Future[Version]:
        """Append an answer that was given on top of version ``base`` (0: the first).

        ``change`` names the change: sent again, because its reply was lost, it is not saved twice.
        """

        def save(connection: Connection) -> Version:
            count, size, newest, over = connection.execute(self._state(reader, case)).one()
            if newest is not None:
                query = select(_records).where(_records.c.id == newest)
                last = Record(*connection.execute(query).one())
                if last.change == change:
                    return Version(count, last)
            if over:
                raise Finished
            if count != base:
                raise Conflict
            if count >= MOST_VERSIONS or (size or 0) > MOST_BYTES:
                raise Full
            record = _append(
                connection, reader, "answer", case=case, change=change, content=content
            )
            return Version(base + 1, record)

        return self.submit(save)

    def save_answer(
        self, reader: int, case: str, content: dict[str, Any], *, base: int, change: str
    ) -> Version:
        """Append an answer on top of version ``base``, and wait until it is on the disk."""
        return self.submit_answer(reader, case, content, base=base, change=change).result()

    def finish(self, reader: int) -> None:
        """The reader is done; nothing of theirs changes after this."""

        def finish(connection: Connection) -> None:
            if not _over(connection, reader):
                _append(connection, reader, "finish")

        self.write(finish)

    def close_study(self) -> None:
        """The owner ends the study for all readers."""

        def close(connection: Connection) -> None:
            if not _over(connection, None):
                _append(connection, None, "close")

        self.write(close)

    def closed(self) -> bool:
        """Return true if the owner has ended the study."""
        with self.reading() as connection:
            return _over(connection, None)

    def over(self, reader: int) -> bool:
        """Return true if a reader has finished, or the study is closed."""
        with self.reading() as connection:
            return _over(connection, reader)

    def answers(self, reader: int) -> dict[str, Version]:
        """{case: the last answer to it} of one reader."""
        with self.reading() as connection:
            return _answers(connection, reader)

    def records(self) -> list[Record]:
        """Everything that happened, in order, verified: a broken chain is refused."""
        with self.reading() as connection:
            before = connection.execute(select(_study.c.digest)).scalar_one()
            rows = connection.execute(select(_records).order_by(_records.c.id))
            records = [Record(*row) for row in rows]
        for expected, record in enumerate(records, 1):
            if record.id != expected or record.digest != _digest(before, record):
                raise SavedError(
                    f"the answers in {self.place.name} were changed by another program: record "
                    f"{record.id} does not follow from the one before it; restore a copy."
                )
            before = record.digest
        return records

    def _state(self, reader: int, case: str) -> Select[*tuple[Any, ...]]:
        """Of all answers to a case: how many, how many bytes, the newest; and whether it is over.

        One question instead of several: a server in the network takes its time for each.
        """
        own = _records.c
        return select(
            func.count(),
            func.sum(self.place.bytes_of(own.content)),
            func.max(own.id),
            _ended(reader),
        ).where(own.kind == "answer", own.reader == reader, own.case == case)


def _add_link(connection: Connection, reader: int | None, secret: str) -> None:
    connection.execute(_links.insert().values(reader=reader, hash=link_hash(secret), made=now()))
    _append(connection, reader, "link", content={"hash": link_hash(secret)})


def _revoke_links(connection: Connection, reader: int | None) -> int:
    mine = (_links.c.reader == reader) if reader is not None else _links.c.reader.is_(None)
    done = connection.execute(
        _links.update().where(mine, _links.c.revoked.is_(None)).values(revoked=now())
    )
    if done.rowcount:
        _append(connection, reader, "revoke", content={"links": done.rowcount})
    return done.rowcount


def _append(
    connection: Connection,
    reader: int | None,
    kind: str,
    *,
    case: str | None = None,
    change: str | None = None,
    content: dict[str, Any] | None = None,
) -> Record:
    newest = connection.execute(
        select(_records.c.id, _records.c.digest).order_by(_records.c.id.desc()).limit(1)
    ).one_or_none()
    if newest is None:
        number, before = 1, connection.execute(select(_study.c.digest)).scalar_one()
    else:
        number, before = newest.id + 1, newest.digest
    text = json.dumps(content or {}, ensure_ascii=False)
    record = Record(number, now(), reader, kind, case, change, text, digest="")
    record = replace(record, digest=_digest(before, record))
    connection.execute(_records.insert().values(asdict(record)))
    return record


def _link(connection: Connection, secret: str) -> Link | None:
    row = connection.execute(
        select(_links.c.reader, _links.c.revoked).where(_links.c.hash == link_hash(secret))
    ).one_or_none()
    return None if row is None or row.revoked is not None else Link(row.reader)


def _answers(connection: Connection, reader: int) -> dict[str, Version]:
    newest = (
        select(func.max(_records.c.id).label("id"), func.count().label("number"))
        .where(_records.c.reader == reader, _records.c.kind == "answer")
        .group_by(_records.c.case)
        .subquery()
    )
    query = select(newest.c.number, _records).join(newest, _records.c.id == newest.c.id)
    return {row.case: Version(row[0], Record(*row[1:])) for row in connection.execute(query)}


def _ended(reader: int | None) -> Exists:
    """Return the SQL condition that the study was closed, or that a reader has finished."""
    other = _records.alias()  # of its own: it stands in questions about the same table
    ends = other.c.kind == "close"
    if reader is not None:
        ends |= (other.c.kind == "finish") & (other.c.reader == reader)
    return exists().where(ends)


def _over(connection: Connection, reader: int | None) -> bool:
    return bool(connection.execute(select(_ended(reader))).scalar_one())


def link_hash(secret: str) -> str:
    """Return the SHA-256 of a link's secret, which is stored in place of the secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def now() -> str:
    """The time, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _digest(before: str, record: Record) -> str:
    text = json.dumps([before, *astuple(record)[:-1]], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
