"""One request on a hot path, from the whole request to the end of its answer.

An exchange is the only owner of its ticket, and gives it exactly one outcome. Until the head of an answer has come
it may go from replica to replica; from then on the client sees that one answer, or is told that it broke.
"""

import asyncio
import json
import re
from collections.abc import Awaitable
from enum import Enum, auto
from math import inf
from typing import cast

from turnout.domain.errors import TurnoutError, Unavailable
from turnout.observe import get_log
from turnout.relay import error_responses
from turnout.relay.admission import Admission, RelayFailure, RelayOutcome, UpstreamCall
from turnout.relay.batching import ReadBatcher, wants_rest
from turnout.relay.client_response import ClientResponse, ClientSide
from turnout.relay.framing import Head, request_head
from turnout.relay.relay_settings import RelaySettings
from turnout.relay.token_usage import read_usage
from turnout.relay.upstream import ConnectionPool, UpstreamConnection

_MAX_PROBLEM_BYTES = 64 * 1024  # of an engine's error that must become an event
_ASKS_FOR_STREAM = re.compile(rb'"stream"\s*:\s*true')

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


class RelayContext:
    """What all exchanges of a relay share. `response_lines` stand in the head of every answer; `now` is the time at the
    last tick, which is near enough for deadlines."""

    def __init__(self, desk: Admission, settings: RelaySettings, pool: ConnectionPool) -> None:
        self.desk = desk
        self.settings = settings
        self.pool = pool
        self.rests = ReadBatcher()
        self.response_lines = b"".join(f"{n}: {v}\r\n".encode() for n, v in settings.response_headers)
        self.now = 0.0


class _State(Enum):
    ADMITTING = auto()
    CONNECTING = auto()
    ASKED = auto()
    RELAYING = auto()
    ENDED = auto()


