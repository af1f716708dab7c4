"""Who may do what: links, other readers, finished studies, files, sizes, rates, foreign sites."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sqlite3
import threading

import httpx
import pytest
from small_studies import Site, answer, small_study

from unmasked.study.connections import MOST_OF_ONE
from unmasked.study.guard import HEADERS, Buckets, Limits, form_token
from unmasked.study.server import STATIC


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A study that tests read from; those that change it take a case or reader of their own."""
    site = Site(small_study(tmp_path_factory.mktemp("study"), cases=6, readers=("Ann", "Bo", "Cy")))
    yield site
    site.close()


@pytest.fixture
def fresh(tmp_path):
    site = Site(small_study(tmp_path))
    yield site
    site.close()


def test_a_reader_gets_every_page(site):
    for path in ("", "/case/1", "/case/6", "/review", "/pause", "/answers.csv"):
        assert site.get(0, path).status_code == 200, path
    for path in ("/case/0", "/case/7", "/case/x", "/nothing", "/picture/x"):
        assert site.get(0, path).status_code == 404, path
    assert site.client.get("/").status_code == 200


def test_unknown_and_revoked_links_get_the_same_answer(fresh):
    unknown = fresh.client.get("/r/" + "x" * 43)
    fresh.database.revoke_links(0)
    revoked = fresh.get(0)
    owners = fresh.client.get(f"/r/{fresh.made.owner}")
    readers = fresh.client.get(f"/o/{fresh.secret(1)}")
    for reply in (unknown, revoked, owners, readers):
        assert reply.status_code == 403
        assert reply.text == unknown.text
    for path in ("/case/1", "/review", "/answers.csv", "/picture/x"):
        assert fresh.get(0, path).status_code == 403
    assert fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4)).status_code == 403
    assert fresh.get(1).status_code == 200  # the other reader's works on


def test_links_are_hashed_at_rest(site):
    raw = b"".join(path.read_bytes() for path in site.made.folder.rglob("*") if path.is_file())
    raw += site.made.key.read_bytes()
    for secret in (*(secret for _, secret in site.made.readers), site.made.owner):
        assert len(secret) >= 43  # 256 bits
        assert secret.encode() not in raw


def test_answers_are_saved_and_shown_again(site):
    case = site.case(0, 1)
    reply = site.put(0, case, answer(1, 1, 3, 4, remark="Überall <b>gut</b>"))
    assert reply.status_code == 200
    assert reply.json()["words"] == "1st: A and B (tied); 3rd: C; 4th: D"
    page = site.get(0, "/case/1").text
    assert "&lt;b&gt;gut&lt;/b&gt;" in page
    assert "<b>gut" not in page
    assert "1st: A and B (tied)" in site.get(0, "/review").text
    again = answer(4, 3, 2, 1, base=reply.json()["version"], change="change-2")
    assert site.put(0, case, again).status_code == 200
    lines = site.get(0, "/answers.csv").text.splitlines()
    assert lines[1:3] == ["1,A,4,yes,", "1,B,3,no,"]


def test_a_change_sent_twice_is_saved_once(site):
    case = site.case(0, 2)
    first = site.put(0, case, answer(1, 2, 3, 4))
    second = site.put(0, case, answer(1, 2, 3, 4))  # its reply was lost
    assert first.json() == second.json()
    assert sum(record.case == case for record in site.database.records()) == 1


def test_a_reader_is_told_nothing_about_how_busy_the_others_are(fresh):
    """Versions count a reader's own answers to a case; numbers of records stay inside."""
    first = fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4)).json()
    for case in (1, 2, 3):
        assert fresh.put(1, fresh.case(1, case), answer(1, 2, 3, 4)).status_code == 200
    second = fresh.put(0, fresh.case(0, 2), answer(1, 2, 3, 4)).json()
    assert first["version"] == second["version"] == 1
    assert set(second) == {"version", "time", "words"}
    assert 'data-base="1"' in fresh.get(0, "/case/2").text


