"""Labels of tasks in Redis: a field beside the task's document, which no gang writes and which goes with the task. And the search
through a tenant's tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all
from turnout.store.scripts import Script
from turnout.tasks.label_rules import NO_LABELS, Labels, VideoFilter
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Task, TaskId, TenantId

LABELS = RecordKind[Labels]("labels", Labels)

_READ_AT_ONCE = 100
_MOST_READ = 1_000
"""Tasks that one request looks at: about 40 ms of a gateway, in pieces."""

_put_labels = Script("tasks/put_labels")


async def put_labels(link: RedisConnection, *, id: TaskId, doc: bytes) -> bool:
    """False if the task is gone."""
    return bool(await _put_labels.run(link, id=id, doc=doc))


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """`read_to` is the last task that was looked at: the next search goes on behind it."""

    tasks: Sequence[Task]
    read_to: TaskId | None
    more: bool


class LabelStore:
    def __init__(self, link: RedisConnection, tasks: TaskLog) -> None:
        self._link = link
        self._tasks = tasks

    async def put(self, task: TaskId, labels: Labels) -> bool:
        """False if the task is gone."""
        return await put_labels(self._link, id=task, doc=LABELS.dump(labels))

    async def of(self, tasks: Sequence[TaskId]) -> dict[TaskId, Labels]:
        """Those that have some."""
        async with translated(), self._link.client.pipeline(transaction=False) as pipe:
            for task in tasks:
                pipe.hget(self._link.keys.task(task), "labels")
            docs = dict(zip(tasks, await pipe.execute() if tasks else [], strict=True))
        said = {task: doc for task, doc in docs.items() if doc is not None}
        return await read_all(self._link, LABELS, said)

    async def find(self, task: TaskId) -> Labels:
        return (await self.of([task])).get(task, NO_LABELS)

    async def search(
        self,
        tenant: TenantId,
        wanted: VideoFilter,
        *,
        after: TaskId | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> FoundTasks:
        """The tenant's tasks that are wanted, by age. A request reads so many tasks and no more; there may be none among them,
        and more behind them."""
        found: list[Task] = []
        for _ in range(0, _MOST_READ, _READ_AT_ONCE):
            page, more = await self._tasks.page(tenant, after=after, limit=_READ_AT_ONCE, order=order)
            labels = await self.of([task.id for task in page])
            for task in page:
                if wanted.lets_through(task, labels.get(task.id, NO_LABELS)):
                    if len(found) == limit:
                        return FoundTasks(found, after, more=True)
                    found.append(task)
                after = task.id
            if not more:
                return FoundTasks(found, after, more=False)
        return FoundTasks(found, after, more=True)
