"""Rank 0's life: claim a task, attempt it, claim the next; leave when drained or when the gang is broken."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.domain.errors import Unavailable
from turnout.domain.tasks import GangId, Task
from turnout.gang.attempt import Attempt, AttemptContext
from turnout.gang.cadence import StepPace
from turnout.gang.rank_commands import RankCommander
from turnout.observe import get_log
from turnout.ports import Limits

log = get_log()

_POLL_S = 0.2
_REST_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class LeaderTerms:
    """Whom this gang serves; `once` means one task and out."""

    model: str
    gang: GangId
    limits: Limits
    once: bool = False


class Leader:
    """`load` forms the group and loads the model; it runs while the first task is already being claimed."""

    def __init__(self, bench: AttemptContext, orders: LeaderTerms, load: Callable[[], RankCommander]) -> None:
        self._bench = bench
        self._orders = orders
        self._load = load
        self._draining = False

    def drain(self) -> None:
        """Leave at the next step, with a checkpoint of what is under way."""
        self._draining = True

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        loading = loop.run_in_executor(self._bench.hands, self._load)
        pace = StepPace()
        rested_at = 0.0
        while not self._draining:
            task = await self._claim()
            if task is not None:
                log.info("task claimed", task=task.id, attempt=task.attempt, checkpoint=task.checkpoint)
                attempt = Attempt(self._bench, task, loading, pace, lambda: self._draining)
                await attempt.run()
                pace = attempt.pace
                if self._orders.once:
                    break
                continue
            if loading.done() and time.monotonic() - rested_at > _REST_EVERY_S:
                if not rested_at:
                    log.info("gang ready", load_s=round(time.monotonic() - began, 3))
                await loop.run_in_executor(self._bench.hands, loading.result().rest)
                rested_at = time.monotonic()
            await asyncio.sleep(_POLL_S)
        await self._leave(loading)

    async def _claim(self) -> Task | None:
        try:
            await self._bench.queue.reap(self._orders.model, self._bench.lease_s)
            return await self._bench.queue.claim(self._orders.model, self._orders.gang, self._orders.limits)
        except Unavailable as err:
            log.warning("queue did not answer", error=str(err))
            return None

    async def _leave(self, loading: asyncio.Future[RankCommander]) -> None:
        crew = await loading
        await asyncio.get_running_loop().run_in_executor(self._bench.hands, crew.leave)
        try:
            await self._bench.queue.leave(self._orders.model, self._orders.gang)
        except Unavailable as err:
            log.warning("gang left without saying so", error=str(err))
