"""Where in a trace something happens (W3C Trace Context), and spans as data. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

TRACEPARENT = b"traceparent"
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_SAMPLED = 1
_MAX_CHARS = 128

AttributeValue: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Ids are lower-case hexadecimal. `sampled`: somebody records this trace."""

    trace: str
    span: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


def read_traceparent(text: str | None) -> TraceContext | None:
    """None for what the standard says to ignore. Of later versions what version 00 has is read."""
    if text is None or len(text) > _MAX_CHARS:
        return None
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(trace, span, bool(int(flags, 16) & _SAMPLED))


def trace_field(traceparent: str | None) -> dict[str, str]:
    """The trace's id as a field of log lines; none where there is no trace."""
    context = read_traceparent(traceparent)
    return {"trace": context.trace} if context is not None else {}


def trace_field_of(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The same for the headers of a request, with lower-case names."""
    given = next((value for name, value in headers if name == TRACEPARENT), b"")
    return trace_field(given.decode("latin-1"))


class SpanKind(StrEnum):
    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """`part` did it (gateway, gang, manager), whoever tells. `parent` is a span's id. Times are seconds since the epoch.
    `error` says in a few words what went wrong; nothing in a span was written by a user."""

    name: str
    part: str
    context: TraceContext
    parent: str | None
    began: float
    ended: float
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    kind: SpanKind = SpanKind.INTERNAL
    links: tuple[TraceContext, ...] = ()
    error: str | None = None
