"""Workers: their registrations and heartbeats, and the orders that the manager gives them."""

from collections.abc import Collection
from typing import Protocol

from turnout.domain.serving import Enrolment, OrderSheet, StoredHeartbeat, WorkerId


class WorkerStore(Protocol):
    """A worker that is not heard from for days is forgotten."""

    async def enrol(self, worker: Enrolment) -> None:
        """Adds a worker, or changes all of it but whether it drains."""
        ...

    async def enrolled(self, worker: WorkerId) -> Enrolment | None: ...

    async def enrolments(self, workers: Collection[WorkerId] | None = None) -> dict[WorkerId, Enrolment]:
        """Of these workers, or of all."""
        ...

    async def evicted(self, worker: WorkerId) -> Enrolment | None:
        """The worker as it was registered, if it was evicted in the last days."""
        ...

    async def evict(self, worker: WorkerId) -> None:
        """Ends the registration for good: the id and its secret are of no more use."""
        ...

    async def set_draining(self, worker: WorkerId, draining: bool) -> None:
        """Raises NotFound."""
        ...

    async def heard(self, worker: WorkerId, heartbeat: StoredHeartbeat) -> int:
        """Stores a heartbeat; returns its number. Raises NotFound for a worker that should register again."""
        ...

    async def heartbeats(self, workers: Collection[WorkerId]) -> dict[WorkerId, StoredHeartbeat]:
        """The last heartbeat of each that has one."""
        ...


class OrderStore(Protocol):
    """What the manager wants each worker to run, as the worker reads it."""

    async def get(self, worker: WorkerId) -> OrderSheet | None:
        """None while the manager has given no orders: the worker should go on as it is."""
        ...

    async def wait(self, worker: WorkerId, seen: int, timeout_s: float) -> OrderSheet | None:
        """The orders as soon as their version is not `seen`; None when the time is over."""
        ...
