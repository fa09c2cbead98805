"""All that the manager knows, and how a worker's report moves one replica. Pure.

`evolve` is the only place that knows which reports to believe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from turnout.backoff import backoff_s
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.scaling_rules import residence_s
from turnout.fleet.worker_rules import Standing, Worker

USED_GRAIN_S = 1.0  # how exactly the last use of a replica is kept


@dataclass(frozen=True, slots=True)
class Rules:
    """The manager's patience, in seconds and counts.

    A worker that was not heard for `suspect_s` gets nothing new, after `gone_s` its replicas are placed again and
    after `forget_s` it is forgotten. A replica that became ready stays for `min_resident_s`, whoever waits; with users
    it may stay longer (`stay_s`). A closed replica is stopped when its worker reports it idle `settle_s` later: by then
    all gateways have heard.
    A further replica is added when the load exceeded the present ones for `add_after_s`.
    """

    suspect_s: float = 6.0
    gone_s: float = 20.0
    forget_s: float = 3600.0
    min_resident_s: float = 30.0
    settle_s: float = 1.0
    add_after_s: float = 3.0
    absent_s: float = 5.0  # a worker that has the orders should report the replica by then
    refusal_s: float = 300.0  # a worker that did not take a model's replica is not asked again before
    forget_failed_s: float = 10.0  # a failed replica that its worker does not let go of is forgotten then
    sleep_timeout_s: float = 60.0
    freeing_s: float = 30.0  # memory of a replica that left should be free by then, or somebody else holds it
    healthy_s: float = 60.0  # a replica that was ready for so long clears its model of earlier failures
    max_failures: int = 3
    backoff_s: float = 5.0
    max_backoff_s: float = 300.0

    def with_gone_s(self, gone_s: float) -> "Rules":
        """A worker is suspected no later than it is gone."""
        return replace(self, gone_s=gone_s, suspect_s=min(self.suspect_s, gone_s))

    def standing(self, silent_s: float) -> Standing:
        if silent_s >= self.gone_s:
            return Standing.GONE
        return Standing.SUSPECT if silent_s >= self.suspect_s else Standing.ALIVE

    def backoff(self, failures: int) -> float:
        return backoff_s(failures, self.backoff_s, self.max_backoff_s)


@dataclass(frozen=True, slots=True)
class ModelPressure:
    """Since when a model waits with nothing to serve it, has too few replicas for its load, has too many."""

    waiting_since: float | None = None
    pressed_since: float | None = None
    slack_since: float | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row a model failed to start or stay, why, and when to try again."""

    count: int
    reason: str
    retry_at: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why nobody should wait for the model. `until` is None when only new machines can change it."""

    reason: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """`at` is when it was last stepped, by the manager's clock; all other times are by the same clock. `wake_s` is how long
    each model took the last time that a replica of it became ready."""

    models: Mapping[str, Model] = field(default_factory=dict[str, Model])
    workers: Mapping[WorkerId, Worker] = field(default_factory=dict[WorkerId, Worker])
    replicas: Mapping[ReplicaId, Replica] = field(default_factory=dict[ReplicaId, Replica])
    demand: Mapping[str, Demand] = field(default_factory=dict[str, Demand])
    pace: Mapping[str, ModelPressure] = field(default_factory=dict[str, ModelPressure])
    failures: Mapping[str, Failures] = field(default_factory=dict[str, Failures])
    given_up: Mapping[str, GivenUp] = field(default_factory=dict[str, GivenUp])
    wake_s: Mapping[str, float] = field(default_factory=dict[str, float])
    rules: Rules = Rules()
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """What the manager remembers of its models, and when it was written, by its clock."""

    at: float
    pace: Mapping[str, ModelPressure] = field(default_factory=dict[str, ModelPressure])
    failures: Mapping[str, Failures] = field(default_factory=dict[str, Failures])
    given_up: Mapping[str, GivenUp] = field(default_factory=dict[str, GivenUp])
    wake_s: Mapping[str, float] = field(default_factory=dict[str, float])


def stay_s(fleet: Fleet, replica: Replica) -> float:
    """How long the replica stays once it is ready, whoever waits."""
    demand = fleet.demand.get(replica.model)
    used = replica.busy > 0 or load_of(fleet, replica.model) > 0
    wake_s = fleet.wake_s.get(replica.model, 0.0)
    return residence_s(fleet.rules.min_resident_s, wake_s, used, demand is not None and demand.waiting > 0)


def load_of(fleet: Fleet, model: str) -> int:
    """Requests that wait for the model or run on it."""
    demand = fleet.demand.get(model)
    return demand.waiting + demand.running if demand else 0


def same_engine(one: Model, other: Model) -> bool:
    """Whether a replica of the one serves the other as well: they differ in how long and how many at most, and in
    who is sent there."""
    return one is other or replace(one, scaling=other.scaling, version=other.version) == other


def evolve(
    replica: Replica, report: ReplicaReport | None, worker: Worker, now: float, absent_s: float
) -> Replica | None:
    """The replica after its worker's report (None: the worker did not mention it); None when it has left.

    What says nothing new returns the very same object.
    """
    told = replica.ordered <= worker.seen <= worker.version
    if report is None:
        return _unmentioned(replica, told, worker.leaving, now, absent_s)
    match report.phase:
        case Phase.GONE | Phase.FAILED if replica.want is Want.GONE or worker.leaving or report.refused:
            return None  # failed is said when its process, and so its memory, is gone
        case Phase.GONE:
            return _moved(replica, Phase.FAILED, report, now, report.detail or "it ended by itself")
        case Phase.SLEEPING if replica.want is Want.ASLEEP and not told:
            return replica  # an earlier sleep
        case Phase.READY | Phase.STARTING if replica.asleep:
            return replica  # its memory was given away: only the manager wakes it
        case phase:
            return _moved(replica, phase, report, now, report.detail)


def _unmentioned(replica: Replica, told: bool, leaving: bool, now: float, absent_s: float) -> Replica | None:
    if replica.heard or leaving:
        return None  # the worker restarted and lost it, or ends and starts nothing
    if not told:
        return replica
    if replica.want is Want.GONE or now - replica.ordered_at >= absent_s:
        return None
    return replica


def _moved(replica: Replica, phase: Phase, report: ReplicaReport, now: float, detail: str) -> Replica:
    busy = report.busy if phase in (Phase.READY, Phase.STOPPING) else 0
    used_at = replica.used_at
    if busy and now - used_at >= USED_GRAIN_S:
        used_at = now
    changed = phase is not replica.phase
    if not changed and (busy, used_at, detail, report.address, True) == (
        replica.busy,
        replica.used_at,
        replica.detail,
        replica.address,
        replica.heard,
    ):
        return replica
    ready_at = replica.ready_at
    if phase is Phase.READY and replica.phase is not Phase.READY:
        ready_at = now
    elif phase is Phase.STARTING:
        ready_at = None
    return replace(
        replica,
        closing=None if phase is Phase.SLEEPING and replica.want is Want.ASLEEP else replica.closing,
        phase=phase,
        phase_since=now if changed else replica.phase_since,
        ready_at=ready_at,
        busy=busy,
        used_at=used_at,
        detail=detail,
        address=report.address,
        heard=True,
    )


def rebased(fleet: Fleet, by_s: float) -> Fleet:
    """The fleet with all times moved, for a manager whose clock began elsewhere."""

    def moved(at: float | None) -> float | None:
        return None if at is None else at + by_s

    def closing(one: Closing | None) -> Closing | None:
        return replace(one, since=one.since + by_s) if one else None

    return replace(
        fleet,
        at=fleet.at + by_s,
        workers={
            k: replace(
                w,
                heard_at=w.heard_at + by_s,
                freed_at=w.freed_at + by_s,
                refusals={m: replace(r, until=r.until + by_s) for m, r in w.refusals.items()},
            )
            for k, w in fleet.workers.items()
        },
        replicas={
            k: replace(
                r,
                created_at=r.created_at + by_s,
                phase_since=r.phase_since + by_s,
                used_at=r.used_at + by_s,
                ordered_at=r.ordered_at + by_s,
                ready_at=moved(r.ready_at),
                closing=closing(r.closing),
            )
            for k, r in fleet.replicas.items()
        },
        demand={k: replace(d, asked_at=d.asked_at + by_s) for k, d in fleet.demand.items()},
        pace={
            k: ModelPressure(moved(p.waiting_since), moved(p.pressed_since), moved(p.slack_since))
            for k, p in fleet.pace.items()
        },
        failures={k: replace(f, retry_at=f.retry_at + by_s) for k, f in fleet.failures.items()},
        given_up={k: replace(g, until=moved(g.until)) for k, g in fleet.given_up.items()},
    )
