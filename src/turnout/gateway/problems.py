"""Answers the gateway's requests that fail, by `error_table`: always OpenAI's shape. So are the framework's own
refusals and what nobody foresaw."""

from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from turnout.error_table import ErrorAnswer, describe, error_body
from turnout.errors import Forbidden, Limited, NotFound, TurnoutError, Unauthorized
from turnout.gateway.problem_json import ErrorBody
from turnout.telemetry.log import get_log
from turnout.tenants.login_throttle import LoginThrottle
from turnout.validation import invalid

_KINDS = {error.status: error.kind for error in (Unauthorized, Forbidden, NotFound, Limited)}


def respond(
    status: int,
    message: str,
    kind: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return to_response(
        ErrorAnswer(status, dict(headers or {}), error_body(message, kind, param, code), hidden=False)
    )


def respond_to(err: TurnoutError) -> Response:
    """The answer to an error that was raised on purpose."""
    return to_response(logged(err))


def logged(err: TurnoutError) -> ErrorAnswer:
    """What is told of an error. Logs what is not."""
    answer = describe(err)
    if answer.hidden and err.retryable:
        get_log().warning("request refused", reason=err.message)
    elif answer.hidden:
        get_log().error("request failed", error=type(err).__name__, message=err.message)
    return answer


def to_response(answer: ErrorAnswer) -> Response:
    return Response(answer.body, answer.status, answer.headers, "application/json")


def is_open(socket: WebSocket) -> bool:
    return socket.application_state is WebSocketState.CONNECTED


async def refuse_socket(socket: WebSocket, err: TurnoutError) -> None:
    """An HTTP error before the handshake, a close code with the same number after it."""
    if is_open(socket):
        await socket.close(4000 + err.status, err.message[:120])
    elif "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(respond_to(err))
    else:
        await socket.close(4000 + err.status)


async def _on_invalid(request: Request, err: Exception) -> Response:
    return respond_to(invalid(cast(RequestValidationError, err).errors()))


async def _on_http(request: Request, err: Exception) -> Response:
    """What the framework refuses: no such route, no such method, a form it cannot read."""
    http = cast(HTTPException, err)
    kind = _KINDS.get(http.status_code, "invalid_request_error")
    match http.status_code:
        case 404:
            message, code = f"There is no {request.method} {request.url.path}.", "unknown_url"
        case 405:
            message, code = f"{request.method} is not allowed on {request.url.path}.", "method_not_allowed"
        case _:
            message, code = str(http.detail), None
    return respond(http.status_code, message, kind, code=code, headers=http.headers)


def install(app: FastAPI, throttle: LoginThrottle) -> None:
    async def on_turnout_error(request: Request, err: Exception) -> Response:
        return respond_to(throttle.counted(request.client, cast(TurnoutError, err)))

    app.add_exception_handler(TurnoutError, on_turnout_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document says that these errors can come."""
    return {status: {"model": ErrorBody, "description": "An error."} for status in statuses}
