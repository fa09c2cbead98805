"""The router's hot path: a streaming reverse proxy that takes its requests before ASGI, inside the same server.

    relay = Relay(desk, RelaySettings())
    uvicorn.Config(app, http=relay.protocol, loop="uvloop", …)

Every request passes `front` (the client's connection), `exchange` (one request) and `links` (connections to replicas);
`desk` is the contract with whoever knows keys, models and replicas. All of it runs on one event loop, without locks.
"""

import asyncio
import ssl
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
from turnout.relay.client_connection import ClientConnection
from turnout.relay.exchange import RelayContext
from turnout.relay.relay_settings import RelaySettings
from turnout.relay.upstream import ConnectionPool

__all__ = [
    "Admission",
    "Relay",
    "RelayFailure",
    "RelayOutcome",
    "RelayRequest",
    "RelaySettings",
    "Target",
    "UpstreamCall",
    "Usage",
]


class Relay:
    """Owns the connections of both sides and the one timer that looks at their deadlines."""

    def __init__(
        self, desk: Admission, settings: RelaySettings | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`tls` is used for replicas that are reached over TLS; by default the system's authorities are trusted."""
        settings = settings or RelaySettings()
        self.shared = RelayContext(desk, settings, ConnectionPool(settings, tls))
        self.hot = {path.encode(): path.encode() for path in settings.paths}
        self.forwarded = frozenset(name.lower().encode() for name in settings.forwarded)
        self.connections: set[ClientConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        relay = self

        class BoundFront(ClientConnection):
            def __init__(
                self,
                config: Config,
                server_state: ServerState,
                app_state: dict[str, Any],
                _loop: asyncio.AbstractEventLoop | None = None,
            ) -> None:
                super().__init__(relay, config, server_state, app_state, _loop)

        self.protocol: type[asyncio.Protocol] = BoundFront

    def awake(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self.shared.now = loop.time()
            self._timer = loop.call_later(self.shared.settings.tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.shared.now = now = asyncio.get_running_loop().time()
        try:
            for front in tuple(self.connections):
                front.tick(now)
            self.shared.pool.tick(now)
        finally:
            if self.connections or not self.shared.pool.empty:
                self.awake()

    def close(self) -> None:
        """Ends what is under way with an error that clients can see, and closes all links. Call it when the server
        has waited for requests long enough."""
        for front in tuple(self.connections):
            front.close()
        self.shared.pool.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
