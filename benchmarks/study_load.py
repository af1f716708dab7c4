"""A reader study under load: many readers at once, and a server that is killed.

    python benchmarks/study_load.py --readers 50 --seconds 600
    python benchmarks/study_load.py --readers 50 --seconds 120 --kills 20
    python benchmarks/study_load.py --readers 200 --think 0.2 --seconds 60 --workers 2
    python benchmarks/study_load.py --database postgresql+psycopg://user@host/name

Each reader opens a case (its page, styles, scripts and pictures), answers it some times with a
pause before each answer, and goes on to the next case. An answer whose reply does not come is sent
again under the same name, as the page in a browser does. When all readers are done the record is
read and compared: acknowledged answers that are not in it are lost, names that are in it twice are
doubled. Prints one line of JSON; exits with 1 if an answer is lost or doubled, or if the server
ended without being killed.

Latencies are those of single requests, seen by the client, which shares the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from unmasked.study.create import Created, create_study
from unmasked.study.database import open_database
from unmasked.study.folder import Study, read_manifest, read_study
from unmasked.study.guard import form_token
from unmasked.study.server import STATIC
from unmasked.study.serving import free_port

METHODS = ("A", "B", "C", "D")
GIVE_UP = 10.0  # seconds, as the page does


@dataclass
class Seen:
    """What the readers saw."""

    times: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: list[tuple[int, str]] = field(default_factory=list)
    broken: int = 0
    """Requests whose reply did not come."""


def make_study(folder: Path, args: argparse.Namespace) -> Created:
    """A study of noise, with squares as selections."""
    rng = np.random.default_rng(0)
    lines = ["image,method,mask"]
    for i in range(args.cases):
        image = folder / f"image{i}.png"
        Image.fromarray(rng.integers(0, 256, (args.size, args.size), dtype=np.uint8)).save(image)
        for method in METHODS:
            mask = np.kron(rng.random((16, 16)) < 0.2, np.ones((1, 1))).astype(np.uint8) * 255
            Image.fromarray(mask).save(folder / f"{method}{i}.png")
            lines.append(f"{image.name},{method},{method}{i}.png")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return create_study(
        folder / "study",
        read_manifest(folder / "manifest.csv"),
        [f"Reader {i}" for i in range(args.readers)],
        database=args.database,
    )


class Server:
    """`unmasked study serve` in a process of its own."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.port = free_port("127.0.0.1", args.port)
        self.command = [sys.executable, "-m", "unmasked", "study", "serve", str(folder)]
        self.command += ["--port", str(self.port), "--workers", str(args.workers)]
        if args.database:
            self.command += ["--database", args.database]
        self.crashes: list[int] = []
        self.log = open(folder.parent / "server.log", "ab")  # noqa: SIM115
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # printed when it listens

    def watch(self) -> None:
        """Start it again if it has ended by itself."""
        if self.process.poll() is not None:
            self.crashes.append(self.process.returncode)
            self.start()

    def kill(self) -> None:
        """kill -9, all its processes at once."""
        os.killpg(self.process.pid, 9)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait()

    def memory(self) -> float:
        """Megabytes that its processes hold, NaN where the system does not tell."""
        total = 0.0
        try:
            for pid in self._family():
                status = Path(f"/proc/{pid}/status").read_text()
                total += int(status.partition("VmRSS:")[2].split()[0]) / 1024
        except (OSError, IndexError):
            return float("nan")
        return total

    def _family(self) -> Iterator[int]:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == self.process.pid:  # the process group
                yield int(stat.parent.name)


class Connection:
    """One kept connection that asks for one thing at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, headers: str = "", body: bytes = b"") -> tuple:
        """(status, content) of a reply."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}{headers}\r\n".encode() + body)
        raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines if line)
        content = await reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection") == "close":
            self.close()
        return int(first.split()[1]), content

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