def test_a_reader_cannot_fill_the_disk(fresh, monkeypatch):
    monkeypatch.setattr("unmasked.study.database.MOST_VERSIONS", 2)
    case = fresh.case(0, 1)
    for n in range(2):
        body = answer(1, 2, 3, 4, base=n, change=f"change-{n}")
        assert fresh.put(0, case, body).status_code == 200
    more = fresh.put(0, case, answer(4, 3, 2, 1, base=2, change="change-2"))
    assert more.status_code == 409
    assert "changed so often" in more.json()["error"]
    assert "was saved last counts" in more.json()["error"]
    assert len(fresh.database.records()) == 3 + 2  # links and answers
    assert fresh.put(0, fresh.case(0, 2), answer(1, 2, 3, 4)).status_code == 200
    assert fresh.put(1, fresh.case(1, 1), answer(1, 2, 3, 4)).status_code == 200


def test_a_window_that_is_behind_cannot_overwrite(site):
    case = site.case(0, 3)
    assert site.put(0, case, answer(1, 2, 3, 4)).status_code == 200
    late = site.put(0, case, answer(4, 3, 2, 1, change="change-2"))  # still based on nothing
    assert late.status_code == 412
    assert "Nothing was saved" in late.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        answer(1, 2, 3, 5),
        answer(0, 1, 2, 3),
        answer(-1, 1, 2, 3),
        answer(1, 2, 3),
        answer(1, 2, 3, 4, sufficient=[True]),
        answer(1, 2, 3, 4, sufficient=[1, 0, 0, 0]),
        answer(1, 2, 3, 4, remark="x" * 2001),
        answer(1, 2, 3, 4, remark=["x"]),
        answer(1, 2, 3, 4, base="0"),
        answer(1, 2, 3, 4, change=""),
        answer(1, 2, 3, 4, change="change-1\0"),
        json.dumps(answer(1, 2, 3, 4, change="change-\ud800")).encode(),
        {"places": [1.5, 2, 3, 4]},
        {"places": [True, 2, 3, 4]},
        {"places": "1234"},
        b"[]",
        b"{",
        b"\xff",
        b"[" * 9000,
    ],
)
def test_malformed_answers_are_refused_in_words(site, body):
    before = len(site.database.records())
    reply = site.put(0, site.case(0, 4), body)
    assert reply.status_code == 422
    assert reply.json()["error"].endswith(".")
    assert len(site.database.records()) == before


def test_readers_cannot_reach_each_other(site):
    mine = answer(2, 1, 3, 4, remark="only for Bo's eyes")
    assert site.put(1, site.case(1, 5), mine).status_code == 200
    assert site.put(0, site.case(1, 5), answer(1, 2, 3, 4)).status_code == 403
    for path in ("", "/review", "/answers.csv", *(f"/case/{i}" for i in range(1, 7))):
        assert "only for Bo" not in site.get(0, path).text
    assert "only for Bo" in site.get(1, "/answers.csv").text
    theirs = site.study.readers[1].cases[0].image
    assert site.get(1, f"/picture/{theirs}").status_code == 200
    assert site.get(0, f"/picture/{theirs}").status_code == 404


def test_a_finished_study_cannot_be_changed(fresh):
    case = fresh.case(0, 1)
    assert fresh.put(0, case, answer(1, 2, 3, 4)).status_code == 200
    secret = fresh.secret(0)
    headers = {"content-type": "application/json", "x-study-form": form_token(secret)}
    assert fresh.client.post(f"/r/{secret}/finish", headers=headers).status_code == 200
    late = fresh.put(0, case, answer(4, 3, 2, 1, base=1, change="change-2"))
    assert late.status_code == 409
    assert "cannot be changed" in late.json()["error"]
    for path in ("/case/1", "/review", "/pause"):
        assert fresh.get(0, path).status_code == 303
    assert "finished" in fresh.get(0).text
    assert fresh.put(1, fresh.case(1, 1), answer(1, 2, 3, 4)).status_code == 200
    fresh.database.close_study()
    assert fresh.put(1, fresh.case(1, 2), answer(1, 2, 3, 4)).status_code == 409


def test_no_file_outside_the_study_can_be_reached(site):
    (site.made.folder / "pictures" / "secret.txt").write_text("secret")
    root = f"/r/{site.secret(0)}"
    paths = [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        f"{root}/picture/..%2f..%2fstudy.json",
        f"{root}/picture/../../study.json",
        f"{root}/picture/secret.txt",
        f"{root}/picture/" + next(iter(site.study.files)),
        "/study.json",
        "/answers.sqlite",
        "//etc/passwd",
    ]
    for path in paths:  # http.client sends a path as it is
        connection = http.client.HTTPConnection("127.0.0.1", site.port)
        connection.request("GET", path)
        assert connection.getresponse().status == 404, path
        connection.close()


