"""A PostgreSQL server of the tests' own, on loopback, gone with them.

python tests/small_postgres.py      runs one until Ctrl-C and prints its address
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
from small_studies import wait_for

from unmasked.study.serving import free_port


def find(name: str) -> str | None:
    """A program of PostgreSQL; Debian keeps them off the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))


INITDB, POSTGRES = find("initdb"), find("postgres")
_USER = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}  # never as root


class Postgres:
    """A server that keeps its promises (fsync), and can be killed and started again."""

    def __init__(self, port: int = 8400) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="unmasked-postgres-"))
        if _USER:
            shutil.chown(self.folder, **_USER)
        self.port = free_port("127.0.0.1", port)
        self.data = self.folder / "data"
        make = [INITDB, "-D", self.data, "-U", "reader", "--auth=trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, **self._place)
        self.start()

    @property
    def _place(self) -> dict:
        return {"cwd": self.folder, **_USER}

    def start(self) -> None:
        command = [POSTGRES, "-D", self.data, "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **self._place)
        wait_for(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._address("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: int = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _address(self, database: str) -> str:
        return f"postgresql://reader@127.0.0.1:{self.port}/{database}"

    def ask(self, database: str, statement: str) -> None:
        """Run a statement as another program would."""
        with psycopg.connect(self._address(database), autocommit=True) as connection:
            connection.execute(statement)

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"study_{uuid.uuid4().hex}"
        self.ask("postgres", f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://reader@127.0.0.1:{self.port}/{name}"


if __name__ == "__main__":
    server = Postgres()
    try:
        print(server.database(), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        server.remove()
