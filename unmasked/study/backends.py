"""Keep a study's answers in one SQLite file in its folder, or in a schema of PostgreSQL.

Everything that the two do differently is here; `database` is written once for both.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    QueuePool,
    cast,
    create_engine,
    event,
    func,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError, TimeoutError
from sqlalchemy.schema import CreateSchema, DropSchema

from unmasked.errors import DataWarning, InputError, MissingExtra, SavedError

PATIENCE = 3.0
"""Seconds to wait for a connection or a lock; a reader's page gives up after ten."""
POSTGRES = "postgresql"
_OPTIONS = {"application_name", "host", "port", "options", "service", "target_session_attrs"}
_OPTIONS |= {"sslmode", "sslrootcert", "sslcert", "sslkey", "passfile"}
_CONNECTION = {
    "connect_timeout": 3,
    "client_encoding": "utf8",
    "keepalives_idle": 30,
    "tcp_user_timeout": 10_000,
}
_NEVER = "records are never changed"
_REVOKED = "links are only revoked"


class DatabaseError(SavedError):
    """The database cannot be used."""


class DatabaseBusy(DatabaseError):
    """It is held by another program or cannot be reached; a later try may succeed."""


class DatabaseFull(DatabaseError):
    """The disk that the database lies on is full."""


class Place(Protocol):
    """A kind of database."""

    @property
    def name(self) -> str:
        """Return the name that messages use; it holds no password."""

    def exists(self) -> bool:
        """Return true unless the database is known to be missing."""

    def engine(self, connections: int, *, write: bool) -> Engine:
        """Connections, each used by one thread at a time; those that write take turns."""

    def lock(self, connection: Connection) -> None:
        """Let one process write at a time; what it then reads cannot change before it writes."""

    def check(self, connection: Connection) -> None:
        """Find out whether it can be written to, before the first answer comes."""

    def begin(self) -> None:
        """Make what must be there before a connection."""

    def make_room(self, connection: Connection) -> None:
        """Make what tables are put into, in one transaction with them."""

    def protect(self, connection: Connection) -> None:
        """Add what refuses to change or delete records."""

    def remove(self, engine: Engine) -> None:
        """Take away what `make_room` made."""

    def bytes_of(self, column: Column[str]) -> ColumnElement[int]:
        """Return the SQL expression for the length of a text in bytes."""

    def turn(self) -> AbstractContextManager[Any]:
        """Wait for the turn of this process, where the database itself does not see to that."""

    def rest(self, engine: Engine) -> None:
        """Tidy up while nobody writes."""

    def leave(self, engine: Engine) -> None:
        """Tidy up as the last connection goes."""

    def problem(self, error: SQLAlchemyError) -> DatabaseError:
        """A failure in words, as something to wait for, a full disk, or neither."""


