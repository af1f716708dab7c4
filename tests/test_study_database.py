"""Answers on disk: append-only, chained, durable."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from small_postgres import POSTGRES, Postgres
from small_studies import wait_for
from sqlalchemy import QueuePool, event

from unmasked.errors import DataWarning, InputError, SavedError
from unmasked.study.backends import DatabaseBusy, DatabaseFull, database_url
from unmasked.study.database import (
    Conflict,
    Finished,
    Full,
    create_database,
    link_hash,
    open_database,
    remove_database,
)

DIGEST = "d" * 64


@pytest.fixture(scope="module")
def postgres():
    if POSTGRES is None:
        pytest.skip("PostgreSQL is not installed")
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """A database of a study with two readers, of either kind."""
    if request.param == "sqlite":
        where = tmp_path / "a.sqlite"
    else:
        where = database_url(request.getfixturevalue("postgres").database())
    create_database(where, DIGEST, ["secret-1", "secret-2"], "owner")
    return where


@pytest.fixture
def path(tmp_path):
    create_database(tmp_path / "a.sqlite", DIGEST, ["secret-1", "secret-2"], "owner")
    return tmp_path / "a.sqlite"


@pytest.fixture
def database(where):
    database = open_database(where, DIGEST)
    yield database
    database.close()


def tamper(where, *statements: str) -> None:
    """Change a database with another program."""
    if isinstance(where, Path):
        other = sqlite3.connect(where)
        for statement in statements:
            other.execute(statement)
        other.commit()
        other.close()
        return
    with psycopg.connect(where.set(drivername="postgresql").render_as_string(False)) as other:
        other.execute(f"SET search_path TO unmasked_{DIGEST[:16]}")
        for statement in statements:
            other.execute(statement)


def test_links_know_whose_they_are(database):
    assert database.link("secret-2").reader == 1
    assert database.link("owner").reader is None
    assert database.link("nobody's") is None
    assert database.revoke_links(1) == 1
    assert database.link("secret-2") is None
    assert not database.has_link(1)
    assert database.has_link(0)
    assert len(link_hash("x")) == 64


def test_answers_follow_one_another(database):
    first = database.save_answer(0, "c", {"n": 1}, base=0, change="one")
    second = database.save_answer(0, "c", {"n": 2}, base=1, change="two")
    assert database.save_answer(0, "c", {"n": 2}, base=1, change="two") == second
    assert (first.number, second.number) == (1, 2)
    with pytest.raises(Conflict):
        database.save_answer(0, "c", {"n": 3}, base=1, change="three")
    assert database.answers(0)["c"] == second
    assert database.answers(1) == {}
    database.finish(0)
    with pytest.raises(Finished):
        database.save_answer(0, "c", {"n": 3}, base=2, change="three")
    kept = [record.content for record in database.records() if record.kind == "answer"]
    assert kept == ['{"n": 1}', '{"n": 2}']  # the earlier version is still there


def test_versions_count_one_readers_answers_to_one_case(database):
    """What a reader is told does not depend on what others do."""
    for reader, case, base in ((1, "d", 0), (1, "d", 1), (0, "e", 0), (0, "c", 0), (0, "c", 1)):
        database.save_answer(reader, case, {}, base=base, change=f"change {base}")
    numbers = {case: version.number for case, version in database.answers(0).items()}
    assert numbers == {"c": 2, "e": 1}
    assert database.answers(1)["d"].number == 2


def test_nobody_fills_the_disk(database, monkeypatch):
    """A case takes so many versions, and so many bytes, and the others are not touched by that."""
    monkeypatch.setattr("unmasked.study.database.MOST_VERSIONS", 3)
    for n in range(3):
        last = database.save_answer(0, "c", {"n": n}, base=n, change=f"change {n}")
    with pytest.raises(Full):
        database.save_answer(0, "c", {"n": 3}, base=3, change="change 3")
    assert database.save_answer(0, "c", {"n": 2}, base=2, change="change 2") == last  # sent again
    database.save_answer(0, "d", {"n": 0}, base=0, change="change 0")
    database.save_answer(1, "c", {"n": 0}, base=0, change="change 0")
    monkeypatch.setattr("unmasked.study.database.MOST_BYTES", 1000)
    database.save_answer(0, "e", {"remark": "ü" * 500}, base=0, change="change 0")
    with pytest.raises(Full):
        database.save_answer(0, "e", {"remark": ""}, base=1, change="change 1")
    assert len(database.records()) == 3 + 3 + 2 + 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET content = 'x'",
        "DELETE FROM record",
        "DELETE FROM link",
        "UPDATE link SET hash = 'x'",
        "UPDATE link SET reader = 0",
        "UPDATE study SET digest = 'x'",
        "DELETE FROM study",
        "UPDATE link SET revoked = NULL WHERE revoked IS NOT NULL",
    ],
)
def test_triggers_refuse_changes(database, where, statement):
    database.save_answer(0, "c", {}, base=0, change="one")
    database.revoke_links(1)
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        tamper(where, statement)


@pytest.mark.parametrize("table", ["record", "study", "link"])
def test_postgres_refuses_to_empty_a_table(postgres, table):
    where = database_url(postgres.database())
    create_database(where, DIGEST, ["secret-1"], "owner")
    with pytest.raises(psycopg.IntegrityError):
        tamper(where, f"TRUNCATE {table}")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET content = '{\"n\": 9}' WHERE id = 5",
        "UPDATE record SET time = 'yesterday' WHERE id = 5",
        "UPDATE record SET reader = 1 WHERE id = 5",
        "DELETE FROM record WHERE id = 5",
        "DELETE FROM record WHERE id = 1",
    ],
)
def test_a_change_behind_the_triggers_is_seen(database, where, statement):
    for n in range(4):
        database.save_answer(0, "c", {"n": n}, base=n, change=f"change {n}")
    assert len(database.records()) == 7
    if isinstance(where, Path):
        drop = ["DROP TRIGGER no_update_of_record", "DROP TRIGGER no_delete_of_record"]
    else:
        drop = ["DROP TRIGGER no_update_or_delete ON record"]
    tamper(where, *drop, statement)
    with pytest.raises(SavedError, match="were changed by another program"):
        database.records()


def test_many_writers_at_once_keep_one_chain(database):
    def work(reader: int) -> None:
        for n in range(10):
            database.save_answer(reader, "c", {"n": n}, base=n, change=f"{reader} {n}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    records = database.records()
    assert len(records) == 3 + 40
    for reader in range(4):
        mine = [r.content for r in records if r.kind == "answer" and r.reader == reader]
        assert mine == [f'{{"n": {n}}}' for n in range(10)]


def test_commits_reach_the_disk(path):
    database = open_database(path, DIGEST)
    settings = [
        database.write(lambda c, name=name: c.exec_driver_sql(f"PRAGMA {name}").scalar())
        for name in ("synchronous", "journal_mode")
    ]
    database.close()
    assert settings == [3, "wal"]  # EXTRA


def test_commits_reach_the_disk_of_a_server_that_would_not_wait_for_it(postgres):
    where = database_url(postgres.database())
    postgres.ask(where.database, f"ALTER DATABASE {where.database} SET synchronous_commit = off")
    create_database(where, DIGEST, ["secret-1"], "owner")
    database = open_database(where, DIGEST)
    found = database.write(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar())
    database.close()
    assert found == "on"


def test_a_server_that_does_not_flush_is_told(postgres):
    where = database_url(postgres.database())
    create_database(where, DIGEST, ["secret-1"], "owner")
    postgres.ask("postgres", "ALTER SYSTEM SET fsync = off")
    postgres.ask("postgres", "SELECT pg_reload_conf()")
    try:
        with pytest.warns(DataWarning, match="fsync off"):
            open_database(where, DIGEST).close()
    finally:
        postgres.ask("postgres", "ALTER SYSTEM RESET fsync")
        postgres.ask("postgres", "SELECT pg_reload_conf()")


def test_answers_are_one_file_when_nobody_serves(path, tmp_path):
    """The log beside the file is folded in when nobody writes, and goes with the last server."""
    first, second = open_database(path, DIGEST), open_database(path, DIGEST)
    first.save_answer(0, "c", {"n": 1}, base=0, change="one")
    log = path.with_name(path.name + "-wal")
    wait_for(lambda: log.stat().st_size == 0)
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    second.save_answer(1, "c", {"n": 2}, base=0, change="two")
    second.close()
    first.save_answer(0, "c", {"n": 3}, base=1, change="three")
    first.close()
    assert [file.name for file in tmp_path.glob("a.sqlite*")] == ["a.sqlite"]
    assert path.read_bytes()[18:20] == b"\1\1"  # no log wanted: it can be read where it lies
    copied = open_database(copy, DIGEST, write=False)
    assert len(copied.records()) == 3 + 1
    copied.close()


def test_connections_come_from_a_queue_and_are_used_by_one_thread_at_a_time(where):
    """A pool that closes connections which other threads are using ends the process."""
    database = open_database(where, DIGEST)
    engines = (database._engine, database._writer._engine)
    assert {type(engine.pool) for engine in engines} == {QueuePool}
    users: dict[int, int] = {}
    wrong = []

    def out(connection, *_):
        if users.setdefault(id(connection), threading.get_ident()) != threading.get_ident():
            wrong.append("used by two threads")

    def back(connection, *_):
        if users.pop(id(connection), None) != threading.get_ident():
            wrong.append("given back by another thread")

    for engine in engines:
        event.listen(engine.pool, "checkout", out)
        event.listen(engine.pool, "checkin", back)

    def work(reader: int) -> None:
        for n in range(5):
            database.save_answer(reader, "c", {}, base=n, change=f"change {n}")
            assert database.answers(reader)["c"].number == n + 1

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(work, range(50)))
    assert len(database.records()) == 3 + 250
    assert not wrong
    writers = {record.kind for record in database.records()}
    assert writers == {"link", "answer"}
    database.close()


def test_what_waits_is_written_together_and_fails_alone(database):
    """Twenty pieces of work, one of which is refused, behind one that takes its time."""
    begun, go = threading.Event(), threading.Event()

    def hold(connection) -> None:
        begun.set()
        assert go.wait(20)

    held = database.submit(hold)
    assert begun.wait(20)
    transactions = []
    event.listen(database._writer._engine, "commit", lambda connection: transactions.append(1))
    waiting = [
        database.submit_answer(0, f"case {n % 19}", {"n": n}, base=0, change=f"change {n}")
        for n in range(20)
    ]
    go.set()
    held.result(20)
    with pytest.raises(Conflict):
        waiting[19].result(20)  # the second answer to case 0, on top of nothing
    assert [future.result(20).number for future in waiting[:19]] == [1] * 19
    assert len(transactions) == 2  # the one that held, and all others


def test_a_full_disk_is_told_from_a_busy_database(path):
    database = open_database(path, DIGEST)
    pages = database.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    limit = f"PRAGMA max_page_count = {pages}"
    database.write(lambda c: c.exec_driver_sql(limit).scalar())
    small = [
        database.submit_answer(0, f"case {n}", {"n": n}, base=0, change=f"change {n}")
        for n in range(2)
    ]
    with pytest.raises(DatabaseFull, match="free some space"):
        database.save_answer(1, "c", {"remark": "x" * 50_000}, base=0, change="change 0")
    assert [future.result(20).number for future in small] == [1, 1]
    database.close()


def test_a_database_that_is_held_is_busy(path, monkeypatch):
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 0.1)
    database = open_database(path, DIGEST)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy, match="try again later"):
        database.save_answer(0, "c", {}, base=0, change="change 0")
    assert database.answers(0) == {}  # readers do not wait
    holder.execute("ROLLBACK")
    holder.close()
    assert database.save_answer(0, "c", {}, base=0, change="change 0").number == 1
    database.close()


def test_answers_behind_a_lock_are_all_told_at_once(path, monkeypatch):
    """Not one after the other, each after a wait of its own: their pages would give up before."""
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 0.3)
    database = open_database(path, DIGEST)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    tries = []
    event.listen(database._writer._engine.pool, "checkout", lambda *_: tries.append(1))
    waiting = [
        database.submit_answer(0, f"case {n}", {}, base=0, change="change 0") for n in range(20)
    ]
    for future in waiting:
        with pytest.raises(DatabaseBusy):
            future.result(20)
    assert 1 <= len(tries) <= 2  # the first may have been taken up alone
    holder.execute("ROLLBACK")
    holder.close()
    database.close()


def test_a_reader_of_the_file_does_not_keep_writers_waiting(path, monkeypatch):
    """A backup, or somebody who looks: the log cannot be folded in, and nobody waits for that."""
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 60.0)  # longer than this test
    database = open_database(path, DIGEST)
    database.save_answer(0, "c", {}, base=0, change="change 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM record").fetchall()
    database.save_answer(0, "c", {}, base=1, change="change 1")
    asked = []
    event.listen(database._writer._engine, "checkin", lambda *_: asked.append(1))
    wait_for(lambda: asked)  # it was tried, and given up
    assert database.save_answer(0, "c", {}, base=2, change="change 2").number == 3
    other.close()
    database.close()
    assert not path.with_name(path.name + "-wal").exists()


def test_processes_take_turns_to_commit_and_to_fold(where):
    """One folds the log into the file while others commit: nothing that was committed is lost."""
    place = str(where) if isinstance(where, Path) else where.render_as_string(False)
    code = f"""
        import sys
        from pathlib import Path
        from unmasked.study.database import open_database
        from unmasked.study.backends import database_url
        reader, place = int(sys.argv[1]), {place!r}
        for turn in range(10):
            where = database_url(place) if "://" in place else Path(place)
            database = open_database(where, {DIGEST!r})
            for n in range(3):
                base = 3 * turn + n
                database.save_answer(reader, "c", {{}}, base=base, change=f"change {{base}}")
                database.place.rest(database._writer._engine)
            database.close()
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(reader)])
        for reader in range(4)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    database = open_database(where, DIGEST)
    assert [database.answers(reader)["c"].number for reader in range(4)] == [30] * 4
    assert len(database.records()) == 3 + 4 * 30
    database.close()


