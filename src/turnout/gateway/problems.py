"""The one place that turns errors into HTTP: always OpenAI's shape, never a trace of what went wrong inside."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.domain.errors import InvalidRequest, TurnoutError, Unauthorized, Unavailable
from turnout.observe import get_log
from turnout.schemas.openai_json import ErrorBody, Problem

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_SERVER_ERROR = "The server failed to answer; this has been logged."
_UNAVAILABLE = "A part of the service is not available; try again."
_DEFAULT_RETRY_S = 2.0

T = TypeVar("T", bound=BaseModel)


def respond(
    status: int,
    message: str,
    kind: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    body = ErrorBody(error=Problem(message=message, type=kind, param=param, code=code))
    return JSONResponse(body.model_dump(), status, dict(headers or {}))


def respond_to(err: TurnoutError) -> JSONResponse:
    """The answer to an error that was raised on purpose."""
    if err.status >= 500 and not err.retryable:
        get_log().error("request failed", error=type(err).__name__, message=err.message)
        return respond(500, _SERVER_ERROR, "server_error", code="internal_error")
    # OpenAI's clients retry a 409 unless told not to; ours never heals by itself.
    headers = {} if err.retryable or err.status != 409 else {"x-should-retry": "false"}
    if err.retryable:
        headers["Retry-After"] = str(max(1, ceil(err.retry_after_s or _DEFAULT_RETRY_S)))
    if isinstance(err, Unavailable) and err.code is None:  # one with a code was written for callers
        get_log().warning("request refused", reason=err.message)  # which may name what is inside
        return respond(err.status, _UNAVAILABLE, err.kind, code="unavailable", headers=headers)
    if isinstance(err, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return respond(err.status, err.message, err.kind, err.param, err.code, headers)


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
            await respond(500, _SERVER_ERROR, "server_error", code="internal_error")(scope, receive, send)


def install(app: FastAPI) -> None:
    app.add_exception_handler(TurnoutError, _on_turnout_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document says that these errors can come."""
    return {status: {"model": ErrorBody, "description": "An error."} for status in statuses}
