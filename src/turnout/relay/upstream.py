"""Connections to replicas: one answer at a time on each, and the pool that keeps them between answers."""

import asyncio
import ssl
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import httptools

from turnout.relay.admission import RelayFailure, Target
from turnout.relay.error_responses import status_line
from turnout.relay.framing import passed_on, size_of_event_chunks
from turnout.relay.head_cache import HeadCache
from turnout.relay.relay_settings import RelaySettings

_MAX_HEADERS = 200


class ResponseHead(NamedTuple):
    """What an answer's head says, but for the length of its body. `start` are the lines that the client gets of it;
    `until_close` says that the body ends with the connection."""

    status: int
    start: bytes
    events: bool
    bodiless: bool
    until_close: bool
    reusable: bool


_NO_HEAD = ResponseHead(0, b"", False, False, False, False)


class ResponseReceiver(Protocol):
    """Who waits for an answer on a link. After `complete` or `lost` the link has forgotten its caller."""

    def arrived(self, link: "UpstreamConnection", payload: bytes, complete: bool) -> None:
        """More of the answer, whose head is complete (`link.head`)."""
        ...

    def streamed(self, chunks: bytes, size: int) -> bool:
        """More of a stream, in chunks as they came: whole events of `size` bytes in all. False if it must be taken
        apart: then it comes again, by `arrived`."""
        ...

    def lost(self, link: "UpstreamConnection", failure: RelayFailure) -> None: ...


