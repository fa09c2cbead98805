"""What is unfinished, in Redis: read for figures and for cleaning up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, read_all, text
from turnout.tasks import task_scripts
from turnout.tasks.task_records import TASK
from turnout.tasks.task_rules import State, Task, TaskId, TenantId


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """`length` counts queued and running tasks; `oldest_s` is how long the oldest of them has been there."""

    length: int
    running: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class TenantBacklog:
    """One tenant's unfinished tasks for a model; `since` is when the first of them was submitted, by the clock of `Backlog.now`."""

    tenant: TenantId
    waiting: int
    running: int
    since: float


_MAX_LOOKED_AT = 5000


class Backlog:
    """What is unfinished, for those who measure it and clean up."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def figures(self, model: str) -> QueueFigures:
        return (await self.all_figures([model]))[model]

    async def all_figures(self, models: Sequence[str]) -> dict[str, QueueFigures]:
        """The same of many, read at once."""
        async with translated(), self._link.client.pipeline(transaction=False) as pipe:
            for model in models:
                pipe.xlen(self._link.keys.queue(model))
                pipe.hlen(self._link.keys.bound(model))
                pipe.zrange(self._link.keys.unfinished(model), 0, 0, withscores=True)
            pipe.time()
            *found, (seconds, micros) = await pipe.execute()
        now = seconds + micros / 1e6
        figures: dict[str, QueueFigures] = {}
        for model, length, running, oldest in zip(models, found[::3], found[1::3], found[2::3], strict=True):
            age = max(0.0, now - oldest[0][1] / 1000) if oldest else 0.0
            figures[model] = QueueFigures(length, running, age)
        return figures

    async def by_tenant(self, model: str) -> list[TenantBacklog]:
        """Of the 5,000 oldest unfinished tasks."""
        async with translated(), self._link.client.pipeline(transaction=False) as pipe:
            tasks = await self._link.client.zrange(
                self._link.keys.unfinished(model), 0, _MAX_LOOKED_AT - 1, withscores=True
            )
            for task, _ in tasks:
                pipe.hmget(self._link.keys.task(text(task)), "tenant", "state")
            found = await pipe.execute()
        parts: dict[TenantId, TenantBacklog] = {}
        for (_, submitted_ms), (tenant, state) in zip(tasks, found, strict=True):
            if tenant is None or state is None:
                continue  # it ended meanwhile
            name, running = TenantId(text(tenant)), state == State.IN_PROGRESS.value.encode()
            part = parts.get(name) or TenantBacklog(name, 0, 0, submitted_ms / 1000)
            parts[name] = replace(part, waiting=part.waiting + (not running), running=part.running + running)
        return list(parts.values())

    async def oldest(self, model: str, count: int) -> list[Task]:
        """So many of its unfinished tasks, by time of submission."""
        async with translated(), self._link.client.pipeline(transaction=False) as pipe:
            found = await self._link.client.zrange(self._link.keys.unfinished(model), 0, count - 1)
            ids = [TaskId(text(task)) for task in found]
            for task in ids:
                pipe.hget(self._link.keys.task(task), "doc")
            docs = dict(zip(ids, await pipe.execute(), strict=True))
        return list((await read_all(self._link, TASK, docs)).values())

    async def models(self) -> list[str]:
        """All models that ever had a task, until they are forgotten."""
        async with translated():
            found = await self._link.client.smembers(self._link.keys.queues())
        return sorted(text(name) for name in found)

    async def forget(self, model: str) -> bool:
        """Removes an empty queue; False while it has tasks."""
        return await task_scripts.forget_queue(self._link, model=model)

    async def totals(self) -> dict[str, int]:
        """How many tasks are in each state now (queued, in_progress) and ever ended (the others)."""
        async with translated():
            found = await self._link.client.hgetall(self._link.keys.totals())
        counted = {text(name): number(count) for name, count in found.items()}
        return {state.value: counted.get(state.value, 0) for state in State}

    async def now(self) -> float:
        """The time by the clock that ages are judged by."""
        return await self._link.now()

    async def unfinished(self, model: str, older_than_s: float) -> list[TaskId]:
        """Some of the model's tasks that were submitted so long ago and have not ended."""
        before = await self._link.now() - older_than_s
        async with translated():
            ids = await self._link.client.zrangebyscore(
                self._link.keys.unfinished(model), "-inf", int(before * 1000), start=0, num=100
            )
        return [TaskId(text(i)) for i in ids]
