"""What an HTTP client is told about each error: status, headers and a body in OpenAI's shape. Pure.

The gateway, the relay and the worker's proxy all answer from this table. It never shows what went wrong inside.
"""

import json
from math import ceil
from typing import NamedTuple

from turnout.errors import TurnoutError, Unauthorized, Unavailable

_SERVER_ERROR = "The server failed to answer; this has been logged."
_UNAVAILABLE = "A part of the service is not available; try again."
_DEFAULT_RETRY_S = 2.0


class ErrorAnswer(NamedTuple):
    """`hidden` says that the error's own message is not in the body, so it should be logged."""

    status: int
    headers: dict[str, str]
    body: bytes
    hidden: bool


def describe(err: TurnoutError) -> ErrorAnswer:
    if err.status >= 500 and not err.retryable:
        return INTERNAL_ERROR
    headers: dict[str, str] = {}
    if err.retryable:
        headers["retry-after"] = str(max(1, ceil(err.retry_after_s or _DEFAULT_RETRY_S)))
    elif err.status == 409:  # OpenAI's clients retry a 409 unless told not to; ours never heals by itself
        headers["x-should-retry"] = "false"
    if isinstance(err, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    # An Unavailable with a code was written for callers; one without may name what is inside.
    if isinstance(err, Unavailable) and err.code is None:
        body = error_body(_UNAVAILABLE, err.kind, code="unavailable")
        return ErrorAnswer(err.status, headers, body, hidden=True)
    body = error_body(err.message, err.kind, err.param, err.code)
    return ErrorAnswer(err.status, headers, body, hidden=False)


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> bytes:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


INTERNAL_ERROR = ErrorAnswer(
    500, {}, error_body(_SERVER_ERROR, "server_error", code="internal_error"), hidden=True
)
