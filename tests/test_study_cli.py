"""The commands of a reader study as a user runs them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest
from small_postgres import POSTGRES, Postgres
from small_studies import LiveServer, answer, small_study, wait_for, write_sources
from typer.testing import CliRunner

from unmasked.cli import app
from unmasked.study.database import open_database
from unmasked.study.folder import read_study
from unmasked.study.guard import form_token
from unmasked.study.serving import free_port

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(*arguments: object, code: int = 0):
    done = CliRunner().invoke(app, ["study", *map(str, arguments)])
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done


def refused(*arguments: object) -> str:
    """The one sentence that a user error gets."""
    done = run(*arguments, code=2)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert done.stdout == ""
    return lines[0]


def test_from_images_to_a_report(tmp_path):
    """create, serve in a real process, answer over HTTP, links, close, analyse."""
    write_sources(tmp_path / "run" / "study", 4)
    folder = tmp_path / "readers"
    port = free_port("127.0.0.1", 8800)
    url = f"http://127.0.0.1:{port}"
    text = tmp_path / "instructions.txt"
    text.write_text("Look closely.\n\nTake your time.")
    made = run(
        "create", folder, "--from", tmp_path / "run", "--cases", 3, "--reader", "Ann",
        "--reader", "Bo", "--url", url, "--title", "Hearts", "--instructions", text,
        "--methods", "REAL-X,L2X,INVASE",
    ).stdout  # fmt: skip
    assert "Cases: 3; methods: 3; readers: 2" in made
    links = dict(re.findall(r"^(Ann|Bo|owner): (\S+)$", made, re.M))
    server = LiveServer(folder, port)
    try:
        page = httpx.get(links["Ann"]).text
        assert "Hearts" in page
        assert "Take your time." in page
        study = read_study(folder)
        for r, name in enumerate(("Ann", "Bo")):
            headers = {"content-type": "application/json"}
            headers["x-study-form"] = form_token(links[name].rsplit("/", 1)[1])
            for case in study.readers[r].cases:
                body = {"places": [1, 2, 2], "sufficient": None, "remark": "", "base": 0}
                reply = httpx.put(
                    f"{links[name]}/answer/{case.id}",
                    json={**body, "change": "some change"},
                    headers=headers,
                )
                assert reply.status_code == 200
        assert "revoked" in run("links", folder, "--reader", "Bo", "--revoke").stdout
        assert httpx.get(links["Bo"]).status_code == 403
        renewed = run("links", folder, "--reader", "Bo", "--url", url + "/").stdout
        assert httpx.get(renewed.split()[-1]).status_code == 200
        assert httpx.get(links["owner"]).status_code == 200
        run("close", folder)
        assert "finished" in httpx.get(links["Ann"]).text
    finally:
        server.stop()
    done = run("analyse", folder, "--draws", 200)
    assert "Friedman" in done.stdout
    assert (tmp_path / "readers-analysis" / "report.html").exists()
    (tmp_path / "readers-analysis" / ".unmasked.part").mkdir()  # an analysis that was killed
    results = json.loads(run("analyse", folder, "--draws", 200, "--json").stdout)
    assert results["missing"][-1]["missing_sufficiency"] == 6
    assert run("analyse", folder, "--draws", 200, "--quiet").stdout == ""


def test_bad_input_gets_one_sentence(tmp_path):
    made = small_study(tmp_path)
    manifest = tmp_path / "sources" / "manifest.csv"
    new = tmp_path / "new"
    assert "--manifest or --from" in refused("create", new)
    assert "study/manifest.csv" in refused("create", new, "--from", tmp_path)
    assert "No such file" in refused("create", new, "--manifest", tmp_path / "no.csv")
    assert "from 1 to the 4 cases" in refused("create", new, "--manifest", manifest, "--cases", 9)
    assert "exists already" in refused("create", made.folder, "--manifest", manifest)
    assert "'LIME'" in refused("create", new, "--manifest", manifest, "--methods", "L2X,LIME")
    absent = tmp_path / "absent.txt"
    assert "--instructions" in refused(
        "create", new, "--manifest", manifest, "--instructions", absent
    )
    assert not new.exists()
    assert "study create" in refused("serve", tmp_path)
    assert "'Cy'" in refused("links", made.folder, "--reader", "Cy")
    assert "at least one case" in refused("analyse", made.folder)
    assert not (tmp_path / "study-analysis").exists()
    assert "from 0.5" in refused("power", "--effect", 0.2)
    assert "--readers" in refused("power", "--effect", 0.7, "--readers", "two")
    picture = next((made.folder / "pictures").iterdir())
    picture.write_bytes(b"edited")
    for command in ("serve", "analyse", "links", "close"):
        assert picture.name in refused(command, made.folder)


def test_a_port_in_use_names_the_next_free_one(tmp_path):
    made = small_study(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = refused("serve", made.folder, "--port", port)
        named = int(re.search(r"--port (\d+)\.$", text).group(1))
        assert named > port
        with socket.socket() as other:
            other.bind(("127.0.0.1", named))
        absent = tmp_path / "demo"
        assert "in use" in refused("demo", "--out", absent, "--port", port)
        assert not absent.exists()
    for command in (["serve", made.folder], ["demo", "--out", absent]):
        assert "cannot (" in refused(*command, "--host", "192.0.2.1")


def test_the_demo_leaves_other_studies_alone(tmp_path):
    """It would make their links anew, and the earlier ones would stop working."""
    made = small_study(tmp_path)
    assert "earlier demonstration" in refused("demo", "--out", made.folder)
    (tmp_path / "empty").mkdir()
    assert "earlier demonstration" in refused("demo", "--out", tmp_path / "empty")
    study = read_study(made.folder)
    database = open_database(study.answers, study.digest)
    assert database.link(made.readers[0][1]) is not None
    database.close()


def test_databases_that_cannot_be_opened(tmp_path):
    made = small_study(tmp_path)
    database = made.folder / "answers.sqlite"
    kept = database.read_bytes()
    database.write_bytes(b"no database " * 100)
    assert "cannot be used" in refused("serve", made.folder)
    database.unlink()
    assert "no such file" in refused("serve", made.folder)
    other = small_study(tmp_path / "other", secret=bytes(32))
    shutil.copy(other.folder / "answers.sqlite", database)
    assert "another study" in refused("serve", made.folder)
    database.write_bytes(kept)
    run("links", made.folder)


def edited(folder, change) -> None:
    """Change study.json, its hash made to fit."""
    path = folder / "study.json"
    content = change(json.loads(path.read_text()))
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "study.sha256").write_text(f"{digest}  study.json\n")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda study: [], "be an object"),
        (lambda study: "", "EOF"),
        (lambda study: "[" * 100_000, "recursion"),
        (lambda study: '{"a":' * 100_000, "recursion"),
        (lambda study: {**study, "readers": 3}, "readers: Input should be"),
        (lambda study: {**study, "readers": [3]}, "readers.0: Input should be"),
        (lambda study: {**study, "readers": []}, "readers: "),
        (lambda study: {k: v for k, v in study.items() if k != "options"}, "options: Field requ"),
        (lambda study: {**study, "options": "4"}, "options: Input should be"),
        (lambda study: {**study, "options": 3}, "without 3 options"),
        (lambda study: {**study, "format": 7}, "format 1 but has 7"),
        (lambda study: {**study, "pictures": {}}, "pictures that it does not have"),
        (lambda study: {**study, "files": {"../key.json": "0"}}, "files"),
        (lambda study: {**study, "files": {}}, "not among its files"),
    ],
)
def test_a_manifest_of_another_form(tmp_path, change, word):
    made = small_study(tmp_path)
    edited(made.folder, change)
    for command in ("serve", "links", "close", "analyse"):
        assert word in refused(command, made.folder)


LONG_NAME, LONG_PATH = "x" * 300, "/".join(["y" * 200] * 25)


@pytest.mark.parametrize("name", [LONG_NAME, LONG_PATH])
def test_names_that_no_file_system_allows(tmp_path, name):
    made = small_study(tmp_path)
    manifest = tmp_path / "sources" / "manifest.csv"
    place = f"{tmp_path}/{name}"
    for arguments in (
        ("create", place, "--manifest", manifest),
        ("create", tmp_path / "new", "--manifest", place),
        ("create", tmp_path / "new", "--from", place),
        ("create", tmp_path / "new", "--manifest", manifest, "--key", place),
        ("create", tmp_path / "new", "--manifest", manifest, "--instructions", place),
        ("serve", place),
        ("links", place),
        ("close", place),
        ("demo", "--out", place),
        ("analyse", place),
        ("analyse", made.folder, "--key", place),
        ("analyse", made.folder, "--out", place),
    ):
        refused(*arguments)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "new.key.json").exists()


def test_a_database_that_is_held_by_another_program(tmp_path, monkeypatch):
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 0.1)
    made = small_study(tmp_path)
    holder = sqlite3.connect(made.folder / "answers.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    for command in ("serve", "links", "close", "analyse"):
        assert "held by another program" in refused(command, made.folder)
    holder.close()


def test_a_study_may_be_served_twice_but_not_on_one_port(tmp_path):
    made = small_study(tmp_path)
    port = free_port("127.0.0.1", 8850)
    server = LiveServer(made.folder, port)
    other = None
    try:
        assert f"port {port} of 127.0.0.1 is in use" in refused(
            "serve", made.folder, "--port", port
        )
        other = LiveServer(made.folder, free_port("127.0.0.1", port + 1))
        link = f"/r/{made.readers[0][1]}"
        assert [httpx.get(s.url + link).status_code for s in (server, other)] == [200, 200]
        run("close", made.folder)
        assert all("finished" in httpx.get(s.url + link).text for s in (server, other))
    finally:
        server.stop()
        if other is not None:
            other.stop()


@pytest.mark.parametrize("package", ["fastapi", "sqlalchemy", "uvicorn"])
def test_a_package_that_is_missing_is_named(package, tmp_path):
    code = f"""
        import sys
        sys.modules[{package!r}] = None
        from unmasked.cli import main
        sys.argv = ["unmasked", "study", *sys.argv[1:]]
        main()
    """
    for command in (["serve", "x"], ["links", "x"], ["close", "x"], ["analyse", "x"], ["demo"]):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert f"needs the package {package!r}" in done.stderr


def test_a_reader_that_takes_nothing_does_not_keep_the_server_from_stopping(tmp_path):
    made = small_study(tmp_path)
    server = LiveServer(made.folder, free_port("127.0.0.1", 8860))
    study, secret = read_study(made.folder), made.readers[0][1]
    path = f"/r/{secret}/picture/{study.readers[0].cases[0].image}"
    silent = socket.create_connection(("127.0.0.1", server.port))
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    for _ in range(2000):  # far more than the connection holds
        try:
            silent.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        except OSError:
            break
        silent.settimeout(0.1)
    try:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        assert list(made.folder.glob("answers.sqlite*")) == [made.folder / "answers.sqlite"]
    finally:
        silent.close()
        server.stop()


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/99", ""])
def test_proxies_are_addresses(tmp_path, proxy):
    made = small_study(tmp_path)
    assert "--proxy must be an address" in refused("serve", made.folder, "--proxy", proxy)


def workers(server: LiveServer) -> list[int]:
    """The processes that serve, not the one that starts them."""
    listed = subprocess.run(
        ["pgrep", "-P", str(server.process.pid), "-f", "spawn_main"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_a_worker_that_dies_is_started_again_and_none_outlives_the_server(tmp_path):
    made = small_study(tmp_path)
    server = LiveServer(made.folder, free_port("127.0.0.1", 8870), "--workers", "2")
    link = f"{server.url}/r/{made.readers[0][1]}"
    try:
        wait_for(lambda: len(workers(server)) == 2)
        assert httpx.get(link, timeout=20).status_code == 200
        first = workers(server)
        os.kill(first[0], signal.SIGKILL)
        wait_for(lambda: len(workers(server)) == 2 and first[0] not in workers(server))
        assert httpx.get(link, timeout=20).status_code == 200
        left = workers(server)
        server.kill()  # the one that started them
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
        server.start()  # the port is free
        assert httpx.get(link, timeout=20).status_code == 200
        server.process.send_signal(signal.SIGINT)
        server.process.wait(20)
        assert list(made.folder.glob("answers.sqlite*")) == [made.folder / "answers.sqlite"]
    finally:
        server.stop()


def test_a_study_in_postgres(tmp_path):
    """create, serve with two processes, answer, close, analyse; and what is refused."""
    if POSTGRES is None:
        pytest.skip("PostgreSQL is not installed")
    write_sources(tmp_path / "sources", 3)
    folder, plain = tmp_path / "study", small_study(tmp_path / "plain").folder
    create = ("create", folder, "--manifest", tmp_path / "sources" / "manifest.csv")
    postgres = Postgres(8480)
    server = None
    try:
        given = ("--database", postgres.database())
        made = run(*create, *given).stdout
        assert not list(folder.glob("answers*"))
        secret = re.search(r"Reader 1: \S+/r/(\S+)", made)[1]
        server = LiveServer(folder, free_port("127.0.0.1", 8890), "--workers", "2", *given)
        headers = {"content-type": "application/json", "x-study-form": form_token(secret)}
        for case in read_study(folder).readers[0].cases:
            reply = httpx.put(
                f"{server.url}/r/{secret}/answer/{case.id}",
                json=answer(1, 2, 3, 4),
                headers=headers,
                timeout=20,
            )
            assert reply.status_code == 200
        server.stop()
        run("links", folder, "--reader", "Reader 2", *given)
        run("close", folder, *given)
        found = json.loads(run("analyse", folder, "--draws", 100, "--json", *given).stdout)
        assert [row["missing_rankings"] for row in found["missing"][:2]] == [0, 3]
        for command in ("serve", "links", "close", "analyse"):
            assert "--database" in refused(command, folder)
            assert "leave --database out" in refused(command, plain, *given)
            another = ("--database", postgres.database())
            assert "none of them" in refused(command, folder, *another)
        taken = tmp_path / "taken.key.json"
        again = ("create", tmp_path / "more", *create[2:], "--key", taken / "in-a-file")
        taken.write_text("")
        refused(*again, *given)  # the key cannot be written: nothing is left behind
        counted = "SELECT 1 / (count(*) = 1)::int FROM pg_namespace WHERE nspname LIKE 'unmasked%'"
        postgres.ask(given[1].rsplit("/", 1)[1], counted)
    finally:
        if server is not None:
            server.stop()
        postgres.remove()


def test_power_says_how_many_are_needed():
    text = run("power", "--effect", 0.9, "--readers", "1,2", "--studies", 200).stdout
    assert re.search(r"^1 reader: \d+ cases for a power of 0.8$", text, re.M)
    assert "above a given other one in 90% of a reader's cases" in text
    assert "1.30 for the best and 2.90 for each other one" in text
    data = json.loads(run("power", "--effect", 0.9, "--readers", "2", "--studies", 200,
                          "--json").stdout)  # fmt: skip
    assert data["cases"]["2"] <= 40
    weak = run("power", "--effect", 0.5, "--readers", "1", "--studies", 100).stdout
    assert "1 reader: more than 400 cases" in weak


@pytest.mark.parametrize("again", [False, True])
def test_the_demo_prints_two_links_and_serves_them(tmp_path_factory, again):
    folder = tmp_path_factory.getbasetemp() / "demo-study"
    process = subprocess.Popen(
        [sys.executable, "-m", "unmasked", "study", "demo", "--out", str(folder), "--cases", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        links = [process.stdout.readline().strip() for _ in range(2)]
        for link in links:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/r/[\w-]{43}", link)
            assert httpx.get(link).status_code == 200
        assert links[0] != links[1]
        assert httpx.get(links[0] + "/case/2").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert out == ""  # two lines, no more
    assert process.returncode in (0, 130)


def test_a_missing_package_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert 'pip install "unmasked[study]"' in refused("serve", tmp_path)
    assert 'pip install "unmasked[study]"' in refused("demo", "--out", tmp_path / "demo")
