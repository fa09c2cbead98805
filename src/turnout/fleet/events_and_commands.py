"""What can happen to the fleet (events) and what the manager can decide (commands)."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import Model, Needs
from turnout.fleet.replica_rules import ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import Demand


@dataclass(frozen=True, slots=True)
class ModelSet:
    """A model was registered or changed."""

    model: Model


@dataclass(frozen=True, slots=True)
class ModelRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    """A heartbeat. `seq` grows with each of a worker's heartbeats; `seen` is the version of its orders it has. One that is
    `leaving` is about to end."""

    id: WorkerId
    url: str
    machine: Machine
    reports: tuple[ReplicaReport, ...]
    seq: int
    seen: int = 0
    name: str = ""
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    """An admin takes it out, or back in."""

    id: WorkerId
    draining: bool = True


@dataclass(frozen=True, slots=True)
class WorkerRemoved:
    """It was evicted, or its registration has lapsed."""

    id: WorkerId


@dataclass(frozen=True, slots=True)
class DemandSeen:
    """The demand on the models that it names; the others' is unchanged."""

    demand: Mapping[str, Demand]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = ModelSet | ModelRemoved | WorkerHeard | WorkerDraining | WorkerRemoved | DemandSeen | Tick


@dataclass(frozen=True, slots=True)
class StartReplica:
    """`cause` is why the model needs one more: a short word for the metrics."""

    replica: ReplicaId
    model: str
    worker: WorkerId
    gpus: tuple[int, ...]
    needs: Needs
    cause: str = "request"


@dataclass(frozen=True, slots=True)
class SetWant:
    replica: ReplicaId
    want: Want
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """No new requests for it; when it has none left it is to be `then`."""

    replica: ReplicaId
    then: Want
    reason: str
    room_for: str | None = None


@dataclass(frozen=True, slots=True)
class Reopen:
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class ForgetReplica:
    replica: ReplicaId
    reason: str


@dataclass(frozen=True, slots=True)
class Blame:
    """The model failed once more; it is tried again at `retry_at`."""

    model: str
    count: int
    reason: str
    retry_at: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    model: str
    reason: str
    until: float | None


@dataclass(frozen=True, slots=True)
class TakeUp:
    """There is hope again."""

    model: str


Command = StartReplica | SetWant | Close | Reopen | ForgetReplica | Blame | GiveUp | TakeUp
