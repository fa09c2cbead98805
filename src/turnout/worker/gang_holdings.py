"""The tasks that this worker's gangs hold in the queue: counted while a gang runs, put back at once when it is gone.

Gangs take their tasks by themselves. A gang that should get no further task is closed in the queue.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.errors import Unavailable
from turnout.fleet.replica_rules import Want
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log
from turnout.worker.lifecycle_rules import ENDED_PHASES, Holds
from turnout.worker.orphans import Entry
from turnout.worker.replica_owner import ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

log = get_log()

_TICK_S = 0.25
_CLOSE_AGAIN_S = 1800.0


@dataclass(slots=True)
class _Gang:
    """`closed_at` is when it was last closed in the queue; None while it is open."""

    replica: ReplicaOwner
    closed_at: float | None = None
    released: bool = False

    @property
    def id(self) -> GangId:
        return GangId(self.replica.id)


class GangHoldings:
    """`left` are the replicas of an earlier worker that was killed, and they with it."""

    def __init__(self, queue: TaskQueue, left: Sequence[Entry]) -> None:
        self._queue = queue
        self._left = [(entry.model, GangId(entry.replica)) for entry in left if entry.model]
        self._gangs: dict[GangId, _Gang] = {}
        self._reached = True
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """A replica has changed: look now."""
        self._changed.set()

    async def run(self, replicas: ReplicaSet) -> None:
        while True:
            self._changed.clear()
            await self.tend(replicas)
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def tend(self, replicas: ReplicaSet) -> None:
        """One round. What the queue does not answer is done in the next."""
        present = {GangId(replica.id): replica for replica in replicas.gangs()}
        for gang_id, replica in present.items():
            self._gangs.setdefault(gang_id, _Gang(replica))
        try:
            await self._put_back_what_was_left()
            live = [gang for gang in self._gangs.values() if gang.replica.phase not in ENDED_PHASES]
            held: dict[GangId, int] = {}
            for model in {gang.replica.model.name for gang in live}:
                held |= await self._queue.holdings(model)
            for gang in self._gangs.values():
                if gang.replica.phase not in ENDED_PHASES:
                    gang.replica.apply(Holds(held.get(gang.id, 0)))
                    await self._open_or_close(gang)
                elif not gang.released:
                    await self._release_all_of(gang)
            self._reached = True
        except Unavailable as err:
            if self._reached:
                log.warning("task queue did not answer", error=str(err))
            self._reached = False
        self._gangs = {i: gang for i, gang in self._gangs.items() if i in present or not gang.released}

    async def _open_or_close(self, gang: _Gang) -> None:
        now = time.monotonic()
        if not gang.replica.closing and gang.replica.wanted is not Want.GONE:
            if gang.closed_at is not None:
                await self._queue.open(gang.id)
                gang.closed_at = None
                log.info("gang may claim tasks again", gang=gang.id)
        elif gang.closed_at is None or now - gang.closed_at > _CLOSE_AGAIN_S:
            await self._queue.close(gang.id)
            gang.closed_at = now
            log.info("gang may claim no more tasks", gang=gang.id)

    async def _release_all_of(self, gang: _Gang) -> None:
        model, detail = gang.replica.model.name, gang.replica.report().detail
        reason = f"the gang is gone: {detail}" if detail else "the gang is gone"
        await self._release(model, gang.id, reason)
        gang.released = True

    async def _put_back_what_was_left(self) -> None:
        while self._left:
            await self._release(*self._left[-1], "the worker died")
            self._left.pop()

    async def _release(self, model: str, gang: GangId, reason: str) -> None:
        for task in await self._queue.release(model, gang, reason):
            log.warning("task put back", **task.log_ids, gang=gang, state=task.state)
        await self._queue.leave(model, gang)
