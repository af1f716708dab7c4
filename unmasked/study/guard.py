"""Stand before every request: who is asking, how often; headers of every reply."""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address
from threading import Lock
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unmasked.study.answers import Answer
from unmasked.study.folder import Reader, ReaderCase, Study

NO_LINK = "This link does not open a study. Ask the person who sent it to you for a new one."


@dataclass(frozen=True)
class Visit:
    """A reader at work, with all answers so far."""

    number: int
    reader: Reader
    secret: str
    answers: dict[str, Answer]
    bases: dict[str, int]
    """{case: how many answers there have been}."""
    over: bool
    """Whether nothing can be changed any more."""

    @property
    def root(self) -> str:
        """Return the path at which this reader's pages begin."""
        return f"/r/{self.secret}"

    def status(self, case: ReaderCase) -> str:
        """complete, begun or open."""
        answer = self.answers.get(case.id)
        if answer is None:
            return "open"
        return "complete" if answer.complete else "begun"

    @property
    def done(self) -> int:
        """Return the number of cases that are complete."""
        return sum(self.status(case) == "complete" for case in self.reader.cases)

    @property
    def following(self) -> int:
        """The number of the first case that is not complete, or of the last one."""
        cases = enumerate(self.reader.cases, 1)
        missing = (number for number, case in cases if self.status(case) != "complete")
        return next(missing, len(self.reader.cases))


def _no_link(request: Request) -> HTTPException:
    """The refusal of a link that does not exist; who has had too many of them has to wait."""
    if not request.app.state.wrong.take(address(request.scope)):
        return HTTPException(429, "Too many links that do not exist; wait a few minutes.")
    return HTTPException(403, NO_LINK)


def reader_number(request: Request, secret: str) -> int:
    """The number of the reader whose personal link is used."""
    link = request.app.state.database.link(secret)
    if link is None or link.reader is None:
        raise _no_link(request)
    return link.reader


def visit(request: Request, secret: str) -> Visit:
    """The reader whose personal link is used, with all answers so far."""
    study: Study = request.app.state.study
    standing = request.app.state.database.standing(secret)
    if standing is None:
        raise _no_link(request)
    answers = {
        case: Answer.parse(json.loads(version.record.content), study.options)
        for case, version in standing.answers.items()
    }
    bases = {case: version.number for case, version in standing.answers.items()}
    reader = study.readers[standing.reader]
    return Visit(standing.reader, reader, secret, answers, bases, standing.over)


def owner(request: Request, secret: str) -> str:
    """The owner's secret, if it is the owner's."""
    link = request.app.state.database.link(secret)
    if link is None or link.reader is not None:
        raise _no_link(request)
    if request.method not in ("GET", "HEAD"):
        check_change(request, secret)
    return secret


def check_change(request: Request, secret: str) -> None:
    """Refuse a change that does not come from a page of ours."""
    sent = request.headers.get("x-study-form", "").encode()
    typed = request.headers.get("content-type", "").partition(";")[0] == "application/json"
    genuine = hmac.compare_digest(sent, form_token(secret).encode())
    if not (genuine and typed and same_origin(request.headers)):
        raise HTTPException(403, "This change did not come from a page of the study; reload it.")


Reading = Annotated[Visit, Depends(visit)]
Number = Annotated[int, Depends(reader_number)]
Owning = Annotated[str, Depends(owner)]


