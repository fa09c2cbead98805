"""A worker's own door: through it gateways reach the worker's replicas, and nothing else of the machine.

`Door` decides about one request; the streaming relay that carries it is wired to it from outside. `control_app`
is the rest of the port: health, the proof of who we are, and the log of a replica.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from turnout.domain.errors import NotFound, TurnoutError, Unauthorized, Unavailable
from turnout.engines.servers import relay_paths
from turnout.wire.tokens import PROBE_PATH
from turnout.worker.hands import Hands
from turnout.worker.replicas import Visit

PREFIX = "/replicas/"
_MAX_PROBE_CHARS = 100

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """Where a request goes. `visit` counts it as under way until its `end` is called, once or more often."""

    address: str
    path: str
    visit: Visit


class Door:
    """`token` gives what gateways must show; None: not registered yet, which lets nobody in. `prove` answers a probe."""

    def __init__(
        self, hands: Hands, token: Callable[[], str | None], prove: Callable[[str], str] = lambda _: ""
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


def control_app(door: Door) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """ASGI: `GET /health`, `GET /probe/{nonce}`, and `GET /replicas/{id}/log` with the token."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            status, kind, body = _answer(door, scope)
        except TurnoutError as err:
            status, kind, body = err.status, "application/json", error_body(err)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def _answer(door: Door, scope: Scope) -> tuple[int, str, bytes]:
    path = str(scope["path"])
    if scope["method"] == "GET" and path == "/health":
        return 200, "application/json", json.dumps({"status": "ok", "replicas": door.count()}).encode()
    if scope["method"] == "GET" and path.startswith(PROBE_PATH) and len(path) < _MAX_PROBE_CHARS:
        return 200, "text/plain; charset=utf-8", door.prove(path.removeprefix(PROBE_PATH)).encode()
    if scope["method"] == "GET" and path.startswith(PREFIX) and path.endswith("/log"):
        shown = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), None)
        replica = path.removeprefix(PREFIX).removesuffix("/log")
        return 200, "text/plain; charset=utf-8", door.log_of(replica, shown).encode()
    raise NotFound(f"{path[:80]!r} is not a path of this worker")


def error_body(err: TurnoutError) -> bytes:
    error = {"message": err.message, "type": err.kind, "param": err.param, "code": err.code}
    return json.dumps({"error": error}).encode()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
