"""The worker's end of tunnels: dials until it holds one to every gateway, and again when one is lost.

All gateways are behind one URL. The gateway that answers sends its name, and the worker accepts the tunnel, or closes a
second one to the same gateway. It dials again, more and more slowly, until it holds a tunnel to every gateway. If a load
balancer always leads a worker to the same gateway, the other gateways cannot reach its replicas.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from turnout.backoff import backoff_s
from turnout.errors import Unavailable
from turnout.telemetry.log import get_log
from turnout.worker.tunnel.mux import MAX_MESSAGE_BYTES, Connection, Kind, Mux

log = get_log()

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_LOOK_S = 0.5  # between two checks whether a tunnel is missing
_HELLO_S = 10.0
_PING_S = 5.0


@dataclass(frozen=True, slots=True)
class Dial:
    """Where to dial (`ws://…` or `wss://…`), and the worker's secret, which proves that it is that worker."""

    url: str
    secret: str


class _Dialing(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follows none: our secret is for this gateway alone."""
        return exc


class _Socket:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed as err:
            raise Unavailable(str(err)) from err

    async def receive(self) -> bytes:
        try:
            message = await self._socket.recv(decode=False)
        except ConnectionClosed as err:
            raise Unavailable(str(err)) from err
        return bytes(message)


class Dialer:
    """`dial` gives None before the worker has joined; `gateways` are all that it knows of. `accept` connects to the worker's
    own port."""

    def __init__(
        self,
        dial: Callable[[], Dial | None],
        gateways: Callable[[], frozenset[str]],
        accept: Callable[[], Awaitable[Connection]],
        tls: ssl.SSLContext,
    ) -> None:
        self._dial = dial
        self._gateways = gateways
        self._accept = accept
        self._tls = tls
        self.held: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs for ever; errors are retried."""
        failures, told = 0, ""
        try:
            while True:
                dial = self._dial()
                if dial is None or not self._missing():
                    failures = 0
                    await asyncio.sleep(_LOOK_S)
                    continue
                try:
                    failures = 0 if await self._add(dial) else failures + 1
                    told = ""
                except (OSError, TimeoutError, WebSocketException) as err:
                    failures += 1
                    if told != (told := f"{type(err).__name__}: {err}"):
                        log.warning("tunnel was not opened", error=told)
                await asyncio.sleep(backoff_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random()))
        finally:
            for holding in self.held.values():
                holding.cancel()
            await asyncio.gather(*self.held.values(), return_exceptions=True)

    def _missing(self) -> bool:
        return not self.held or not self._gateways() <= self.held.keys()

    async def _add(self, dial: Dial) -> bool:
        """Whether a tunnel to another gateway was opened."""
        socket = await _Dialing(
            dial.url,
            additional_headers={"authorization": f"Bearer {dial.secret}"},
            ssl=self._tls if dial.url.startswith("wss:") else None,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=_HELLO_S,
            close_timeout=1,
            ping_interval=_PING_S,
            ping_timeout=2 * _PING_S,
        )
        try:
            async with asyncio.timeout(_HELLO_S):
                gateway = (await socket.recv(decode=False)).decode(errors="replace")
        except BaseException:
            await socket.close()
            raise
        if gateway in self.held:
            await socket.close()
            return False
        await socket.send(b"")  # we accept the tunnel
        self.held[gateway] = asyncio.create_task(self._hold(gateway, socket), name=f"tunnel {gateway}")
        return True

    async def _hold(self, gateway: str, socket: ClientConnection) -> None:
        log.info("tunnel opened", gateway=gateway)
        reason = "this worker leaves"
        try:
            await Mux(_Socket(socket), Kind.END, self._accept).run()
        except Unavailable as err:
            reason = err.message
        finally:
            self.held.pop(gateway, None)
            log.info("tunnel closed", gateway=gateway, reason=reason)
            with contextlib.suppress(Exception):
                await socket.close()
