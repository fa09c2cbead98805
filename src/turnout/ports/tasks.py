"""The tasks themselves: accepted, read, changed by events, forgotten."""

from dataclasses import dataclass
from typing import Literal, Protocol

from turnout.domain.tasks import Event, Task, TaskId, TenantId


@dataclass(frozen=True, slots=True)
class Idempotency:
    """`key` is the caller's, in `param` of its request; `digest` is a hash of the request. The key names the task, too."""

    key: str
    digest: str
    param: str = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may have at once: `max_running` tasks in progress and `max_waiting` more that wait.

    A task past both is refused. With `max_waiting` 0, no task may wait for the tenant's own tasks.
    """

    max_waiting: int = 100
    max_running: int = 8
    submits_per_minute: int = 60


class TaskLog(Protocol):
    """Every write is atomic and appends the event that led to it."""

    async def submit(self, task: Task, limits: Limits, idempotency: Idempotency | None = None) -> Task:
        """Accepts the task, or returns the one that the same idempotency key made before.

        Raises Conflict for a reused key with another digest, Limited past a limit. A refusal leaves no trace.
        """
        ...

    async def submit_in_line(
        self, task: Task, limits: Limits, idempotency: Idempotency | None = None
    ) -> tuple[Task, int | None]:
        """As `submit`, with the task's position."""
        ...

    async def get(self, task_id: TaskId) -> Task:
        """Raises NotFound."""
        ...

    async def named(self, tenant: TenantId, key: str) -> TaskId | None:
        """The tenant's task that was submitted with this idempotency key, if it is still there."""
        ...

    async def apply(self, task_id: TaskId, event: Event) -> Task:
        """The task after `event`. Raises Stale when the event changes nothing, NotFound when the task is gone."""
        ...

    async def forget(self, task: Task) -> None:
        """Removes an ended task and its events."""
        ...

    async def page(
        self, tenant: TenantId, *, after: TaskId | None, limit: int, order: Literal["asc", "desc"]
    ) -> tuple[list[Task], bool]:
        """A tenant's tasks by age, and whether there are more. Raises NotFound for an unknown `after`."""
        ...

    async def position(self, task: Task) -> int | None:
        """How many tasks are served before this one; None when it is not waiting."""
        ...
