"""TLS: with which certificate a server of ours answers."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import uvicorn

from turnout.errors import Misconfigured
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.relay.connection_counts import ConnectionCounts
from turnout.run.client_tls import tls_reason
from turnout.telemetry.log import get_log

_CHECK_EVERY_S = 1.0
_HANDSHAKE_S = 10.0
_ACCEPT_AT_ONCE = 64
_ACCEPT_AGAIN_S = 1.0


def server_tls(settings: GatewaySettings) -> "ServerTls | None":
    """Raises Misconfigured when the files cannot be used."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise Misconfigured("tls_key goes with tls_cert")
        return None
    return ServerTls(settings.tls_cert, settings.tls_key or settings.tls_cert, time.monotonic)


def certificate_expiry(cert: Path | None) -> float | None:
    """When the certificate in the file ends (Unix time); None without one, or if it cannot be read."""
    if cert is None:
        return None
    try:
        # The only reader of certificates in the standard library; all else needs a connection.
        decode = cast("Callable[[str], dict[str, str]]", cast("Any", ssl)._ssl._test_decode_cert)
        return float(ssl.cert_time_to_seconds(decode(str(cert))["notAfter"]))
    except (AttributeError, KeyError, OSError, ValueError):  # an SSLError is an OSError
        return None


class ServerTls:
    """A certificate that may change while it is used. `context` is for a server; it never changes. At a handshake it hands
    over to one with the files as they are now, which are looked at once a second at most. So no loop is needed, and
    connections that are open stay as they are. Files that cannot be read leave the last good ones in use."""

    def __init__(self, cert: Path, key: Path, now: Callable[[], float]) -> None:
        self._cert = cert
        self._key = key
        self._now = now
        try:
            self._stamp = self._look()
            self.context = self._current = self._load()
        except (OSError, ssl.SSLError) as err:
            raise Misconfigured(f"tls_cert {cert}, tls_key {key}: {tls_reason(err)}") from err
        self._checked_at = now()
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """The ssl module calls it at each handshake, also for a client that names no server."""
        if self._now() - self._checked_at >= _CHECK_EVERY_S:
            self._checked_at = self._now()
            self._reload()
        connection.context = self._current

    def _reload(self) -> None:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._stamp = stamp  # a broken file is said once, and tried again when it changes
            self._current = self._load()
            get_log().info("certificate reloaded", file=str(self._cert))
        except (OSError, ssl.SSLError) as err:
            get_log().error("certificate not reloaded", file=str(self._cert), reason=tls_reason(err))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._cert, self._key, password=_no_password)
        return context

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        stats = [path.stat() for path in (self._cert, self._key)]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


class TlsListener:
    """Takes connections from a socket and makes their handshakes. The event loops' own servers tell nobody of a connection
    before its handshake is over, so nobody could count it."""

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext,
        counts: ConnectionCounts,
        protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._socket = listening
        self._tls = tls
        self._counts = counts
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        self._socket.listen(backlog)
        self._socket.setblocking(False)
        self._listen()

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _listen(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:  # no more open files: the socket would be ready again and again
                get_log().error("connection not accepted", error=str(err))
                self._loop.remove_reader(self._socket)
                self._again = self._loop.call_later(_ACCEPT_AGAIN_S, self._listen)
                return
            host_and_port = (str(peer[0]), int(peer[1]))
            if not self._counts.begin_handshake(host_and_port):
                connection.close()  # without a word: this must cost as little as it can
                continue
            connection.setblocking(False)
            handshake = self._loop.create_task(self._shake_hands(connection, host_and_port), name="handshake")
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._tls, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except OSError:  # an SSLError is one; whoever connected spoke no TLS, or left, or took too long
            connection.close()
        finally:
            self._counts.end_handshake(peer)


async def add_listener(
    server: uvicorn.Server, listening: socket.socket, tls: ssl.SSLContext | None, counts: ConnectionCounts
) -> None:
    """Lets a server that has started take connections from one more socket. uvicorn has one certificate for all sockets,
    and a handshake that may last a minute."""
    loop = asyncio.get_running_loop()
    config = server.config

    def protocol() -> asyncio.Protocol:
        made = cast("Callable[..., asyncio.Protocol]", config.http_protocol_class)
        return made(
            config=config, server_state=server.server_state, app_state=server.lifespan.state, _loop=loop
        )

    if tls is None:
        server.servers.append(await loop.create_server(protocol, sock=listening, backlog=config.backlog))
        return
    listener = TlsListener(listening, tls, counts, protocol)
    listener.start(config.backlog)
    server.servers.append(cast("asyncio.Server", listener))


def _no_password() -> str:
    """Without this OpenSSL would ask for the password of an encrypted key on the terminal, and wait."""
    raise ssl.SSLError("the key is encrypted; give one without a password")
