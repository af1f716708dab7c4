"""Where answers are kept: SQLite, append-only, each record bound to the one before it.

A record's digest covers its content and the digest before it, and triggers refuse to change or
delete a record. So a change leaves a trace, even one made with another program. A transaction is
on the disk before it is reported as done (``synchronous = EXTRA``).

Links are stored as SHA-256 of their secret, which has 256 random bits.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    cast,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from unmasked.errors import SavedError

MOST_VERSIONS = 1000
"""How often a reader may answer one case: far more than work needs, and no disk is filled by it."""
MOST_BYTES = 1_000_000
"""What all versions of one answer may take together; a remark is most of it."""
_PATIENCE = 3.0  # seconds to wait for another writer; the page gives up after ten
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
_TRIGGERS = [
    f"CREATE TRIGGER no_{what}_of_{table} BEFORE {what} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'records are never changed'); END"
    for table in ("record", "study")
    for what in ("UPDATE", "DELETE")
] + [
    "CREATE TRIGGER no_delete_of_link BEFORE DELETE ON link "
    "BEGIN SELECT RAISE(ABORT, 'links are revoked, not deleted'); END",
    "CREATE TRIGGER only_revoke_of_link BEFORE UPDATE ON link "
    "WHEN OLD.revoked IS NOT NULL OR NEW.hash != OLD.hash OR NEW.reader IS NOT OLD.reader "
    "BEGIN SELECT RAISE(ABORT, 'links are only revoked'); END",
]


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
    """Whose link it is: a reader's number, from 0, or None for the owner's."""

    reader: int | None


class Conflict(Exception):
    """An answer was changed elsewhere since the page was loaded."""


class Finished(Exception):
    """The reader has finished, or the study is closed: nothing can be changed any more."""


class Full(Exception):
    """A case was answered so often that no more is kept."""


def create_database(path: Path, digest: str, readers: list[str], owner: str) -> None:
    """A new database of a study whose manifest has ``digest``, with a link for each secret."""
    path.touch(mode=0o600)
    database = Database(path)
    try:
        with database.transaction() as connection:
            _metadata.create_all(connection)
            for statement in _TRIGGERS:
                connection.exec_driver_sql(statement)
            connection.execute(_study.insert().values(digest=digest))
        for number, secret in enumerate(readers):
            database.add_link(number, secret)
        database.add_link(None, owner)
    except DBAPIError as error:
        raise OSError(str(error.orig)) from error
    finally:
        database.close()


def open_database(path: Path, digest: str, *, write: bool = True) -> Database:
    """The database of the study whose manifest has ``digest``."""
    if not path.is_file():
        raise SavedError(f"the answers of the study must be in {path} but there is no such file.")
    database = Database(path, write=write)
    try:
        with database.transaction() as connection:
            found = connection.execute(select(_study.c.digest)).scalar_one()
            connection.execute(select(func.count()).select_from(_records)).scalar_one()
            if write:  # a writer must be able to write: find out now, not at the first answer
                connection.exec_driver_sql("PRAGMA user_version = 1")
    except SQLAlchemyError as error:
        database.close()
        reason = getattr(error, "orig", None) or error
        raise SavedError(
            f"the database {path} cannot be opened ({reason}); check that it is the study's own, "
            "that it may be written, and that no other program holds it."
        ) from error
    if found != digest:
        database.close()
        raise SavedError(
            f"the database {path} belongs to another study, or study.json was changed since; "
            "restore the folder from a copy."
        )
    return database


class Database:
    """Reads and appends. All methods are safe to call from several threads and processes."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self.path = path
        # For reading too: what a killed server left half-written is rolled back at the first look.
        uri = f"{path.resolve().as_uri()}?mode=rw"
        self._engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: _connect(uri, write=write),
            pool_size=8,
        )

        @event.listens_for(self._engine, "begin")
        def _begin(connection: Connection) -> None:
            # A writer takes the lock at once, so that what it read cannot change before it writes.
            reads = not write or connection.get_execution_options().get("reads")
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block has ended without an error."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One state of the database, to read from; writers are not kept waiting."""
        with self._engine.connect().execution_options(reads=True) as connection, connection.begin():
            yield connection

    # ------------------------------------------------------------------ links

    def add_link(self, reader: int | None, secret: str) -> None:
        """A link for a reader, or for the owner."""
        with self.transaction() as connection:
            connection.execute(
                _links.insert().values(reader=reader, hash=link_hash(secret), made=now())
            )
            self._append(connection, reader, "link", content={"hash": link_hash(secret)})

    def revoke_links(self, reader: int | None) -> int:
        """Make all links of a reader (or of the owner) useless; how many there were."""
        with self.transaction() as connection:
            mine = (_links.c.reader == reader) if reader is not None else _links.c.reader.is_(None)
            done = connection.execute(
                _links.update().where(mine, _links.c.revoked.is_(None)).values(revoked=now())
            )
            if done.rowcount:
                self._append(connection, reader, "revoke", content={"links": done.rowcount})
        return done.rowcount

    def link(self, secret: str) -> Link | None:
        """Whose link this is; None if nobody's, or revoked."""
        with self.reading() as connection:
            row = connection.execute(
                select(_links.c.reader, _links.c.revoked).where(_links.c.hash == link_hash(secret))
            ).one_or_none()
        return None if row is None or row.revoked is not None else Link(row.reader)

    def has_link(self, reader: int | None) -> bool:
        """Whether a reader has a link that works."""
        with self.reading() as connection:
            rows = connection.execute(select(_links.c.reader).where(_links.c.revoked.is_(None)))
            return reader in {row.reader for row in rows}

    # ------------------------------------------------------------------ records

    def save_answer(
        self, reader: int, case: str, content: dict[str, Any], *, base: int, change: str
    ) -> Version:
        """Append an answer that was given on top of version ``base`` (0: the first).

        ``change`` names the change: sent again, because its reply was lost, it is not saved twice.
        """
        with self.transaction() as connection:
            last = self._last(connection, reader, case)
            if last is not None and last.record.change == change:
                return last
            if self._over(connection, reader):
                raise Finished
            if (last.number if last else 0) != base:
                raise Conflict
            if base >= MOST_VERSIONS or self._bytes(connection, reader, case) > MOST_BYTES:
                raise Full
            record = self._append(
                connection, reader, "answer", case=case, change=change, content=content
            )
            return Version(base + 1, record)

    def finish(self, reader: int) -> None:
        """The reader is done; nothing of theirs changes after this."""
        with self.transaction() as connection:
            if not self._over(connection, reader):
                self._append(connection, reader, "finish")

    def close_study(self) -> None:
        """The owner ends the study for all readers."""
        with self.transaction() as connection:
            if not self._exists(connection, "close"):
                self._append(connection, None, "close")

    def closed(self) -> bool:
        """Whether the owner has ended the study."""
        with self.reading() as connection:
            return self._exists(connection, "close")

    def over(self, reader: int) -> bool:
        """Whether a reader has finished, or the study is closed."""
        with self.reading() as connection:
            return self._over(connection, reader)

    def answers(self, reader: int) -> dict[str, Version]:
        """{case: the last answer to it} of one reader."""
        newest = (
            select(func.max(_records.c.id).label("id"), func.count().label("number"))
            .where(_records.c.reader == reader, _records.c.kind == "answer")
            .group_by(_records.c.case)
            .subquery()
        )
        query = select(newest.c.number, _records).join(newest, _records.c.id == newest.c.id)
        with self.reading() as connection:
            return {
                row.case: Version(row[0], Record(*row[1:])) for row in connection.execute(query)
            }

    def records(self) -> list[Record]:
        """Everything that happened, in order, verified: a broken chain is refused."""
        with self.reading() as connection:
            before = connection.execute(select(_study.c.digest)).scalar_one()
            rows = connection.execute(select(_records).order_by(_records.c.id))
            records = [Record(*row) for row in rows]
        for expected, record in enumerate(records, 1):
            if record.id != expected or record.digest != _digest(before, record):
                raise SavedError(
                    f"the answers in {self.path} were changed by another program: record "
                    f"{record.id} does not follow from the one before it; restore a copy."
                )
            before = record.digest
        return records

    def _append(
        self,
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

    def _last(self, connection: Connection, reader: int, case: str) -> Version | None:
        mine = _answers_to(reader, case)
        row = connection.execute(
            select(_records).where(*mine).order_by(_records.c.id.desc()).limit(1)
        ).one_or_none()
        if row is None:
            return None
        number = connection.execute(select(func.count()).where(*mine)).scalar_one()
        return Version(number, Record(*row))

    def _bytes(self, connection: Connection, reader: int, case: str) -> int:
        """How much all answers to a case take."""
        length = func.sum(func.length(cast(_records.c.content, LargeBinary)))
        return connection.execute(select(length).where(*_answers_to(reader, case))).scalar() or 0

    def _exists(self, connection: Connection, kind: str, reader: int | None = None) -> bool:
        query = select(_records.c.id).where(_records.c.kind == kind).limit(1)
        if reader is not None:
            query = query.where(_records.c.reader == reader)
        return connection.execute(query).first() is not None

    def _over(self, connection: Connection, reader: int) -> bool:
        return self._exists(connection, "close") or self._exists(connection, "finish", reader)


def _answers_to(reader: int, case: str) -> tuple[ColumnElement[bool], ...]:
    return (_records.c.kind == "answer", _records.c.reader == reader, _records.c.case == case)


def link_hash(secret: str) -> str:
    """What is stored of a link."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def now() -> str:
    """The time, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _digest(before: str, record: Record) -> str:
    text = json.dumps([before, *astuple(record)[:-1]], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _connect(uri: str, *, write: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=_PATIENCE, check_same_thread=False, isolation_level=None
    )
    if write:
        # A rollback journal, so that the answers are one file that can be copied; EXTRA also
        # brings the journal's deletion, which is the commit, to the disk.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
    return connection
