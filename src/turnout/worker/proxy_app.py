"""What a worker's port serves besides relayed requests: health, the proof of its identity, logs of replicas, and the
WebSocket of gateways that send requests directly to engines."""

import contextlib
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from turnout.error_table import describe
from turnout.errors import Limited, NotFound, TurnoutError
from turnout.worker.direct_access import DirectAccess
from turnout.worker.direct_messages import DIRECT_PATH, GATEWAY_HEADER
from turnout.worker.peer_connections import WebSocketChannel
from turnout.worker.proxy_admission import ProxyAdmission
from turnout.worker.relay_tokens import PROBE_PATH
from turnout.worker.replica_set import ReplicaSet

_MAX_PROBE_CHARS = 100
_MAX_NAME_CHARS = 100
_REFUSED = 1008  # WebSocket's "policy violation"


def control_app(
    replicas: ReplicaSet,
    admission: ProxyAdmission,
    direct: DirectAccess,
    prove: Callable[[str], str],
    loops: Callable[[], Mapping[str, str]] = dict,
) -> Starlette:
    """`GET /health`, `GET /probe/{nonce}`; with the relay token `GET /replicas/{id}/log` and the WebSocket `/tally`.

    `prove` answers a probe; `loops` says how the worker's background loops are.
    """

    async def health(request: Request) -> Response:
        states = loops()
        status = "ok" if all(state == "ok" for state in states.values()) else "degraded"
        return JSONResponse({"status": status, "replicas": len(replicas.reports()), "loops": states})

    async def probe(request: Request) -> Response:
        nonce: str = request.path_params["nonce"]
        if len(nonce) > _MAX_PROBE_CHARS:
            raise HTTPException(404)
        return PlainTextResponse(prove(nonce))

    async def log(request: Request) -> Response:
        admission.check(_authorization(request))
        return PlainTextResponse(replicas.find(request.path_params["replica"]).log_tail())

    async def direct_session(socket: WebSocket) -> None:
        gateway = socket.headers.get(GATEWAY_HEADER, "")
        try:
            admission.check(_authorization(socket))
        except TurnoutError:
            gateway = ""
        if not 0 < len(gateway) <= _MAX_NAME_CHARS:
            return await socket.close(_REFUSED)
        await socket.accept()
        with contextlib.suppress(Limited):  # the connection is closed
            await direct.hold(gateway, WebSocketChannel(socket))

    return Starlette(
        routes=[
            Route("/health", health),
            Route(PROBE_PATH + "{nonce}", probe),
            Route("/replicas/{replica}/log", log),
            WebSocketRoute(DIRECT_PATH, direct_session),
        ],
        exception_handlers={TurnoutError: _on_error, HTTPException: _on_unknown_path},
    )


def _authorization(request: HTTPConnection) -> bytes | None:
    shown = request.headers.get("authorization")
    return shown.encode("latin-1") if shown is not None else None


def _on_error(request: Request, err: Exception) -> Response:
    assert isinstance(err, TurnoutError)
    answer = describe(err)
    return Response(answer.body, answer.status, answer.headers, "application/json")


def _on_unknown_path(request: Request, err: Exception) -> Response:
    return _on_error(request, NotFound(f"{request.url.path[:80]!r} is not a path of this worker"))
