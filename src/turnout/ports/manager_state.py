"""What the manager reads to follow the fleet and writes to go on after a restart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from turnout.domain.fleet import ModelHistory
from turnout.domain.gpu_time import GpuReport
from turnout.domain.model_status import ModelStatus
from turnout.domain.serving import ModelRoutes, OrderSheet, Replica, ReplicaId, WorkerId


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """What changed up to `cursor`: workers that sent a heartbeat or changed, gateways whose demand changed, whether models
    did. A submitted task is news, too, but is in none of these."""

    cursor: str
    workers: frozenset[WorkerId] = frozenset()
    gateways: frozenset[str] = frozenset()
    models: bool = False


@dataclass(frozen=True, slots=True)
class SavedFleet:
    """What a manager left behind: its replicas, the versions of workers' orders, which models have routes, notes, and the
    reports of GPU time that it booked last."""

    replicas: Mapping[ReplicaId, Replica]
    versions: Mapping[WorkerId, int]
    routed: frozenset[str]
    history: ModelHistory | None
    gpu_reports: Mapping[WorkerId, GpuReport] = field(default_factory=dict[WorkerId, GpuReport])


@dataclass(frozen=True, slots=True)
class GpuBooking:
    """GPU time to be added to a day's tables: ms by `state:kind of GPU:model`, and the same by worker. `reports` are those
    that it was booked from; None for a worker that is no more."""

    day: str
    reports: Mapping[WorkerId, GpuReport | None]
    by_model: Mapping[str, int]
    by_worker: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Publication:
    """What changed by one decision; None stands for what is no more."""

    replicas: Mapping[ReplicaId, Replica | None] = field(default_factory=dict[ReplicaId, Replica | None])
    orders: Mapping[WorkerId, OrderSheet | None] = field(default_factory=dict[WorkerId, OrderSheet | None])
    routes: Mapping[str, ModelRoutes | None] = field(default_factory=dict[str, ModelRoutes | None])
    history: ModelHistory | None = None
    statuses: Mapping[str, ModelStatus] | None = None
    replica_counts: Mapping[str, int] | None = None  # replicas by `state:model`
    decision_counts: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # by `decision:model`, to be added up
    gpu_time: GpuBooking | None = None


class ManagerState(Protocol):
    """What happened since the manager looked, what an earlier manager left, and where it publishes its decisions."""

    async def wait_changes(self, after: str, timeout_s: float) -> FleetChanges:
        """What changed after that cursor, as soon as something did. With "" it returns at once, with the newest cursor."""
        ...

    async def saved(self) -> SavedFleet: ...

    async def publish(self, right: str, owner: str, publication: Publication) -> bool:
        """Writes all or nothing; False when `owner` does not hold the mutex `right`."""
        ...
