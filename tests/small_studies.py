"""Small reader studies for the tests: files to make them from, clients, and a server to kill."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import uvicorn
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from unmasked.study.create import Created, create_study
from unmasked.study.database import Database, open_database
from unmasked.study.folder import Study, read_manifest, read_study
from unmasked.study.guard import Limits, form_token
from unmasked.study.server import make_app
from unmasked.study.serving import listen, server_config

METHODS = ("REAL-X", "L2X", "INVASE", "BASE-X")
SECRET = bytes(range(32))
"""With a secret that is given, a study's order is the same in every run."""
LOCAL = frozenset({"localhost"})
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def write_sources(folder: Path, cases: int = 6, size: int = 64, seed: int = 0) -> Path:
    """Images and masks that give their method away in every way a file can."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(cases):
        Image.fromarray(rng.integers(0, 256, (size, size), dtype=np.uint8)).save(
            folder / f"patient-{i}.png"
        )
        for method in METHODS:
            told = PngInfo()
            told.add_text("Method", method)
            name = f"{method}-{i}.png"
            mask = Image.fromarray(np.uint8(255) * shown(method, size, rng))
            mask.save(folder / name, pnginfo=told, optimize=method == "L2X")
            rows.append([f"patient-{i}.png", method, name, f"case {i}", i % 2])
    path = folder / "manifest.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "method", "mask", "case", "label"], *rows])
    return path


def shown(method: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """A selection that is typical of its method: compressed, its size would tell whose it is."""
    mask = np.zeros((size, size), np.uint8)
    if method == "REAL-X":
        row, column = rng.integers(0, size // 2, 2)
        mask[row : row + size // 2, column : column + size // 2] = 1
    elif method == "L2X":
        mask[tuple(rng.integers(0, size, 2))] = 1
    elif method == "INVASE":
        mask[:] = rng.random((size, size)) < 0.5
    else:
        mask[:] = rng.random((size // 8, size // 8)).repeat(8, 0).repeat(8, 1) < 0.3
    return mask


def small_study(
    folder: Path, cases: int = 4, readers: tuple[str, ...] = ("Ann", "Bo"), **more
) -> Created:
    manifest = write_sources(folder / "sources", cases)
    more = {"secret": SECRET, **more}
    return create_study(folder / "study", read_manifest(manifest), readers, **more)


class Site:
    """A study served by a thread of this process, on a free port."""

    def __init__(
        self, made: Created, limits: Limits | None = None, proxies: tuple[str, ...] = ()
    ) -> None:
        self.made = made
        self.study: Study = read_study(made.folder)
        self.database: Database = open_database(self.study.answers, self.study.digest)
        app = make_app(self.study, self.database, LOCAL, limits)
        self.server = uvicorn.Server(server_config(app, list(proxies), log_level="critical"))
        self.socket = listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
        self.database.close()

    def secret(self, reader: int) -> str:
        return self.made.readers[reader][1]

    def get(self, reader: int, path: str = ""):
        return self.client.get(f"/r/{self.secret(reader)}{path}")

    def case(self, reader: int, number: int) -> str:
        return self.study.readers[reader].cases[number - 1].id

    def put(self, reader: int, case: str, body: dict | bytes | None = None, **more):
        """Answer a case as the page would."""
        secret = self.secret(reader)
        headers = {"content-type": "application/json", "x-study-form": form_token(secret)}
        headers |= more.pop("headers", {})
        content = {"json": body} if isinstance(body, dict) else {"content": body}
        return self.client.put(f"/r/{secret}/answer/{case}", headers=headers, **content, **more)


def answer(*places: int | None, base: int = 0, change: str = "change-1", **more) -> dict:
    return {"places": list(places), "sufficient": [True, False, False, True]} | {
        "remark": "",
        "base": base,
        "change": change,
        **more,
    }


class LiveServer:
    """A server in a process of its own, which can be killed and started again on its port."""

    def __init__(self, folder: Path, port: int, *more: str) -> None:
        self.folder, self.port, self.more = folder, port, more
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        serve = ["study", "serve", str(self.folder), "--port", str(self.port), *self.more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unmasked", *serve],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # printed when it listens
        assert self.url in line, line + (self.process.stderr.read() if not line else "")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate()
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.kill()


def wait_for(condition, seconds: float = 20.0) -> None:
    """Wait for something that is bound to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
