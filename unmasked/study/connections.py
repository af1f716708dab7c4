"""Connections of the server: silent ones, and many from one address, must not keep readers out."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from unmasked.study.guard import CROWDED, HEADERS, wait

PATIENCE = 20.0
"""Seconds in which a request must have come, whole."""
MOST = 1000
"""Connections at once; a browser has six. More are told to wait, and twice as many are cut off."""
MOST_OF_ONE = 500
"""Of these, from one address that is no named proxy."""


class Connection(H11Protocol):
    """uvicorn's, which would wait for ever for a request that does not come."""

    _before: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more, unless there are too many."""
        super().connection_made(transport)
        share = self._share()
        if share > 2:
            transport.abort()
            return
        if share > 1:
            self.app = too_many
        self._watch()

    def _share(self) -> float:
        """Return how full the server is, of all connections or of this address's; 1 is full."""
        everybody = len(self.connections) / MOST
        if not self.client or self._is_proxy(self.client[0]):
            return everybody
        mine = sum(self._is_neighbour(other) for other in self.connections)
        return max(everybody, mine / MOST_OF_ONE)

    def _is_proxy(self, address: str) -> bool:
        named = self.config.forwarded_allow_ips if self.config.proxy_headers else ()
        return any(ip_address(address) in ip_network(proxy) for proxy in named)

    def _is_neighbour(self, other: object) -> bool:
        """Return true if another connection, or this one, comes from the same address."""
        if not isinstance(other, Connection) or not other.client or not self.client:
            return False
        return other.client[0] == self.client[0]

    def _watch(self) -> None:
        self.loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """Close if nothing was asked since the last look; a reply on its way may take its time."""
        if self.transport.is_closing():
            if self in self.connections:  # somebody does not take what is sent
                self.transport.abort()
            return
        cycle = self.cycle  # the request that came last, None if there was none
        if cycle is self._before and (cycle is None or cycle.more_body or cycle.response_complete):
            self.transport.abort()
            return
        self._before = cycle
        self._watch()


async def too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell somebody to come again, and end the connection."""
    reply = wait(scope, 503, CROWDED)
    reply.headers.update({**HEADERS, "connection": "close"})
    await reply(scope, receive, send)
