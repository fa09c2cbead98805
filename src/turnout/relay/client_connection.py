"""The client's side of the relay: uvicorn's HTTP protocol, with hot paths taken out before ASGI.

One parser reads everything that comes on a connection. When a request's head is complete it is either hot, and its
body is collected here and no ASGI task is ever made, or it goes the way that uvicorn gives it. Answers leave in the
order of their requests, whichever side gives them.
"""

import asyncio
import itertools
import secrets
import socket
import struct
from contextlib import suppress
from enum import Enum, auto
from math import inf
from typing import Any, Protocol, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnout.domain.error_table import error_body
from turnout.domain.errors import TurnoutError
from turnout.relay import error_responses
from turnout.relay.exchange import Exchange, RelayContext
from turnout.relay.framing import Head, Refusal, read_head
from turnout.relay.head_cache import HeadCache

_RESET = struct.pack("ii", 1, 0)
_LINGER_S = 2.0  # how long we read on after a refusal, so that a reset does not overtake it
_RAW_SLACK_BYTES = 1024 * 1024
_SMALL_BODY_BYTES = 64 * 1024  # it comes with the head, or nearly: the key is looked at when it is there

_HEAD_TOO_LARGE = Refusal(431, "The head of the request is too long.", "head_too_large")

_PREFIX = f"req-{secrets.token_hex(6)}".encode()
_numbers = itertools.count(1)


class ConnectionOwner(Protocol):
    """What a connection needs of its relay."""

    @property
    def shared(self) -> RelayContext: ...
    @property
    def hot(self) -> dict[bytes, bytes]: ...
    @property
    def forwarded(self) -> frozenset[bytes]: ...
    @property
    def connections(self) -> "set[ClientConnection]": ...

    def awake(self) -> None:
        """There is something to watch."""
        ...


class _Busy:
    """Stands where uvicorn keeps its last cycle, so that it queues the next one behind a hot request."""

    response_complete = False


_BUSY = cast(RequestResponseCycle, _Busy())
_NO_APP = cast(Any, None)


