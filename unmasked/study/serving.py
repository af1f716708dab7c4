"""``unmasked study serve``: the application on a port of this computer."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from unmasked.errors import InputError, MissingExtra, UnmaskedError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

_FILES = 8192
_PAUSE = 2.0  # seconds before a worker that cannot start is started again
LOCAL = "127.0.0.1"
PORT = 8765
SETTINGS: dict[str, Any] = {
    "access_log": False,  # it would hold the secrets of the links
    "log_level": "warning",
    "server_header": False,
    "timeout_keep_alive": 15,
    "timeout_graceful_shutdown": 10,
    "h11_max_incomplete_event_size": 16_384,
    "http": "unmasked.study.connections:Connection",
    "ws": "none",
}
"""Of uvicorn."""


class PortInUse(InputError):
    """Somebody else listens there."""


def require_packages() -> None:
    """Name the extra if its packages are not installed."""
    for package in ("fastapi", "pydantic", "uvicorn", "sqlalchemy"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtra(package, "study", "a reader study") from error


def free_port(host: str, first: int) -> int:
    """The first port from ``first`` on that nobody listens on."""
    for port in range(first, min(first + 200, 65_536)):
        try:
            listen(host, port).close()
        except PortInUse:
            continue
        return port
    raise InputError(f"no port from {first} on is free on {host}; choose another with --port.")


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address, which nobody else has."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends at once; else a reply's body waits for its head's
    # acknowledgement, 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(1024)
    except (OSError, OverflowError) as error:
        bound.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise PortInUse(f"the port {port} of {host} is in use.") from error
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"the server must be able to listen on {host}, port {port}, but cannot ({reason}); "
            "choose another with --host or --port."
        ) from error
    return bound


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to an address, or refuse and name the next free port where this is taken."""
    try:
        return listen(host, port)
    except PortInUse as error:
        raise InputError(
            f"the port {port} of {host} is in use; the next free one is --port "
            f"{free_port(host, port + 1 if port < 65_535 else PORT)}."
        ) from error


@dataclass(frozen=True)
class Serving:
    """Study, database and names to serve, from which each process can make the application.

    database : of PostgreSQL; None is the file in the study's folder.
    names : by which the server may be called, beside plain addresses.
    """

    folder: Path
    database: str | None
    names: frozenset[str]

    def __call__(self) -> FastAPI:
        """The application; its database is closed when it ends."""
        from unmasked.study.database import open_database
        from unmasked.study.folder import read_study
        from unmasked.study.server import make_app

        _end_with_parent()
        try:
            study = read_study(self.folder)
            database = open_database(study.where(self.database), study.digest)
        except UnmaskedError as error:  # since the server began: it is tried again
            logging.getLogger("unmasked.study").error("%s", error)
            time.sleep(_PAUSE)
            sys.exit(1)
        return make_app(study, database, self.names)


def serve_study(
    folder: Path,
    *,
    host: str = LOCAL,
    port: int = PORT,
    names: Sequence[str] = (),
    database: str | None = None,
    workers: int = 1,
    proxies: Sequence[str] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a study until it is stopped; ``ready`` is called with its address when it listens.

    names : more names by which the server may be called, such as the computer's in a network.
    workers : processes that serve; one that dies is started again.
    proxies : addresses or networks whose X-Forwarded-For is believed.
    """
    require_packages()
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from unmasked.study.database import open_database
    from unmasked.study.folder import read_study

    trusted = [form for text in proxies for form in _proxy(text)]
    study = read_study(folder)
    opened = open_database(study.where(database), study.digest)
    try:
        opened.records()  # a record that was tampered with is found before readers go on
    finally:
        opened.close()
    _allow_many_connections()
    with bound_socket(host, port) as listening:
        allowed = frozenset({LOCAL, "localhost", "[::1]", host, *names})
        serving = Serving(folder, database, allowed)
        config = server_config(serving, trusted, factory=True, workers=workers)
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{listening.getsockname()[1]}")
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listening])
        else:
            Multiprocess(config, sockets=[listening]).run()


def server_config(app: Callable[..., Any], proxies: list[str], **more: Any) -> uvicorn.Config:
    """The settings of the server; X-Forwarded-For counts where it comes from ``proxies``."""
    import uvicorn

    trust = {"proxy_headers": bool(proxies), "forwarded_allow_ips": proxies}
    return uvicorn.Config(app, **{**SETTINGS, **trust, **more})


def _proxy(text: str) -> list[str]:
    """The address or network of a proxy, checked, also as servers that speak IPv6 see it."""
    try:
        network = ip_network(text)
    except ValueError:
        raise InputError(
            f"--proxy must be an address or a network such as 10.0.0.5 or 10.0.0.0/24 but is "
            f"{text!r}."
        ) from None
    mapped = f"::ffff:{network.network_address}/{96 + network.prefixlen}"
    return [str(network), *([mapped] if network.version == 4 else [])]


def _end_with_parent() -> None:
    """Stop this process when the one that started it is gone: it would keep the port."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait, name="unmasked-study-parent", daemon=True).start()


def _allow_many_connections() -> None:
    """Raise the limit of open files, where there is one: each connection is a file."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
