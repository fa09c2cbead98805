"""Writes an attempt's reports beside its steps, so that no step waits for Redis or the object store.

Of each kind at most one report waits: the newest. Whatever a service does, memory is bounded, and what is written
when it is back is how things stand then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from turnout.backoff import backoff_s
from turnout.errors import Stale, Unavailable
from turnout.telemetry.log import get_log

T = TypeVar("T")
log = get_log()


class LatestReport(Generic[T]):
    """`write` is called with one report at a time, again while it raises Unavailable and nothing newer came. When it
    raises Stale, `dropped` is told and nothing is written any more."""

    def __init__(
        self, name: str, write: Callable[[T], Awaitable[None]], dropped: Callable[[Stale], None]
    ) -> None:
        self._name = name
        self._write = write
        self._dropped = dropped
        self._newest: T | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._reached = True

    def put(self, report: T) -> None:
        self._newest = report
        self._idle.clear()
        self._wake.set()

    async def wait_written(self, limit_s: float) -> None:
        """Waits until nothing waits, `limit_s` at most; not at all since that was too short, until a report is written."""
        if self._reached:
            self._reached = await self.flush(limit_s)

    async def flush(self, limit_s: float) -> bool:
        """Waits until nothing waits; False when that took too long."""
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            report, self._newest = self._newest, None
            if report is None:
                continue
            try:
                await self._write(report)
                failures, self._reached = 0, True
            except Stale as stale:
                self._dropped(stale)
                self._idle.set()
                return
            except Unavailable as err:
                failures, self._reached = failures + 1, False
                log.warning("report not written, trying again", report=self._name, error=str(err))
                await asyncio.sleep(backoff_s(failures, 0.05, 1.0))
                self.put(self._newest or report)
                continue
            if self._newest is None:
                self._idle.set()
