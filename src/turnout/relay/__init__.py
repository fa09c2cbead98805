"""A streaming reverse proxy that takes its requests before ASGI, inside the same uvicorn server.

    relay = Relay(admission, RelaySettings())
    uvicorn.Config(app, http=relay.protocol, loop="uvloop", …)

Every request passes `client_connection`, `exchange` (one request) and `upstream` (connections to replicas). `admission`
is the contract with the relay's user, who knows keys, models and replicas. The relay knows nothing of the gateway or the
worker. All of it runs on one event loop, without locks.
"""

import asyncio
import ssl
from collections.abc import Set as AbstractSet
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from turnout.relay.admission import (
    Admission,
    RelayFailure,
    RelayOutcome,
    RelayRequest,
    Target,
    UpstreamCall,
    Usage,
)
from turnout.relay.connection_counts import ConnectionCounts
from turnout.relay.counted_connection import CountedConnection
from turnout.relay.framing import Headers
from turnout.relay.own_request import OwnAnswer, OwnClient
from turnout.relay.relay_context import OpenConnection, OpenRequest, RelayContext
from turnout.relay.relay_settings import ClientLimits, RelaySettings, UpstreamLimits
from turnout.relay.upstream import ConnectionPool

__all__ = [
    "Admission",
    "ClientLimits",
    "Headers",
    "OpenRequest",
    "OwnAnswer",
    "Relay",
    "RelayFailure",
    "RelayOutcome",
    "RelayRequest",
    "RelaySettings",
    "Target",
    "UpstreamCall",
    "UpstreamLimits",
    "Usage",
]


class Relay:
    """Owns the connections of both sides and the one timer that checks their deadlines."""

    def __init__(
        self, admission: Admission, settings: RelaySettings | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` is for replicas that are reached over TLS; by default the system's authorities are trusted."""
        settings = settings or RelaySettings()
        context = RelayContext(admission, settings, ConnectionPool(settings.upstream, tls), self._watch)
        self._context = context
        self._timer: asyncio.TimerHandle | None = None

        class BoundConnection(CountedConnection):
            def __init__(
                self,
                config: Config,
                server_state: ServerState,
                app_state: dict[str, Any],
                _loop: asyncio.AbstractEventLoop | None = None,
            ) -> None:
                super().__init__(context, config, server_state, app_state, _loop)

        self.protocol: type[asyncio.Protocol] = BoundConnection

    @property
    def connections(self) -> AbstractSet[OpenConnection]:
        """The clients' connections that are open."""
        return self._context.connections

    @property
    def open_connections(self) -> int:
        """All of the clients' connections, WebSockets and those in a TLS handshake, too."""
        return self._context.counts.total

    @property
    def counts(self) -> ConnectionCounts:
        """For who listens: it counts connections before they are the protocol's."""
        return self._context.counts

    @property
    def upstream_idle(self) -> int:
        """Connections to replicas that wait for their next request."""
        return self._context.pool.idle

    @property
    def body_bytes(self) -> int:
        """What requests take that are being read or answered."""
        return self._context.bodies.bytes

    @property
    def requests(self) -> AbstractSet[OpenRequest]:
        """The requests in flight."""
        return self._context.requests

    async def ask(
        self, path: bytes, authorization: bytes | None, headers: Headers, body: bytes, max_bytes: int
    ) -> OwnAnswer | None:
        """A request of our own, for whoever came with this authorization and these headers; it is ended by cancelling. None
        for an answer that broke off, or has more than `max_bytes` with its head."""
        return await OwnClient(self._context, max_bytes).ask(path, authorization, headers, body)

    @property
    def leaving(self) -> bool:
        return self._context.leaving

    def leave(self) -> None:
        """From now on each response asks its client to connect anew. Call it while new requests still come."""
        self._context.leaving = True

    def close(self) -> None:
        """Ends requests in flight with an error that clients can see, and closes all upstream connections. Call it when
        the server has waited for requests long enough."""
        for connection in tuple(self.connections):
            connection.close()
        self._context.pool.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._context.now = loop.time()
            self._timer = loop.call_later(self._context.settings.tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._context.now = now = asyncio.get_running_loop().time()
        try:
            for connection in tuple(self.connections):
                connection.tick(now)
            self._context.pool.tick(now)
        finally:
            if self.connections or not self._context.pool.empty:
                self._watch()
