"""Errors as bytes: a whole response, or an event of a stream that has already begun. Pure."""

import json
from http import HTTPStatus

from turnout.domain.error_table import describe, error_body
from turnout.domain.errors import Limited, TurnoutError
from turnout.relay.framing import Refusal

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def response(status: int, body: bytes, headers: bytes, *, keep_alive: bool) -> bytes:
    return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        status_line(status),
        len(body),
        headers,
        b"" if keep_alive else b"connection: close\r\n",
        body,
    )


def explain(err: TurnoutError) -> tuple[int, bytes, bytes]:
    """Status, header lines and body for an error."""
    told = describe(err)
    lines = "".join([f"{name}: {value}\r\n" for name, value in told.headers.items()]).encode()
    if isinstance(err, Limited):
        lines += err.header_lines
    return told.status, lines, told.body


def refusal_response(refusal: Refusal | TurnoutError, more_lines: bytes) -> bytes:
    """A response after which the connection is closed."""
    if isinstance(refusal, Refusal):
        body = error_body(refusal.message, "invalid_request_error", code=refusal.code)
        return response(refusal.status, body, more_lines, keep_alive=False)
    status, lines, body = explain(refusal)
    return response(status, body, lines + more_lines, keep_alive=False)


def event(body: bytes) -> bytes:
    """An error as an event. OpenAI's clients raise on it. No [DONE] follows, so that clients that ignore the event still
    see that the end is missing."""
    return b"data: %b\n\n" % body


def engine_error(status: int, body: bytes) -> bytes:
    """An engine's error body in OpenAI's shape, on one line."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), dict):  # pyright: ignore[reportUnknownMemberType]
        return json.dumps(told, separators=(",", ":")).encode()
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    text = body.decode(errors="replace").strip()[:2000] or f"The engine answered with status {status}."
    return error_body(text, kind, code="engine_error")
