"""Answers the gateway's requests that fail, by `domain.error_table`: always OpenAI's shape. Reads pydantic's complaints,
the framework's own refusals and what nobody foresaw."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from turnout.domain.error_table import INTERNAL_ERROR, ErrorAnswer, describe, error_body
from turnout.domain.errors import Forbidden, InvalidRequest, Limited, NotFound, TurnoutError, Unauthorized
from turnout.observe import get_log
from turnout.schemas.openai_json import ErrorBody

_KINDS = {error.status: error.kind for error in (Unauthorized, Forbidden, NotFound, Limited)}

T = TypeVar("T", bound=BaseModel)


def respond(
    status: int,
    message: str,
    kind: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return _send(
        ErrorAnswer(status, dict(headers or {}), error_body(message, kind, param, code), hidden=False)
    )


def respond_to(err: TurnoutError) -> Response:
    """The answer to an error that was raised on purpose."""
    answer = describe(err)
    if answer.hidden and err.retryable:
        get_log().warning("request refused", reason=err.message)
    elif answer.hidden:
        get_log().error("request failed", error=type(err).__name__, message=err.message)
    return _send(answer)


def _send(answer: ErrorAnswer) -> Response:
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


def validated(model: type[T], values: object) -> T:
    """The body as `model`; raises InvalidRequest that names the first field at fault."""
    try:
        return model.model_validate(values)
    except ValidationError as err:
        raise invalid(cast("Sequence[Mapping[str, Any]]", err.errors(include_url=False))) from err


def invalid(problems: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """The first of pydantic's complaints in our words; an unknown field comes last, as it explains least."""
    first = min(problems, key=lambda p: p["type"] == "extra_forbidden")
    # The place inside a list says little; the name of the field is what the caller wrote.
    names = [part for part in first["loc"] if isinstance(part, str) and part not in ("body", "query", "path")]
    param = ".".join(names) or None
    kind = str(first["type"])
    if kind == "extra_forbidden":
        return InvalidRequest(f"Unknown parameter: {param}.", param, "unknown_parameter")
    if kind == "missing":
        return InvalidRequest(f"{param} is required.", param, "missing")
    return InvalidRequest(f"{param or 'The body'} {_rule(kind, first)}", param, _code(kind))


def _code(kind: str) -> str:
    wrong_type = kind.endswith("_type") or "parsing" in kind or kind == "int_from_float"
    return "invalid_type" if wrong_type else "invalid_value"


def _rule(kind: str, problem: Mapping[str, Any]) -> str:
    context: Mapping[str, Any] = problem.get("ctx") or {}
    match kind:
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            return f"must be {context['expected']}."
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}."
        case "string_too_long":
            return f"is over {context['max_length']} characters."
        case "greater_than_equal":
            return f"must be at least {context['ge']}."
        case "less_than_equal":
            return f"must be at most {context['le']}."
        case "finite_number":
            return "must be a finite number."
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be an object."
        case _ if kind.startswith("int"):
            return "must be a whole number."
        case _ if kind.startswith("float"):
            return "must be a number."
        case _ if kind.startswith("string"):
            return "must be text."
        case _:
            return f"is not valid: {problem['msg']}."


async def _on_turnout_error(request: Request, err: Exception) -> Response:
    return respond_to(cast(TurnoutError, err))


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


class NoSurprises:
    """Answers 500 for what nobody foresaw. The framework would do so outside of all our wrappers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as err:
            if started:
                raise  # the server cuts the connection: that is all a client can be told now
            get_log().error("request failed", method=scope["method"], path=scope["path"], exc_info=err)
            await _send(INTERNAL_ERROR)(scope, receive, send)


def install(app: FastAPI) -> None:
    app.add_exception_handler(TurnoutError, _on_turnout_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document says that these errors can come."""
    return {status: {"model": ErrorBody, "description": "An error."} for status in statuses}
