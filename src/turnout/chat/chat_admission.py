"""Admits chat requests for the streaming relay: authenticate → limits → body → seat → upstream call.

`admit` does all of it without waiting where nothing has to be waited for. Where the key must be looked up, the tenant's
share refilled or the model woken, it returns a coroutine that does the same. The relay moves the bytes; this module must
not read an answer.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from time import monotonic, time

from turnout.chat.chat_limits import ChatShares
from turnout.chat.chat_metrics import ChatMetrics
from turnout.chat.chat_traces import ChatTrace, begin_chat
from turnout.chat.chat_usage import ChatUsage
from turnout.chat.direct import DirectRoutes
from turnout.chat.proxy_routes import ProxyRoutes
from turnout.chat.quota_rules import TenantShare
from turnout.chat.request_body import conversation_of, read_body, with_model
from turnout.chat.routes_feed import RoutesFeed
from turnout.chat.routing_rules import affinity_of
from turnout.chat.switchboard import Seat, Switchboard
from turnout.errors import Limited, TurnoutError
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.gateway.bodies import check_work
from turnout.gateway.json_bounds import SMALL_JSON_BYTES
from turnout.relay import Headers, RelayFailure, RelayOutcome, RelayRequest, UpstreamCall
from turnout.telemetry.log import get_log
from turnout.telemetry.request_tracer import RequestTracer
from turnout.telemetry.trace_rules import trace_field_of
from turnout.tenants.allowance_store import AllowanceStore
from turnout.tenants.budget_checks import BudgetChecks
from turnout.tenants.caller import Caller, known, require_user
from turnout.tenants.key_ring import KeyRing

log = get_log()

# The replica is to blame for these; the client or nobody for the others.
_REPLICA_FAULTS = frozenset(
    {
        RelayFailure.UNREACHABLE,
        RelayFailure.LOST,
        RelayFailure.BROKEN,
        RelayFailure.SILENT,
        RelayFailure.REFUSED,
    }
)


class ChatRequest:
    """What stays the same while a request goes from replica to replica. It holds nothing that must be given back.
    The body is read here, after the tenant's limits were checked. `trace` is None for nearly all requests."""

    __slots__ = (
        "affinity",
        "ask",
        "began",
        "body",
        "cold",
        "guest",
        "has_pictures",
        "hides_usage",
        "model",
        "share",
        "tenant",
        "trace",
    )

    def __init__(self, ask: RelayRequest, caller: Caller, share: TenantShare, began: float) -> None:
        self.ask = ask
        self.tenant = caller.tenant
        self.guest = caller.guest
        self.share = share
        self.began = began
        self.model, self.body, self.has_pictures = read_body(ask.body, ask.path)
        self.hides_usage = self.body is not None
        self.affinity = affinity_of(ask.body)
        self.trace: ChatTrace | None = None
        self.cold = False  # it waited for a model of which no replica was ready

    def conversation(self) -> bytes:
        return f"{self.tenant}\n".encode() + conversation_of(self.ask.body)

    def answered_by(self, version: str) -> None:
        self.model = version
        self.body = with_model(self.body or self.ask.body, version)


@dataclass(frozen=True, slots=True)
class ChatBounds:
    """What a request must stay within: its tenant's limits and budget, and what its person may ask for in a day."""

    shares: ChatShares
    budgets: BudgetChecks
    allowances: AllowanceStore