class Reader:
    """Somebody at work."""

    def __init__(self, number: int, study: Study, secret: str, seen: Seen, port: int, think: float):
        self.number, self.seen, self.think = number, seen, think
        self.cases, self.root = study.readers[number].cases, f"/r/{secret}"
        self.form = f"Content-Type: application/json\r\nX-Study-Form: {form_token(secret)}\r\n"
        self.connection = Connection(port)
        self.rng = random.Random(number)

    async def work(self, until: float, answers: int) -> None:
        await asyncio.sleep(self.rng.random() * self.think)
        bases: Counter[str] = Counter()
        try:
            while time.monotonic() < until:
                index = self.rng.randrange(len(self.cases))
                await self.open(index)
                for _ in range(answers):
                    await asyncio.sleep(self.think * self.rng.uniform(0.8, 1.2))
                    await self.answer(self.cases[index].id, bases, until)
        finally:
            self.connection.close()

    async def open(self, index: int) -> None:
        """A case's page with all that it loads."""
        case = self.cases[index]
        await self.timed("page", "GET", f"{self.root}/case/{index + 1}")
        for name in STATIC:
            await self.timed("static", "GET", f"/static/{name}")
        layers = [layer for option in case.options for layer in (option.over, option.hide)]
        for name in (case.image, *layers):
            await self.timed("picture", "GET", f"{self.root}/picture/{name}")

    async def answer(self, case: str, bases: Counter[str], until: float) -> None:
        """One more answer, sent until the server says what became of it."""
        name = f"{self.rng.getrandbits(64):016x}"
        body = {"places": [1, 2, 3, 4], "sufficient": None, "remark": "", "base": bases[case]}
        content = json.dumps({**body, "change": name}).encode()
        path = f"{self.root}/answer/{case}"
        while time.monotonic() < until + 30:
            status, reply = await self.timed("answer", "PUT", path, self.form, content)
            if status == 200:
                self.seen.acknowledged.append((self.number, name))
                bases[case] = json.loads(reply)["version"]
                return
            if status not in (0, 429, 503, 507):
                raise AssertionError(f"{status}: {reply!r}")
            await asyncio.sleep(0.5)

    async def timed(self, kind: str, method: str, path: str, *more) -> tuple[int, bytes]:
        begun = time.perf_counter()
        try:
            status, content = await asyncio.wait_for(
                self.connection.ask(method, path, *more), GIVE_UP
            )
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.connection.close()
            self.seen.broken += 1
            await asyncio.sleep(0.2)
            return 0, b""
        self.seen.times.setdefault(kind, []).append(time.perf_counter() - begun)
        self.seen.statuses[f"{kind} {status}"] += 1
        return status, content


async def load(server: Server, made: Created, study: Study, args: argparse.Namespace) -> tuple:
    """What readers saw, and megabytes after a tenth of the time and at the end."""
    seen, memory = Seen(), []
    until = time.monotonic() + args.seconds
    readers = [
        Reader(i, study, secret, seen, server.port, args.think)
        for i, (_, secret) in enumerate(made.readers)
    ]
    work = [asyncio.create_task(reader.work(until, args.answers)) for reader in readers]
    rng = random.Random(1)
    kills = sorted(rng.uniform(0.05, 0.95) * args.seconds for _ in range(args.kills))
    begun = time.monotonic()
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        passed = time.monotonic() - begun
        if kills and passed >= kills[0]:
            kills.pop(0)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.watch)
        if not memory and passed >= 0.1 * args.seconds:
            memory.append(server.memory())
    memory.append(server.memory())
    for done in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(done, BaseException):
            raise done
    return seen, memory


def report(seen: Seen, names: Counter, memory: list, server: Server, args) -> dict:
    """Everything that was seen, in milliseconds and megabytes."""
    doubled = sum(count - 1 for count in names.values())
    lost = sum(names[entry] == 0 for entry in seen.acknowledged)
    latencies = {}
    for kind, times in sorted(seen.times.items()):
        low, high, highest = (float(np.quantile(times, q)) for q in (0.5, 0.99, 1.0))
        shown = {"p50": low, "p99": high, "most": highest}
        latencies[kind] = {"count": len(times)} | {k: round(1e3 * v, 1) for k, v in shown.items()}
    return {
        "readers": args.readers,
        "seconds": args.seconds,
        "workers": args.workers,
        "database": "postgresql" if args.database else "sqlite",
        "kills": args.kills,
        "crashes": server.crashes,
        "acknowledged": len(seen.acknowledged),
        "stored": sum(names.values()),
        "lost": lost,
        "doubled": doubled,
        "without_reply": seen.broken,
        "statuses": dict(sorted(seen.statuses.items())),
        "milliseconds": latencies,
        "megabytes": [round(value, 1) for value in memory],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


@contextmanager
def scratch(args: argparse.Namespace) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--think", type=float, default=1.0, help="seconds before each answer")
    parser.add_argument("--answers", type=int, default=5, help="answers to a case before the next")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--size", type=int, default=512, help="pixels of an image's side")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--port", type=int, default=8900, help="the first to try")
    parser.add_argument("--database", help="address of a PostgreSQL database")
    parser.add_argument("--folder", help="where to make the study; default: for temporary files")
    args = parser.parse_args()
    socket.setdefaulttimeout(GIVE_UP)
    with scratch(args) as folder:
        made = make_study(folder, args)
        study = read_study(made.folder)
        server = Server(made.folder, args)
        try:
            seen, memory = asyncio.run(load(server, made, study, args))
            server.watch()
        finally:
            server.stop()
        database = open_database(study.where(args.database), study.digest, write=False)
        records = [record for record in database.records() if record.kind == "answer"]
        database.close()
        files = sorted(path.name for path in made.folder.glob("answers*"))
        names = Counter((record.reader, record.change) for record in records)
        found = report(seen, names, memory, server, args) | {"files_afterwards": files}
        log = (folder / "server.log").read_text(errors="replace").strip()
    print(json.dumps(found))
    if log:
        print(log[-3000:], file=sys.stderr)
    return int(bool(found["lost"] or found["doubled"] or server.crashes))


if __name__ == "__main__":
    sys.exit(main())
