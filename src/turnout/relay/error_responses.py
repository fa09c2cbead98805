"""Errors as bytes: an answer in OpenAI's shape, or an event of a stream that has already begun. Pure."""

import json
from http import HTTPStatus
from math import ceil

from turnout.domain.errors import Limited, TurnoutError, Unauthorized, Unavailable

_SERVER_ERROR = "The server failed to answer; this has been logged."
_UNAVAILABLE = "A part of the service is not available; try again."
_DEFAULT_RETRY_S = 2.0

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def answer(status: int, body: bytes, headers: bytes, *, keep_alive: bool) -> bytes:
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        status_line(status),
        len(body),
        headers,
        b"" if keep_alive else b"connection: close\r\n",
        body,
    )


def problem(message: str, kind: str, param: str | None = None, code: str | None = None) -> bytes:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def explain(err: TurnoutError) -> tuple[int, bytes, bytes]:
    """Status, headers and body for an error. The message of an Unavailable is shown only if it has a code: one
    without was raised deep inside and may name what a caller should not see."""
    if err.status >= 500 and not err.retryable:
        return 500, b"", problem(_SERVER_ERROR, "server_error", code="internal_error")
    headers = b""
    if err.retryable:
        headers = b"retry-after: %d\r\n" % max(1, ceil(err.retry_after_s or _DEFAULT_RETRY_S))
    elif err.status == 409:
        headers = b"x-should-retry: false\r\n"  # OpenAI's clients would retry it
    if isinstance(err, Limited):
        headers += err.header_lines
    if isinstance(err, Unauthorized):
        headers += b"www-authenticate: Bearer\r\n"
    if isinstance(err, Unavailable) and err.code is None:
        return err.status, headers, problem(_UNAVAILABLE, err.kind, code="unavailable")
    return err.status, headers, problem(err.message, err.kind, err.param, err.code)


def event(body: bytes) -> bytes:
    """A problem as an event. OpenAI's clients raise on it; no [DONE] follows, so that those which ignore it
    still miss the proper end."""
    return b"data: %b\n\n" % body


def foreign_problem(status: int, body: bytes) -> bytes:
    """An engine's error body in OpenAI's shape, on one line."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if isinstance(said, dict) and isinstance(said.get("error"), dict):  # pyright: ignore[reportUnknownMemberType]
        return json.dumps(said, separators=(",", ":")).encode()
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    text = body.decode(errors="replace").strip()[:2000] or f"The engine answered with status {status}."
    return problem(text, kind, code="engine_error")