def page(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A rendered page."""
    return HTMLResponse(request.app.state.pages.get_template(name).render(**values), status)


_log = logging.getLogger("unmasked.study")
PAUSE = 5
"""Seconds after which to come again."""
CROWDED = "Many people are using the study at this moment."
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",  # images of patients do not stay on a shared computer
}


@dataclass(frozen=True)
class Limits:
    """Limits on the size and the number of requests that are let through."""

    body: int = 16_384
    """Bytes of a request's content, and of its head."""
    burst: int = 600
    """Requests at once with one link; a case takes about twenty."""
    rate: float = 60.0
    """Requests a second with one link, after the burst."""
    crowd: float = 50.0
    """How many links one address is supposed to have: readers of a hospital often share one."""
    at_work: int = 200
    """Requests that are answered at the same time; more are told to wait."""
    wrong_burst: int = 20
    """Links that do not exist, at once from one address."""
    wrong_rate: float = 0.2
    """The same a second, after the burst."""


@dataclass
class Buckets:
    """A token bucket for each address: ``burst`` at once, then ``rate`` a second."""

    burst: float
    rate: float
    clock: Callable[[], float] = time.monotonic
    most: int = 10_000
    _levels: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def take(self, address: str) -> bool:
        """Take a token from the bucket of an address; return false where none is left."""
        with self._lock:
            moment = self.clock()
            level, before = self._levels.pop(address, (self.burst, moment))
            level = min(self.burst, level + (moment - before) * self.rate)
            allowed = level >= 1
            self._levels[address] = (level - 1 if allowed else level, moment)
            if len(self._levels) > self.most:  # the address that was longest silent
                self._levels.popitem(last=False)
            return allowed


class Guard:
    """Lets through what is within the limits; puts the same headers on every reply."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], limits: Limits) -> None:
        self.app, self.hosts, self.limits = app, hosts, limits
        self.rates = Buckets(limits.burst, limits.rate)
        self.crowds = Buckets(limits.burst * limits.crowd, limits.rate * limits.crowd)
        self.at_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refuse(scope)
        if refused is not None:
            await refused(scope, receive, with_headers)
            return
        body = await self._body(receive)
        if body is None:
            text = f"A request may have {self.limits.body} bytes."
            await _reply(scope, 413, text)(scope, receive, with_headers)
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        self.at_work += 1
        try:
            await self.app(scope, replay, with_headers)
        except Exception:
            _log.exception("a request failed")
            if not started:
                text = "Something went wrong; nothing was changed."
                await _reply(scope, 500, text)(scope, receive, with_headers)
        finally:
            self.at_work -= 1

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        name = _name(headers.get("host", ""))
        if name not in self.hosts and not _is_address(name):
            return _reply(scope, 400, "This name is not served here.")
        who = address(scope)
        link = _link(scope["path"])
        if not self.crowds.take(who) or (link and not self.rates.take(who + link)):
            return wait(scope, 429, "Too many requests in a short time.")
        if self.at_work >= self.limits.at_work:
            return wait(scope, 503, CROWDED)
        head = len(scope["path"]) + len(scope["query_string"])
        head += sum(len(name) + len(value) for name, value in scope["headers"])
        if head > self.limits.body:
            return _reply(scope, 431, f"A request's head may have {self.limits.body} bytes.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.limits.body:
            return _reply(scope, 413, f"A request may have {self.limits.body} bytes.")
        return None

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too large, whatever its header says."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def form_token(secret: str) -> str:
    """Return the token that a page must send back with every change. It follows from the link's
    secret, which other sites do not know, so pages stay valid when the server starts anew."""
    return hmac.digest(secret.encode("utf-8", "replace"), b"form", "sha256").hex()


def same_origin(headers: Headers) -> bool:
    """Return true if the headers of a change say that it comes from a page of this server."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host", "")


def address(scope: Scope) -> str:
    """Return the address of the client, IPv4 in its own form; empty where none is known."""
    client = scope.get("client")
    return client[0].removeprefix("::ffff:") if client else ""


def _name(host: str) -> str:
    """A host without its port."""
    return host.rsplit("]", 1)[0] + "]" if host.startswith("[") else host.rsplit(":", 1)[0]


def _is_address(name: str) -> bool:
    """Return true if a host is a number: no name, so no foreign name made to point here."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _link(path: str) -> str:
    """The link in a path, as a fingerprint; empty where there is none."""
    parts = path.split("/", 3)
    if len(parts) < 3 or parts[1] not in ("r", "o"):
        return ""
    return sha256(parts[2].encode("utf-8", "replace")).hexdigest()


def wait(scope: Scope, status: int, why: str) -> Response:
    """Tell somebody to come again: a browser does so by itself, a page with an answer keeps it."""
    reading = scope["method"] in ("GET", "HEAD")
    then = "This page tries again by itself." if reading else "The page keeps your answer and tries"
    return come_again(_reply(scope, status, f"{why} {then}" + ("" if reading else " again.")))


def come_again(reply: Response) -> Response:
    """Have a browser ask once more after a pause."""
    reply.headers["retry-after"] = reply.headers["refresh"] = str(PAUSE)
    return reply


def _reply(scope: Scope, status: int, text: str) -> Response:
    """A sentence, in the form in which a page's scripts read it where they sent the request."""
    if scope["method"] in ("GET", "HEAD"):
        return PlainTextResponse(text + "\n", status)
    return JSONResponse({"error": text}, status)
