"""Streams whose events come faster than they can be passed on are not read for a moment, so that several events are read
and written at once, which costs hardly more than one."""

import asyncio
from typing import Protocol

_REST_S = 0.003  # no event waits longer
_FAST_S = 0.010  # between two reads; more than a rest, and what else the loop does in between
_BEFORE_REST_S = 0.003  # a short stream gets none


class PausedReading(Protocol):
    def rested(self) -> None:
        """It may be read again."""
        ...


class ReadBatcher:
    """One timer for all."""

    def __init__(self) -> None:
        self._resting: list[PausedReading] = []

    def add(self, stream: PausedReading, loop: asyncio.AbstractEventLoop) -> None:
        if not self._resting:
            loop.call_later(_REST_S, self._end)
        self._resting.append(stream)

    def _end(self) -> None:
        resting, self._resting = self._resting, []
        for stream in resting:
            stream.rested()


def wants_rest(since_last_s: float, age_s: float) -> bool:
    return since_last_s < _FAST_S and age_s > _BEFORE_REST_S
