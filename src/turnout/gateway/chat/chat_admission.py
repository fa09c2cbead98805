"""Stores the gateway to the streaming relay: who may ask, how much, and which replica answers."""

from collections.abc import Awaitable
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from turnout.domain.errors import Limited, TurnoutError
from turnout.domain.quotas import TenantShare
from turnout.domain.routing import affinity_of
from turnout.domain.serving import ReplicaId, Route
from turnout.domain.tasks import TenantId
from turnout.gateway.chat.chat_limits import ChatShares
from turnout.gateway.chat.chat_metrics import ChatMetrics
from turnout.gateway.chat.chat_usage import ChatUsage
from turnout.gateway.chat.direct import DirectRoutes
from turnout.gateway.chat.request_body import read_ask
from turnout.gateway.chat.routes_feed import RoutesFeed
from turnout.gateway.chat.switchboard import Seat, Switchboard
from turnout.gateway.key_ring import KeyRing, bearer, may_watch
from turnout.observe import get_log
from turnout.relay import RelayFailure, RelayOutcome, RelayRequest, Target, UpstreamCall
from turnout.schemas.relay_tokens import REPLICA_HEADER

_MAX_WAYS = 10_000

log = get_log()

# These speak against the replica; the others against the client or nobody.
_ITS_FAULT = frozenset(
    {
        RelayFailure.UNREACHABLE,
        RelayFailure.LOST,
        RelayFailure.BROKEN,
        RelayFailure.SILENT,
        RelayFailure.REFUSED,
    }
)


class ChatRequest:
    """What stays the same while a request goes from replica to replica. It holds nothing that must be given back."""

    __slots__ = ("affinity", "ask", "began", "body", "model", "purse", "tenant")

    def __init__(self, ask: RelayRequest, tenant: TenantId, purse: TenantShare, began: float) -> None:
        """The body is looked at only here, after the tenant's limits."""
        self.ask = ask
        self.tenant = tenant
        self.purse = purse
        self.began = began
        self.model, self.body = read_ask(ask.body)
        self.affinity = affinity_of(ask.body)


class ProxyRoute(NamedTuple):
    """How to reach a replica through its worker's door."""

    route: Route
    token: str
    target: Target
    lines: bytes


class ChatCall(UpstreamCall):
    """One request at one replica: it has a place there and a slot of the tenant's, and gives both back when the relay
    says it is over. If it goes `straight` to the engine it is counted there for as long, too."""

    __slots__ = ("_desk", "_first_at", "_place", "_request", "_straight", "_tried")

    def __init__(
        self, desk: "ChatAdmission", request: ChatRequest, place: Seat, tried: frozenset[ReplicaId]
    ) -> None:
        route = place.route
        body = request.body
        path = request.ask.path
        # Written out, as this is made for every request.
        straight = desk.straight.find(route.worker, route.replica)
        if straight is not None and path in straight.paths:
            straight.enter()
            self.target, self.lines = straight.target, straight.lines
        else:
            straight, way = None, desk.way(route)
            self.target, self.lines = way.target, way.lines
        self._straight = straight
        self.path = path
        self.body = body
        self.answer_lines = request.purse.header_lines
        self.hides_usage = body is not None
        self._desk = desk
        self._request = request
        self._place = place
        self._first_at = request.began
        self._tried = tried

    def first_byte(self) -> None:
        self._first_at = now = monotonic()
        self._desk.metrics.of(self._request.model).first.add(now - self._request.began)

    def finished(self, outcome: RelayOutcome) -> None:
        error = outcome.error
        failed = error is not None and error in _ITS_FAULT
        way = self._straight
        if way is not None:
            way.leave()
            if error is RelayFailure.UNREACHABLE:  # that speaks against the way, not yet against the replica
                way.blocked()
                failed = False
        self._place.release(failed=failed)
        request, usage = self._request, outcome.usage
        figures = self._desk.metrics.of(request.model)
        # Where the engine did not come to count, what it said counts: an event is a token, near enough.
        prompt, completion = usage or (0, outcome.events)
        if usage is not None:
            figures.counted_bytes += len(request.ask.body)
            figures.counted_prompt += prompt
        elif outcome.client_gone and outcome.asked:  # who hangs up pays for the prompt all the same
            prompt = figures.guess_prompt(len(request.ask.body))
        request.purse.leave(prompt + completion)
        if error is None or outcome.bytes_out or outcome.client_gone:
            uncounted = usage is None and outcome.status in (0, 200)
            self._desk.usage.add(request.tenant, request.model, prompt, completion, uncounted)
        said = error.value if error is not None else str(outcome.status)
        if failed:
            self._tried |= {self._place.route.replica}
            log.warning(
                "replica failed a request",
                request=request.ask.request_id.decode("latin-1"),
                model=request.model,
                replica=self._place.route.replica,
                failure=said,
            )
        now = monotonic()
        if way is not None:
            figures.straight += 1
        figures.finished(said, now - request.began, prompt, completion)
        if outcome.events > 1 and completion > 1:
            figures.pace.add((now - self._first_at) / (completion - 1))

    def retry(self) -> "UpstreamCall | Awaitable[UpstreamCall]":
        self._request.purse.stay()
        return self._desk.seat(self._request, self._tried)


