"""A replica's response on its way to the client, and the end of the request.

From the head of a response on, the client gets that response, or learns that it broke off. However a request ends, its
upstream call is told exactly one outcome.
"""

import asyncio
from enum import Enum, auto
from math import inf

from turnout.errors import TurnoutError, Unavailable
from turnout.relay import error_responses
from turnout.relay.admission import RelayFailure, RelayOutcome, UpstreamCall
from turnout.relay.batching import worth_pausing
from turnout.relay.client_response import ClientResponse, ClientSide
from turnout.relay.framing import Head
from turnout.relay.relay_context import RelayContext
from turnout.relay.token_usage import read_usage
from turnout.relay.upstream import UpstreamConnection
from turnout.telemetry.log import get_log

_MAX_ERROR_BYTES = 64 * 1024  # of an engine's error

_BROKE_OFF = Unavailable("The model's server broke off the answer.", code="replica_lost")
_NO_STREAM = Unavailable("The model's server did not stream.", code="replica_broken")
FAILURES = {
    RelayFailure.UNREACHABLE: Unavailable(
        "The model's server cannot be reached.", code="replica_unreachable"
    ),
    RelayFailure.LOST: Unavailable("The model's server went away before it answered.", code="replica_lost"),
    RelayFailure.BROKEN: Unavailable("The model's server sent what is not HTTP.", code="replica_broken"),
    RelayFailure.SILENT: Unavailable("The model's server did not answer in time.", code="replica_silent"),
    RelayFailure.REFUSED: Unavailable("The model's server cannot serve now.", code="replica_refused"),
    RelayFailure.CLOSED: Unavailable("The service is shutting down.", code="shutting_down"),
}


class ExchangeState(Enum):
    ADMITTING = auto()
    CONNECTING = auto()
    SENT = auto()
    RELAYING = auto()
    ENDED = auto()


