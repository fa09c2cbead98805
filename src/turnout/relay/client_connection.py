"""Reads what comes on a client's connection, and takes requests for hot paths out before ASGI.

One parser reads everything. The body of a hot request is collected here and no ASGI task is made for it; all other
requests are left to uvicorn.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from turnout.errors import TurnoutError
from turnout.relay import framing
from turnout.relay.framing import Head, Refusal, read_head
from turnout.relay.head_cache import HeadCache
from turnout.relay.incoming import BUSY, NO_APP, Incoming, ReadStage, needs_authentication_first, raw_limit
from turnout.relay.pipelined_connection import PipelinedConnection
from turnout.relay.relay_context import RelayContext


class ClientConnection(PipelinedConnection):
    parser: httptools.HttpRequestParser  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        context: RelayContext,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(context, config, server_state, app_state, _loop)
        self._hot_paths = context.hot_paths
        self._head_cache = HeadCache[Head]()
        self._cacheable: Head | None = None  # the last head that may be cached
        self._messages = self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage is ReadStage.BETWEEN and self._current is None:
            body = self._head_cache.body(data)
            head = self._head_cache.parsed
            if body is not None and head is not None and len(body) <= self._limits.max_body_bytes:
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
            if self._head_bytes > self._limits.max_head_bytes:
                self._refuse(framing.HEAD_TOO_LARGE)
        elif self._incoming is not None:
            self._incoming.raw_bytes += len(data)
            if self._incoming.raw_bytes > raw_limit(self._limits.max_body_bytes):
                self._refuse(framing.body_too_large(self._limits.max_body_bytes))
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

    # --- What the parser calls.
    def on_message_begin(self) -> None:
        if self._stage is ReadStage.CLOSING:
            return
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._stage = ReadStage.HEAD
        self._idle_s = self._limits.keep_alive_s
        self._head_bytes = 0
        self._messages += 1
        self._cacheable = None

    def on_headers_complete(self) -> None:
        if self._stage is ReadStage.CLOSING:
            return
        path = self._hot_paths.get(self.url)
        if path is None and (b"?" in self.url or not self.url.startswith(b"/")):
            path = self._hot_paths.get(httptools.parse_url(self.url).path)
        parser, limits = self.parser, self._limits
        # httptools knows whether to keep the connection only now; when the message is complete it says False.
        version, keep_alive = parser.get_http_version(), parser.should_keep_alive()
        head = read_head(path or b"", version, keep_alive, self.headers, self._context.forwarded, limits)
        if len(self.url) > limits.max_url_bytes:
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
            if refusal := incoming.add(body, self._limits, self._context):
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
            if len(self.pipeline) >= self._limits.max_pipelined:
                self.flow.pause_reading()

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
        if len(self.pipeline) < self._limits.max_pipelined:
            self.flow.resume_reading()

    def _pass_to_uvicorn(self, head: Head) -> None:
        if self.parser.should_upgrade() and self._should_upgrade():
            longest = self._limits.max_url_bytes
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
