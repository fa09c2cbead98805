"""Errors as bytes: a whole response, or an event of a stream that has already begun. Pure."""

import json
from http import HTTPStatus
from typing import Any, cast

from turnout.error_table import describe, error_body
from turnout.errors import Limited, TurnoutError
from turnout.relay.framing import Refusal

_MAX_MESSAGE_CHARS = 2000
_NO_SUCH_PATH = ("", "Not Found", "File Not Found")  # how engines say that they have no such path
_TEMPLATE_SAYS = "Jinja Exception: "  # before what a chat template refuses, in llama.cpp's words

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


def engine_error(status: int, body: bytes, path: bytes) -> tuple[int, bytes]:
    """An engine's error in the shape of ours, on one line, and its status. Engines have shapes of their own: codes that are
    numbers, types that are names of classes."""
    try:
        told: object = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    error = _dict(_dict(told).get("error"))
    message = str(error.get("message") or _dict(told).get("detail") or "")[:_MAX_MESSAGE_CHARS]
    if status in (404, 405) and message in _NO_SUCH_PATH:
        text = f"The model's engine has no {path.decode(errors='replace')}."
        return 501, error_body(text, "not_supported_error", code="not_supported")
    kind, code, param = error.get("type"), error.get("code"), error.get("param")
    if not isinstance(kind, str) or not kind.endswith("_error"):
        kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    text = message.rpartition(_TEMPLATE_SAYS)[2] or body.decode(errors="replace").strip()[:_MAX_MESSAGE_CHARS]
    return status, error_body(
        text or f"The engine answered with status {status}.",
        kind,
        param if isinstance(param, str) else None,
        code if isinstance(code, str) else "engine_error",
    )


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
