"""A worker's own door: through it gateways reach the worker's replicas, and nothing else of the machine.

`ProxyDoor` decides about one request; the streaming relay that carries it is wired to it from outside. `control_app`
is the rest of the port: health, the proof of who we are, the log of a replica, and the tallies of gateways that go
straight to engines.
"""

import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from turnout.domain.error_table import describe
from turnout.domain.errors import Limited, NotFound, TurnoutError, Unauthorized, Unavailable
from turnout.engines.engine_servers import relay_paths
from turnout.schemas.direct_messages import GATEWAY_HEADER, TALLY_PATH
from turnout.schemas.relay_tokens import PROBE_PATH
from turnout.worker.direct_access import DirectAccess
from turnout.worker.replica_owner import InFlight
from turnout.worker.replica_set import ReplicaSet

PREFIX = "/replicas/"
_MAX_PROBE_CHARS = 100
_MAX_NAME_CHARS = 100
_REFUSED = 1008  # WebSocket's "policy violation"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """Where a request goes. `visit` counts it as under way until its `end` is called, once or more often."""

    address: str
    path: str
    visit: InFlight


class ProxyDoor:
    """`token` gives what gateways must show; None: not registered yet, which lets nobody in. `prove` answers a probe."""

    def __init__(
        self, hands: ReplicaSet, token: Callable[[], str | None], prove: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._hands = hands
        self._token = token
        self.prove = prove

    def admit(self, target: str, authorization: str | None) -> Admitted:
        """Lets a POST to `/replicas/{id}/v1/…` in; see `admit_to`."""
        self.check(authorization)
        return self.admit_to(*split_target(target), authorization)

    def admit_to(self, replica_id: str, path: str, authorization: str | None) -> Admitted:
        """Lets a request for one replica in.

        Raises Unauthorized, NotFound (a path that is not the engine's dialect) and Unavailable (the replica is not
        here, or takes no requests now): a worker that was restarted has none of those that gateways still know, and
        what is unavailable they look for elsewhere.
        """
        self.check(authorization)
        try:
            replica = self._hands.find(replica_id)
        except NotFound as err:
            raise Unavailable(err.message, code=err.code) from err
        if path not in relay_paths(replica.model.engine):
            raise NotFound(
                f"{path[:80]!r} is not a path of {replica.model.engine} engines", code="path_not_allowed"
            )
        visit = replica.enter()
        return Admitted(visit.address, path, visit)

    def check(self, authorization: str | None) -> None:
        token = self._token()
        if token is None:
            raise Unavailable("this worker has not registered yet", code="worker_not_ready")
        scheme, _, shown = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), token.encode()):
            raise Unauthorized("this door is for gateways", code="invalid_token")

    def log_of(self, replica_id: str, authorization: str | None) -> str:
        """The end of what a replica's engine printed. Raises Unauthorized, NotFound."""
        self.check(authorization)
        return self._hands.find(replica_id).log_tail()

    def count(self) -> int:
        return len(self._hands.reports())


def split_target(target: str) -> tuple[str, str]:
    """(replica, the engine's path). Only plain paths: nothing is decoded, so nothing can hide behind an escape."""
    if not target.startswith(PREFIX):
        raise NotFound(f"{target[:80]!r} is not a path of this worker")
    replica, slash, rest = target.removeprefix(PREFIX).partition("/")
    if not replica or not slash or not rest:
        raise NotFound(f"{target[:80]!r} names no replica and path")
    return replica, f"/{rest}"


def control_app(door: ProxyDoor, tallies: DirectAccess) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """ASGI: `GET /health`, `GET /probe/{nonce}`; with the token `GET /replicas/{id}/log` and the WebSocket `/tally`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await _tally(door, tallies, scope, receive, send)
            return
        try:
            status, kind, body = _answer(door, scope)
        except TurnoutError as err:
            status, kind, body = err.status, "application/json", describe(err).body
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def _answer(door: ProxyDoor, scope: Scope) -> tuple[int, str, bytes]:
    path = str(scope["path"])
    if scope["method"] == "GET" and path == "/health":
        return 200, "application/json", json.dumps({"status": "ok", "replicas": door.count()}).encode()
    if scope["method"] == "GET" and path.startswith(PROBE_PATH) and len(path) < _MAX_PROBE_CHARS:
        return 200, "text/plain; charset=utf-8", door.prove(path.removeprefix(PROBE_PATH)).encode()
    if scope["method"] == "GET" and path.startswith(PREFIX) and path.endswith("/log"):
        replica = path.removeprefix(PREFIX).removesuffix("/log")
        log = door.log_of(replica, _header(scope, "authorization"))
        return 200, "text/plain; charset=utf-8", log.encode()
    raise NotFound(f"{path[:80]!r} is not a path of this worker")


async def _tally(door: ProxyDoor, tallies: DirectAccess, scope: Scope, receive: Receive, send: Send) -> None:
    gateway = _header(scope, GATEWAY_HEADER) or ""
    await receive()  # that it connects
    try:
        door.check(_header(scope, "authorization"))
    except TurnoutError:
        gateway = ""
    if scope["path"] != TALLY_PATH or not 0 < len(gateway) <= _MAX_NAME_CHARS:
        return await send({"type": "websocket.close", "code": _REFUSED})
    await send({"type": "websocket.accept"})
    with contextlib.suppress(Limited):  # it is hung up on
        await tallies.hold(gateway, _DirectChannel(receive, send))


class _DirectChannel:
    """A WebSocket of ASGI's. Both calls raise Unavailable once it is closed."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def send(self, message: bytes) -> None:
        try:
            await self._send({"type": "websocket.send", "bytes": message})
        except OSError as err:
            raise Unavailable("it hung up") from err

    async def receive(self) -> bytes:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise Unavailable("it hung up")
        return message.get("bytes") or b""


def _header(scope: Scope, name: str) -> str | None:
    sought = name.encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == sought), None)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
