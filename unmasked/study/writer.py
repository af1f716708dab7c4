"""The one thread of a process that writes: what comes while it commits is committed together."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from unmasked.study.backends import DatabaseBusy, Place

T = TypeVar("T")
MOST_AT_ONCE = 100
"""Pieces of work in one transaction."""
MOST_WAITING = 1000
"""Pieces of work that may wait; more are told to come again."""
LAST = 10.0
"""Seconds to wait at the end for what is still being written."""
IDLE = 0.5
"""Seconds without work after which the place is tidied up."""


class Refused(Exception):
    """Raised by work that will not be done, before it has written anything."""


@dataclass
class _Job:
    work: Callable[[Connection], Any]
    future: Future[Any] = field(default_factory=Future)


class Writer:
    """Runs work in transactions, many pieces in one where many wait.

    A future has its result when the transaction is on the disk. Work that is refused does not
    disturb its neighbours; where anything else fails the whole transaction is undone, and each
    piece tried in one of its own.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._engine = place.engine(1, write=True)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = Lock()  # so that nothing is put behind the end
        self._closed = False
        self._thread = Thread(target=self._run, name="unmasked-study-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """Have something done; the future is cancelled where nobody waits for it any more."""
        job = _Job(work)
        with self._lock:
            if self._closed or self._queue.qsize() >= MOST_WAITING:
                raise DatabaseBusy(
                    f"the database {self._place.name} has too much to write at this moment; try "
                    "again in some seconds."
                )
            self._queue.put(job)
        return job.future

    def close(self) -> None:
        """Finish what was submitted and let go of the database."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join(LAST)  # a database that does not answer keeps nobody for ever

    def _run(self) -> None:
        while self._write(self._next()):
            pass
        self._place.leave(self._engine)
        self._engine.dispose()

    def _next(self) -> list[_Job | None]:
        """All that waits; the first piece is waited for."""
        try:
            batch = [self._queue.get(timeout=IDLE)]
        except Empty:
            self._place.rest(self._engine)
            batch = [self._queue.get()]
        with suppress(Empty):
            while batch[-1] is not None and len(batch) < MOST_AT_ONCE:
                batch.append(self._queue.get_nowait())
        return batch

    def _write(self, batch: list[_Job | None]) -> bool:
        """Write a batch; whether there may be another one."""
        jobs = [job for job in batch if job and job.future.set_running_or_notify_cancel()]
        failure = self._together(jobs)
        if failure is not None and not isinstance(failure, DatabaseBusy) and len(jobs) > 1:
            for job in jobs:  # one piece may not fit on the disk, and the others would
                if alone := self._together([job]):
                    job.future.set_exception(alone)
        elif failure is not None:  # who waits has waited long enough
            for job in jobs:
                job.future.set_exception(failure)
        return batch[-1] is not None

    def _together(self, jobs: list[_Job]) -> Exception | None:
        """Write in one transaction; what went wrong, if nothing was written."""
        if not jobs:
            return None
        try:
            with self._place.turn(), self._engine.begin() as connection:
                self._place.lock(connection)
                outcomes = [_outcome(connection, job) for job in jobs]
        except SQLAlchemyError as error:
            problem = self._place.problem(error)
            problem.__cause__ = error
            return problem
        except Exception as error:
            return error
        for job, (result, refusal) in zip(jobs, outcomes, strict=True):
            if refusal is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(refusal)
        return None


def _outcome(connection: Connection, job: _Job) -> tuple[Any, Refused | None]:
    """Run one piece of work; return its result or its refusal, and let other failures through."""
    try:
        return job.work(connection), None
    except Refused as refusal:
        return None, refusal
