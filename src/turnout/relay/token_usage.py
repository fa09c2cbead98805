"""Reads the engine's token counts from the end of an answer, without parsing the answer. Pure."""

import json
import re
from typing import Any, cast

from turnout.relay.admission import Usage
from turnout.relay.framing import whole_events

TAIL_BYTES = 4096  # the counts stand in the last event of a stream, or at the end of a JSON body

_MAX_COUNT_BYTES = 24
_MAX_DIGITS = 9  # what has more is no count; it would break the sums that usage is kept in

_TELLS = re.compile(rb'"usage"\s*:\s*\{')
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def read_usage(tail: bytes) -> Usage | None:
    prompt = _count(tail, b'"prompt_tokens"')
    if prompt >= 0:
        return prompt, max(0, _count(tail, b'"completion_tokens"'))
    prompt = _count(tail, b'"input_tokens"')  # as /v1/responses calls them
    return (prompt, max(0, _count(tail, b'"output_tokens"'))) if prompt >= 0 else None


def _count(tail: bytes, name: bytes) -> int:
    """The number that the last `name` has, or -1. Inside of generated text its quotes would be escaped: it cannot be
    forged there. No regular expressions: with them this was a twentieth of a request's CPU."""
    at = tail.rfind(name)
    if at < 0:
        return -1
    at += len(name)
    said = tail[at : at + _MAX_COUNT_BYTES].lstrip(b" \t\r\n:")
    digits = said[: len(said) - len(said.lstrip(b"0123456789"))]
    return int(digits) if 0 < len(digits) <= _MAX_DIGITS else -1


def tells_usage(events: bytes) -> bool:
    """Whether one of them may; vLLM adds `"usage":null` to all others."""
    return b'"usage"' in events and _TELLS.search(events) is not None


def without_usage(events: bytes) -> bytes:
    """Whole events, but for one that tells usage and nothing else."""
    kept, start = b"", 0
    while (tells := _TELLS.search(events, start)) is not None:
        begin = start + whole_events(events[start : tells.start()])
        end = _END.search(events, tells.end())
        stop = end.end() if end is not None else len(events)
        kept += events[start : begin if _only_tells(events[begin:stop]) else stop]
        start = stop
    return kept + events[start:] if start else events


def _only_tells(event: bytes) -> bool:
    if not event.startswith(b"data:"):
        return False
    try:
        said: object = json.loads(event[5:])
    except ValueError:
        return False
    return isinstance(said, dict) and cast("dict[str, Any]", said).get("choices") == []