class _Stage(Enum):
    """Where in the stream of requests the parser stands."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()  # of a hot request
    COLD = auto()  # the body of one that uvicorn takes
    DEAF = auto()  # what comes is thrown away; the connection ends after the last answer


class _Intake:
    """A hot request whose body is being read, or that is read and waits for its turn."""

    __slots__ = ("complete", "greeting", "head", "pieces", "raw_bytes", "size")

    def __init__(self, head: Head, greeting: asyncio.Future[object] | None) -> None:
        """`greeting` says whether its body should be read at all."""
        self.head = head
        self.greeting = greeting
        self.pieces: list[bytes] = []
        self.size = self.raw_bytes = 0
        self.complete = False


class ClientConnection(HttpToolsProtocol):
    parser: httptools.HttpRequestParser  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        relay: ConnectionOwner,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._relay = relay
        self._shared = relay.shared
        self._settings = relay.shared.settings
        self._hot = relay.hot
        self._stage = _Stage.BETWEEN
        self._turn: _Intake | Exchange | RequestResponseCycle | None = None  # whose answer is due
        self._incoming: _Intake | None = None
        self._memo = HeadCache[Head]()
        self._latest: Head | None = None  # the last head that can be known again
        self._messages = self._head_bytes = 0
        self._since = 0.0  # of the present stage's last progress
        self._stalled_at = inf
        self.write_paused = False
        self._parting: bytes | None = None  # the refusal that follows the answers under way
        self._advancing = False

    # --- What the transport calls.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._relay.connections.add(self)
        self._relay.awake()
        self._since = self._shared.now

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage is _Stage.BETWEEN and self._turn is None:
            body = self._memo.body(data)
            head = self._memo.meaning
            if body is not None and head is not None and len(body) <= self._settings.max_body_bytes:
                return self._begin(head, body)
        elif stage is _Stage.DEAF:
            return
        if stage is not _Stage.HEAD:  # a head's time counts from its first byte
            self._since = self._shared.now
        self._messages = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            return self._refuse(Refusal(400, "This is not valid HTTP.", "bad_framing"))
        except httptools.HttpParserUpgrade:
            return self._upgrade()
        self._bound(stage, len(data))
        if stage is _Stage.BETWEEN:
            self._learn(data)

    def _learn(self, data: bytes) -> None:
        if self._messages == 1 and self._latest is not None:
            self._memo.learn(data, self._latest)

    def _bound(self, began: _Stage, read_bytes: int) -> None:
        """A head, or the body of a hot request, that goes on for ever is cut off."""
        if self._stage is _Stage.HEAD:
            if self._messages == 0 or (self._messages == 1 and began is _Stage.BETWEEN):
                self._head_bytes += read_bytes  # all of it is head; else it began somewhere in this read
            if self._head_bytes > self._settings.max_head_bytes:
                self._refuse(_HEAD_TOO_LARGE)
        elif self._incoming is not None:
            self._incoming.raw_bytes += read_bytes  # chunks of a byte each, extensions and trailers count too
            if self._incoming.raw_bytes > 2 * self._settings.max_body_bytes + _RAW_SLACK_BYTES:
                self._refuse(self._too_large())

    def _upgrade(self) -> None:
        if self._stage is _Stage.DEAF:
            return  # it was refused
        if self._should_upgrade():
            self._relay.connections.discard(self)
            self.handle_websocket_upgrade()
        else:
            self._unsupported_upgrade_warning()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.connections.discard(self)
        self._stage = _Stage.DEAF
        self._stalled_at = inf
        turn, self._turn = self._turn, None
        if self._incoming is not None and self._incoming.greeting is not None:
            self._incoming.greeting.cancel()
        super().connection_lost(exc)
        if isinstance(turn, Exchange):
            turn.client_lost()
        elif isinstance(turn, RequestResponseCycle):  # uvicorn tells only the last one that it read
            turn.disconnected = True
            turn.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_at = self._shared.now
        self.write_paused = True
        if isinstance(self._turn, Exchange):
            self._turn.hold()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_at = inf
        self.write_paused = False
        if isinstance(self._turn, Exchange):
            self._turn.go_on()

    # --- What the parser calls.
    def on_message_begin(self) -> None:
        if self._stage is _Stage.DEAF:
            return
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._stage = _Stage.HEAD
        self._head_bytes = 0
        self._messages += 1
        self._latest = None

    def on_headers_complete(self) -> None:
        if self._stage is _Stage.DEAF:
            return
        path = self._hot.get(self.url)
        if path is None and (b"?" in self.url or not self.url.startswith(b"/")):
            path = self._hot.get(httptools.parse_url(self.url).path)
        if path is None or self.parser.get_method() != b"POST":
            return self._take_cold()
        self._take_hot(path)

    def on_body(self, body: bytes) -> None:
        incoming = self._incoming
        if incoming is not None:
            incoming.size += len(body)
            if incoming.size > self._settings.max_body_bytes:
                return self._refuse(self._too_large())
            incoming.pieces.append(body)
        elif self._stage is _Stage.COLD:
            super().on_body(body)

    def on_message_complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._stage = _Stage.BETWEEN
            incoming.complete = True
            if self._turn is incoming:
                self._begin(incoming.head, b"".join(incoming.pieces))
        elif self._stage is _Stage.COLD:
            self._stage = _Stage.BETWEEN
            super().on_message_complete()

    def _take_hot(self, path: bytes) -> None:
        parser, settings, headers = self.parser, self._settings, self.headers
        size = sum([len(name) + len(value) for name, value in headers])
        if len(headers) > settings.max_headers or size > settings.max_head_bytes:
            return self._refuse(_HEAD_TOO_LARGE)
        # httptools knows whether to keep the connection only now; when the message is complete it says False.
        version, keep_alive = parser.get_http_version(), parser.should_keep_alive()
        head = read_head(path, version, keep_alive, headers, self._relay.forwarded)
        if isinstance(head, Refusal):
            return self._refuse(head)
        if parser.should_upgrade():
            return self._refuse(Refusal(400, "This path cannot be upgraded.", "bad_framing"))
        if head.content_length is None or head.expects_continue:
            pass
        elif head.content_length > settings.max_body_bytes:
            return self._refuse(self._too_large())
        else:
            self._latest = head
        greeting: asyncio.Future[object] | None = None
        if head.content_length is None or head.content_length > _SMALL_BODY_BYTES or head.expects_continue:
            try:
                asked = self._shared.desk.greet(head.authorization)
            except TurnoutError as err:
                return self._refuse(err)
            greeting = None if asked is None else asyncio.ensure_future(asked)
        self._stage = _Stage.BODY
        self.headers = []  # trailers go nowhere
        self._incoming = incoming = _Intake(head, greeting)
        if greeting is not None:
            self.flow.pause_reading()
            greeting.add_done_callback(lambda done: self._greeted(incoming, done))
        if self._turn is None:
            self._turn = incoming
            self._welcome(incoming)
        else:
            self.pipeline.appendleft((cast(Any, incoming), _NO_APP))
            if len(self.pipeline) >= settings.max_pipelined:
                self.flow.pause_reading()

    def _welcome(self, incoming: _Intake) -> None:
        """It is the turn of a request whose body has not come yet."""
        if incoming.head.expects_continue and incoming.greeting is None:
            self.transport.write(error_responses.CONTINUE)

    def _greeted(self, incoming: _Intake, done: asyncio.Future[object]) -> None:
        """It is known whether the rest of a body should be read."""
        incoming.greeting = None
        problem = None if done.cancelled() else done.exception()
        if done.cancelled() or self.transport.is_closing():
            return
        if self._incoming is incoming:
            if isinstance(problem, TurnoutError):
                self._refuse(problem)
            elif self._turn is incoming:
                self._welcome(incoming)
        # What nobody foresaw is met again by `admit`, which tells the client.
        if len(self.pipeline) < self._settings.max_pipelined:
            self.flow.resume_reading()

    def _begin(self, head: Head, body: bytes) -> None:
        request_id = head.request_id if self._settings.trusts_request_ids else None
        if request_id is None:
            request_id = b"%b%x" % (_PREFIX, next(_numbers))
        self._turn = exchange = Exchange(self, self._shared, head, body, request_id)
        exchange.start()

    def _take_cold(self) -> None:
        if self._turn is not None and self.parser.should_upgrade():
            return self._refuse(Refusal(400, "Wait for the answer before you upgrade.", "bad_framing"))
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes a scope, which hot requests do without
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        self._stage = _Stage.COLD
        before = self.cycle
        if self._turn is None:
            super().on_headers_complete()
            if self.cycle is not before:  # an upgrade makes none
                self._turn = self.cycle
            return
        self.cycle = _BUSY
        try:
            super().on_headers_complete()
        finally:
            if self.cycle is _BUSY:  # the address made no sense
                self.cycle = before

    # --- What gives answers calls.
    def on_response_complete(self) -> None:
        """uvicorn's cycle is done."""
        self.server_state.total_requests += 1
        self._turn = None
        self._advance()

    def ended(self, keep_alive: bool) -> None:
        self.server_state.total_requests += 1
        self._turn = None
        if keep_alive:
            if self.pipeline or self._parting is not None:
                self._advance()
            else:
                self._since = self._shared.now
        else:
            self._stage = _Stage.DEAF
            self._part()

    def cut(self) -> None:
        """Resets the connection: a body that ends with it would look whole if it were merely closed."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _advance(self) -> None:
        """Gives the turn to the next request that waits. A loop, as an answer can come before `start` returns."""
        if self._advancing or self.transport.is_closing():
            return
        self._advancing = True
        while self._turn is None and self.pipeline:
            waiting, app = cast("tuple[_Intake | RequestResponseCycle, Any]", self.pipeline.pop())
            self._turn = waiting
            if not isinstance(waiting, _Intake):
                task = self.loop.create_task(waiting.run_asgi(app))
                task.add_done_callback(self.tasks.discard)
                self.tasks.add(task)
            elif waiting.complete:
                self._begin(waiting.head, b"".join(waiting.pieces))
            else:
                self._welcome(waiting)
        self._advancing = False
        self.flow.resume_reading()
        if self._turn is None:
            self._since = self._shared.now
            if self._parting is not None:
                self._part()

    # --- Endings.
    def _refuse(self, refusal: Refusal | TurnoutError) -> None:
        """Hears nothing more; the refusal goes out after the answers that came before it."""
        stage, self._stage = self._stage, _Stage.DEAF
        if stage is _Stage.DEAF:
            return
        if isinstance(refusal, Refusal):
            body = error_body(refusal.message, "invalid_request_error", code=refusal.code)
            status, lines = refusal.status, b""
        else:
            status, lines, body = error_responses.explain(refusal)
        lines += b"x-request-id: %b%x\r\n%b" % (_PREFIX, next(_numbers), self._shared.response_lines)
        self._parting = error_responses.answer(status, body, lines, keep_alive=False)
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            if self._turn is incoming:
                self._turn = None
            else:
                self.pipeline.popleft()
        elif stage is _Stage.COLD:
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
            elif self._turn is self.cycle:
                if self.cycle.response_started:
                    return self.cut()
                self.transport.write(self._parting)
                return self.transport.close()  # so the app sees that its client is gone
        if self._turn is None:
            self._part()

    def _part(self) -> None:
        """Says the last word and closes. Closing while the client still sends would reset the connection, and the
        reset could overtake the answer; so it is closed when the client has closed, or soon."""
        if self.transport.is_closing():
            return
        if self._parting is not None:
            self.transport.write(self._parting)
            self._parting = None
            if self.transport.can_write_eof():
                self._since = self._shared.now
                self.transport.write_eof()
                return
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal(400, msg, "bad_framing"))

    def shutdown(self) -> None:
        turn = self._turn
        if turn is None or isinstance(turn, _Intake):
            self.transport.close()
        else:
            turn.keep_alive = False

    def close(self) -> None:
        """The relay is shut down: what is under way is told so."""
        turn = self._turn
        if isinstance(turn, Exchange):
            turn.keep_alive = False
            turn.close()
        elif isinstance(turn, _Intake):
            self.cut()

    def tick(self, now: float) -> None:
        settings = self._settings
        if now - self._stalled_at > settings.write_stall_s:
            return self.cut()
        turn = self._turn
        if isinstance(turn, Exchange):
            return turn.tick(now)
        quiet_s = now - self._since
        match self._stage:
            case _Stage.HEAD if quiet_s > settings.head_s:
                self._refuse(Refusal(408, "The head of the request did not come in time.", "request_timeout"))
            case _Stage.BODY if quiet_s > settings.body_stall_s:
                self._refuse(Refusal(408, "The body of the request did not come in time.", "request_timeout"))
            case _Stage.COLD if turn is None and quiet_s > settings.body_stall_s:
                self.cut()  # it was answered already
            case _Stage.BETWEEN if turn is None and quiet_s > settings.keep_alive_s:
                self.transport.close()
            case _Stage.DEAF if turn is None and quiet_s > _LINGER_S:
                self.transport.abort()
            case _:
                pass

    def _too_large(self) -> Refusal:
        return Refusal(413, f"The body is over {self._settings.max_body_bytes} bytes.", "body_too_large")