class ChatAdmission:
    def __init__(
        self,
        keys: KeyRing,
        bounds: ChatBounds,
        switchboard: Switchboard,
        routes: RoutesFeed,
        usage: ChatUsage,
        metrics: ChatMetrics,
        tracer: RequestTracer | None = None,
    ) -> None:
        self._keys = keys
        self._allowances = bounds.allowances
        self.budgets = bounds.budgets
        self._shares = bounds.shares
        self._switchboard = switchboard
        self.usage = usage
        self.metrics = metrics
        self.direct = DirectRoutes(routes.worker_urls)
        self.proxied = ProxyRoutes(routes.proxy_of)
        self._tracer = tracer

    def authenticate(self, authorization: bytes | None, headers: Headers) -> Awaitable[object] | None:
        caller = self._keys.recall("POST", authorization, headers)
        if caller is None:
            return self._identify(authorization, headers)
        require_user(caller)
        return None

    def account(self, authorization: bytes | None, headers: Headers) -> str:
        caller = self._keys.recall("POST", authorization, headers)
        return "" if caller is None else caller.turn

    async def _identify(self, authorization: bytes | None, headers: Headers, address: str = "") -> Caller:
        return require_user(known(await self._keys.identify("POST", authorization, headers, address)))

    def admit(self, ask: RelayRequest) -> UpstreamCall | Awaitable[UpstreamCall]:
        began = monotonic()
        try:
            caller = self._keys.recall("POST", ask.authorization, ask.headers)
            share = None
            if caller is not None and not caller.allowances and len(ask.body) <= SMALL_JSON_BYTES:
                ask.caller = require_user(caller)
                self.budgets.refuse_if_spent(caller.tenant)
                share = self._shares.enter(caller.tenant)
            if caller is None or share is None:
                return self._admit_later(ask, began)
            return self._read_and_seat(ask, caller, share, began)
        except TurnoutError as err:
            self.metrics.refused(err.code)
            raise

    async def _admit_later(self, ask: RelayRequest, began: float) -> UpstreamCall:
        """The same for a key that must be looked up, a share that must be refilled, a large body, or a person who may ask for so
        many a day."""
        try:
            ask.caller = caller = await self._identify(ask.authorization, ask.headers, ask.client)
            self.budgets.refuse_if_spent(caller.tenant)
            await check_work(ask.body)
            await self._allowances.spend(caller.allowances, "chats", time())
        except TurnoutError as err:
            self.metrics.refused(err.code)
            raise
        async with self._allowances.given_back_if_refused(caller.allowances, "chats", time()):
            try:
                share = await self._shares.wait_enter(caller.tenant)
                got = self._read_and_seat(ask, caller, share, began)
            except TurnoutError as err:
                self.metrics.refused(err.code)
                raise
            return got if isinstance(got, UpstreamCall) else await got

    def _read_and_seat(
        self, ask: RelayRequest, caller: Caller, share: TenantShare, began: float
    ) -> UpstreamCall | Awaitable[UpstreamCall]:
        """Goes on with a request that has entered its tenant's share."""
        try:
            request = ChatRequest(ask, caller, share, began)
            version = self._switchboard.serving(request.model, request.conversation)
            if version != request.model:
                request.answered_by(version)
            if request.has_pictures:
                self._switchboard.refuse_pictures(request.model)
        except BaseException:
            share.leave()
            raise
        if self._tracer is not None:
            request.trace = begin_chat(self._tracer, ask, request.model, caller.tenant, began)
        return self.seat(request, frozenset())

    def seat(
        self, request: ChatRequest, tried: frozenset[ReplicaId]
    ) -> UpstreamCall | Awaitable[UpstreamCall]:
        """An upstream call for a request that has entered its share. If it must wait, it leaves the share, and the
        coroutine enters it again: one that is never run would not give it back."""
        try:
            seat = self._switchboard.take(request.model, request.affinity, tried, request.guest)
        except BaseException as err:
            request.share.leave()
            if request.trace is not None:
                request.trace.refused(monotonic(), err)
            raise
        if seat is None:
            request.share.leave()
            return self._wait_seat(request, tried)
        return ChatCall(self, request, seat, tried)

    async def _wait_seat(self, request: ChatRequest, tried: frozenset[ReplicaId]) -> UpstreamCall:
        request.share.reenter()
        request.cold = request.cold or not self._switchboard.has_replica(request.model)
        try:
            seat = await self._switchboard.wait(
                request.model, request.tenant, request.affinity, tried, request.guest
            )
        except BaseException as err:
            request.share.leave()
            if isinstance(err, Limited):  # the queue is full
                err.header_lines = request.share.header_lines
            if isinstance(err, TurnoutError):
                self.metrics.refused(err.code)
            if request.trace is not None:
                request.trace.refused(monotonic(), err)
            raise
        if request.trace is not None:
            request.trace.seated(monotonic())
        return ChatCall(self, request, seat, tried)


