"""The task log in Redis: read and version, `evolve` in Python, one script that compares and writes."""

from typing import Any, Literal

from turnout.adapters.redis.connection import MAX_EVENTS, RedisConnection, translated
from turnout.adapters.redis.usage_log import USAGE_MS
from turnout.domain.errors import Conflict, Limited, NotFound, Stale, Unavailable
from turnout.domain.fairness import Waiting, class_base, position
from turnout.domain.tasks import Event, State, Submitted, Task, TaskId, TenantId, evolve
from turnout.domain.usage import FIGURES, day_of, used_by
from turnout.ports.tasks import Idempotency, Limits
from turnout.schemas.task_records import dump_event, dump_task, load_task

_MAX_RACES = 50  # writers of one task: its gang, a canceller, the reaper; past this something is wrong


class RedisTaskLog:
    def __init__(self, link: RedisConnection, retention_s: float) -> None:
        self._link = link
        self._retention_ms = int(retention_s * 1000)

    async def submit(self, task: Task, limits: Limits, idempotency: Idempotency | None = None) -> Task:
        outcome: list[Any] = await self._link.run(
            "submit",
            task.id,
            dump_task(task),
            task.tenant,
            task.model,
            class_base(task.priority),
            task.state,
            int(task.created_at * 1000),
            self._retention_ms,
            dump_event(Submitted(task.created_at)),
            MAX_EVENTS,
            limits.max_waiting,
            limits.max_running,
            limits.submits_per_minute,
            idempotency.key if idempotency else "",
            idempotency.digest if idempotency else "",
        )
        match outcome:
            case [b"new"]:
                return task
            case [b"same", known]:
                return await self.get(TaskId(known.decode()))
            case [b"conflict", _]:
                raise Conflict(
                    "This Idempotency-Key was used with another request.",
                    "Idempotency-Key",
                    "idempotency_conflict",
                )
            case [b"rate", wait_ms]:
                raise Limited(
                    f"Over {limits.submits_per_minute} submissions a minute.",
                    code="rate_limit_exceeded",
                    retry_after_s=wait_ms / 1000,
                )
            case full:
                _, running, waiting = full
                raise Limited(
                    f"You have {running} tasks running and {waiting} waiting; "
                    f"{limits.max_running} may run and {limits.max_waiting} more may wait.",
                    code="too_many_tasks",
                    retry_after_s=10,
                )

    async def get(self, task_id: TaskId) -> Task:
        return (await self.read(task_id))[0]

    async def read(self, task_id: TaskId) -> tuple[Task, int]:
        """The task and its version."""
        async with translated():
            doc, version = await self._link.client.hmget(self._link.key("task", task_id), "doc", "v")
        if doc is None:
            raise NotFound(f"There is no video {task_id}.", "video_id", "video_not_found")
        return load_task(doc), int(version)

    async def apply(self, task_id: TaskId, event: Event) -> Task:
        for _ in range(_MAX_RACES):
            task, version = await self.read(task_id)
            after = evolve(task, event)
            if after is task:
                raise Stale(f"{event.kind} came too late: {task_id} is {task.state}, attempt {task.attempt}.")
            if await self.write(after, version, event):
                return after
        raise Unavailable(f"{task_id} is being written by too many at once.", retry_after_s=1.0)

    async def write(self, task: Task, version: int, event: Event | None) -> bool:
        """Writes the task over `version`, with its event and what becomes of its turn; False if it has moved on.

        A write that leaves a task queued gives its turn back: only a claimed task keeps one.
        """
        move = "end" if task.ended else "requeue" if task.state is State.QUEUED else "keep"
        done = await self._link.run(
            "commit",
            task.id,
            version,
            dump_task(task),
            task.state,
            move,
            int(task.finished_at * 1000) if task.finished_at else 0,
            self._retention_ms if task.ended else 2 * self._retention_ms,
            dump_event(event) if event else b"",
            MAX_EVENTS,
            1 if task.webhook_url else 0,
            *_use(task),
        )
        return bool(done)

    async def forget(self, task: Task) -> None:
        await self._link.run("forget", task.id, task.tenant, task.state)

    async def page(
        self, tenant: TenantId, *, after: TaskId | None, limit: int, order: Literal["asc", "desc"]
    ) -> tuple[list[Task], bool]:
        mine = self._link.key("of", tenant)
        client = self._link.client
        async with translated():
            start = 0
            if after is not None:
                rank = await (client.zrevrank if order == "desc" else client.zrank)(mine, after)
                if rank is None:
                    raise NotFound(f"There is no video {after}.", "after", "video_not_found")
                start = rank + 1
            tasks: list[Task] = []
            while len(tasks) <= limit:  # one more than asked tells whether there are more
                ids = await client.zrange(mine, start, start + limit, desc=order == "desc")
                if not ids:
                    break
                start += len(ids)
                pipe = client.pipeline(transaction=False)
                for task_id in ids:
                    pipe.hget(self._link.key("task", task_id.decode()), "doc")
                tasks += [load_task(doc) for doc in await pipe.execute() if doc is not None]
        return tasks[:limit], len(tasks) > limit

    async def position(self, task: Task) -> int | None:
        found: list[Any] = await self._link.run("position", task.model, task.tenant, task.id)
        if not found:
            return None
        place, *rest = found
        lines = [
            Waiting(tenant.decode(), float(tag), count)
            for tenant, tag, count in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        ]
        own = next(line for line in lines if line.tenant == task.tenant)
        return position(own, place, [line for line in lines if line is not own])


def _use(task: Task) -> list[str | int]:
    """What a task that ends is counted with."""
    if task.finished_at is None:
        return []
    used = used_by(task)
    amounts = [(figure, amount) for figure in FIGURES if (amount := getattr(used, figure))]
    return [day_of(task.finished_at), USAGE_MS, *(one for pair in amounts for one in pair)]
