"""One request on a hot path, from the complete request to the end of its response.

An exchange owns its upstream call and reports exactly one outcome to it. Until the head of a response has come it may try
other replicas. From then on the client gets that response, or learns that it broke off.
"""

import asyncio
from collections.abc import Awaitable
from enum import Enum, auto
from math import inf
from typing import cast

from turnout.errors import TurnoutError, Unavailable
from turnout.relay import error_responses
from turnout.relay.admission import RelayFailure, RelayOutcome, UpstreamCall
from turnout.relay.batching import worth_pausing
from turnout.relay.client_response import ClientResponse, ClientSide
from turnout.relay.framing import Head, request_head
from turnout.relay.incoming import asks_for_stream
from turnout.relay.relay_context import RelayContext
from turnout.relay.token_usage import read_usage
from turnout.relay.upstream import UpstreamConnection
from turnout.telemetry.log import get_log

_MAX_ERROR_BYTES = 64 * 1024  # of an engine's error

_BROKE_OFF = Unavailable("The model's server broke off the answer.", code="replica_lost")
_NO_STREAM = Unavailable("The model's server did not stream.", code="replica_broken")
_FAILED = {
    RelayFailure.UNREACHABLE: Unavailable(
        "The model's server cannot be reached.", code="replica_unreachable"
    ),
    RelayFailure.LOST: Unavailable("The model's server went away before it answered.", code="replica_lost"),
    RelayFailure.BROKEN: Unavailable("The model's server sent what is not HTTP.", code="replica_broken"),
    RelayFailure.SILENT: Unavailable("The model's server did not answer in time.", code="replica_silent"),
    RelayFailure.REFUSED: Unavailable("The model's server cannot serve now.", code="replica_refused"),
    RelayFailure.CLOSED: Unavailable("The service is shutting down.", code="shutting_down"),
}


class _State(Enum):
    ADMITTING = auto()
    CONNECTING = auto()
    SENT = auto()
    RELAYING = auto()
    ENDED = auto()


