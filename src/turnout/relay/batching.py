"""Pauses reading from streams whose events come fast, so that several events are read and written at once. A system call
costs more than all else that is done for an event."""

import asyncio
from typing import Protocol

_PAUSE_S = 0.003  # the longest that an event waits
_FAST_S = 0.010  # between two reads of a fast stream; more than a pause and the loop's other work
_MIN_AGE_S = 0.003  # a shorter stream is not paused


class PausedReading(Protocol):
    def end_pause(self) -> None:
        """The stream may be read again."""
        ...


class ReadBatcher:
    """One timer for all streams."""

    def __init__(self) -> None:
        self._paused: list[PausedReading] = []

    def add(self, stream: PausedReading, loop: asyncio.AbstractEventLoop) -> None:
        if not self._paused:
            loop.call_later(_PAUSE_S, self._end)
        self._paused.append(stream)

    def _end(self) -> None:
        paused, self._paused = self._paused, []
        for stream in paused:
            stream.end_pause()


def worth_pausing(since_last_s: float, age_s: float) -> bool:
    return since_last_s < _FAST_S and age_s > _MIN_AGE_S
