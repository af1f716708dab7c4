"""The web application that readers use. It opens the study's folder and database, never the key."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from unmasked.errors import InputError, SavedError
from unmasked.study.answers import LETTERS, LONGEST_REMARK, Answer, in_words, ordinal
from unmasked.study.backends import DatabaseBusy, DatabaseError, DatabaseFull
from unmasked.study.database import READERS, Conflict, Database, Finished, Full
from unmasked.study.folder import Study
from unmasked.study.guard import (
    Buckets,
    Guard,
    Limits,
    Number,
    Reading,
    check_change,
    come_again,
    form_token,
    page,
)
from unmasked.study.owner import add_owner_pages

HERE = Path(__file__).parent
SCRIPTS = ("case.js", "looking.js", "page.js", "parts.js", "pictures.js", "ranking.js", "saving.js")
STATIC = {"study.css": "text/css", "icon.svg": "image/svg+xml"}
STATIC |= dict.fromkeys(SCRIPTS, "text/javascript")
_log = logging.getLogger("unmasked.study")

_CHANGE = re.compile(r"[A-Za-z0-9 _-]{8,64}")
DEADLINE = 9.0
"""Seconds in which an answer must be written; the page gives up after ten."""
FRONT = "A study is open on this computer. Use the personal link that you were sent to take part."
FULL_DISK = "The disk of the computer that runs the study is full."
BUSY = "The study's database is busy or cannot be used at this moment."
NOT_SAVED = "Nothing was saved. {} Your answers stay on this page, which keeps trying."


def make_app(
    study: Study, database: Database, hosts: frozenset[str], limits: Limits | None = None
) -> FastAPI:
    """The application of one study; ``hosts`` are the names by which it may be called,
    beside plain addresses."""
    limits = limits or Limits()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_life)
    app.state.study, app.state.database = study, database
    app.state.pages = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    app.state.pages.globals |= {"study": study, "letters": LETTERS, "ordinal": ordinal}
    app.state.wrong = Buckets(limits.wrong_burst, limits.wrong_rate)
    app.add_middleware(Guard, hosts=hosts, limits=limits)
    _add_errors(app)
    _add_pages(app)
    _add_changes(app)
    add_owner_pages(app)
    return app


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    """As many threads as connections to read with, more would only wait; at the end what was handed
    over is written."""
    current_default_thread_limiter().total_tokens = READERS
    yield
    app.state.database.close()


# ---------------------------------------------------------------------- pages


def _add_pages(app: FastAPI) -> None:
    study: Study = app.state.study
    own = [reader.pictures() for reader in study.readers]

    @app.get("/")
    def front(request: Request) -> Response:
        return page(request, "message.html", heading="A reader study", text=FRONT)

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404)
        return Response((HERE / "static" / name).read_bytes(), media_type=STATIC[name])

    @app.get("/r/{secret}")
    def welcome(request: Request, reading: Reading) -> Response:
        if reading.over:
            return page(request, "done.html", visit=reading)
        return page(request, "welcome.html", visit=reading)

    @app.get("/r/{secret}/case/{number}")
    def case(request: Request, reading: Reading, number: int) -> Response:
        if reading.over:
            return RedirectResponse(reading.root, 303)
        if not 1 <= number <= len(reading.reader.cases):
            raise HTTPException(404)
        shown = reading.reader.cases[number - 1]
        return page(
            request,
            "case.html",
            visit=reading,
            case=shown,
            number=number,
            answer=reading.answers.get(shown.id) or Answer.empty(study.options),
            base=reading.bases.get(shown.id, 0),
            form=form_token(reading.secret),
            longest=LONGEST_REMARK,
        )

    @app.get("/r/{secret}/review")
    def review(request: Request, reading: Reading) -> Response:
        if reading.over:
            return RedirectResponse(reading.root, 303)
        rows = [
            {
                "status": reading.status(case),
                "words": in_words(reading.answers[case.id].places)
                if case.id in reading.answers
                else "",
            }
            for case in reading.reader.cases
        ]
        form = form_token(reading.secret)
        return page(request, "review.html", visit=reading, rows=rows, form=form)

    @app.get("/r/{secret}/pause")
    def pause(request: Request, reading: Reading) -> Response:
        if reading.over:
            return RedirectResponse(reading.root, 303)
        return page(request, "pause.html", visit=reading)

    @app.get("/r/{secret}/answers.csv")
    def answers(reading: Reading) -> Response:
        """A reader's own copy, with the letters that this reader saw."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["case", "option", "place", "sufficient", "remark"])
        for number, case in enumerate(reading.reader.cases, 1):
            answer = reading.answers.get(case.id, Answer.empty(study.options))
            for i, place in enumerate(answer.places):
                said = "" if answer.sufficient is None else ("no", "yes")[answer.sufficient[i]]
                writer.writerow([number, LETTERS[i], place or "", said, _cell(answer.remark)])
        return Response(
            text.getvalue(),
            media_type="text/csv",
            headers={"content-disposition": 'attachment; filename="my-answers.csv"'},
        )

    @app.get("/r/{secret}/picture/{identifier}")
    def picture(number: Number, identifier: str) -> Response:
        """A picture of one of this reader's own cases."""
        if identifier not in own[number]:
            raise HTTPException(404)
        return Response(study.picture(study.pictures[identifier]), media_type="image/png")


