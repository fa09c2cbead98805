"""What rank 0 does: claim a task, attempt it, claim the next; leave when drained, when it was started for one task, when it
had nothing to do for long enough, or when the gang is broken."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from turnout.errors import Unauthorized, Unavailable
from turnout.gang.attempt import Attempt, AttemptContext, log_ids
from turnout.gang.exit_codes import ExitCode, verdict
from turnout.gang.rank_commands import RankCommander
from turnout.gang.rank_place import RankDuties
from turnout.tasks.gang_messages import ClaimedTask
from turnout.telemetry.log import get_log

log = get_log()

_LOOK_S = 0.2
_CLAIM_S = 15.0  # a claim is held open so long
_CLAIM_LOADING_S = 0.2  # so that the gateway learns soon that the model is loaded
_KEEP_ALIVE_S = 10.0


class Leader:
    """`load` forms the group and loads the model. Once all ranks have `met`, the first task is claimed while the weights are
    still read: before, half a gang would hold a task that others could render."""

    def __init__(
        self,
        context: AttemptContext,
        duties: RankDuties,
        load: Callable[[], RankCommander],
        met: Callable[[], bool],
    ) -> None:
        self._context = context
        self._duties = duties
        self._load = load
        self._met = met
        self._draining = False
        self._claiming: asyncio.Task[ClaimedTask | None] | None = None

    def drain(self) -> None:
        """Leave at the next step, with a checkpoint of what is under way."""
        self._draining = True

    async def run(self) -> ExitCode:
        """What became of the last task, for one that renders `once`."""
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        loading = loop.run_in_executor(self._context.engine_thread, self._load)
        kept_alive_at = 0.0
        idle_since: float | None = None  # counts from ready
        code: ExitCode | None = None
        while not self._draining and not self._is_old(time.monotonic() - began):
            if not self._met() and not loading.done():
                await asyncio.wait({loading}, timeout=_LOOK_S)
                continue
            task = await self._claim(loading=not loading.done())
            if task is not None:
                log.info("task claimed", **log_ids(task), checkpoint=task.checkpoint)
                attempt = Attempt(self._context_of_task(), task, loading, lambda: self._draining)
                code = await self._verdict(attempt)
                idle_since = None
                if self._duties.once:
                    break
                code = None
                continue
            if loading.done() and loading.exception() is not None:
                if self._claiming is None:
                    loading.result()
                continue  # the answer may bring a task: it is told why, or gang after gang would claim it and none count
            if loading.done():
                idle_since = idle_since or time.monotonic()
                if self._is_over(time.monotonic() - idle_since):
                    log.info("gang had nothing to do", idle_s=self._duties.idle_exit_s)
                    break
            if loading.done() and time.monotonic() - kept_alive_at > _KEEP_ALIVE_S:
                if not kept_alive_at:
                    log.info("gang ready", load_s=round(time.monotonic() - began, 3))
                await loop.run_in_executor(self._context.engine_thread, loading.result().keep_alive)
                kept_alive_at = time.monotonic()
        await self._leave(loading)
        if code is None:
            code = ExitCode.GIVEN_BACK if self._duties.once and self._draining else ExitCode.COMPLETED
        return code

    def _context_of_task(self) -> AttemptContext:
        limit_s = self._duties.deadline_s
        return (
            self._context
            if limit_s is None
            else replace(self._context, deadline_at=time.monotonic() + limit_s)
        )

    def _is_old(self, age_s: float) -> bool:
        return self._duties.leave_after_s is not None and age_s >= self._duties.leave_after_s

    def _is_over(self, idle_s: float) -> bool:
        return self._duties.idle_exit_s is not None and idle_s >= self._duties.idle_exit_s

    async def _verdict(self, attempt: Attempt) -> ExitCode:
        """GIVEN_BACK also while nobody can say: the task waits, or will when its lease has run out."""
        try:
            return verdict(await attempt.run())
        except Unavailable as err:
            log.warning("it is not known how the task stands", error=str(err))
            return ExitCode.GIVEN_BACK

    async def _claim(self, *, loading: bool) -> ClaimedTask | None:
        """The next task; None when there is something else to look after. The call goes on meanwhile."""
        if self._claiming is None:
            self._claiming = asyncio.create_task(self._ask(loading=loading), name="claim")
        await asyncio.wait({self._claiming}, timeout=_LOOK_S)
        if not self._claiming.done():
            return None
        claimed, self._claiming = self._claiming.result(), None
        return claimed

    async def _ask(self, *, loading: bool) -> ClaimedTask | None:
        try:
            return await self._context.api.claim(
                loading=loading, wait_s=_CLAIM_LOADING_S if loading else _CLAIM_S
            )
        except Unavailable as err:
            log.warning("no gateway answered a claim", error=str(err))
            await asyncio.sleep(_LOOK_S)
            return None

    async def _leave(self, loading: asyncio.Future[RankCommander]) -> None:
        """What was claimed on the way out, and nobody knows of here, is given back by leaving."""
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.wait({self._claiming})
        if loading.done():  # before that nobody listens, and nothing is lost
            ranks = loading.result()
            await asyncio.get_running_loop().run_in_executor(self._context.engine_thread, ranks.leave)
        try:
            await self._context.api.leave()
        except (Unavailable, Unauthorized) as err:
            log.warning("gang left without telling its service", error=str(err))