@dataclass(frozen=True)
class SQLiteFile:
    """One file. While it is served, a write-ahead log lies beside it, and readers never wait.

    The log is folded into the file whenever nobody has written for a moment, and goes when the
    last server stops: then the answers are one file to copy.
    """

    path: Path

    @property
    def name(self) -> str:
        """Return the path of the file."""
        return str(self.path)

    def exists(self) -> bool:
        """Return true if the file is there."""
        return self.path.is_file()

    def engine(self, connections: int, *, write: bool) -> Engine:
        """Connections from a queue. SQLAlchemy's own choice for a URL that names no file is a pool
        for databases in memory, which closes connections that other threads are using."""
        # For reading too: what a killed server left half-written is set right at the first look.
        uri = f"{self.path.resolve().as_uri()}?mode=rw"
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: _connect(uri, write=write),
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=PATIENCE,
        )
        # A writer takes the lock at once, so that what it read cannot change before it writes.
        _begin_with(engine, "BEGIN IMMEDIATE" if write else "BEGIN")
        return engine

    def lock(self, connection: Connection) -> None:
        """Nothing: a transaction that writes begins with the lock."""

    def check(self, connection: Connection) -> None:
        """See `Place.check`."""
        connection.exec_driver_sql("PRAGMA user_version = 1")

    def begin(self) -> None:
        """An empty file that only its owner can read."""
        self.path.touch(mode=0o600)

    def make_room(self, connection: Connection) -> None:
        """Nothing: the file is there."""

    def remove(self, engine: Engine) -> None:
        """Nothing: the file lies in a folder that goes as a whole."""

    def protect(self, connection: Connection) -> None:
        """Triggers; see `Place.protect`."""
        for table in ("record", "study"):
            for what in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER no_{what}_of_{table} BEFORE {what} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{_NEVER}'); END"
                )
        connection.exec_driver_sql(
            "CREATE TRIGGER no_delete_of_link BEFORE DELETE ON link "
            f"BEGIN SELECT RAISE(ABORT, '{_REVOKED}'); END"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER only_revoke_of_link BEFORE UPDATE ON link "
            "WHEN OLD.revoked IS NOT NULL OR NEW.hash != OLD.hash OR NEW.reader IS NOT OLD.reader "
            f"BEGIN SELECT RAISE(ABORT, '{_REVOKED}'); END"
        )

    def bytes_of(self, column: Column[str]) -> ColumnElement[int]:
        """SQLite's length of a text counts characters."""
        return func.length(cast(column, LargeBinary))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Commits and folding of several processes never meet: SQLite before 3.51.3 can lose what
        one process commits while another folds the log into the file and starts it anew."""
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), poll_interval=0.005)
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise DatabaseBusy(_held(self.path)) from None
        except OSError as error:
            raise DatabaseError(_unusable(self.path, error.strerror)) from error
        try:
            yield
        finally:
            lock.release()

    def rest(self, engine: Engine) -> None:
        """Fold the log into the file."""
        self._now(engine, "PRAGMA wal_checkpoint(TRUNCATE)")

    def leave(self, engine: Engine) -> None:
        """Go back to a file without a log, unless other processes still use it."""
        self._now(engine, "PRAGMA journal_mode = DELETE")

    def _now(self, engine: Engine, pragma: str) -> None:
        """Run what must not be in a transaction, unless it would have to wait for somebody."""
        with suppress(SQLAlchemyError, sqlite3.Error, DatabaseError), self.turn():
            connection = engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute("PRAGMA busy_timeout = 0")
                try:
                    cursor.execute(pragma).fetchall()
                finally:
                    cursor.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE:.0f}")
            finally:
                connection.close()

    def problem(self, error: SQLAlchemyError) -> DatabaseError:
        """See `Place.problem`."""
        cause = getattr(error, "orig", None)
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return DatabaseFull(
                f"the answers must fit on the disk of {self.path} but it is full; free some space."
            )
        waited = isinstance(error, TimeoutError)  # SQLAlchemy's: for a connection
        if waited or code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DatabaseBusy(_held(self.path))
        return DatabaseError(_unusable(self.path, cause or error))


def _held(path: Path) -> str:
    return (
        f"the database {path} is busy, or held by another program; end that program, or try again "
        "later."
    )


def _unusable(path: Path, why: object) -> str:
    return (
        f"the database {path} cannot be used ({why}); check that it is the study's own, that it "
        "may be written, and that no other program holds it."
    )


def _connect(uri: str, *, write: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=PATIENCE, check_same_thread=False, isolation_level=None
    )
    if write:
        # Where the file system has no shared memory the journal stays as it is. EXTRA brings every
        # commit to the disk with either journal.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS, where a flush is not one otherwise
    return connection


@dataclass(frozen=True)
class PostgresSchema:
    """A schema of a PostgreSQL database, named after the study's digest: one holds many studies."""

    url: URL
    digest: str

    @property
    def name(self) -> str:
        """The address without its password."""
        return self.url.set(query={}).render_as_string(hide_password=True)

    @property
    def schema(self) -> str:
        """The schema of this study."""
        return f"unmasked_{self.digest[:16]}"

    def exists(self) -> bool:
        """Left to the first connection."""
        return True

    def engine(self, connections: int, *, write: bool) -> Engine:
        """Connections from a queue, looked after: a server that was restarted is met again."""
        try:
            engine = create_engine(
                self.url,
                pool_size=connections,
                max_overflow=0,
                pool_timeout=PATIENCE,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED" if write else "REPEATABLE READ",
                execution_options={"schema_translate_map": {None: self.schema}},
                connect_args=_CONNECTION,
            )
        except ImportError as error:
            raise MissingExtra("psycopg", "study-postgres", "a study in PostgreSQL") from error
        if write:  # commits reach the disk whatever the server's own setting; locks are not awaited
            timeout = f"SET LOCAL lock_timeout = {1000 * PATIENCE:.0f}"
            _begin_with(engine, f"SET LOCAL synchronous_commit = on; {timeout}")
        return engine

    def lock(self, connection: Connection) -> None:
        """See `Place.lock`. A lock of our own: one on the table would wait for a vacuum."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({int(self.digest[:15], 16)})")

    def check(self, connection: Connection) -> None:
        """See `Place.check`; and tell of a server that does not bring commits to its disk."""
        self.lock(connection)
        if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
            warnings.warn(
                "the PostgreSQL server runs with fsync off, so a power cut can lose answers that "
                "readers were told are saved; set fsync = on.",
                DataWarning,
                stacklevel=2,
            )

    def begin(self) -> None:
        """Nothing: the database is there."""

    def make_room(self, connection: Connection) -> None:
        """A schema, which must be new, in a database that can hold every language."""
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise DatabaseError(
                f"the database {self.name} must have the encoding UTF8 but has {encoding}; make "
                "one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
            )
        connection.execute(CreateSchema(self.schema))

    def remove(self, engine: Engine) -> None:
        """Drop the schema with all that is in it."""
        with suppress(SQLAlchemyError), engine.begin() as connection:
            connection.execute(DropSchema(self.schema, cascade=True, if_exists=True))

    def protect(self, connection: Connection) -> None:
        """Triggers; see `Place.protect`."""
        schema = f'"{self.schema}"'
        for name, text in (("never", _NEVER), ("revoked", _REVOKED)):
            connection.exec_driver_sql(
                f"CREATE FUNCTION {schema}.{name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION '{text}' "
                "USING ERRCODE = 'integrity_constraint_violation'; END $$"
            )
        for table, what, each, when, name in (
            ("record", "UPDATE OR DELETE", "ROW", "", "never"),
            ("study", "UPDATE OR DELETE", "ROW", "", "never"),
            ("record", "TRUNCATE", "STATEMENT", "", "never"),
            ("study", "TRUNCATE", "STATEMENT", "", "never"),
            ("link", "TRUNCATE", "STATEMENT", "", "revoked"),
            ("link", "DELETE", "ROW", "", "revoked"),
            (
                "link",
                "UPDATE",
                "ROW",
                "WHEN (OLD.revoked IS NOT NULL OR NEW.hash <> OLD.hash "
                "OR NEW.reader IS DISTINCT FROM OLD.reader)",
                "revoked",
            ),
        ):
            connection.exec_driver_sql(
                f"CREATE TRIGGER no_{what.lower().replace(' ', '_')} BEFORE {what} "
                f"ON {schema}.{table} FOR EACH {each} {when} EXECUTE FUNCTION {schema}.{name}()"
            )

    def bytes_of(self, column: Column[str]) -> ColumnElement[int]:
        """PostgreSQL has a name for it."""
        return func.octet_length(column)

    def turn(self) -> AbstractContextManager[Any]:
        """Nothing: `lock` is what processes wait for."""
        return nullcontext()

    def rest(self, engine: Engine) -> None:
        """Nothing to do."""

    def leave(self, engine: Engine) -> None:
        """Nothing to do."""

    def problem(self, error: SQLAlchemyError) -> DatabaseError:
        """See `Place.problem`."""
        cause = getattr(error, "orig", None) or error
        state = getattr(cause, "sqlstate", None) or ""
        reason = " ".join(str(cause).split()) or type(cause).__name__
        if state == "53100":
            return DatabaseFull(f"the disk of the database {self.name} is full; free some space.")
        if state == "42P06":
            return DatabaseError(
                f"the database {self.name} has a schema {self.schema} already; drop it, or use "
                "another database."
            )
        if state in ("3F000", "42P01"):
            return DatabaseError(
                f"the database {self.name} must hold this study's answers but has none of them; "
                "give the one that `study create` was given."
            )
        if not state or state[:2] in ("08", "53", "55", "57"):
            return DatabaseBusy(
                f"the database {self.name} is busy or cannot be reached ({reason}); check that it "
                "runs, or try again later."
            )
        return DatabaseError(f"the database {self.name} cannot be used ({reason}).")


def _begin_with(engine: Engine, statement: str) -> None:
    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(statement)


def database_url(text: str) -> URL:
    """Read the address given as ``--database``, checked, and name psycopg as its driver."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in ("postgres", POSTGRES, f"{POSTGRES}+psycopg"):
        raise InputError(
            "--database must be an address such as postgresql+psycopg://user@host/name but is not; "
            "leave it out to keep answers in the study's folder."
        )
    if unknown := sorted(set(url.query) - _OPTIONS):
        raise InputError(
            f"the address in --database may have the options {', '.join(sorted(_OPTIONS))} but has "
            f"{unknown[0]!r}; leave it out (a password belongs before the host, or in PGPASSWORD)."
        )
    return url.set(drivername=f"{POSTGRES}+psycopg")