def test_changes_from_other_sites_are_refused(site):
    case, good = site.case(2, 1), answer(1, 2, 3, 4)
    for headers in (
        {"x-study-form": ""},
        {"x-study-form": form_token(site.secret(0))},
        {"x-study-form": b"\xe9"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ):
        assert site.put(2, case, good, headers=headers).status_code == 403, headers
    assert site.database.answers(2) == {}
    own = {"origin": f"http://127.0.0.1:{site.port}", "sec-fetch-site": "same-origin"}
    assert site.put(2, case, good, headers=own).status_code == 200


def test_every_reply_has_the_same_strict_headers(site):
    paths = ["/", "/static/study.css", "/nothing", f"/r/{site.secret(0)}", "/r/wrong"]
    paths += [f"/r/{site.secret(0)}/picture/{site.study.readers[0].cases[0].image}"]
    for path in paths:
        reply = site.client.get(path)
        for name, value in HEADERS.items():
            assert reply.headers[name] == value, (path, name)
        assert "server" not in reply.headers
        assert "set-cookie" not in reply.headers
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_pages_ask_for_nothing_from_elsewhere(site):
    pages = [site.get(0, path).text for path in ("", "/case/1", "/review", "/pause")]
    pages += [site.client.get(f"/o/{site.made.owner}").text, site.client.get("/").text]
    pages += [site.client.get(f"/static/{n}").text for n in STATIC if n != "icon.svg"]
    for page in pages:
        assert "://" not in page
        assert not re.search(r"<script(?![^>]*src=)", page)
        assert not re.search(r"\s(style|on\w+)=", page)


def test_other_names_of_the_server_are_refused(site):
    for host in ("evil.example", "127.0.0.1.evil.example", "", f"evil.example:{site.port}"):
        assert site.client.get("/", headers={"host": host}).status_code == 400
    for host in ("localhost", f"127.0.0.1:{site.port}", "10.0.0.7", "[::1]:80"):
        assert site.client.get("/", headers={"host": host}).status_code == 200


def test_large_requests_are_refused(site):
    assert site.put(0, site.case(0, 6), b"x" * 20_000).status_code == 413

    def endless():  # no length in the header
        for _ in range(20):
            yield b"x" * 1000

    secret = site.secret(0)
    headers = {"content-type": "application/json", "x-study-form": form_token(secret)}
    url = f"/r/{secret}/answer/{site.case(0, 6)}"
    assert site.client.put(url, content=endless(), headers=headers).status_code == 413
    assert site.client.get("/" + "x" * 17_000).status_code == 431
    assert site.client.get("/", headers={"x-long": "x" * 17_000}).status_code == 431


def test_guessing_links_is_slowed_down_and_readers_are_not(tmp_path):
    site = Site(small_study(tmp_path), Limits(wrong_burst=5, wrong_rate=0.001))
    try:
        replies = [site.client.get(f"/r/guess{i}").status_code for i in range(8)]
        assert replies == [403] * 5 + [429] * 3
        assert site.get(0).status_code == 200
    finally:
        site.close()


def test_floods_are_stopped(tmp_path):
    site = Site(small_study(tmp_path), Limits(burst=10, rate=0.001))
    try:
        replies = [site.get(0).status_code for _ in range(12)]
        assert replies == [200] * 10 + [429] * 2
    finally:
        site.close()


def test_silent_connections_are_closed(tmp_path, monkeypatch):
    """Nothing asked, half a head, a body that does not come; a reader's connection lives on."""
    monkeypatch.setattr("unmasked.study.connections.PATIENCE", 0.2)
    site = Site(small_study(tmp_path))
    try:
        head = b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        for begun in (b"", head[:20], head + b"half"):
            with socket.create_connection(("127.0.0.1", site.port), timeout=20) as silent:
                silent.sendall(begun)
                assert silent.recv(100) == b""
        assert site.get(0).status_code == 200
    finally:
        site.close()


def test_many_connections_of_one_address_do_not_keep_others_out(site):
    """More than one address gets, opened by somebody who asks for nothing."""
    others = [
        socket.create_connection(("127.0.0.1", site.port), source_address=("127.0.0.2", 0))
        for _ in range(MOST_OF_ONE + 10)
    ]
    try:  # on a new connection: it is taken up after all of these
        assert httpx.get(f"http://127.0.0.1:{site.port}/r/{site.secret(0)}").status_code == 200
        others[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")  # beyond the limit
        reply = http.client.HTTPResponse(others[-1])
        reply.begin()
        assert reply.status == 503
        assert (reply.headers["refresh"], reply.headers["connection"]) == ("5", "close")
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.read().decode() == (
            "Many people are using the study at this moment. This page tries again by itself.\n"
        )
    finally:
        for other in others:
            other.close()


def test_the_connections_of_a_proxy_are_those_of_many(tmp_path, monkeypatch):
    monkeypatch.setattr("unmasked.study.connections.MOST_OF_ONE", 2)
    for proxies, wanted in (((), 503), (("127.0.0.0/8",), 200)):
        folder = tmp_path / str(wanted)
        site = Site(small_study(folder), proxies=proxies)
        try:
            others = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(3)]
            assert httpx.get(f"http://127.0.0.1:{site.port}/").status_code == wanted
            for other in others:
                other.close()
        finally:
            site.close()


def test_readers_behind_a_named_proxy_do_not_share_its_limits(tmp_path):
    """Whose links do not exist is slowed down by address: the one that a named proxy tells."""
    guesses = Limits(wrong_burst=1, wrong_rate=0.001)

    def statuses(site, *forwarded):
        return [
            site.client.get("/r/guess", headers={"x-forwarded-for": text}).status_code
            for text in forwarded
        ]

    named = Site(small_study(tmp_path / "a"), guesses, proxies=("127.0.0.1",))
    other = Site(small_study(tmp_path / "b"), guesses, proxies=("10.0.0.1", "192.168.0.0/16"))
    none = Site(small_study(tmp_path / "c"), guesses)
    try:
        # the last address that is no named proxy counts; what stands before it anybody can write
        chain = ("10.1.1.1", "10.1.1.2", "10.1.1.1", "9.9.9.9, 10.1.1.2", "10.1.1.3, 127.0.0.1")
        assert statuses(named, *chain) == [403, 403, 429, 429, 403]
        assert statuses(other, "10.1.1.1", "10.1.1.2") == [403, 429]
        assert statuses(none, "10.1.1.1", "10.1.1.2") == [403, 429]
    finally:
        for site in (named, other, none):
            site.close()


def test_readers_behind_one_address_do_not_share_one_limit(tmp_path):
    site = Site(small_study(tmp_path), Limits(burst=3, rate=0.001, crowd=2))
    try:
        assert [site.get(0).status_code for _ in range(4)] == [200] * 3 + [429]
        assert site.get(1).status_code == 200
        assert [site.client.get("/").status_code for _ in range(2)] == [200, 429]  # 2 × 3 in all
        late = site.put(1, site.case(1, 1), answer(1, 2, 3, 4))
        assert late.status_code == 429
        assert late.json()["error"].endswith("The page keeps your answer and tries again.")
    finally:
        site.close()


def test_more_requests_than_can_be_answered_are_told_to_wait(tmp_path):
    site = Site(small_study(tmp_path), Limits(at_work=0))
    try:
        page, saving = site.get(0), site.put(0, site.case(0, 1), answer(1, 2, 3, 4))
        assert (page.status_code, saving.status_code) == (503, 503)
        assert page.headers["retry-after"] == saving.headers["retry-after"] == "5"
        assert "tries again by itself" in page.text
        assert "keeps your answer" in saving.json()["error"]
    finally:
        site.close()


def test_buckets_refill_with_time():
    clock = [0.0]
    buckets = Buckets(2, 0.5, clock=lambda: clock[0], most=2)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    clock[0] = 2.0
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    assert buckets.take("b")
    for address in "cdef":
        assert buckets.take(address)
    assert len(buckets._levels) == 2  # memory is bounded


def test_the_owner_sees_progress_and_renews_links(fresh):
    assert fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4)).status_code == 200
    root = f"/o/{fresh.made.owner}"
    page = fresh.client.get(root).text
    assert "1 of 4" in page
    headers = {"content-type": "application/json", "x-study-form": form_token(fresh.made.owner)}
    assert fresh.client.post(f"{root}/readers/0/renew").status_code == 403  # no form token
    link = fresh.client.post(f"{root}/readers/0/renew", headers=headers).json()["link"]
    assert fresh.get(0).status_code == 403
    assert fresh.client.get(link).status_code == 200
    assert "Go on with case 2" in fresh.client.get(link).text  # the same reader's answers
    assert fresh.client.post(f"{root}/readers/0/revoke", headers=headers).status_code == 200
    assert fresh.client.get(link).status_code == 403
    assert fresh.client.post(f"{root}/readers/9/revoke", headers=headers).status_code == 404
    assert fresh.client.post(f"{root}/close", headers=headers).status_code == 200
    assert "closed" in fresh.client.get(root).text
    record = fresh.client.get(f"{root}/record.csv").text
    kinds = [line.split(",")[3] for line in record.splitlines()[1:]]
    assert kinds == ["link"] * 3 + ["answer", "revoke", "link", "revoke", "close"]