class RelayedResponse(ClientResponse):
    """Extends the client's response instead of holding it, which saves an object for each request."""

    _state = ExchangeState.ADMITTING
    _call: UpstreamCall | None = None
    _upstream: UpstreamConnection | None = None
    _pending: asyncio.Future[UpstreamCall] | asyncio.Task[UpstreamConnection] | None = None
    _deadline = inf
    _comment_at = inf
    _error_pieces: list[bytes] | None = None  # of an engine's error that has to become an event
    _status = 0
    _sent = False  # the present replica has the request
    _last_chunks_at = -inf
    _first_chunks_at = inf

    def __init__(
        self, client: ClientSide, context: RelayContext, head: Head, body: bytes, request_id: bytes
    ) -> None:
        lines = context.response_lines + head.response_lines
        ClientResponse.__init__(self, client, head, body, request_id, lines)
        self._forwarded = head.forwarded
        self._account = context.account_of(head, len(body))
        context.bodies.add(self._account, len(body))
        self._context = context
        self._limits = context.settings.upstream

    @property
    def call(self) -> UpstreamCall | None:
        return self._call

    def client_lost(self) -> None:
        self._end_with(RelayFailure.CLIENT_GONE)

    def pause(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()
            self._deadline = inf

    def resume(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()
            limits = self._limits
            limit_s = limits.chunk_s if self._state is ExchangeState.RELAYING else limits.answer_s
            self._deadline = self._context.now + limit_s

    def close(self, err: TurnoutError | None = None) -> None:
        self._fail(RelayFailure.CLOSED, err)

    def _relay(self, upstream: UpstreamConnection, head: bytes, payload: bytes, complete: bool) -> None:
        """Passes on a part of the response; `head` comes with the first."""
        if complete:
            self._upstream = None
        else:  # set before the write, which may pause the stream
            self._deadline = self._context.now + self._limits.chunk_s
        if self._error_pieces is not None:
            return self._collect(self._error_pieces, payload, complete)
        if payload and self.bytes_out == 0 and self._call is not None:
            try:
                self._call.first_byte()
            except Exception as err:  # noqa: BLE001 - a mistake of the admission must not affect other requests
                get_log().error("upstream call failed", request=self.name, exc_info=err)
        if not complete:
            return self.pass_on(head, payload, last=False)
        if self.events and self._is_short(upstream, payload):
            self.pass_on(head, payload, last=False)
            return self._fail(RelayFailure.LOST)
        self.pass_on(head, payload, last=True)
        self._finish(None)

    def on_event_chunks(self, chunks: bytes, size: int) -> bool:
        if self._state is not ExchangeState.RELAYING or self._error_pieces is not None or not self.events:
            return False
        self._deadline = self._context.now + self._limits.chunk_s
        if not self.pass_on_chunks(chunks, size):
            return False
        loop = self.client.loop
        now, before = loop.time(), self._last_chunks_at
        if before < 0:
            self._first_chunks_at = now
        self._last_chunks_at = now
        if self._upstream is not None and worth_pausing(now - before, now - self._first_chunks_at):
            self._upstream.pause_reading()
            self._context.batcher.add(self, loop)
        return True

    def end_pause(self) -> None:
        if self._upstream is not None and not self.client.write_paused:
            self._upstream.resume_reading()

    def _begin(self, upstream: UpstreamConnection) -> bytes:
        """The client gets this response. Returns its head, unless a stream was begun already."""
        self._state = ExchangeState.RELAYING
        self._comment_at = inf
        self._status = upstream.head.status
        if upstream.head.status >= 400 or (self.begun and not upstream.head.events):
            self._error_pieces = []
            return b""
        return b"" if self.begun else self.begin(upstream)

    def _is_short(self, upstream: UpstreamConnection, payload: bytes) -> bool:
        """Whether a stream that ended as HTTP lacks its last event: the engine lost its way, or was killed and the stream
        ends with its connection."""
        ends_with_done = self.request.path in self._context.done_paths or upstream.head.until_close
        return ends_with_done and self._status == 200 and not self.tells_its_end(payload)

    def _fail(self, failure: RelayFailure, err: TurnoutError | None = None) -> None:
        """Ends a request that the replica, or the relay, failed. What was begun must not look complete."""
        self._abort_work()
        if self._state is not ExchangeState.RELAYING or not self.begun:
            return self._refuse(err or FAILURES[failure], failure)
        if self.events:
            err = err or (_BROKE_OFF if failure is RelayFailure.LOST else FAILURES[failure])
            self.end_with_event(error_responses.explain(err)[2])
            return self._finish(failure)
        self._end_with(failure)
        self.client.reset()

    def _refuse(self, err: BaseException, failure: RelayFailure | None = None) -> None:
        """Responds with an error; the client has seen nothing of an engine's response."""
        if not isinstance(err, TurnoutError):
            path = self.request.path.decode(errors="replace")
            get_log().error("request failed", request=self.name, path=path, exc_info=err)
            err = TurnoutError("")
        self.refuse(*error_responses.explain(err))
        self._finish(failure)

    def _abort_work(self) -> None:
        """Cancels what is pending, and closes the upstream connection."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()

    def _end_with(self, failure: RelayFailure) -> None:
        """Ends it without a response."""
        self._abort_work()
        self._end(failure)

    def _finish(self, failure: RelayFailure | None) -> None:
        self._end(failure)
        self.client.response_ended(self.keep_alive)

    def _end(self, failure: RelayFailure | None) -> None:
        if self._state is not ExchangeState.ENDED:
            self._context.bodies.remove(self._account, len(self.request.body))
        self._context.requests.discard(self)
        self._state = ExchangeState.ENDED
        self._deadline = self._comment_at = inf
        call, self._call = self._call, None
        if call is not None:
            self._report(call, failure)

    def _report(self, call: UpstreamCall, failure: RelayFailure | None) -> None:
        usage = read_usage(self.tail()) if self.bytes_out else None
        try:
            call.finished(
                RelayOutcome(self._status, self.bytes_out, usage, failure, self.events_out, self._sent)
            )
        except Exception as err:  # noqa: BLE001 - a mistake of the admission must not affect other requests
            get_log().error("upstream call failed", request=self.name, exc_info=err)

    def _collect(self, pieces: list[bytes], payload: bytes, complete: bool) -> None:
        """An engine's error is told in our shape: as an event if a stream was begun. So is a response that is no stream."""
        pieces.append(payload)
        if not complete and sum(map(len, pieces)) < _MAX_ERROR_BYTES:
            return
        self._abort_work()
        if self._status < 400:
            self.end_with_event(error_responses.explain(_NO_STREAM)[2])
        else:
            said = b"".join(pieces)[:_MAX_ERROR_BYTES]
            status, body = error_responses.engine_error(self._status, said, self.request.path)
            self.refuse(status, b"", body)
        self._finish(None)
