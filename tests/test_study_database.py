"""Answers on disk: append-only, chained, durable."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from unmasked.errors import SavedError
from unmasked.study.database import (
    Conflict,
    Finished,
    Full,
    create_database,
    link_hash,
    open_database,
)

DIGEST = "d" * 64


@pytest.fixture
def path(tmp_path):
    create_database(tmp_path / "a.sqlite", DIGEST, ["secret-1", "secret-2"], "owner")
    return tmp_path / "a.sqlite"


@pytest.fixture
def database(path):
    database = open_database(path, DIGEST)
    yield database
    database.close()


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
def test_triggers_refuse_changes(database, path, statement):
    database.save_answer(0, "c", {}, base=0, change="one")
    database.revoke_links(1)
    with sqlite3.connect(path) as other, pytest.raises(sqlite3.IntegrityError):
        other.execute(statement)
    other.close()


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
def test_a_change_behind_the_triggers_is_seen(database, path, statement):
    for n in range(4):
        database.save_answer(0, "c", {"n": n}, base=n, change=f"change {n}")
    assert len(database.records()) == 7
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER no_update_of_record")
        other.execute("DROP TRIGGER no_delete_of_record")
        other.execute(statement)
    other.close()
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


def test_commits_reach_the_disk(database):
    with database.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


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
    with pytest.raises(SavedError, match="cannot be opened"):
        open_database(tmp_path / "text.sqlite", DIGEST)
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(SavedError, match="cannot be opened"):
        open_database(tmp_path / "empty.sqlite", DIGEST)
    with pytest.raises(SavedError, match="another study"):
        open_database(path, "e" * 64)