class Exchange(ClientResponse):
    """Extends the client's response instead of holding it, which saves an object for each request."""

    _state = _State.ADMITTING
    _call: UpstreamCall | None = None
    _upstream: UpstreamConnection | None = None
    _pending: asyncio.Future[UpstreamCall] | asyncio.Task[UpstreamConnection] | None = None
    _attempts = 0
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
        self._settings = context.settings

    @property
    def name(self) -> str:
        """The request in logs, here and at the replica."""
        return self.request.request_id.decode("latin-1")

    # --- What the client's connection calls.
    def start(self) -> None:
        self._context.requests.add(self)
        try:
            got = self._context.admission.admit(self.request)
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._use(got)

    def client_lost(self) -> None:
        self._end_with(RelayFailure.CLIENT_GONE)

    def pause(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()
            self._deadline = inf

    def resume(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()
            settings = self._settings
            limit_s = settings.chunk_s if self._state is _State.RELAYING else settings.answer_s
            self._deadline = self._context.now + limit_s

    def tick(self, now: float) -> None:
        if now >= self._comment_at:
            self._keep_open(now)
        if now < self._deadline:
            return
        self._deadline = inf
        if self._state is _State.CONNECTING:
            self._abort_work()
            self._try_another(RelayFailure.UNREACHABLE)
        else:
            self._fail(RelayFailure.SILENT)

    def close(self) -> None:
        self._fail(RelayFailure.CLOSED)

    # --- What whoever watches over callers and replicas calls.
    @property
    def call(self) -> UpstreamCall | None:
        return self._call

    def refuse_caller(self, err: TurnoutError) -> None:
        self._fail(RelayFailure.CLOSED, err)

    def lose_replica(self) -> None:
        if self._state is _State.RELAYING:
            return self._fail(RelayFailure.LOST)
        if self._call is not None:
            self._abort_work()
            self._try_another(RelayFailure.LOST)

    # --- Admission.
    def _use(self, got: UpstreamCall | Awaitable[UpstreamCall]) -> None:
        if isinstance(got, UpstreamCall):
            self._call = got
            return self._connect()
        if self._comment_at == inf:
            self._comment_at = self._context.now + self._settings.comment_after_s
        self._state = _State.ADMITTING
        self._deadline = inf  # the admission has its own
        # A future is not wrapped in a task: a cancellation could lose the call.
        pending = asyncio.ensure_future(got)
        self._pending = pending
        pending.add_done_callback(self._on_admitted)

    def _on_admitted(self, pending: asyncio.Future[UpstreamCall]) -> None:
        error = None if pending.cancelled() else pending.exception()
        call = None if error is not None or pending.cancelled() else pending.result()
        if pending is not self._pending:  # the client hung up meanwhile
            if call is not None:
                self._report(call, RelayFailure.CLIENT_GONE)
            return
        self._pending = None
        if call is None:
            return self._refuse(error or _FAILED[RelayFailure.CLOSED])
        self._call = call
        self._connect()

    # --- Sending the request to a replica.
    def _connect(self, *, fresh: bool = False) -> None:
        call, pool = self._call, self._context.pool
        assert call is not None
        target_pool = pool.of(call.target)
        upstream = None if fresh else target_pool.take()
        if upstream is not None:
            return self._send_on(upstream)
        self._state = _State.CONNECTING
        self._deadline = self._context.now + self._settings.connect_s
        pending = self.client.loop.create_task(pool.connect(target_pool), name="relay connect")
        self._pending = pending
        pending.add_done_callback(self._on_connected)

    def _on_connected(self, pending: asyncio.Task[UpstreamConnection]) -> None:
        error = None if pending.cancelled() else pending.exception()
        upstream = None if error is not None or pending.cancelled() else pending.result()
        if pending is not self._pending:  # it was given up meanwhile
            if upstream is not None:
                upstream.abort()
            return
        self._pending = None
        if upstream is not None:
            return self._send_on(upstream)
        if error is not None and not isinstance(error, OSError):
            target = str(cast(UpstreamCall, self._call).target)
            get_log().error("connect failed", request=self.name, target=target, exc_info=error)
        self._try_another(RelayFailure.UNREACHABLE)

    def _send_on(self, upstream: UpstreamConnection) -> None:
        call = self._call
        assert call is not None
        request = self.request
        body = request.body if call.body is None else call.body
        self._upstream = upstream
        self.call_lines = call.response_lines
        self.hides_usage = call.hides_usage
        self._state = _State.SENT
        now = self._context.now
        settings = self._settings
        self._deadline = now + settings.answer_s
        if self._comment_at == inf:
            self._comment_at = now + settings.comment_after_s
        head = request_head(
            call.path,
            upstream.target_pool.host,
            len(body),
            request.request_id,
            self._forwarded,
            call.request_lines,
        )
        self._sent = True
        upstream.send(self, head, body)
        if self.client.write_paused:
            self.pause()

    # --- What the upstream connection calls.
    def on_response(self, upstream: UpstreamConnection, payload: bytes, complete: bool) -> None:
        head = b""
        if self._state is not _State.RELAYING:
            if upstream.head.status in self._settings.retried_statuses and self._may_retry():
                return self._refused_by_replica(upstream, complete)
            head = self._begin(upstream)
        if complete:
            self._upstream = None
        else:  # set before the write, which may pause the stream
            self._deadline = self._context.now + self._settings.chunk_s
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
        if self._state is not _State.RELAYING or self._error_pieces is not None or not self.events:
            return False
        self._deadline = self._context.now + self._settings.chunk_s
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
        self._state = _State.RELAYING
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

    def _may_retry(self) -> bool:
        return self._attempts + 1 < self._settings.max_attempts

    def _refused_by_replica(self, upstream: UpstreamConnection, complete: bool) -> None:
        if not complete:
            upstream.abort()
        self._upstream = None
        self._status = upstream.head.status
        self._try_another(RelayFailure.REFUSED)

    def on_lost(self, upstream: UpstreamConnection, failure: RelayFailure) -> None:
        self._upstream = None
        if self._state is _State.RELAYING:
            return self._fail(failure)
        if failure is RelayFailure.LOST and upstream.uses > 1 and not upstream.received:
            # The connection was closed while it was idle, so the request was not read. A new connection shows whether
            # the replica can be reached.
            return self._connect(fresh=True)
        self._try_another(failure)

    # --- Failing.
    def _try_another(self, failure: RelayFailure) -> None:
        """The client has seen nothing of a response, so another replica may serve the request."""
        call = cast(UpstreamCall, self._call)
        self._call = None
        self._report(call, failure)
        self._status = 0
        self._sent = False
        self._attempts += 1
        if self._attempts >= self._settings.max_attempts:
            return self._refuse(_FAILED[failure])
        try:
            got = call.retry()
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._use(got)

    def _fail(self, failure: RelayFailure, err: TurnoutError | None = None) -> None:
        """Ends a request that the replica, or the relay, failed. What was begun must not look complete."""
        self._abort_work()
        if self._state is not _State.RELAYING or not self.begun:
            return self._refuse(err or _FAILED[failure], failure)
        if self.events:
            err = err or (_BROKE_OFF if failure is RelayFailure.LOST else _FAILED[failure])
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
        if self._state is not _State.ENDED:
            self._context.bodies.remove(self._account, len(self.request.body))
        self._context.requests.discard(self)
        self._state = _State.ENDED
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

    # --- Streams that must be kept open before there is a response.
    def _keep_open(self, now: float) -> None:
        if not self.begun:
            if not asks_for_stream(self.request.body):
                self._comment_at = inf
                return
            self.begin_stream()
        self._comment_at = now + self._settings.comment_every_s
        self.comment(b"waking" if self._state is _State.ADMITTING else b"waiting")

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