def test_an_edited_picture_is_not_served(fresh):
    identifier = fresh.study.readers[0].cases[0].image
    path = fresh.made.folder / "pictures" / fresh.study.pictures[identifier]
    path.write_bytes(path.read_bytes() + b"\0")
    reply = fresh.get(0, f"/picture/{identifier}")
    assert reply.status_code == 500
    assert "tell the person who runs it" in reply.text


def test_a_database_that_is_held_says_that_nothing_was_saved(tmp_path, monkeypatch):
    """Another program holds the lock for longer than the server waits."""
    monkeypatch.setattr("unmasked.study.backends.PATIENCE", 0.2)
    fresh = Site(small_study(tmp_path))
    holder = sqlite3.connect(fresh.study.answers, isolation_level=None)
    holder.execute("PRAGMA busy_timeout = 0")
    holder.execute("BEGIN IMMEDIATE")
    try:
        reply = fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4))
        assert reply.status_code == 503
        assert "Nothing was saved. The study's database is busy" in reply.json()["error"]
        assert "stay on this page" in reply.json()["error"]
        assert fresh.get(0).status_code == 200  # readers look on
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4)).status_code == 200
    fresh.close()


def test_a_database_that_does_not_answer_is_said_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("unmasked.study.server.DEADLINE", 0.2)
    fresh = Site(small_study(tmp_path))
    go = threading.Event()
    fresh.database.submit(lambda connection: go.wait(20))
    reply = fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4))
    assert reply.status_code == 503
    go.set()  # what was handed over is written all the same, and is not written again
    again = fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4))
    assert (again.status_code, again.json()["version"]) == (200, 1)
    fresh.close()


