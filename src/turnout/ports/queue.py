"""The queue of tasks that each video model has: for gangs that claim, for owners of gangs, for those who watch it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.domain.leases import HeldTurn, Overdue
from turnout.domain.tasks import GangId, Task, TaskId, TenantId
from turnout.ports.tasks import Limits


class Queue(Protocol):
    """The tasks that wait, for gangs that take them."""

    async def claim(
        self,
        model: str,
        gang: GangId,
        limits: Limits,
        wanted: TaskId | None = None,
        *,
        loading: bool = False,
    ) -> Task | None:
        """The next task, or the one that is `wanted`, claimed for the gang with a new attempt number; None when it does not
        wait, or when the gang was closed. While it is `loading` it leaves tasks to gangs that may begin sooner
        (`fairness.LOADING_WAIT_S`), but not the one that is wanted."""
        ...

    async def renew(self, task: Task) -> bool:
        """Extends the lease; False when it is no longer this attempt's."""
        ...

    async def leave(self, model: str, gang: GangId) -> None:
        """Forgets a gang that holds nothing."""
        ...


class Leases(Protocol):
    """The leases that gangs hold, for the one who watches them."""

    async def leases(self, model: str) -> list[HeldTurn]: ...

    async def take_back(self, overdue: Overdue) -> Task | None:
        """Puts back the task, as it is now; None when the turn is no longer held."""
        ...


class QueueGangs(Protocol):
    """The gangs that claim from queues, for those who start and stop them."""

    async def close(self, gang: GangId) -> None:
        """From now on the gang gets no task; it keeps what it holds. Must be repeated within the hour."""
        ...

    async def open(self, gang: GangId) -> None:
        """Takes `close` back."""
        ...

    async def holdings(self, model: str) -> dict[GangId, int]:
        """How many tasks each gang holds."""
        ...

    async def release(self, model: str, gang: GangId, reason: str, *, counts: bool = True) -> list[Task]:
        """Puts back at once what a gang that is known to be dead still holds. `counts`: it died by itself."""
        ...

    async def leave(self, model: str, gang: GangId) -> None:
        """The same as `Queue.leave`, for a gang that cannot do it itself."""
        ...


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


class Backlog(Protocol):
    """What is unfinished, for those who measure it and clean up."""

    async def models(self) -> list[str]:
        """All models that ever had a task, until they are forgotten."""
        ...

    async def figures(self, model: str) -> QueueFigures: ...

    async def all_figures(self, models: Sequence[str]) -> dict[str, QueueFigures]:
        """The same of many, read at once."""
        ...

    async def by_tenant(self, model: str) -> list[TenantBacklog]:
        """Of the 5,000 oldest unfinished tasks."""
        ...

    async def now(self) -> float:
        """The time by the clock that ages are judged by."""
        ...

    async def unfinished(self, model: str, older_than_s: float) -> list[TaskId]:
        """Some of the model's tasks that were submitted so long ago and have not ended."""
        ...

    async def forget(self, model: str) -> bool:
        """Removes an empty queue; False while it has tasks."""
        ...

    async def totals(self) -> dict[str, int]:
        """How many tasks are in each state now (queued, in_progress) and ever ended (the others)."""
        ...
