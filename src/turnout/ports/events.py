"""The events of tasks: of one task from its beginning, and of all tasks as they happen."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from turnout.domain.tasks import Event, TaskId, TenantId


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as it was written. `id` orders the events of one task, `cursor` those of all tasks."""

    id: str
    cursor: str
    task: TaskId
    tenant: TenantId
    event: Event


class TaskEvents(Protocol):
    async def history(self, task_id: TaskId, after: str = "0") -> list[Recorded]:
        """The task's events with ids after `after`, oldest first."""
        ...

    async def newest(self) -> str:
        """The cursor of the newest event of all; "" if there is none."""
        ...

    def tail(self, after: str | None = None) -> AsyncIterator[Recorded]:
        """All tasks' events with cursors after `after` (None: from now on), for ever, in order."""
        ...
