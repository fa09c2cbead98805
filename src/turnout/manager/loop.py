"""The one housekeeper: leases that ran out, tasks nobody took, webhooks that are due, objects past their time.

Any number may run; the one that holds the mutex works, the others wait. All its state is in Redis.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from turnout.domain.errors import NotFound, Stale, Unavailable
from turnout.domain.tasks import Expired
from turnout.observe import get_log
from turnout.ports import Blobs, Mutex, Queue, TaskLog

log = get_log()

_TICK_S = 1.0
_MUTEX_S = 10.0
_SWEEP_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Manager:
    """`deliver` sends the webhooks that are due."""

    id: str
    models: Sequence[str]
    tasks: TaskLog
    queue: Queue
    blobs: Blobs
    mutex: Mutex
    deliver: Callable[[], Awaitable[None]]
    lease_s: float
    retention_s: float

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            chores = (
                ("leases", self._reap, _TICK_S),
                ("expiry", self._expire, 60.0),
                ("webhooks", self.deliver, _TICK_S),
                ("sweep", self._sweep, _SWEEP_EVERY_S),
            )
            jobs = [
                group.create_task(self._repeat(name, chore, every_s), name=name)
                for name, chore, every_s in chores
            ]
            await stopping.wait()
            for job in jobs:
                job.cancel()
        await self.mutex.drop("manager", self.id)

    async def _repeat(self, name: str, chore: Callable[[], Awaitable[None]], every_s: float) -> None:
        due = 0.0
        while True:
            try:
                if await self.mutex.hold("manager", self.id, _MUTEX_S) and time.monotonic() >= due:
                    await chore()
                    due = time.monotonic() + every_s
            except Unavailable as err:
                log.warning("chore put off", chore=name, error=str(err))
            await asyncio.sleep(_TICK_S)

    async def _reap(self) -> None:
        for model in self.models:
            for task in await self.queue.reap(model, self.lease_s):
                log.warning("lease ran out", task=task.id, attempt=task.attempt, state=task.state)

    async def _expire(self) -> None:
        now = time.time()
        for model in self.models:
            for task_id in await self.tasks.unfinished_since(model, now - self.retention_s):
                try:
                    await self.tasks.apply(task_id, Expired(now))
                    log.warning("task expired", task=task_id)
                except (Stale, NotFound):
                    continue  # it is being rendered at last, or it is gone

    async def _sweep(self) -> None:
        """Objects outlive their task by nothing: both go after the retention."""
        before = time.time() - self.retention_s
        old = [blob.key async for blob in self.blobs.list("tasks/") if blob.modified_at < before]
        await self.blobs.delete(old)
        if old:
            log.info("objects swept", count=len(old))