class Exchange(ClientResponse):
    """Extends the client's side instead of holding it: one object less for each request."""

    _state = _State.ADMITTING
    _ticket: UpstreamCall | None = None
    _link: UpstreamConnection | None = None
    _pending: asyncio.Future[UpstreamCall] | asyncio.Task[UpstreamConnection] | None = None
    _attempts = 0
    _deadline = inf
    _beat_at = inf
    _problem: list[bytes] | None = None  # what an engine says that has to become an event
    _status = 0
    _asked = False  # the present replica has the request
    _streamed_at = -inf
    _stream_began = inf

    def __init__(
        self, client: ClientSide, shared: RelayContext, head: Head, body: bytes, request_id: bytes
    ) -> None:
        ClientResponse.__init__(self, client, head, body, request_id, shared.response_lines)
        self._forwarded = head.forwarded
        self._shared = shared
        self._settings = shared.settings

    @property
    def name(self) -> str:
        """What logs call it, here and at the replica."""
        return self.ask.request_id.decode("latin-1")

    # --- What the client's connection calls.
    def start(self) -> None:
        """It is this request's turn."""
        try:
            got = self._shared.desk.admit(self.ask)
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._take(got)

    def client_lost(self) -> None:
        self._end_with(RelayFailure.CLIENT_GONE)

    def hold(self) -> None:
        """The client does not keep up."""
        if self._link is not None:
            self._link.hold()
            self._deadline = inf

    def go_on(self) -> None:
        if self._link is not None:
            self._link.go_on()
            settings = self._settings
            limit_s = settings.chunk_s if self._state is _State.RELAYING else settings.answer_s
            self._deadline = self._shared.now + limit_s

    def tick(self, now: float) -> None:
        if now >= self._beat_at:
            self._beat(now)
        if now < self._deadline:
            return
        self._deadline = inf
        if self._state is _State.CONNECTING:
            self._drop()
            self._go_elsewhere(RelayFailure.UNREACHABLE)
        else:
            self._fail(RelayFailure.SILENT)

    def close(self) -> None:
        """The relay is shut down."""
        self._fail(RelayFailure.CLOSED)

    # --- Admission.
    def _take(self, got: UpstreamCall | Awaitable[UpstreamCall]) -> None:
        if isinstance(got, UpstreamCall):
            self._ticket = got
            return self._send()
        if self._beat_at == inf:
            self._beat_at = self._shared.now + self._settings.grace_s
        self._state = _State.ADMITTING
        self._deadline = inf  # the desk has its own
        # A future is used as it is: to wrap it in a task could lose a ticket to a cancellation.
        pending = asyncio.ensure_future(got)
        self._pending = pending
        pending.add_done_callback(self._admitted)

    def _admitted(self, pending: asyncio.Future[UpstreamCall]) -> None:
        error = None if pending.cancelled() else pending.exception()
        ticket = None if error is not None or pending.cancelled() else pending.result()
        if pending is not self._pending:  # the client hung up in the meantime
            if ticket is not None:
                self._settle(ticket, RelayFailure.CLIENT_GONE)
            return
        self._pending = None
        if ticket is None:
            return self._refuse(error or _FAILED[RelayFailure.CLOSED])
        self._ticket = ticket
        self._send()

    # --- The way to a replica.
    def _send(self, *, fresh: bool = False) -> None:
        ticket, pool = self._ticket, self._shared.pool
        assert ticket is not None
        lane = pool.lane(ticket.target)
        link = None if fresh else lane.take()
        if link is not None:
            return self._ask_on(link)
        self._state = _State.CONNECTING
        self._deadline = self._shared.now + self._settings.connect_s
        pending = self.client.loop.create_task(pool.connect(lane), name="relay connect")
        self._pending = pending
        pending.add_done_callback(self._connected)

    def _connected(self, pending: asyncio.Task[UpstreamConnection]) -> None:
        error = None if pending.cancelled() else pending.exception()
        link = None if error is not None or pending.cancelled() else pending.result()
        if pending is not self._pending:  # it was given up in the meantime
            if link is not None:
                link.drop()
            return
        self._pending = None
        if link is not None:
            return self._ask_on(link)
        if error is not None and not isinstance(error, OSError):
            target = str(cast(UpstreamCall, self._ticket).target)
            get_log().error("connect failed", request=self.name, target=target, exc_info=error)
        self._go_elsewhere(RelayFailure.UNREACHABLE)

    def _ask_on(self, link: UpstreamConnection) -> None:
        ticket = self._ticket
        assert ticket is not None
        ask = self.ask
        body = ask.body if ticket.body is None else ticket.body
        self._link = link
        self.ticket_lines = ticket.answer_lines
        self.hides_usage = ticket.hides_usage
        self._state = _State.ASKED
        now = self._shared.now
        settings = self._settings
        self._deadline = now + settings.answer_s
        if self._beat_at == inf:
            self._beat_at = now + settings.grace_s
        head = request_head(
            ticket.path, link.lane.host, len(body), ask.request_id, self._forwarded, ticket.lines
        )
        self._asked = True
        link.ask(self, head, body)
        if self.client.write_paused:
            self.hold()

    # --- What the link calls.
    def arrived(self, link: UpstreamConnection, payload: bytes, complete: bool) -> None:
        head = b""
        if self._state is not _State.RELAYING:
            if link.head.status in self._settings.retried_statuses and self._may_retry():
                return self._turned_away(link, complete)
            head = self._begin(link)
        if complete:
            self._link = None
        else:  # set before the write, which may find that the client does not keep up
            self._deadline = self._shared.now + self._settings.chunk_s
        if payload and self.bytes_out == 0 and self._ticket is not None:
            try:
                self._ticket.first_byte()
            except Exception as err:  # noqa: BLE001 - the desk's mistake must not keep others from their answers
                get_log().error("ticket failed", request=self.name, exc_info=err)
        if self._problem is not None:
            return self._collect(self._problem, payload, complete)
        if not complete:
            return self.pass_on(head, payload, last=False)
        if self.events and link.head.until_close and b"[DONE]" not in self.tail() + payload:
            # Such a stream ends with its connection, and so does that of an engine that was killed.
            self.pass_on(head, payload, last=False)
            return self._fail(RelayFailure.LOST)
        self.pass_on(head, payload, last=True)
        self._finish(None)

    def streamed(self, chunks: bytes, size: int) -> bool:
        if self._state is not _State.RELAYING or self._problem is not None or not self.events:
            return False
        self._deadline = self._shared.now + self._settings.chunk_s
        if not self.pass_on_chunks(chunks, size):
            return False
        loop = self.client.loop
        now, before = loop.time(), self._streamed_at
        if before < 0:
            self._stream_began = now
        self._streamed_at = now
        if self._link is not None and wants_rest(now - before, now - self._stream_began):
            self._link.hold()
            self._shared.rests.add(self, loop)
        return True

    def rested(self) -> None:
        if self._link is not None and not self.client.write_paused:
            self._link.go_on()

    def _begin(self, link: UpstreamConnection) -> bytes:
        """The answer will be this one. Its head, unless a stream was begun already."""
        self._state = _State.RELAYING
        self._beat_at = inf
        self._status = link.head.status
        if not self.begun:
            return self.begin(link)
        if link.head.status != 200 or not link.head.events:
            self._problem = []
        return b""

    def _may_retry(self) -> bool:
        return self._attempts + 1 < self._settings.max_attempts

    def _turned_away(self, link: UpstreamConnection, complete: bool) -> None:
        if not complete:
            link.drop()
        self._link = None
        self._status = link.head.status
        self._go_elsewhere(RelayFailure.REFUSED)

    def lost(self, link: UpstreamConnection, failure: RelayFailure) -> None:
        self._link = None
        if self._state is _State.RELAYING:
            return self._fail(failure)
        if failure is RelayFailure.LOST and link.uses > 1 and not link.heard:
            # It had been closed while it was idle; the request was not read. A new one tells the truth.
            return self._send(fresh=True)
        self._go_elsewhere(failure)

    # --- Failing.
    def _go_elsewhere(self, failure: RelayFailure) -> None:
        """Nothing of an answer was shown to the client: another replica may do better."""
        ticket = cast(UpstreamCall, self._ticket)
        self._ticket = None
        self._settle(ticket, failure)
        self._status = 0
        self._asked = False
        self._attempts += 1
        if self._attempts >= self._settings.max_attempts:
            return self._refuse(_FAILED[failure])
        try:
            got = ticket.retry()
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            return self._refuse(err)
        self._take(got)

    def _fail(self, failure: RelayFailure) -> None:
        """Ends it because of the replica, or of us. What was begun must not look whole."""
        self._drop()
        if self._state is not _State.RELAYING:
            return self._refuse(_FAILED[failure], failure)
        if self.events:
            err = _BROKE_OFF if failure is RelayFailure.LOST else _FAILED[failure]
            self.end_with_event(error_responses.explain(err)[2])
            return self._finish(failure)
        self._end_with(failure)
        self.client.cut()

    def _refuse(self, err: BaseException, failure: RelayFailure | None = None) -> None:
        """Answers with an error; nothing of an engine's answer was shown."""
        if not isinstance(err, TurnoutError):
            path = self.ask.path.decode(errors="replace")
            get_log().error("request failed", request=self.name, path=path, exc_info=err)
            err = TurnoutError("")
        self.refuse(*error_responses.explain(err))
        self._finish(failure)

    def _drop(self) -> None:
        """Lets go of whatever is under way for it."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.drop()

    def _end_with(self, failure: RelayFailure) -> None:
        """Ends it without a word to the client."""
        self._drop()
        self._state = _State.ENDED
        self._deadline = self._beat_at = inf
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._settle(ticket, failure)

    def _finish(self, failure: RelayFailure | None) -> None:
        self._state = _State.ENDED
        self._deadline = self._beat_at = inf
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._settle(ticket, failure)
        self.client.ended(self.keep_alive)

    def _settle(self, ticket: UpstreamCall, failure: RelayFailure | None) -> None:
        usage = read_usage(self.tail()) if self.bytes_out else None
        try:
            ticket.finished(
                RelayOutcome(self._status, self.bytes_out, usage, failure, self.events_out, self._asked)
            )
        except Exception as err:  # noqa: BLE001 - the desk's mistake must not keep others from their answers
            get_log().error("ticket failed", request=self.name, exc_info=err)

    # --- Streams that must be kept open before there is an answer.
    def _beat(self, now: float) -> None:
        if not self.begun:
            if not _wants_stream(self.ask.body):
                self._beat_at = inf
                return
            self.begin_stream()
        self._beat_at = now + self._settings.beat_s
        self.comment(b"waking" if self._state is _State.ADMITTING else b"waiting")

    def _collect(self, said: list[bytes], payload: bytes, complete: bool) -> None:
        """An engine's error, or an answer that is no stream, after a stream was begun: it becomes an event."""
        said.append(payload)
        if not complete and sum(map(len, said)) < _MAX_PROBLEM_BYTES:
            return
        self._drop()
        if self._status == 200:
            self.end_with_event(error_responses.explain(_NO_STREAM)[2])
        else:
            problem = error_responses.foreign_problem(self._status, b"".join(said)[:_MAX_PROBLEM_BYTES])
            self.end_with_event(problem)
        self._finish(None)


def _wants_stream(body: bytes) -> bool:
    """Only asked of requests that wait long: the pattern is a guess, the parser knows."""
    if _ASKS_FOR_STREAM.search(body) is None:
        return False
    try:
        asked = json.loads(body)
    except ValueError:
        return False
    return isinstance(asked, dict) and cast("dict[str, object]", asked).get("stream") is True
