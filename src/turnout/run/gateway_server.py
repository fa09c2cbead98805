"""A gateway's HTTP server: uvicorn, with the relay as its protocol."""

import math
import socket
import ssl
import time
from types import FrameType

import uvicorn

from turnout.gateway.app import create_app
from turnout.gateway.gateway import Gateway
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.run.tls import add_listener

_MAX_SOCKET_MESSAGE_BYTES = 64 * 1024  # twice what a tunnel's message has; clients only say their key


class GatewayServer(uvicorn.Server):
    """Ends live streams before it waits for open requests, and itself if nobody keeps the loops running. `listeners`: with
    the TLS of each."""

    def __init__(
        self,
        gateway: Gateway,
        settings: GatewaySettings,
        listeners: dict[socket.socket, ssl.SSLContext | None],
    ) -> None:
        config = uvicorn.Config(
            create_app(gateway),
            http=gateway.chat.relay.protocol,
            ws="websockets-sansio",
            lifespan="on",
            ws_max_size=_MAX_SOCKET_MESSAGE_BYTES,
            proxy_headers=False,  # the relay knows which proxies are trusted
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(settings.gateway_drain_s),
        )
        super().__init__(config)
        self.listeners = listeners
        self._gateway = gateway
        self._linger_s = settings.gateway_linger_s
        self._exit_at = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for listening, tls in self.listeners.items():
            await add_listener(self, listening, tls, self._gateway.chat.relay.counts)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A balancer goes on sending requests until it has noticed that this gateway leaves."""
        relay = self._gateway.chat.relay
        if relay.leaving or not self._linger_s:
            return super().handle_exit(sig, frame)
        relay.leave()
        self._exit_at = time.monotonic() + self._linger_s

    async def on_tick(self, counter: int) -> bool:
        ending = await super().on_tick(counter) or time.monotonic() >= self._exit_at
        return ending or not self._gateway.background.alive

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.videos.stop()
        await super().shutdown(sockets)
        self._gateway.chat.relay.close()
