"""Reads the engine's token counts from the end of an answer, without parsing the answer. Pure."""

import json
import re
from typing import Any, cast

from turnout.adapters.relay.desk import Usage

TAIL_BYTES = 4096  # the counts stand in the last event of a stream, or at the end of a JSON body

# Inside of generated text these names would be written with escaped quotes, so they cannot be forged there.
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})')
_TELLS = re.compile(rb'"usage"\s*:\s*\{')
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)


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
    if _TELLS.search(events) is None:
        return events
    return b"".join([event for event in _EVENT.findall(events) if not _only_tells(event)])


def _only_tells(event: bytes) -> bool:
    if _TELLS.search(event) is None or not event.startswith(b"data:"):
        return False
    try:
        said: object = json.loads(event[5:])
    except ValueError:
        return False
    return isinstance(said, dict) and cast("dict[str, Any]", said).get("choices") == []