def _cell(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# ---------------------------------------------------------------------- changes


def _add_changes(app: FastAPI) -> None:
    study: Study = app.state.study
    database: Database = app.state.database

    @app.put("/r/{secret}/answer/{case}")
    async def answer(request: Request, number: Number, secret: str, case: str) -> Response:
        check_change(request, secret)
        if study.readers[number].number(case) is None:
            raise HTTPException(403, "This is not one of your cases.")
        given, base, change = _parse(await request.body(), study.options)
        content = json.loads(given.to_json())
        try:
            waiting = database.submit_answer(number, case, content, base=base, change=change)
            # Shielded: what was handed over is written, even if the reader's connection ends.
            done = asyncio.shield(asyncio.wrap_future(waiting))
            saved = await asyncio.wait_for(done, DEADLINE)
        except TimeoutError:
            raise DatabaseBusy(f"an answer was not written within {DEADLINE:g} s.") from None
        except Finished:
            raise HTTPException(
                409, "Nothing was saved: the study is finished and cannot be changed any more."
            ) from None
        except Conflict:
            raise HTTPException(
                412,
                "Nothing was saved: this case was changed in another window. Reload the page to "
                "see the answer that counts.",
            ) from None
        except Full:
            raise HTTPException(
                409,
                "Nothing was saved: this case was changed so often that no more changes are kept. "
                "The answer that was saved last counts; reload the page to see it.",
            ) from None
        words = in_words(given.places)
        return JSONResponse({"version": saved.number, "time": saved.record.time, "words": words})

    @app.post("/r/{secret}/finish")
    def finish(request: Request, reading: Reading) -> Response:
        check_change(request, reading.secret)
        database.finish(reading.number)
        return JSONResponse({"next": reading.root})


def _parse(body: bytes, options: int) -> tuple[Answer, int, str]:
    """An answer as it was sent, the version it is based on, and its change's name."""
    try:
        data = json.loads(body)
        given = Answer.parse(data, options)
        base, change = data.get("base"), data.get("change")
        if type(base) is not int or not isinstance(change, str) or not _CHANGE.fullmatch(change):
            raise InputError("an answer must say what it is based on; reload the page.")
    except (ValueError, RecursionError) as error:
        text = str(error) if isinstance(error, InputError) else "an answer must be JSON."
        raise HTTPException(422, text) from None
    return given, base, change


# ---------------------------------------------------------------------- errors


def _add_errors(app: FastAPI) -> None:
    def reply(request: Request, status: int, text: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            return JSONResponse({"error": text}, status)
        return page(request, "message.html", status, heading="This cannot be shown", text=text)

    @app.exception_handler(StarletteHTTPException)
    def known(request: Request, error: StarletteHTTPException) -> Response:
        text = "There is no such page." if error.status_code == 404 else str(error.detail)
        return reply(request, error.status_code, text)

    @app.exception_handler(DatabaseError)
    def unsaved(request: Request, error: DatabaseError) -> Response:
        _log.error("%s", error)
        full = isinstance(error, DatabaseFull)
        text = FULL_DISK if full else BUSY
        if request.method in ("GET", "HEAD"):
            text += " This page tries again by itself."
        else:
            text = NOT_SAVED.format(text)
        return come_again(reply(request, 507 if full else 503, text))

    @app.exception_handler(SavedError)
    @app.exception_handler(OSError)
    def damaged(request: Request, error: Exception) -> Response:
        _log.error("%s", error)
        return reply(
            request,
            500,
            "The study's files were changed or cannot be read. Please tell the person who runs it.",
        )

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Response:
        return reply(request, 404, "There is no such page.")
