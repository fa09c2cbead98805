"""A client's connection as uvicorn's HTTP protocol, with the order of its responses and its end.

Requests may be pipelined. Responses are written in the order of their requests, whoever gives them: an exchange, or an
ASGI app by uvicorn. A refusal comes after the responses that are due, and then the connection ends.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from math import inf
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnout.errors import TurnoutError
from turnout.relay import error_responses, framing
from turnout.relay.exchange import Exchange
from turnout.relay.framing import Head, Refusal
from turnout.relay.incoming import Incoming, ReadStage
from turnout.relay.relay_context import RelayContext
from turnout.relay.request_ids import new_request_id

_RESET = struct.pack("ii", 1, 0)
_LINGER_S = 2.0  # how long we read on after a refusal, so that a reset does not overtake it


class PipelinedConnection(HttpToolsProtocol):
    address = ""  # what connections are counted by

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
        self._limits = context.settings.client
        self._stage = ReadStage.BETWEEN
        self._current: Incoming | Exchange | RequestResponseCycle | None = None  # its response is due
        self._incoming: Incoming | None = None
        self._progress_at = self._body_at = 0.0  # of the present stage, and when a body began
        self._idle_s = context.settings.client.head_s  # the first request must come soon
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.connections.discard(self)
        self._stage = ReadStage.CLOSING
        self._write_stalled_at = inf
        current, self._current = self._current, None
        for waiting in (current, self._incoming, *(one for one, _ in self.pipeline)):
            if isinstance(waiting, Incoming):
                waiting.drop(self._context)
        super().connection_lost(exc)
        if isinstance(current, Exchange):
            current.client_lost()
        elif isinstance(current, RequestResponseCycle):  # uvicorn tells only the last that it read
            current.disconnected = True
            current.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_stalled_at = self._context.now
        self.write_paused = True
        if isinstance(self._current, Exchange):
            self._current.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_stalled_at = inf
        self.write_paused = False
        if isinstance(self._current, Exchange):
            self._current.resume()

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

    def _begin(self, head: Head, body: bytes) -> None:
        request_id = head.request_id if self._context.settings.trusts_request_ids else None
        if request_id is None:
            request_id = new_request_id()
        self._current = current = Exchange(self, self._context, head, body, request_id)
        current.start()

    def _send_continue(self, incoming: Incoming) -> None:
        """The responses before it are complete: a client that waits for it may send the body."""
        if incoming.head.expects_continue and incoming.authenticating is None:
            self.transport.write(error_responses.CONTINUE)

    # --- Endings.
    def reset(self) -> None:
        """Resets the connection: a body that ends with it would look complete if it were only closed."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

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
        if isinstance(current, Exchange):
            current.keep_alive = False
            current.close()
        elif isinstance(current, Incoming):
            self.reset()

    def tick(self, now: float) -> None:
        limits = self._limits
        if self.transport.is_closing():  # what is unread keeps a closed connection open
            self._write_stalled_at = min(self._write_stalled_at, now)
        if now - self._write_stalled_at > limits.write_stall_s:
            return self.reset()
        current = self._current
        if isinstance(current, Exchange):
            return current.tick(now)
        if self.flow.read_paused:  # the client cannot be blamed
            self._progress_at, self._body_at = now, self._body_at + self._context.settings.tick_s
        quiet_s = now - self._progress_at
        late = quiet_s > limits.body_stall_s or now - self._body_at > limits.body_s
        match self._stage:
            case ReadStage.HEAD if quiet_s > limits.head_s:
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
