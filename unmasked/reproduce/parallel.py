"""Train the networks of an image table side by side, each in a process of its own.

The processes speak to the run through checkpoints alone: each trains into its own, and the run,
which reads back what it finds finished, then has nothing left to train. So the figures are those
of a run that trains one after the other but for rounding, a run that was broken off goes on with
any number of processes, and what a process could not do the run does itself.

Rounding: on the CPU the processes share the threads, and sums over another number of threads are
rounded otherwise, which training carries as far as the fourth digit of a figure. With one thread
for each, as with ``OMP_NUM_THREADS=1``, figures are the same to the last digit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from unmasked.errors import UnmaskedWarning
from unmasked.reproduce.image_training import Task, Workshop
from unmasked.training.progress import Show, Shown, watched

_CTRL_C = "Ctrl-C"
_PATIENCE = 5.0  # seconds in which a process that is told to stop may end its step


@dataclass(frozen=True)
class _Worker:
    task: Task
    process: BaseProcess
    said: Connection


def train_side_by_side(work: Workshop, explainers: tuple[str, ...], jobs: int) -> None:
    """Train all that a table needs, ``jobs`` at a time; each starts when what it needs is there."""
    waiting = work.tasks(explainers)
    store = work.place.checkpoints / "workshop.pickle"
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with store.open("wb") as file:
            pickle.dump(work.silent(), file, protocol=5)
    except OSError as error:
        warnings.warn(
            f"networks are trained one after the other, as {store.parent} cannot be written "
            f"({error}).",
            UnmaskedWarning,
            stacklevel=3,
        )
        return
    try:
        _train_all(store, waiting, jobs, work.place.show)
    finally:
        store.unlink(missing_ok=True)


def _train_all(store: Path, waiting: list[Task], jobs: int, show: Show) -> None:
    running: dict[int, _Worker] = {}  # by what tells that the process has ended
    done: set[str] = set()
    told: set[str] = set()
    count = len(waiting)
    threads = max(1, torch.get_num_threads() // min(jobs, count))
    context = multiprocessing.get_context("spawn")  # a copy of a process cannot use its GPU
    resource_tracker.ensure_running()  # or the first start would do so, and let Ctrl-C through
    with _Names(count, show) as bar:
        try:
            while waiting or running:
                ready = [task for task in waiting if task.after in (None, *done)]
                for task in ready[: jobs - len(running)]:
                    waiting.remove(task)
                    heard, said = context.Pipe(duplex=False)
                    process = context.Process(
                        target=_train, args=(store, task, threads, said), daemon=True
                    )
                    with _ctrl_c_later():
                        process.start()
                        running[process.sentinel] = _Worker(task, process, heard)
                    said.close()
                left = len(waiting) + len(running)
                bar.update(count - left, [worker.task.name for worker in running.values()])
                for end in wait(list(running)):
                    assert isinstance(end, int)
                    worker = running.pop(end)
                    name = worker.task.name
                    if _succeeded(worker, told):
                        done.add(name)
                    else:  # what needs it would train it too, all at the same time
                        waiting = [task for task in waiting if task.after != name]
            bar.update(count, [])
        finally:
            _stop(list(running.values()))


def _train(store: Path, task: Task, threads: int, said: Connection) -> None:
    """In a process of its own: train into the checkpoint, then tell what there was to tell.

    The workshop comes as a file: what is handed over at the start goes through a pipe, on which
    the run would wait for ever if the process died while it reads hundreds of megabytes.
    """
    _hear_ctrl_c_while_training()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnmaskedWarning)
        try:
            with store.open("rb") as file:
                work: Workshop = pickle.load(file)  # what this very run wrote
            work.do(task)
        except KeyboardInterrupt:
            said.send(([], _CTRL_C))
            return
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    said.send(([w.message for w in caught if isinstance(w.message, UnmaskedWarning)], error))


def _end_with_parent() -> None:
    """A run that was killed leaves nobody behind that writes into its folder."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _succeeded(worker: _Worker, told: set[str]) -> bool:
    """Pass on the warnings of a process that has ended, and return whether it did its task.

    A warning that was ``told`` before is dropped: each process of a GPU that is short of memory
    says so.
    """
    try:
        notes, error = worker.said.recv()
    except EOFError:  # it was killed
        notes, error = [], "its process was killed"
    worker.process.join()
    worker.said.close()
    if error == _CTRL_C:
        raise KeyboardInterrupt
    for note in notes:
        if str(note) not in told:
            told.add(str(note))
            warnings.warn(note, stacklevel=3)
    if error:
        warnings.warn(
            f"{worker.task.name} could not be trained beside the others ({error}); it is trained "
            "after them.",
            UnmaskedWarning,
            stacklevel=3,
        )
    return not error


def _stop(workers: list[_Worker]) -> None:
    """End processes that still run, if they can after a step; their checkpoints stay."""
    for worker in workers:
        if worker.process.pid is not None and worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGINT)
    for worker in workers:
        worker.process.join(_PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """A Ctrl-C meanwhile comes when this ends; what is started meanwhile does not hear any."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hear_ctrl_c_while_training() -> None:
    """The run tells when to stop; `fit` also listens by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


class _Names(Shown):
    """One bar over the networks; silent where nobody watches."""

    def __init__(self, count: int, show: Show) -> None:
        self._count, self._lines, self._said = count, show == "lines", ""
        if watched(show):
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

            from unmasked.plots.notebook import progress_bar

            self._progress = progress_bar(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("networks{task.fields[names]}"),
                TimeElapsedColumn(),
            )
            self._task = self._progress.add_task("", total=count, names="")

    def update(self, done: int, names: list[str]) -> None:
        """Show how many are trained, and which are being trained."""
        now = f", now {', '.join(names)}" if names else ""
        said = f"{done} of {self._count} networks{now}"
        if self._lines and said != self._said:
            self._said = said
            print(said, file=sys.stderr, flush=True)
        if self._progress is not None:
            self._progress.update(self._task, completed=done, names=now)