def test_a_renewed_link_takes_the_place_of_earlier_ones(database):
    database.renew_link(0, "secret-3")
    assert (database.link("secret-1"), database.link("secret-3").reader) == (None, 0)
    with pytest.raises(SavedError):  # a link that exists: nothing is revoked
        database.renew_link(1, "secret-3")
    assert database.link("secret-2").reader == 1


def test_a_database_that_cannot_hold_every_language(postgres):
    for encoding in ("LATIN1", "SQL_ASCII"):
        name = f"study_{encoding.lower()}"
        postgres.ask("postgres", f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
        where = database_url(postgres.database()).set(database=name)
        with pytest.raises(SavedError, match=f"UTF8 but has {encoding}"):
            create_database(where, DIGEST, ["secret-1"], "owner")
        left = "SELECT 1 / (count(*) = 0)::int FROM pg_namespace WHERE nspname LIKE 'unmasked%'"
        postgres.ask(name, left)


def test_a_vacuum_does_not_keep_answers_waiting(postgres, monkeypatch):
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 0.5)
    where = database_url(postgres.database())
    create_database(where, DIGEST, ["secret-1"], "owner")
    database = open_database(where, DIGEST)
    with psycopg.connect(where.set(drivername="postgresql").render_as_string(False)) as other:
        other.execute(f"SET search_path TO unmasked_{DIGEST[:16]}")
        other.execute("LOCK TABLE record IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM does
        assert database.save_answer(0, "c", {}, base=0, change="change 0").number == 1
    database.close()


def test_a_server_that_was_away_is_met_again():
    if POSTGRES is None:
        pytest.skip("PostgreSQL is not installed")
    server = Postgres(8450)
    try:
        where = database_url(server.database())
        create_database(where, DIGEST, ["secret-1"], "owner")
        database = open_database(where, DIGEST)
        database.save_answer(0, "c", {"n": 1}, base=0, change="change 1")
        server.stop(signal.SIGQUIT)  # at once, as a crash
        with pytest.raises(DatabaseBusy, match="cannot be reached"):
            database.save_answer(0, "c", {"n": 2}, base=1, change="change 2")
        with pytest.raises(DatabaseBusy, match="cannot be reached"):
            database.answers(0)
        with pytest.raises(DatabaseBusy, match="cannot be reached"):
            open_database(where, DIGEST)
        server.start()
        assert database.save_answer(0, "c", {"n": 2}, base=1, change="change 2").number == 2
        assert len(database.records()) == 2 + 2
        database.close()
    finally:
        server.remove()


def test_what_was_reported_as_saved_survives_kill_9(path):
    """A process saves answers, says so, and is killed at no particular moment, ten times."""
    code = f"""
        from pathlib import Path
        from unmasked.study.database import open_database
        database = open_database(Path({str(path)!r}), {DIGEST!r})
        n = max((version.number for version in database.answers(0).values()), default=0)
        while True:
            done = database.save_answer(0, "c", {{"n": n}}, base=n, change=f"change {{n}}")
            print(done.record.id, flush=True)
            n += 1
    """
    saved = 0
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(5 + 3 * turn):
            saved = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        saved = max([saved, *(int(line) for line in rest.split())])
    database = open_database(path, DIGEST)
    records = database.records()  # the chain holds
    database.close()
    assert saved <= records[-1].id <= saved + 1  # one more may be there than was reported


def test_a_half_written_answer_is_rolled_back_before_reading(path):
    """Killed in the middle of a transaction that has already reached the file."""
    database = open_database(path, DIGEST)
    database.save_answer(0, "c", {"n": 1}, base=0, change="one")
    database.close()
    code = f"""
        import os, signal, sqlite3
        connection = sqlite3.connect({str(path)!r}, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        for n in range(200):
            connection.execute(
                "INSERT INTO record (time, kind, content, digest) VALUES ('t', 'answer', ?, 'd')",
                ("x" * 3000,),
            )
        os.kill(os.getpid(), signal.SIGKILL)
    """
    before = path.stat().st_size
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert path.with_name(path.name + "-journal").exists()
    assert path.stat().st_size > before
    reading = open_database(path, DIGEST, write=False)
    assert [record.kind for record in reading.records()] == ["link"] * 3 + ["answer"]
    reading.close()


def test_databases_that_cannot_be_opened(tmp_path, path):
    with pytest.raises(SavedError, match="no such file"):
        open_database(tmp_path / "absent.sqlite", DIGEST)
    (tmp_path / "text.sqlite").write_text("this is no database, but it is long enough " * 50)
    with pytest.raises(SavedError, match="cannot be used"):
        open_database(tmp_path / "text.sqlite", DIGEST)
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(SavedError, match="cannot be used"):
        open_database(tmp_path / "empty.sqlite", DIGEST)
    with pytest.raises(SavedError, match="another study"):
        open_database(path, "e" * 64)


@pytest.mark.parametrize("table", ["record", "study", "link"])
@pytest.mark.parametrize("write", [True, False])
def test_a_database_that_lacks_a_table(where, table, write):
    tamper(where, f"DROP TABLE {table}")
    with pytest.raises(SavedError, match=r"cannot be used|has none of them"):
        open_database(where, DIGEST, write=write)


def test_one_postgres_database_holds_many_studies_and_knows_what_it_lacks(postgres):
    where = database_url(postgres.database())
    with pytest.raises(SavedError, match="none of them"):
        open_database(where, DIGEST)
    create_database(where, DIGEST, ["secret-1"], "owner")
    with pytest.raises(SavedError, match="already"):
        create_database(where, DIGEST, ["secret-1"], "owner")
    create_database(where, "e" * 64, ["secret-2"], "owner-2")
    one, other = open_database(where, DIGEST), open_database(where, "e" * 64)
    one.save_answer(0, "c", {}, base=0, change="change 0")
    assert other.answers(0) == {}
    assert (other.link("secret-1"), one.link("secret-1").reader) == (None, 0)
    one.close()
    other.close()
    remove_database(where, DIGEST)
    with pytest.raises(SavedError, match="none of them"):
        open_database(where, DIGEST)


@pytest.mark.parametrize("text", ["", "x", "sqlite:///a", "mysql://a/b", "postgresql+asyncpg://a"])
def test_addresses_that_are_not_postgres(text):
    with pytest.raises(InputError, match="--database must be"):
        database_url(text)


@pytest.mark.parametrize("option", ["plugin=x", "prepare_threshold=0", "password=secret"])
def test_options_of_an_address_that_are_not_the_servers(option):
    with pytest.raises(InputError, match="may have the options") as caught:
        database_url(f"postgresql://a/b?{option}")
    assert "secret" not in str(caught.value)


def test_an_address_in_a_message_has_no_password():
    where = database_url("postgres://ann:secret@127.0.0.1:1/name")
    with pytest.raises(DatabaseBusy, match="cannot be reached") as caught:
        open_database(where, DIGEST)
    assert "secret" not in str(caught.value)
