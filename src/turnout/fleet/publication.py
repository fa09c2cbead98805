"""What the manager reads to follow the fleet, and what it publishes of its decisions. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnout.fleet.fleet_rules import ModelHistory
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import Replica, ReplicaId
from turnout.fleet.route_rules import ModelRoutes
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.worker_rules import OrderSheet
from turnout.tenants.gpu_time_rules import BookedReport, GpuBooking


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What watchers want to know of the fleet; `heard_s` is how long ago each worker was last heard, `webhooks` how many are
    still to be delivered. `decision_counts` only grow; they are named as in `figure_rules`, and `webhook:OUTCOME`."""

    replica_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    decision_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    heard_s: Mapping[WorkerId, float] = field(default_factory=dict[WorkerId, float])
    webhooks: int = 0


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
    gpu_reports: Mapping[WorkerId, BookedReport] = field(default_factory=dict[WorkerId, BookedReport])


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
