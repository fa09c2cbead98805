"""Reads the engine's token counts from the end of an answer, without parsing the answer. Pure."""

import json
import re
from typing import Any, cast

from turnout.adapters.relay.desk import Usage
from turnout.adapters.relay.framing import whole_events

TAIL_BYTES = 4096  # the counts stand in the last event of a stream, or at the end of a JSON body

# Inside of generated text these names would be written with escaped quotes, so they cannot be forged there.
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})')
_TELLS = re.compile(rb'"usage"\s*:\s*\{')
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def read_usage(tail: bytes) -> Usage | None:
    at = tail.rfind(b'"prompt_tokens"')
    if at < 0:
        return None
    prompt = _PROMPT.match(tail, at)
    if prompt is None:
        return None
    at = tail.rfind(b'"completion_tokens"')
    completion = _COMPLETION.match(tail, at) if at >= 0 else None
    return Usage(int(prompt[1]), int(completion[1]) if completion else 0)


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
