"""A worker: as it joined, as it was last heard, and what it is ordered to have. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.replica_rules import ReplicaId, ReplicaOrder, ReplicaReport
from turnout.tenants.gpu_time_rules import GpuReport


class Standing(StrEnum):
    """What the manager thinks of a worker, by its own clock."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    GONE = "gone"


class DrainedBy(StrEnum):
    """Who takes a worker out: an admin, or the worker itself, which is about to end."""

    ADMIN = "admin"
    ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class OrderRefusal:
    """Why a worker does not take a model's replicas, until when nobody asks it again, and whether it said so itself
    (`told`)."""

    reason: str
    until: float
    told: bool = True


# The `url` of a worker that nobody can reach: it holds a tunnel open to each gateway instead.
TUNNEL = "tunnel:"


@dataclass(frozen=True, slots=True)
class Worker:
    """`url` is how gateways reach the worker's relay; `heard_at` is by the manager's clock.

    `version` numbers its orders and `seen` is the version it last had; `seq` numbers its heartbeats, so that a
    late one is known. `strangers` are replicas it reports that are not (or no longer) its own to have. When it lost
    replicas it may be starting them again from older orders, so nothing is placed there before it has seen `hold`.
    `refusals` are by model.
    """

    id: WorkerId
    machine: Machine
    url: str
    heard_at: float
    standing: Standing = Standing.ALIVE
    drained_by: frozenset[DrainedBy] = frozenset()
    reports: Mapping[ReplicaId, ReplicaReport] = field(default_factory=dict[ReplicaId, ReplicaReport])
    name: str = ""
    seq: int = 0
    seen: int = 0
    version: int = 1
    hold: int = 0
    strangers: frozenset[ReplicaId] = frozenset()
    freed_at: float = float("-inf")  # when a replica last left it: its memory may take a while to be free
    refusals: Mapping[str, OrderRefusal] = field(default_factory=dict[str, OrderRefusal])

    @property
    def draining(self) -> bool:
        """Whether it gets nothing new, and its replicas leave."""
        return bool(self.drained_by)

    @property
    def leaving(self) -> bool:
        """Whether it is about to end: it stops its replicas by itself, and follows no order any more."""
        return DrainedBy.ITSELF in self.drained_by

    def drained(self, by: DrainedBy, draining: bool) -> "Worker":
        """The worker with one reason to drain more or less; the same one when nothing changes."""
        if (by in self.drained_by) is draining:
            return self
        return replace(self, drained_by=self.drained_by ^ {by})

    @property
    def settled(self) -> bool:
        """Whether it has nothing but what the manager knows of."""
        return not self.strangers and self.seen >= self.hold


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A worker as it registered. Only a digest of its secret is kept. `key` is the id of the worker key that it joined
    with: when that key goes, so does the worker. `address` is where its URL led when it proved that it is there: it is
    called at that address, whatever the URL's name means later. Both are empty for one that joined before they were kept."""

    id: WorkerId
    name: str
    url: str
    digest: str
    draining: bool = False
    key: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class StoredHeartbeat:
    """A worker's heartbeat. `seen` is the version of the orders it has; `seq` grows from beat to beat and is given
    by whoever stores it, as does `ago_s`: how long ago it came, when it is read. A worker that is `leaving` is about to end."""

    machine: Machine
    reports: tuple[ReplicaReport, ...] = ()
    seen: int = 0
    seq: int = 0
    ago_s: float = 0.0
    gpu_time: GpuReport | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class OrderSheet:
    """All orders of one worker."""

    version: int
    orders: tuple[ReplicaOrder, ...] = ()
