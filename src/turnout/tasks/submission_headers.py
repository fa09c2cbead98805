"""The headers of a submission: its priority, and the key that makes a repeated submission harmless."""

import re
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from turnout.errors import InvalidRequest
from turnout.gateway.middleware import TRACE
from turnout.relay import Headers
from turnout.tasks.task_rules import Priority

_PRIORITY, _PRIORITY_FIELD = "X-Turnout-Priority", b"x-turnout-priority"
_IDEMPOTENCY, _IDEMPOTENCY_FIELD = "Idempotency-Key", b"idempotency-key"
_MAX_KEY_CHARS = 255
_PRIORITIES = (Priority.HIGH, Priority.NORMAL, Priority.LOW)
_VISIBLE = re.compile(r"[\x21-\x7e]+")

HEADER_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": _PRIORITY,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "enum": [priority.value for priority in _PRIORITIES]},
    },
    {
        "name": _IDEMPOTENCY,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
]
"""As the OpenAPI document shows them."""


@dataclass(frozen=True, slots=True)
class SubmissionHeaders:
    priority: Priority
    idempotency_key: str | None
    traceparent: str | None = None  # the request's own span
    all: Headers = field(
        default=(), repr=False
    )  # as they came, for who asks the service in the caller's name


def submission_headers(request: Request) -> SubmissionHeaders:
    """Raises InvalidRequest."""
    priority: str = Priority.NORMAL
    key: str | None = None
    for name, value in request.headers.raw:
        if name == _PRIORITY_FIELD:
            priority = value.decode("latin-1")
        elif name == _IDEMPOTENCY_FIELD:
            key = value.decode("latin-1")
    if priority not in _PRIORITIES:
        raise InvalidRequest(f"{_PRIORITY} must be low, normal or high.", _PRIORITY, "invalid_value")
    if key is not None and not (len(key) <= _MAX_KEY_CHARS and _VISIBLE.fullmatch(key)):
        raise InvalidRequest(
            f"{_IDEMPOTENCY} must be 1 to {_MAX_KEY_CHARS} visible ASCII characters.",
            _IDEMPOTENCY,
            "invalid_value",
        )
    return SubmissionHeaders(
        Priority(priority), key, getattr(request.state, TRACE, None), request.headers.raw
    )
