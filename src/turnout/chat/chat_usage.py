"""Adds up what this gateway's chat requests used, and writes it to the usage log every few seconds.

Work is counted while requests are at a replica, so that each second is written within the next few, whenever they end. A gateway
that dies loses what it had not written: at most `FLUSH_S` of it.
"""

import asyncio
import itertools
import time
from collections.abc import Callable

from turnout.errors import Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log
from turnout.tenants.usage_log import UsageLog
from turnout.tenants.usage_rules import UsageRow, Used, day_of

FLUSH_S = 2.0

log = get_log()


class _AtWork:
    """How many requests are at replicas, and the seconds that they were there by `at` and that are not yet written."""

    __slots__ = ("at", "done_s", "requests")

    def __init__(self, at: float) -> None:
        self.at = at
        self.requests = 0
        self.done_s = 0.0

    def change(self, now: float, by: int) -> None:
        self.done_s += self.requests * (now - self.at)
        self.at = now
        self.requests += by


class ChatUsage:
    """`gateway` names this process; `now` is the wall clock, which days are read from, `clock` a monotonic one."""

    def __init__(
        self,
        usage: UsageLog,
        gateway: str,
        now: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usage = usage
        self._gateway = gateway
        self._now = now
        self._clock = clock
        self._at_work: dict[tuple[TenantId, str], _AtWork] = {}
        self._counts: dict[tuple[TenantId, str], list[int]] = {}
        self._numbers = itertools.count(1)
        self._unsent: tuple[str, list[UsageRow]] | None = (
            None  # a batch that is sent again has the same name, and is counted once
        )

    def seated(self, tenant: TenantId, model: str) -> None:
        """A request of the tenant is at a replica from now on, until it has `left`."""
        now, key = self._clock(), (tenant, model)
        at_work = self._at_work.get(key)
        if at_work is None:
            at_work = self._at_work[key] = _AtWork(now)
        at_work.change(now, 1)

    def left(self, tenant: TenantId, model: str) -> None:
        self._at_work[tenant, model].change(self._clock(), -1)

    def add(self, tenant: TenantId, model: str, prompt: int, completion: int, uncounted: int) -> None:
        """One request that was answered."""
        counts = self._of(tenant, model)
        counts[0] += 1
        counts[1] += prompt
        counts[2] += completion
        counts[3] += uncounted
        counts[4] += 1  # however short: its work counts

    def _of(self, tenant: TenantId, model: str) -> list[int]:
        counts = self._counts.get((tenant, model))
        if counts is None:
            counts = self._counts[tenant, model] = [0, 0, 0, 0, 0]
        return counts

    def _count_work(self) -> None:
        now = self._clock()
        for (tenant, model), at_work in self._at_work.items():
            at_work.change(now, 0)
            ms = int(1000 * at_work.done_s)
            if ms:
                self._of(tenant, model)[4] += ms
                at_work.done_s -= ms / 1000
        self._at_work = {key: at_work for key, at_work in self._at_work.items() if at_work.requests}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Writes all that was done until now; what cannot be written is kept for the next time."""
        self._count_work()
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
