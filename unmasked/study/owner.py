"""The owner's pages: how far readers are, their links, closing the study; still blind."""

from __future__ import annotations

import csv
import io
import json
import secrets
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from unmasked.study.answers import Answer
from unmasked.study.database import Database
from unmasked.study.folder import Study
from unmasked.study.guard import Owning, form_token, page


def add_owner_pages(app: FastAPI) -> None:
    """Add what the owner's link opens."""
    study: Study = app.state.study
    database: Database = app.state.database

    @app.get("/o/{secret}")
    def overview(secret: Owning, request: Request) -> Response:
        rows = [_progress(study, database, number) for number in range(len(study.readers))]
        return page(
            request,
            "owner.html",
            rows=rows,
            closed=database.closed(),
            root=f"/o/{secret}",
            form=form_token(secret),
        )

    @app.get("/o/{secret}/record.csv")
    def record(secret: Owning) -> Response:
        """The append-only record, in which options have no names but their places."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["record", "time", "reader", "kind", "case", "content", "digest"])
        for entry in database.records():
            reader = None if entry.reader is None else study.readers[entry.reader]
            case = reader.number(entry.case) if reader and entry.case else None
            name = reader.name if reader else "owner"
            writer.writerow(
                [entry.id, entry.time, name, entry.kind, case or "", entry.content, entry.digest]
            )
        return Response(
            text.getvalue(),
            media_type="text/csv",
            headers={"content-disposition": 'attachment; filename="record.csv"'},
        )

    @app.post("/o/{secret}/readers/{number}/revoke")
    def revoke(secret: Owning, number: int) -> Response:
        _check(study, number)
        database.revoke_links(number)
        return JSONResponse({"next": f"/o/{secret}"})

    @app.post("/o/{secret}/readers/{number}/renew")
    def renew(secret: Owning, number: int) -> Response:
        _check(study, number)
        fresh = secrets.token_urlsafe(32)
        database.renew_link(number, fresh)
        return JSONResponse({"link": f"/r/{fresh}"})

    @app.post("/o/{secret}/close")
    def close(secret: Owning) -> Response:
        database.close_study()
        return JSONResponse({"next": f"/o/{secret}"})


def _check(study: Study, number: int) -> None:
    if not 0 <= number < len(study.readers):
        raise HTTPException(404)


def _progress(study: Study, database: Database, number: int) -> dict[str, Any]:
    reader = study.readers[number]
    records = [version.record for version in database.answers(number).values()]
    complete = sum(
        Answer.parse(json.loads(record.content), study.options).complete for record in records
    )
    return {
        "number": number,
        "name": reader.name,
        "complete": complete,
        "begun": len(records) - complete,
        "cases": len(reader.cases),
        "last": max((record.time for record in records), default=""),
        "over": database.over(number),
        "link": database.has_link(number),
    }