def test_a_full_disk_is_said(fresh):
    pages = fresh.database.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    limit = f"PRAGMA max_page_count = {pages}"
    fresh.database.write(lambda c: c.exec_driver_sql(limit).scalar())
    case, base, status = fresh.case(0, 1), 0, 200
    while status == 200 and base < 20:
        body = answer(1, 2, 3, 4, base=base, change=f"change-{base}", remark="x" * 2000)
        reply = fresh.put(0, case, body)
        base, status = base + 1, reply.status_code
    assert status == 507
    assert "The disk of the computer that runs the study is full." in reply.json()["error"]
    assert len(fresh.database.records()) == 3 + base - 1


def test_remarks_are_no_formulas_in_a_spreadsheet(fresh):
    fresh.put(0, fresh.case(0, 1), answer(1, 2, 3, 4, remark="=HYPERLINK(1)"))
    assert "'=HYPERLINK(1)" in fresh.get(0, "/answers.csv").text


def test_no_page_of_the_framework_is_open(site):
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert site.client.get(path).status_code == 404
    for method in ("POST", "DELETE", "TRACE", "OPTIONS"):
        reply = site.client.request(method, f"/r/{site.secret(0)}/answer/{site.case(0, 1)}")
        assert reply.status_code == 405
        assert "error" in json.loads(reply.text)
