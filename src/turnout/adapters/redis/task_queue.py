"""The queue of turns in Redis: claim, lease, takeover. scripts/names.lua says how turns and tasks belong together."""

import time
from collections.abc import Iterable

from turnout.adapters.redis import scripts
from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.task_log import RedisTaskLog
from turnout.domain.errors import NotFound, Stale
from turnout.domain.tasks import Claimed, GangId, Interrupted, State, Task, TaskId
from turnout.ports.tasks import Limits

_GROUP = "gangs"
_REAPER = b"reaper"
_CLOSED_S = 2 * 3600


class RedisQueue:
    """Both `Queue` and `QueueGangs`."""

    def __init__(self, link: RedisConnection, tasks: RedisTaskLog) -> None:
        self._link = link
        self._tasks = tasks

    async def claim(self, model: str, gang: GangId, limits: Limits) -> Task | None:
        while True:
            task_id = await scripts.claim(self._link, model=model, gang=gang, max_running=limits.max_running)
            if task_id is None:
                return None
            try:
                task = await self._tasks.get(task_id)
                return await self._tasks.apply(task_id, Claimed(time.time(), task.attempt + 1, gang))
            except (Stale, NotFound):
                continue  # cancelled between the two scripts; its turn went with it

    async def renew(self, task: Task) -> bool:
        return await scripts.renew(self._link, id=task.id, gang=task.gang or "")

    async def reap(self, model: str, lease_s: float) -> list[Task]:
        ids = await scripts.overdue(self._link, model=model, lease_ms=int(lease_s * 1000))
        return await self._put_back(ids, "the gang's lease ran out: it stopped responding")

    async def release(self, model: str, gang: GangId, reason: str) -> list[Task]:
        async with translated():
            queue = self._link.keys.queue(model)
            if not await self._link.client.exists(queue):
                return []
            held = await self._link.client.xpending_range(queue, _GROUP, "-", "+", 100, consumername=gang)
            if not held:
                return []
            turns = [entry["message_id"] for entry in held]
            ids: list[bytes | None] = await self._link.client.hmget(self._link.keys.bound(model), turns)
        return await self._put_back([TaskId(i.decode()) for i in ids if i is not None], reason)

    async def _put_back(self, ids: Iterable[TaskId], reason: str) -> list[Task]:
        done: list[Task] = []
        for task_id in ids:
            try:
                task, version = await self._tasks.read(task_id)
                if task.state is State.IN_PROGRESS:
                    event = Interrupted(time.time(), task.attempt, reason)
                    done.append(await self._tasks.apply(task_id, event))
                elif await self._tasks.write(task, version, None):
                    done.append(task)  # its claimer died between the two scripts of a claim
            except (Stale, NotFound):
                continue  # it moved on by itself
        return done

    async def close(self, gang: GangId) -> None:
        async with translated():
            await self._link.client.set(self._link.keys.closed(gang), 1, ex=_CLOSED_S)

    async def open(self, gang: GangId) -> None:
        async with translated():
            await self._link.client.delete(self._link.keys.closed(gang))

    async def holdings(self, model: str) -> dict[GangId, int]:
        async with translated():
            if not await self._link.client.exists(self._link.keys.queue(model)):
                return {}
            consumers = await self._link.client.xinfo_consumers(self._link.keys.queue(model), _GROUP)
        return {GangId(c["name"].decode()): int(c["pending"]) for c in consumers if c["name"] != _REAPER}

    async def leave(self, model: str, gang: GangId) -> None:
        known = await self.holdings(model)
        async with translated():
            if gang in known and not known[gang]:
                await self._link.client.xgroup_delconsumer(self._link.keys.queue(model), _GROUP, gang)
            await self._link.client.delete(self._link.keys.closed(gang))