class ChatAdmission:
    def __init__(
        self,
        keys: KeyRing,
        allowances: ChatShares,
        board: Switchboard,
        lines: RoutesFeed,
        usage: ChatUsage,
        metrics: ChatMetrics,
        ways: DirectRoutes,
    ) -> None:
        self._keys = keys
        self._allowances = allowances
        self._board = board
        self.lines = lines
        self.usage = usage
        self.metrics = metrics
        self.straight = ways
        self._ways: dict[ReplicaId, ProxyRoute] = {}

    def greet(self, authorization: bytes | None) -> Awaitable[object] | None:
        key = self._keys.remembered(authorization)
        if key is None:
            return self._keys.identify(bearer(authorization))
        may_watch(key)
        return None

    def admit(self, ask: RelayRequest) -> UpstreamCall | Awaitable[UpstreamCall]:
        try:
            return self._admit(ask)
        except TurnoutError as err:
            self.metrics.refused(err.code)
            raise

    def _admit(self, ask: RelayRequest) -> UpstreamCall | Awaitable[UpstreamCall]:
        began = monotonic()
        key = self._keys.remembered(ask.authorization)
        if key is None:
            return self._admit_slowly(bearer(ask.authorization), ask, began)
        purse = self._allowances.purse(may_watch(key).tenant)
        if purse is None:
            return self._admit_slowly(bearer(ask.authorization), ask, began)
        return self._enter(ask, key.tenant, purse, began)

    def seat(
        self, request: ChatRequest, tried: frozenset[ReplicaId]
    ) -> UpstreamCall | Awaitable[UpstreamCall]:
        """A ticket for a request that has a slot. The slot goes with the ticket; where there is none yet it is given
        back, and taken again by whoever waits: a coroutine that never runs would keep it."""
        try:
            place = self._board.take(request.model, request.affinity, tried)
        except BaseException:
            request.purse.leave()
            raise
        if place is None:
            request.purse.leave()
            return self._wait(request, tried)
        return ChatCall(self, request, place, tried)

    def way(self, route: Route) -> ProxyRoute:
        """Made once for each route: reading a URL costs more than choosing a replica."""
        token = self.lines.token(route.worker)
        way = self._ways.get(route.replica)
        if way is None or way.route is not route or way.token != token:
            if len(self._ways) >= _MAX_WAYS:
                self._ways.clear()
            lines = b"%b: %b\r\nauthorization: Bearer %b\r\n" % (
                REPLICA_HEADER,
                route.replica.encode(),
                token.encode(),
            )
            way = self._ways[route.replica] = ProxyRoute(route, token, _target(route.url), lines)
        return way

    def _enter(
        self, ask: RelayRequest, tenant: TenantId, purse: TenantShare, began: float
    ) -> UpstreamCall | Awaitable[UpstreamCall]:
        try:
            request = ChatRequest(ask, tenant, purse, began)
        except BaseException:
            purse.leave()
            raise
        return self.seat(request, frozenset())

    async def _admit_slowly(self, token: str, ask: RelayRequest, began: float) -> UpstreamCall:
        try:
            key = may_watch(await self._keys.identify(token))
            purse = await self._allowances.wait(key.tenant)
            got = self._enter(ask, key.tenant, purse, began)
        except TurnoutError as err:
            self.metrics.refused(err.code)
            raise
        return got if isinstance(got, UpstreamCall) else await got

    async def _wait(self, request: ChatRequest, tried: frozenset[ReplicaId]) -> UpstreamCall:
        request.purse.stay()
        try:
            place = await self._board.wait(request.model, request.tenant, request.affinity, tried)
        except BaseException as err:
            request.purse.leave()
            if isinstance(err, Limited):  # the line is full
                err.header_lines = request.purse.header_lines
            if isinstance(err, TurnoutError):
                self.metrics.refused(err.code)
            raise
        return ChatCall(self, request, place, tried)


def _target(url: str) -> Target:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls)
