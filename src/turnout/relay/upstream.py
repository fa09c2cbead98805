"""Connections to replicas: one response at a time on each, and the pool that keeps them between requests."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import NamedTuple, Protocol, cast

import httptools

from turnout.relay.admission import RelayFailure, Target
from turnout.relay.error_responses import status_line
from turnout.relay.framing import passed_on, size_of_event_chunks
from turnout.relay.head_cache import HeadCache
from turnout.relay.relay_settings import UpstreamLimits

_MAX_HEADERS = 200


class ResponseHead(NamedTuple):
    """A response's head without the length of its body. `start` is the status line and the header lines that the client
    gets; `until_close` says that the body ends with the connection."""

    status: int
    start: bytes
    events: bool
    until_close: bool
    reusable: bool


_NO_HEAD = ResponseHead(0, b"", False, False, False)


class ResponseReceiver(Protocol):
    """Who waits for a response. It hears nothing more after a response that is `complete`, or after `on_lost`."""

    def on_response(self, upstream: "UpstreamConnection", payload: bytes, complete: bool) -> None:
        """More of the response's body; its head is complete (`upstream.head`)."""
        ...

    def on_event_chunks(self, chunks: bytes, size: int) -> bool:
        """More of a stream, in chunks as they came: whole events of `size` bytes in all. If it returns False, the same
        bytes are parsed and come again by `on_response`."""
        ...

    def on_lost(self, upstream: "UpstreamConnection", failure: RelayFailure) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """Goes back to its pool when a response is complete, unless either side said close."""

    def __init__(self, target_pool: "TargetPool") -> None:
        self.target_pool = target_pool
        self.transport = cast("asyncio.Transport", None)
        self.made_at = self.idle_since = target_pool.pool.now
        self.uses = 0
        self.head = _NO_HEAD
        self.length: bytes | None = None  # the Content-Length, if there is one
        self.received = False  # a byte of the present response
        self._receiver: ResponseReceiver | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body_pieces: list[bytes] = []
        # Called for each piece; a bound C method saves a Python frame.
        self.on_body = self._body_pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._head_complete = self._complete = self._interim = self._chunked = self._paused = False
        self._in_chunk = self._between_chunks = False  # the parser's position

    def send(self, receiver: ResponseReceiver, head: bytes, body: bytes) -> None:
        """Sends a request whose response goes to `receiver`."""
        self._receiver = receiver
        self.uses += 1
        self.received = False
        if len(body) < 16384:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def abort(self) -> None:
        """Closes the connection at once, so that the replica stops working on a response that nobody wants."""
        self._receiver = None
        self.transport.abort()

    def pause_reading(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    # What the transport calls.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            return self.transport.abort()  # no request was sent: what follows cannot be trusted
        if self._between_chunks:
            size = size_of_event_chunks(data)
            if size and receiver.on_event_chunks(data, size):
                return
            self._between_chunks = False
        first = not self.received
        if first:
            self.received = True
            if self._use_cached_head(receiver, data):
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self.abort()
                return receiver.on_lost(self, RelayFailure.BROKEN)
            self.head = self.head._replace(reusable=False)
        if not self._head_complete:
            return
        pieces = self._body_pieces
        if not pieces:
            payload = b""
        else:
            payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        if not self._complete:
            # A chunk's size that is cut cannot end like this: it would have begun a chunk.
            self._between_chunks = self._chunked and not self._in_chunk and data.endswith(b"\r\n")
            return receiver.on_response(self, payload, False)
        if first and self.length is not None and self.head.reusable:
            self.target_pool.head_cache.remember(data, self.head)
        self._release()
        receiver.on_response(self, payload, True)

    def _use_cached_head(self, receiver: ResponseReceiver, data: bytes) -> bool:
        """Passes on a whole response whose head is cached. Otherwise prepares for parsing."""
        cache = self.target_pool.head_cache
        payload = cache.body(data)
        if payload is None or cache.parsed is None:
            self.length = None
            self._headers = []
            self._head_complete = self._complete = self._interim = self._chunked = self._in_chunk = False
            return False
        self.head = cache.parsed
        self.length = b"%d" % len(payload)
        self._release()
        receiver.on_response(self, payload, True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.target_pool.remove(self)
        self._parser = cast("httptools.HttpResponseParser", None)  # they hold each other
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if self._head_complete and self.head.until_close and exc is None:
            return receiver.on_response(self, b"", True)
        receiver.on_lost(self, RelayFailure.LOST)

    def eof_received(self) -> None:
        """The transport closes."""

    def pause_writing(self) -> None:
        """A request is written at once; nothing waits for it."""

    def resume_writing(self) -> None: ...

    # What the parser calls.
    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a response without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_complete:
            return  # a trailer
        name = name.lower()
        if name == b"content-length":
            self.length = value
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise ValueError("an unknown transfer encoding")
            self._chunked = True
        self._headers.append((name, value))
        if len(self._headers) > _MAX_HEADERS:
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            self._headers = []
            return
        if status != 200 and not 400 <= status < 600:
            raise ValueError("a status that no engine has a reason for")
        until_close = not (self._chunked or self.length is not None)
        kind = next((value for name, value in self._headers if name == b"content-type"), b"")
        events = kind[:17].lower() == b"text/event-stream"
        # httptools knows this only here; later it says False for every response.
        reusable = self._parser.should_keep_alive()
        start = status_line(status) + passed_on(self._headers)
        self.head = ResponseHead(status, start, events, until_close, reusable)
        self._head_complete = True

    def on_chunk_header(self) -> None:
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        self._in_chunk = False

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        else:
            self._complete = True

    def _release(self) -> None:
        self._receiver = None
        if self._paused:
            self.resume_reading()  # over TLS a paused connection may still deliver what it had read
        # A replica may respond before it has read the whole request; the rest would be taken for the next one.
        if (
            self.head.reusable
            and not self.transport.is_closing()
            and self.transport.get_write_buffer_size() == 0
        ):
            self.idle_since = self.target_pool.pool.now
            self.target_pool = self.target_pool.pool.give_back(self)
        else:
            self.transport.abort()


class TargetPool:
    """The idle connections to one target."""

    def __init__(self, pool: "ConnectionPool", target: Target) -> None:
        self.pool = pool
        self.target = target
        self.host = (
            target.host.encode() if target.unix else f"{_bracketed(target.host)}:{target.port}".encode()
        )
        self.idle: list[UpstreamConnection] = []
        self.head_cache = HeadCache[ResponseHead]()
        self.listed = True  # in the pool

    def take(self) -> UpstreamConnection | None:
        """An open connection that nobody uses."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def remove(self, connection: UpstreamConnection) -> None:
        if self.idle:
            with suppress(ValueError):
                self.idle.remove(connection)


class ConnectionPool:
    """Idle connections by target. The one used last is used next, so that the others can grow old."""

    def __init__(self, limits: UpstreamLimits, tls: ssl.SSLContext | None) -> None:
        self._limits = limits
        self._tls = tls
        self._target_pools: dict[Target, TargetPool] = {}
        self._closed = False
        self.now = 0.0  # at the last tick or connect, which is exact enough for ages

    @property
    def idle(self) -> int:
        return sum(len(pool.idle) for pool in self._target_pools.values())

    @property
    def empty(self) -> bool:
        return not self._target_pools

    def of(self, target: Target) -> TargetPool:
        found = self._target_pools.get(target)
        if found is None:
            found = self._target_pools[target] = TargetPool(self, target)
        return found

    def give_back(self, connection: UpstreamConnection) -> TargetPool:
        """Keeps a connection for the next request, or closes it. Its target may have been forgotten meanwhile."""
        target_pool = connection.target_pool
        if not target_pool.listed:
            target_pool = self.of(target_pool.target)
        old = connection.idle_since - connection.made_at > self._limits.max_age_s
        if old or self._closed or len(target_pool.idle) >= self._limits.idle_per_target:
            connection.abort()
        else:
            target_pool.idle.append(connection)
        return target_pool

    async def connect(self, target_pool: TargetPool) -> UpstreamConnection:
        """A new connection; raises OSError. The caller limits the time."""
        loop = asyncio.get_running_loop()
        target = target_pool.target
        self.now = loop.time()

        def make() -> UpstreamConnection:
            return UpstreamConnection(target_pool)

        if target.unix:
            return (await loop.create_unix_connection(make, target.unix))[1]
        if target.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        _, connection = await loop.create_connection(
            make,
            target.address or target.host,
            target.port,
            ssl=self._tls if target.tls else None,
            server_hostname=target.host if target.tls else None,
            flags=socket.AI_NUMERICHOST,
        )
        return connection

    def tick(self, now: float) -> None:
        """Closes what is old or was long unused, and forgets targets that have no idle connection."""
        self.now = now
        limits = self._limits
        for target, target_pool in list(self._target_pools.items()):
            for connection in list(target_pool.idle):
                if now - connection.idle_since > limits.idle_s or now - connection.made_at > limits.max_age_s:
                    target_pool.idle.remove(connection)
                    connection.abort()
            if not target_pool.idle:
                target_pool.listed = False
                del self._target_pools[target]

    def close(self) -> None:
        self._closed = True
        for target_pool in self._target_pools.values():
            for connection in target_pool.idle[:]:
                connection.abort()
        self._target_pools.clear()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
