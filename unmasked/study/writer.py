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

from unmasked.study.places import DatabaseBusy, Place

T = TypeVar("T")
MOST_AT_ONCE = 100
"""Pieces of work in one transaction."""
MOST_WAITING = 1000
"""Pieces of work that may wait; more are told to come again."""
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
        self._thread.join()

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
        try:
            self._together(jobs)
        except Exception:
            # One piece may not fit on the disk, and the others would.
            for job in jobs:
                self._alone(job)
        return batch[-1] is not None

    def _together(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        with self._engine.begin() as connection:
            self._place.lock(connection)
            outcomes = [_outcome(connection, job) for job in jobs]
        for job, (result, error) in zip(jobs, outcomes, strict=True):
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)

    def _alone(self, job: _Job) -> None:
        try:
            self._together([job])
        except SQLAlchemyError as error:
            problem = self._place.problem(error)
            problem.__cause__ = error
            job.future.set_exception(problem)
        except Exception as error:
            job.future.set_exception(error)


def _outcome(connection: Connection, job: _Job) -> tuple[Any, Refused | None]:
    """What came of one piece of work; any failure but a refusal is everybody's."""
    try:
        return job.work(connection), None
    except Refused as refusal:
        return None, refusal
