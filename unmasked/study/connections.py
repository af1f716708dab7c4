"""Connections of the server: silent ones, and many from one address, must not keep readers out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PATIENCE = 20.0
"""Seconds in which a request must have come, whole."""
MOST_OF_ONE = 100
"""Connections at once from one address; a browser has six."""


class Connection(H11Protocol):
    """uvicorn's, which would wait for ever for a request that does not come."""

    _before: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more, unless its address has too many."""
        super().connection_made(transport)
        if sum(self._is_neighbour(other) for other in self.connections) > MOST_OF_ONE:
            transport.abort()
            return
        self._watch()

    def _is_neighbour(self, other: object) -> bool:
        """Whether another connection, or this one, comes from the same address."""
        if not isinstance(other, Connection) or not other.client or not self.client:
            return False
        return other.client[0] == self.client[0]

    def _watch(self) -> None:
        self.loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """Close if nothing was asked since the last look; a reply on its way may take its time."""
        if self.transport.is_closing():
            return
        cycle = self.cycle  # the request that came last, None if there was none
        if cycle is self._before and (cycle is None or cycle.more_body or cycle.response_complete):
            self.transport.abort()
            return
        self._before = cycle
        self._watch()