class UpstreamConnection:
    """One connection. It is given back to its pool when an answer is complete, unless either side said close.

    It is an asyncio.Protocol by what it does, not by descent: a compiled class with an interpreted parent is slow.
    """

    def __init__(self, lane: "TargetConnections") -> None:
        self.lane = lane
        self.transport = cast("asyncio.Transport", None)
        self.made_at = self.idle_since = lane.pool.now
        self.uses = 0
        self.head = _NO_HEAD
        self.length: bytes | None = None  # of a body that says it
        self.heard = False  # a byte of the present answer
        self._caller: ResponseReceiver | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        # Called once a piece; a bound C method spares a Python frame for each.
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._headed = self._complete = self._interim = self._chunked = self._paused = False
        self._in_chunk = False
        self._between_chunks = False  # where the parser stands

    def ask(self, caller: ResponseReceiver, head: bytes, body: bytes) -> None:
        """Sends a request whose answer goes to `caller`."""
        self._caller = caller
        self.uses += 1
        self.heard = False
        if len(body) < 16384:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def drop(self) -> None:
        """Cuts the connection at once, so that the replica stops working on an answer nobody wants."""
        self._caller = None
        self.transport.abort()

    def hold(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    # What the transport calls.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        caller = self._caller
        if caller is None:
            return self.transport.abort()  # nobody asked: what else it says cannot be trusted
        if self._between_chunks:
            size = size_of_event_chunks(data)
            if size and caller.streamed(data, size):
                return
            self._between_chunks = False
        first = not self.heard
        if first:
            self.heard = True
            if self._recognise(caller, data):
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self.drop()
                return caller.lost(self, RelayFailure.BROKEN)
            self.head = self.head._replace(reusable=False)
        if not self._headed:
            return
        pieces = self._pieces
        if not pieces:
            payload = b""
        else:
            payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        if not self._complete:
            # A size that is not whole yet cannot end so: it would have begun a chunk.
            self._between_chunks = self._chunked and not self._in_chunk and data.endswith(b"\r\n")
            return caller.arrived(self, payload, False)
        if first and self.length is not None and self.head.reusable:
            self.lane.memo.learn(data, self.head)
        self._let_go()
        caller.arrived(self, payload, True)

    def _recognise(self, caller: ResponseReceiver, data: bytes) -> bool:
        """Passes on a whole answer whose head is known; else makes ready to parse."""
        memo = self.lane.memo
        payload = memo.body(data)
        if payload is None or memo.meaning is None:
            self.length = None
            self._headers = []
            self._headed = self._complete = self._interim = self._chunked = self._in_chunk = False
            return False
        self.head = memo.meaning
        self.length = b"%d" % len(payload)
        self._let_go()
        caller.arrived(self, payload, True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lane.forget(self)
        self._parser = cast("httptools.HttpResponseParser", None)  # they hold each other
        caller, self._caller = self._caller, None
        if caller is None:
            return
        if self._headed and self.head.until_close and exc is None:
            return caller.arrived(self, b"", True)
        caller.lost(self, RelayFailure.LOST)

    def eof_received(self) -> None:
        """The other side is done; so are we."""

    def pause_writing(self) -> None:
        """A request goes out whole: nobody waits for that."""

    def resume_writing(self) -> None: ...

    # What the parser calls.
    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("an answer to no question")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:
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
        bodiless = status in (204, 304)
        until_close = not (self._chunked or bodiless or self.length is not None)
        kind = next((value for name, value in self._headers if name == b"content-type"), b"")
        events = kind[:17].lower() == b"text/event-stream"
        # Only here does httptools know whether to keep it; later it says False of every answer.
        reusable = self._parser.should_keep_alive()
        start = status_line(status) + passed_on(self._headers)
        self.head = ResponseHead(status, start, events, bodiless, until_close, reusable)
        self._headed = True

    def on_chunk_header(self) -> None:
        self._in_chunk = True

    def on_chunk_complete(self) -> None:
        self._in_chunk = False

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        else:
            self._complete = True

    def _let_go(self) -> None:
        self._caller = None
        if self._paused:
            self.go_on()  # over TLS a paused connection may still deliver what it had read
        # A replica may answer before it has read the whole request; the rest would be taken for the next one.
        if (
            self.head.reusable
            and not self.transport.is_closing()
            and self.transport.get_write_buffer_size() == 0
        ):
            self.idle_since = self.lane.pool.now
            self.lane = self.lane.pool.keep(self)
        else:
            self.transport.abort()


class TargetConnections:
    """The connections to one target."""

    def __init__(self, pool: "ConnectionPool", target: Target) -> None:
        self.pool = pool
        self.target = target
        self.host = (
            target.host.encode() if target.unix else f"{_bracketed(target.host)}:{target.port}".encode()
        )
        self.idle: list[UpstreamConnection] = []
        self.memo = HeadCache[ResponseHead]()
        self.known = True  # to the pool

    def take(self) -> UpstreamConnection | None:
        """An open link that nobody uses."""
        while self.idle:
            link = self.idle.pop()
            if not link.transport.is_closing():
                return link
        return None

    def forget(self, link: UpstreamConnection) -> None:
        if self.idle:
            with suppress(ValueError):
                self.idle.remove(link)


class ConnectionPool:
    """Idle links by target; the one used last is used next, so that the others can grow old."""

    def __init__(self, settings: RelaySettings, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._tls = tls
        self._lanes: dict[Target, TargetConnections] = {}
        self._closed = False
        self.now = 0.0  # near enough for ages

    @property
    def empty(self) -> bool:
        return not self._lanes

    def lane(self, target: Target) -> TargetConnections:
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = TargetConnections(self, target)
        return lane

    def keep(self, link: UpstreamConnection) -> TargetConnections:
        """Takes a link back; its lane may have been forgotten meanwhile."""
        lane = link.lane if link.lane.known else self.lane(link.lane.target)
        old = link.idle_since - link.made_at > self._settings.age_s
        if old or self._closed or len(lane.idle) >= self._settings.idle_per_target:
            link.drop()
        else:
            lane.idle.append(link)
        return lane

    async def connect(self, lane: TargetConnections) -> UpstreamConnection:
        """A new link; raises OSError. The caller limits the time."""
        loop = asyncio.get_running_loop()
        target = lane.target

        self.now = loop.time()

        def make() -> Any:
            return UpstreamConnection(lane)

        if target.unix:
            return cast(UpstreamConnection, (await loop.create_unix_connection(make, target.unix))[1])
        if target.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if target.tls else None
        return cast(
            UpstreamConnection, (await loop.create_connection(make, target.host, target.port, ssl=tls))[1]
        )

    def tick(self, now: float) -> None:
        """Closes what is old or was long unused, and forgets targets that have no idle link."""
        self.now = now
        settings = self._settings
        for target, lane in list(self._lanes.items()):
            for link in list(lane.idle):
                if now - link.idle_since > settings.idle_s or now - link.made_at > settings.age_s:
                    lane.idle.remove(link)
                    link.drop()
            if not lane.idle:
                lane.known = False
                del self._lanes[target]

    def close(self) -> None:
        self._closed = True
        for lane in self._lanes.values():
            for link in lane.idle[:]:
                link.drop()
        self._lanes.clear()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
