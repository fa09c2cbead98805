"""Adds up what this gateway's chat requests used, and writes it to the usage log every few seconds.

A gateway that dies loses what it had not written: at most `FLUSH_S` of ended requests, and those in flight.
"""

import asyncio
import itertools
from collections.abc import Callable

from turnout.errors import Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log
from turnout.tenants.usage_log import UsageLog
from turnout.tenants.usage_rules import UsageRow, Used, day_of

FLUSH_S = 2.0

log = get_log()


class ChatUsage:
    """`gateway` names this process; `now` is the wall clock, which days are read from."""

    def __init__(self, usage: UsageLog, gateway: str, now: Callable[[], float]) -> None:
        self._usage = usage
        self._gateway = gateway
        self._now = now
        self._counts: dict[tuple[TenantId, str], list[int]] = {}
        self._numbers = itertools.count(1)
        self._unsent: tuple[str, list[UsageRow]] | None = (
            None  # a batch that is sent again has the same name, and is counted once
        )

    def add(
        self, tenant: TenantId, model: str, prompt: int, completion: int, uncounted: int, work_ms: int
    ) -> None:
        """One request that ended, after so long at a replica."""
        counts = self._counts.get((tenant, model))
        if counts is None:
            counts = self._counts[tenant, model] = [0, 0, 0, 0, 0]
        counts[0] += 1
        counts[1] += prompt
        counts[2] += completion
        counts[3] += uncounted
        counts[4] += work_ms

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Writes all that ended until now; what cannot be written is kept for the next time."""
        while self._unsent or self._counts:
            if self._unsent is None:
                counts, self._counts = self._counts, {}
                day = day_of(self._now())
                rows = [
                    UsageRow(day, tenant, model, Used(*figures, work_ms=work_ms))
                    for (tenant, model), (*figures, work_ms) in counts.items()
                ]
                self._unsent = (f"{self._gateway}-{next(self._numbers)}", rows)
            try:
                await self._usage.add(*self._unsent)
            except Unavailable as err:
                log.warning("chat usage not written, trying again", reason=err.message)
                return
            self._unsent = None
