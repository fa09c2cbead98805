"""Webhooks to be sent, in Redis: ids of tasks by the time at which they are due, and the number of tries of each."""

from dataclasses import dataclass

from turnout.errors import Newer, NotFound
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, text
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Task, TaskId


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that is due: the task as it ended and how many tries failed before."""

    task: Task
    tries: int


_TRIES_TTL_S = 7 * 86_400


class Outbox:
    """Webhooks to be sent. A task with a `webhook_url` enters with the write that ends it."""

    def __init__(self, link: RedisConnection, tasks: TaskLog) -> None:
        self._client = link.client
        self._link = link
        self._tasks = tasks
        self._name = link.keys.outbox()

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        """What is due; hidden from others for `hold_s`, so that a crash only delays it."""
        async with translated():
            ids = await self._client.zrangebyscore(self._name, "-inf", int(now * 1000), start=0, num=limit)
        found: list[Delivery] = []
        for raw in ids:
            task_id = TaskId(text(raw))
            async with translated():
                await self._client.zadd(self._name, {task_id: int((now + hold_s) * 1000)}, xx=True)
                tries = await self._client.get(self._link.keys.webhook_tries(task_id))
            try:
                found.append(Delivery(await self._tasks.get(task_id), number(tries)))
            except NotFound:
                await self.done(task_id)
            except Newer:
                continue  # it is looked at again after `hold_s`
        return found

    async def done(self, task_id: TaskId) -> None:
        async with translated():
            await self._client.zrem(self._name, task_id)
            await self._client.delete(self._link.keys.webhook_tries(task_id))

    async def count(self, outcome: str) -> None:
        """Counts a try, for the metrics."""
        async with translated():
            await self._client.hincrby(self._link.keys.decision_counts(), f"webhook:{outcome}", 1)

    async def again(self, task_id: TaskId, at: float) -> None:
        async with translated():
            tries = self._link.keys.webhook_tries(task_id)
            failed = number(await self._client.get(tries)) + 1
            await self._client.set(tries, failed, ex=_TRIES_TTL_S)
            await self._client.zadd(self._name, {task_id: int(at * 1000)}, xx=True)
