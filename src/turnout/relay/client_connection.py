"""A client's connection: uvicorn's HTTP protocol, with requests for hot paths taken out before ASGI.

One parser reads everything that comes on a connection. The body of a hot request is collected here and no ASGI task is
made for it; all other requests are left to uvicorn. Responses are written in the order of their requests, whoever gives
them.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from math import inf
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnout.errors import TurnoutError
from turnout.relay import error_responses, framing
from turnout.relay.client_response import ClientResponse
from turnout.relay.exchange import Exchange
from turnout.relay.framing import Head, Refusal, read_head
from turnout.relay.head_cache import HeadCache
from turnout.relay.incoming import BUSY, NO_APP, Incoming, ReadStage, needs_authentication_first, raw_limit
from turnout.relay.relay_context import RelayContext
from turnout.relay.request_ids import new_request_id

_RESET = struct.pack("ii", 1, 0)
_LINGER_S = 2.0  # how long we read on after a refusal, so that a reset does not overtake it


class ClientConnection(HttpToolsProtocol):
    address = ""  # what connections are counted by
    parser: httptools.HttpRequestParser  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        context: RelayContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._context = context
        self._settings = context.settings
        self._hot_paths = context.hot_paths
        self._stage = ReadStage.BETWEEN
        self._current: Incoming | ClientResponse | RequestResponseCycle | None = None  # its response is due
        self._incoming: Incoming | None = None
        self._head_cache = HeadCache[Head]()
        self._cacheable: Head | None = None  # the last head that may be cached
        self._messages = self._head_bytes = 0
        self._progress_at = self._body_at = 0.0  # of the present stage, and when a body began
        self._idle_s = context.settings.head_s  # the first request must come soon
        self._write_stalled_at = inf
        self.write_paused = False
        self._refusal: bytes | None = None  # follows the responses that are due
        self._starting = False

    # --- What the transport calls.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._context.connections.add(self)
        self._context.watch()
        self._progress_at = self._context.now

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage is ReadStage.BETWEEN and self._current is None:
            body = self._head_cache.body(data)
            head = self._head_cache.parsed
            if body is not None and head is not None and len(body) <= self._settings.max_body_bytes:
                return self._begin(head, body)
        elif stage is ReadStage.CLOSING:
            return
        if stage is not ReadStage.HEAD:  # a head's time counts from its first byte
            self._progress_at = self._context.now
        self._messages = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            return self._refuse(Refusal(400, "This is not valid HTTP.", "bad_framing"))
        except httptools.HttpParserUpgrade:
            return self._upgrade()
        self._after_read(stage, data)

    def _after_read(self, began: ReadStage, data: bytes) -> None:
        """Refuses a head, or the body of a hot request, that goes on for ever. Caches the head of a lone request."""
        if self._stage is ReadStage.HEAD:
            if self._messages == 0 or (self._messages == 1 and began is ReadStage.BETWEEN):
                self._head_bytes += len(data)  # all of it is head; else it began somewhere in this read
            if self._head_bytes > self._settings.max_head_bytes:
                self._refuse(framing.HEAD_TOO_LARGE)
        elif self._incoming is not None:
            self._incoming.raw_bytes += len(data)
            if self._incoming.raw_bytes > raw_limit(self._settings.max_body_bytes):
                self._refuse(framing.body_too_large(self._settings.max_body_bytes))
        if began is ReadStage.BETWEEN and self._messages == 1 and self._cacheable is not None:
            self._head_cache.remember(data, self._cacheable)

    def _upgrade(self) -> None:
        if self._stage is ReadStage.CLOSING:
            return  # it was refused
        if self._should_upgrade():
            self._context.connections.discard(self)
            self.handle_websocket_upgrade()
        else:
            self._unsupported_upgrade_warning()

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.connections.discard(self)
        self._stage = ReadStage.CLOSING
        self._write_stalled_at = inf
        current, self._current = self._current, None
        for waiting in (current, self._incoming, *(one for one, _ in self.pipeline)):
            if isinstance(waiting, Incoming):
                waiting.drop(self._context)
        super().connection_lost(exc)
        if isinstance(current, ClientResponse):
            current.client_lost()
        elif isinstance(current, RequestResponseCycle):  # uvicorn tells only the last that it read
            current.disconnected = True
            current.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_stalled_at = self._context.now
        self.write_paused = True
        if isinstance(self._current, ClientResponse):
            self._current.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_stalled_at = inf
        self.write_paused = False
        if isinstance(self._current, ClientResponse):
            self._current.resume()

    # --- What the parser calls.
    def on_message_begin(self) -> None:
        if self._stage is ReadStage.CLOSING:
            return
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._stage = ReadStage.HEAD
        self._idle_s = self._settings.keep_alive_s
        self._head_bytes = 0
        self._messages += 1
        self._cacheable = None

    def on_headers_complete(self) -> None:
        if self._stage is ReadStage.CLOSING:
            return
        path = self._hot_paths.get(self.url)
        if path is None and (b"?" in self.url or not self.url.startswith(b"/")):
            path = self._hot_paths.get(httptools.parse_url(self.url).path)
        parser, settings = self.parser, self._settings
        # httptools knows whether to keep the connection only now; when the message is complete it says False.
        version, keep_alive = parser.get_http_version(), parser.should_keep_alive()
        head = read_head(path or b"", version, keep_alive, self.headers, self._context.forwarded, settings)
        if len(self.url) > settings.max_url_bytes:
            head = framing.URL_TOO_LONG
        if isinstance(head, Refusal):
            return self._refuse(head)
        self._body_at = self._context.now
        if path is None or parser.get_method() != b"POST":
            return self._pass_to_uvicorn(head)
        self._take(head)

    def on_body(self, body: bytes) -> None:
        incoming = self._incoming
        if incoming is not None:
            if refusal := incoming.add(body, self._settings, self._context):
                return self._refuse(refusal)
        elif self._stage is ReadStage.ASGI_BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._stage = ReadStage.BETWEEN
            incoming.complete = True
            if self._current is incoming:
                self._begin(incoming.head, incoming.take(self._context))
        elif self._stage is ReadStage.ASGI_BODY:
            self._stage = ReadStage.BETWEEN
            super().on_message_complete()

    def _take(self, head: Head) -> None:
        if head.upgrade or self.parser.should_upgrade():
            return self._refuse(framing.NO_UPGRADE)
        if head.content_length is not None and not head.expects_continue:
            self._cacheable = head
        authenticating: asyncio.Future[object] | None = None
        if needs_authentication_first(head):
            try:
                pending = self._context.admission.authenticate(head.authorization, head.headers)
            except TurnoutError as err:
                return self._refuse(err)
            authenticating = None if pending is None else asyncio.ensure_future(pending)
        self._stage = ReadStage.BODY
        self.headers = []  # trailers go nowhere
        self._incoming = incoming = Incoming(head, authenticating)
        if authenticating is not None:
            self.flow.pause_reading()
            authenticating.add_done_callback(lambda done: self._on_authenticated(incoming, done))
        if self._current is None:
            self._current = incoming
            self._send_continue(incoming)
        else:
            self.pipeline.appendleft((cast(Any, incoming), NO_APP))
            if len(self.pipeline) >= self._settings.max_pipelined:
                self.flow.pause_reading()

    def _send_continue(self, incoming: Incoming) -> None:
        """The responses before it are complete: a client that waits for it may send the body."""
        if incoming.head.expects_continue and incoming.authenticating is None:
            self.transport.write(error_responses.CONTINUE)

    def _on_authenticated(self, incoming: Incoming, done: asyncio.Future[object]) -> None:
        incoming.authenticating = None
        problem = None if done.cancelled() else done.exception()
        if done.cancelled() or self.transport.is_closing():
            return
        if self._incoming is incoming:
            if isinstance(problem, TurnoutError):
                self._refuse(problem)
            elif self._current is incoming:
                self._send_continue(incoming)
        # Any other error comes again in `admit`, which tells the client.
        if len(self.pipeline) < self._settings.max_pipelined:
            self.flow.resume_reading()

    def _begin(self, head: Head, body: bytes) -> None:
        request_id = head.request_id if self._settings.trusts_request_ids else None
        if request_id is None:
            request_id = new_request_id()
        self._current = current = Exchange(self, self._context, head, body, request_id)
        current.start()

    def _pass_to_uvicorn(self, head: Head) -> None:
        if self.parser.should_upgrade() and self._should_upgrade():
            longest = self._settings.max_url_bytes
            if refusal := framing.upgrade_refusal(head, longest, busy=self._current is not None):
                return self._refuse(refusal)
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()  # makes a scope, which hot requests do not need
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        self._stage = ReadStage.ASGI_BODY
        before = self.cycle
        if self._current is None:
            super().on_headers_complete()
            if self.cycle is not before:  # an upgrade makes none
                self._current = self.cycle
            return
        self.cycle = BUSY
        try:
            super().on_headers_complete()
        finally:
            if self.cycle is BUSY:  # the URL was malformed
                self.cycle = before

    # --- What the writers of responses call.
    def on_response_complete(self) -> None:  # uvicorn's cycles call this
        self.server_state.total_requests += 1
        self._current = None
        self._start_next()

    def response_ended(self, keep_alive: bool) -> None:
        self.server_state.total_requests += 1
        self._current = None
        if keep_alive:
            if self.pipeline or self._refusal is not None:
                self._start_next()
            else:
                self._progress_at = self._context.now
        else:
            self._stage = ReadStage.CLOSING
            self._finish()

    def reset(self) -> None:
        """Resets the connection: a body that ends with it would look complete if it were only closed."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _start_next(self) -> None:
        """Starts the next request that waits. A loop, because a response can be complete before `start` returns."""
        if self._starting or self.transport.is_closing():
            return
        self._starting = True
        while self._current is None and self.pipeline:
            waiting, app = cast("tuple[Incoming | RequestResponseCycle, Any]", self.pipeline.pop())
            self._current = waiting
            if not isinstance(waiting, Incoming):
                task = self.loop.create_task(waiting.run_asgi(app))
                task.add_done_callback(self.tasks.discard)
                self.tasks.add(task)
            elif waiting.complete:
                self._begin(waiting.head, waiting.take(self._context))
            else:
                self._send_continue(waiting)
        self._starting = False
        self.flow.resume_reading()
        if self._current is None:
            self._progress_at = self._context.now
            if self._refusal is not None:
                self._finish()

    # --- Endings.
    def _refuse(self, refusal: Refusal | TurnoutError) -> None:
        """Reads nothing more. The refusal is written after the responses to earlier requests."""
        stage, self._stage = self._stage, ReadStage.CLOSING
        if stage is ReadStage.CLOSING:
            return
        lines = b"x-request-id: %b\r\n%b" % (new_request_id(), self._context.response_lines)
        self._refusal = error_responses.refusal_response(refusal, lines)
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.drop(self._context)
            if self._current is incoming:
                self._current = None
            else:
                self.pipeline.popleft()
        elif stage is ReadStage.ASGI_BODY:
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
            elif self._current is self.cycle:
                if self.cycle.response_started:
                    return self.reset()
                self.transport.write(self._refusal)
                return self.transport.close()  # so the app sees that its client is gone
        if self._current is None:
            self._finish()

    def _finish(self) -> None:
        """Writes the refusal, if any, and closes. Closing while the client still sends would reset the connection, and the
        reset could overtake the refusal: so it is closed when the client has closed, or soon."""
        if self.transport.is_closing():
            return
        if self._refusal is not None:
            self.transport.write(self._refusal)
            self._refusal = None
            if self.transport.can_write_eof():
                self._progress_at = self._context.now
                self.transport.write_eof()
                return
        self.transport.close()

    def shutdown(self) -> None:
        if self._current is None or isinstance(self._current, Incoming):
            self.transport.close()
        else:
            self._current.keep_alive = False

    def close(self) -> None:
        """The relay shuts down: the request in flight ends with an error."""
        current = self._current
        if isinstance(current, ClientResponse):
            current.keep_alive = False
            current.close()
        elif isinstance(current, Incoming):
            self.reset()

    def tick(self, now: float) -> None:
        settings = self._settings
        if self.transport.is_closing():  # what is unread keeps a closed connection open
            self._write_stalled_at = min(self._write_stalled_at, now)
        if now - self._write_stalled_at > settings.write_stall_s:
            return self.reset()
        current = self._current
        if isinstance(current, ClientResponse):
            return current.tick(now)
        if self.flow.read_paused:  # the client cannot be blamed
            self._progress_at, self._body_at = now, self._body_at + settings.tick_s
        quiet_s = now - self._progress_at
        late = quiet_s > settings.body_stall_s or now - self._body_at > settings.body_s
        match self._stage:
            case ReadStage.HEAD if quiet_s > settings.head_s:
                self._refuse(framing.HEAD_TIMEOUT)
            case ReadStage.ASGI_BODY if late and current is None:
                self.reset()  # it was answered already
            case ReadStage.BODY | ReadStage.ASGI_BODY if late:
                self._refuse(framing.BODY_TIMEOUT)
            case ReadStage.BETWEEN if current is None and quiet_s > self._idle_s:
                self.transport.close()
            case ReadStage.CLOSING if current is None and quiet_s > _LINGER_S:
                self.transport.abort()
            case _:
                pass
