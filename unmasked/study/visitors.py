"""Who is asking, and whether they may."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse

from unmasked.study.answers import Answer
from unmasked.study.folder import Reader, ReaderCase, Study
from unmasked.study.guard import address, form_token, same_origin

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
        """Where this reader's pages begin."""
        return f"/r/{self.secret}"

    def status(self, case: ReaderCase) -> str:
        """complete, begun or open."""
        answer = self.answers.get(case.id)
        if answer is None:
            return "open"
        return "complete" if answer.complete else "begun"

    @property
    def done(self) -> int:
        """How many cases are complete."""
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
