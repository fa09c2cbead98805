"""Wires the gateway's switchboard to the streaming relay: who may ask, which replica answers."""

import json
from collections.abc import Awaitable
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

from turnout.adapters.relay import Ask, Failure, Outcome, Target, Ticket
from turnout.domain.errors import InvalidRequest, Unauthorized
from turnout.domain.routing import affinity_of
from turnout.domain.serving import ReplicaId
from turnout.gateway.auth import KeyRing, may_watch
from turnout.gateway.chat_metrics import ChatMetrics
from turnout.gateway.lines import Lines
from turnout.gateway.switchboard import Place, Switchboard
from turnout.wire.tokens import REPLICA_HEADER

# These speak against the replica; the others against the client or nobody.
_ITS_FAULT = frozenset({Failure.UNREACHABLE, Failure.LOST, Failure.BROKEN, Failure.SILENT, Failure.REFUSED})


class ChatTicket(Ticket):
    """One request at one replica; its place is given back when the relay says it is over."""

    __slots__ = ("_affinity", "_began", "_desk", "_place", "_tried")

    def __init__(
        self,
        desk: "GatewayDesk",
        place: Place,
        path: bytes,
        affinity: bytes,
        tried: frozenset[ReplicaId],
        began: float,
    ) -> None:
        route = place.route
        headers = (
            (REPLICA_HEADER, route.replica.encode()),
            (b"authorization", b"Bearer " + desk.lines.token(route.worker).encode()),
        )
        super().__init__(_target(route.url), path, headers)
        self._desk = desk
        self._place = place
        self._affinity = affinity
        self._tried = tried | {route.replica}
        self._began = began

    def first_byte(self) -> None:
        self._desk.metrics.first_byte(self._place.model, monotonic() - self._began)

    def finished(self, outcome: Outcome) -> None:
        self._place.release(failed=outcome.error in _ITS_FAULT)
        said = outcome.error.value if outcome.error else str(outcome.status)
        used = (outcome.usage.prompt_tokens, outcome.usage.completion_tokens) if outcome.usage else None
        self._desk.metrics.finished(self._place.model, said, monotonic() - self._began, used)

    def retry(self) -> "Ticket | Awaitable[Ticket]":
        return self._desk.seat(self._place.model, self.path, self._affinity, self._tried, self._began)


class GatewayDesk:
    def __init__(self, keys: KeyRing, board: Switchboard, lines: Lines, metrics: ChatMetrics) -> None:
        self._keys = keys
        self._board = board
        self.lines = lines
        self.metrics = metrics

    def admit(self, ask: Ask) -> Ticket | Awaitable[Ticket]:
        began = monotonic()
        token = _bearer(ask.authorization)
        key = self._keys.remembered(token)
        if key is None:
            return self._look_up_and_admit(token, ask, began)
        may_watch(key)
        return self.seat(_model_in(ask.body), ask.path, affinity_of(ask.body), frozenset(), began)

    def seat(
        self, model: str, path: bytes, affinity: bytes, tried: frozenset[ReplicaId], began: float
    ) -> Ticket | Awaitable[Ticket]:
        place = self._board.take(model, affinity, tried)
        if place is None:
            return self._wait(model, path, affinity, tried, began)
        return ChatTicket(self, place, path, affinity, tried, began)

    async def _look_up_and_admit(self, token: str, ask: Ask, began: float) -> Ticket:
        may_watch(await self._keys.identify(token))
        return await self._wait(_model_in(ask.body), ask.path, affinity_of(ask.body), frozenset(), began)

    async def _wait(
        self, model: str, path: bytes, affinity: bytes, tried: frozenset[ReplicaId], began: float
    ) -> Ticket:
        place = await self._board.wait(model, affinity, tried)
        return ChatTicket(self, place, path, affinity, tried, began)


def _bearer(authorization: bytes | None) -> str:
    scheme, _, token = (authorization or b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Unauthorized("Give an API key: 'Authorization: Bearer tk-…'.", code="missing_api_key")
    return token.strip().decode("latin-1")


def _model_in(body: bytes) -> str:
    try:
        content: object = json.loads(body)
    except ValueError as err:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from err
    model = cast("dict[str, Any]", content).get("model") if isinstance(content, dict) else None
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must name a model.", "model", "missing")
    return model


def _target(url: str) -> Target:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return Target(parts.hostname or "", parts.port or (443 if tls else 80), tls)
