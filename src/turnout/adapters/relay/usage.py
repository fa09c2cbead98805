"""Reads the engine's token counts from the end of an answer, without parsing the answer. Pure."""

import re

from turnout.adapters.relay.desk import Usage

TAIL_BYTES = 4096  # the counts stand in the last event of a stream, or at the end of a JSON body

# Inside of generated text these names would be written with escaped quotes, so they cannot be forged there.
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})')


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
