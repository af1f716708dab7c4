"""``unmasked study serve``: the application on a port of this computer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unmasked.errors import InputError, MissingExtra
from unmasked.study.folder import read_study

LOCAL = "127.0.0.1"
PORT = 8765
SETTINGS: dict[str, Any] = {
    "access_log": False,  # it would hold the secrets of the links
    "log_level": "warning",
    "server_header": False,
    "proxy_headers": False,
    "timeout_keep_alive": 15,
    "limit_concurrency": 400,
    "h11_max_incomplete_event_size": 16_384,
    "http": "unmasked.study.connections:Connection",
    "ws": "none",
}
"""Of uvicorn."""


class PortInUse(InputError):
    """Somebody else listens there."""


def require_packages() -> None:
    """Name the extra if its packages are not installed."""
    for package in ("fastapi", "uvicorn", "sqlalchemy"):
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
        bound.listen(128)
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
    """The same, naming the next free port where this one is taken."""
    try:
        return listen(host, port)
    except PortInUse as error:
        raise InputError(
            f"the port {port} of {host} is in use; the next free one is --port "
            f"{free_port(host, port + 1 if port < 65_535 else PORT)}."
        ) from error


def serve_study(
    folder: Path,
    *,
    host: str = LOCAL,
    port: int = PORT,
    names: Sequence[str] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve a study until it is stopped; ``ready`` is called with its address when it listens.

    ``names`` are more names by which the server may be called, such as the computer's in a network.
    """
    require_packages()
    import uvicorn

    from unmasked.study.database import open_database
    from unmasked.study.server import make_app

    study = read_study(folder)
    database = open_database(study.answers, study.digest)
    try:
        database.records()  # a record that was tampered with is found before readers go on
        with bound_socket(host, port) as listening:
            allowed = frozenset({LOCAL, "localhost", "[::1]", host, *names})
            app = make_app(study, database, allowed)
            config = uvicorn.Config(app, **SETTINGS)
            shown = f"[{host}]" if ":" in host else host
            ready(f"http://{shown}:{listening.getsockname()[1]}")
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        database.close()
