"""A client's WebSocket: uvicorn's protocol, with bounds on what a stranger can make us hold.

Nothing is read before the app has accepted. There is no compression, so that a message is never larger than what came.
The handshake has a deadline. A peer that does not read is not read from either, and is dropped after a while. What comes is
handled in small pieces, one socket after the other, and who pings without end is dropped: a frame of six bytes costs as much
of the event loop's time as a large one.
Whatever a peer says and whenever it leaves, no error is logged: uvicorn would, with a traceback.
"""

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from typing import Any

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Response
from websockets.server import ServerProtocol

from turnout.relay.immediate_write import offer_immediate_write
from turnout.relay.relay_context import RelayContext

_INVALID_DATA = 1007
_POLICY = 1008
_PIECE_BYTES = 4096  # or some 700 frames, which take 10 ms
_MAX_PINGS = 64  # and pongs
_PINGS_S = 5.0  # in which there may be so many


class _Handshake(ServerProtocol):
    """Every refusal has the headers of our answers, whoever refuses: the app, uvicorn, or the protocol itself."""

    def __init__(self, headers: Sequence[tuple[str, str]], max_size: int, logger: logging.Logger) -> None:
        super().__init__(extensions=[], max_size=max_size, logger=logger)
        self._headers = headers

    def send_response(self, response: Response) -> None:
        if response.status_code != 101:
            for name, value in self._headers:
                if name not in response.headers:
                    response.headers[name] = value
        super().send_response(response)


class SocketConnection(WebSocketsSansIOProtocol):
    def __init__(
        self,
        context: RelayContext,
        address: str,
        peer: tuple[str, int] | None,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`address` is what the connection is counted under; `peer` is who the app is told is calling."""
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Handshake(context.settings.response_headers, config.ws_max_size, self.logger)
        self._app: Any = self.app
        self.app = self._run_app
        self._context = context
        self._address = address
        self._peer = peer
        self._reading = True
        self._made_at = context.now
        self._stalled_at = inf
        self._unread = b""
        self._read_to = 0  # of what is unread
        self._pings = 0
        self._pings_since = context.now

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = self._peer
        self._context.connections.add(self)
        self._settle_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.connections.discard(self)
        self._context.counts.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if len(data) <= _PIECE_BYTES and not self._unread:
            return self._handle(data)
        if not self._unread:
            self._context.pieces.add(self.loop, self)
        self._unread = self._unread[self._read_to :] + data
        self._read_to = 0
        self._settle_reading()

    def handle_piece(self) -> bool:
        """The next piece of what came; whether there is more."""
        if not self.transport.is_closing():
            begin, self._read_to = self._read_to, self._read_to + _PIECE_BYTES
            self._handle(self._unread[begin : self._read_to])
        if self.transport.is_closing() or self._read_to >= len(self._unread):
            self._unread, self._read_to = b"", 0
        self._settle_reading()
        return bool(self._unread)

    def handle_ping(self) -> None:
        if self._has_ping_left():
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        if self._has_ping_left():
            super().handle_pong(event)

    def _has_ping_left(self) -> bool:
        if self._context.now - self._pings_since > _PINGS_S:
            self._pings, self._pings_since = 0, self._context.now
        self._pings += 1
        if self._pings > _MAX_PINGS and not self.close_sent:
            self.conn.fail(_POLICY, "too many pings")
            self.handle_parser_exception()
        return self._pings <= _MAX_PINGS

    def _handle(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_at = self._context.now
        self._settle_reading()  # a peer that pings and never reads would have us collect the answers

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_at = inf
        self._settle_reading()

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = (
                True  # uvicorn forgets it when a handshake was refused with an HTTP answer
            )
        self._settle_reading()

    async def receive(self) -> Any:
        message = await super().receive()
        self._settle_reading()
        return message

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.fail(_INVALID_DATA)
                return self.handle_parser_exception()
        super().send_receive_event_to_app()

    def _write_now(self, frame: bytes) -> bool:
        if self.close_sent or not self.handshake_complete:
            return False
        if not self.writable.is_set() or self.transport.is_closing():
            return False
        self.transport.write(frame)
        return True

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        offer_immediate_write(scope, self._write_now)
        try:
            await self._app(scope, receive, send)
        except WebSocketDisconnect as err:  # Starlette's name for what `send` raises
            raise ClientDisconnected from err

    def _settle_reading(self) -> None:
        if self.transport.is_closing():
            return
        wanted = (
            self.handshake_complete and self.writable.is_set() and not self.read_paused and not self._unread
        )
        if wanted and not self.transport.is_reading():
            self.transport.resume_reading()
        elif not wanted and self.transport.is_reading():
            self.transport.pause_reading()

    # What the relay calls.
    def tick(self, now: float) -> None:
        limits = self._context.settings.client
        if self.transport.is_closing():
            self._stalled_at = min(self._stalled_at, now)  # what is unread keeps a closed connection open
        late = not self.handshake_complete and now - self._made_at > limits.head_s
        if late or now - self._stalled_at > limits.write_stall_s:
            self.reset()

    def close(self) -> None:
        """The server closes sockets itself."""

    def reset(self) -> None:
        self.transport.abort()
