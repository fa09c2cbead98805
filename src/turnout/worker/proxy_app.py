"""What a worker's port serves besides relayed requests: health, the proof of its identity, logs of replicas."""

from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from turnout.error_table import describe
from turnout.errors import NotFound, TurnoutError
from turnout.worker.proxy_admission import ProxyAdmission
from turnout.worker.relay_tokens import PROBE_PATH
from turnout.worker.replica_set import ReplicaSet

_MAX_PROBE_CHARS = 100


def control_app(
    replicas: ReplicaSet,
    admission: ProxyAdmission,
    prove: Callable[[str], str],
    loops: Callable[[], Mapping[str, str]] = dict,
) -> Starlette:
    """`GET /health`, `GET /probe/{nonce}`; with the relay token `GET /replicas/{id}/log`.

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
        shown = request.headers.get("authorization")
        admission.check(shown.encode("latin-1") if shown is not None else None)
        return PlainTextResponse(replicas.find(request.path_params["replica"]).log_tail())

    return Starlette(
        routes=[
            Route("/health", health),
            Route(PROBE_PATH + "{nonce}", probe),
            Route("/replicas/{replica}/log", log),
        ],
        exception_handlers={TurnoutError: _on_error, HTTPException: _on_unknown_path},
    )


def _on_error(request: Request, err: Exception) -> Response:
    assert isinstance(err, TurnoutError)
    answer = describe(err)
    return Response(answer.body, answer.status, answer.headers, "application/json")


def _on_unknown_path(request: Request, err: Exception) -> Response:
    return _on_error(request, NotFound(f"{request.url.path[:80]!r} is not a path of this worker"))
