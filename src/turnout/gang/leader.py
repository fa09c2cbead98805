"""What rank 0 does: claim a task, attempt it, claim the next; leave when drained or when the gang is broken."""

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
from turnout.ports.tasks import Limits

log = get_log()

_POLL_S = 0.2
_KEEP_ALIVE_S = 10.0


@dataclass(frozen=True, slots=True)
class LeaderTerms:
    """What this gang renders; with `once` it leaves after one task."""

    model: str
    gang: GangId
    limits: Limits
    once: bool = False


class Leader:
    """`load` forms the group and loads the model; it runs while the first task is already being claimed."""

    def __init__(
        self, context: AttemptContext, terms: LeaderTerms, load: Callable[[], RankCommander]
    ) -> None:
        self._context = context
        self._terms = terms
        self._load = load
        self._draining = False

    def drain(self) -> None:
        """Leave at the next step, with a checkpoint of what is under way."""
        self._draining = True

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        loading = loop.run_in_executor(self._context.engine_thread, self._load)
        pace = StepPace()
        kept_alive_at = 0.0
        while not self._draining:
            task = await self._claim(loading=not loading.done())
            if task is not None:
                log.info("task claimed", task=task.id, attempt=task.attempt, checkpoint=task.checkpoint)
                attempt = Attempt(self._context, task, loading, pace, lambda: self._draining)
                await attempt.run()
                pace = attempt.pace
                if self._terms.once:
                    break
                continue
            if loading.done() and time.monotonic() - kept_alive_at > _KEEP_ALIVE_S:
                if not kept_alive_at:
                    log.info("gang ready", load_s=round(time.monotonic() - began, 3))
                await loop.run_in_executor(self._context.engine_thread, loading.result().keep_alive)
                kept_alive_at = time.monotonic()
            await asyncio.sleep(_POLL_S)
        await self._leave(loading)

    async def _claim(self, *, loading: bool) -> Task | None:
        terms = self._terms
        try:
            return await self._context.queue.claim(terms.model, terms.gang, terms.limits, loading=loading)
        except Unavailable as err:
            log.warning("queue did not answer", error=str(err))
            return None

    async def _leave(self, loading: asyncio.Future[RankCommander]) -> None:
        ranks = await loading
        await asyncio.get_running_loop().run_in_executor(self._context.engine_thread, ranks.leave)
        try:
            await self._context.queue.leave(self._terms.model, self._terms.gang)
        except Unavailable as err:
            log.warning("gang left without saying so", error=str(err))
