"""One request on a hot path, from the complete request to a replica that answers it.

An exchange is admitted, connects to the replica that it was given and sends the request. Until the head of a response has
come it may try other replicas.
"""

import asyncio
from collections.abc import Awaitable
from math import inf
from typing import cast

from turnout.relay.admission import RelayFailure, UpstreamCall
from turnout.relay.framing import request_head
from turnout.relay.incoming import asks_for_stream
from turnout.relay.relayed_response import FAILURES, ExchangeState, RelayedResponse
from turnout.relay.upstream import UpstreamConnection
from turnout.telemetry.log import get_log


class Exchange(RelayedResponse):
    _attempts = 0

    # --- What the client's connection calls.
    def start(self) -> None:
        self._context.requests.add(self)
        try:
            got = self._context.admission.admit(self.request)
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._use(got)

    def tick(self, now: float) -> None:
        if now >= self._comment_at:
            self._keep_open(now)
        if now < self._deadline:
            return
        self._deadline = inf
        if self._state is ExchangeState.CONNECTING:
            self._abort_work()
            self._try_another(RelayFailure.UNREACHABLE)
        else:
            self._fail(RelayFailure.SILENT)

    # --- What whoever watches over replicas calls.
    @property
    def quiet_s(self) -> float:
        if self._upstream is None or self._deadline == inf:
            return 0.0
        relaying, limits = self._state is ExchangeState.RELAYING, self._limits
        return (limits.chunk_s if relaying else limits.answer_s) - (self._deadline - self._context.now)

    def lose_replica(self) -> None:
        if self._state is ExchangeState.RELAYING:
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
            self._comment_at = self._context.now + self._limits.comment_after_s
        self._state = ExchangeState.ADMITTING
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
            return self._refuse(error or FAILURES[RelayFailure.CLOSED])
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
        self._state = ExchangeState.CONNECTING
        self._deadline = self._context.now + self._limits.connect_s
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
            get_log().error("connection to upstream failed", request=self.name, target=target, exc_info=error)
        self._try_another(RelayFailure.UNREACHABLE)

    def _send_on(self, upstream: UpstreamConnection) -> None:
        call = self._call
        assert call is not None
        request = self.request
        body = request.body if call.body is None else call.body
        self._upstream = upstream
        self.call_lines = call.response_lines
        self.hides_usage = call.hides_usage
        self._state = ExchangeState.SENT
        now = self._context.now
        limits = self._limits
        self._deadline = now + limits.answer_s
        if self._comment_at == inf:
            self._comment_at = now + limits.comment_after_s
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
        if self._state is ExchangeState.RELAYING:
            return self._relay(upstream, b"", payload, complete)
        status, limits = upstream.head.status, self._limits
        if status in limits.retried_statuses and self._attempts + 1 < limits.max_attempts:
            if not complete:
                upstream.abort()
            self._upstream = None
            self._status = status
            return self._try_another(RelayFailure.REFUSED)
        self._relay(upstream, self._begin(upstream), payload, complete)

    def on_lost(self, upstream: UpstreamConnection, failure: RelayFailure) -> None:
        self._upstream = None
        if self._state is ExchangeState.RELAYING:
            return self._fail(failure)
        if failure is RelayFailure.LOST and upstream.uses > 1 and not upstream.received:
            # The connection was closed while it was idle, so the request was not read. A new connection shows whether
            # the replica can be reached.
            return self._connect(fresh=True)
        self._try_another(failure)

    def _try_another(self, failure: RelayFailure) -> None:
        """The client has seen nothing of a response, so another replica may serve the request."""
        call = cast(UpstreamCall, self._call)
        self._call = None
        self._report(call, failure)
        self._status = 0
        self._sent = False
        self._attempts += 1
        if self._attempts >= self._limits.max_attempts:
            return self._refuse(FAILURES[failure])
        try:
            got = call.retry()
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._use(got)

    # --- Streams that must be kept open before there is a response.
    def _keep_open(self, now: float) -> None:
        if not self.begun:
            if not asks_for_stream(self.request.body):
                self._comment_at = inf
                return
            self.begin_stream()
        self._comment_at = now + self._limits.comment_every_s
        self.comment(b"waking" if self._state is ExchangeState.ADMITTING else b"waiting")