def worker_of(call: UpstreamCall | None) -> WorkerId | None:
    """Where a call goes."""
    return call.worker if isinstance(call, ChatCall) else None


class ChatCall(UpstreamCall):
    """One request at one replica. It has a seat there and is counted in its tenant's share, and gives both back when
    the relay says that it is over. On a direct route it is counted there, too."""

    __slots__ = ("_admission", "_direct", "_first_at", "_request", "_seat", "_tried")

    def __init__(
        self, admission: ChatAdmission, request: ChatRequest, seat: Seat, tried: frozenset[ReplicaId]
    ) -> None:
        route = seat.route
        body = request.body
        path = request.ask.path
        # Without super().__init__: this is made for every request.
        direct = admission.direct.find(route.url, route.replica)
        if direct is not None and path in direct.paths:
            direct.enter()
            self.target, self.request_lines = direct.target, direct.lines
        else:
            direct, proxied = None, admission.proxied.find(route)
            self.target, self.request_lines = proxied.target, proxied.lines
        if request.trace is not None:
            self.request_lines += request.trace.line
        self.path = path
        self.body = body
        self.response_lines = request.share.header_lines + admission.budgets.header_lines(request.tenant)
        self.hides_usage = request.hides_usage
        self._admission = admission
        self._direct = direct
        self._request = request
        self._seat = seat
        self._first_at = request.began
        self._tried = tried
        admission.usage.seated(request.tenant, request.model)

    @property
    def worker(self) -> WorkerId:
        return self._seat.route.worker

    def first_byte(self) -> None:
        self._first_at = now = monotonic()
        figures, waited_s = self._admission.metrics.of(self._request.model), now - self._request.began
        (figures.first_cold if self._request.cold else figures.first).add(waited_s)

    def finished(self, outcome: RelayOutcome) -> None:
        error, direct = outcome.error, self._direct
        failed = error is not None and error in _REPLICA_FAULTS
        if direct is not None:
            direct.leave()
            if error is RelayFailure.UNREACHABLE:  # the replica may still be reached through the proxy
                direct.unreachable()
                failed = False
        self._seat.release(failed=failed)
        self._admission.usage.left(self._request.tenant, self._request.model)
        if failed:
            self._tried |= {self._seat.route.replica}
        self._account(outcome, failed)

    def retry(self) -> "UpstreamCall | Awaitable[UpstreamCall]":
        request = self._request
        request.share.reenter()
        if request.trace is not None:
            request.trace.again(monotonic())
        return self._admission.seat(request, self._tried)

    def _account(self, outcome: RelayOutcome, failed: bool) -> None:
        """Settles limits, usage and metrics, and says which replica failed."""
        request, usage, error = self._request, outcome.usage, outcome.error
        figures = self._admission.metrics.of(request.model)
        # Where the engine sent no count, each event is taken for a token.
        prompt, completion = usage or (0, outcome.events)
        if usage is not None:
            figures.counted_bytes += len(request.ask.body)
            figures.counted_prompt += prompt
        elif outcome.client_gone and outcome.sent:  # a client that hangs up pays for the prompt all the same
            prompt = figures.guess_prompt(len(request.ask.body))
        request.share.leave(prompt + completion)
        now, trace = monotonic(), request.trace
        if error is None or outcome.bytes_out or outcome.client_gone:
            uncounted = usage is None and outcome.status in (0, 200)
            self._admission.usage.add(request.tenant, request.model, prompt, completion, uncounted)
        ended = error.value if error is not None else str(outcome.status)
        if failed:
            log.warning(
                "replica failed a request",
                request=request.ask.request_id.decode("latin-1"),
                model=request.model,
                replica=self._seat.route.replica,
                failure=ended,
                **(trace_field_of(request.ask.headers) if trace is None else {"trace": trace.trace_id}),
            )
        if trace is not None:
            route, first_at = self._seat.route, self._first_at
            first = None if first_at == request.began else first_at
            trace.finished(now, outcome, first, route.replica, route.worker, self.target)
        if self._direct is not None:
            figures.direct += 1
        figures.finished(ended, now - request.began, prompt, completion)
        if outcome.events > 1 and completion > 1:
            figures.pace.add((now - self._first_at) / (completion - 1))
