"""Webhooks that are still to be sent."""

from dataclasses import dataclass
from typing import Protocol

from turnout.domain.tasks import Task, TaskId


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that is due: the task as it ended and how many tries failed before."""

    task: Task
    tries: int


class Outbox(Protocol):
    """Webhooks to be sent. A task with a `webhook_url` enters with the write that ends it."""

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        """What is due; hidden from others for `hold_s`, so that a crash only delays it."""
        ...

    async def done(self, task_id: TaskId) -> None: ...
    async def again(self, task_id: TaskId, at: float) -> None: ...
