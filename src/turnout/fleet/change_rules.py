"""From what the registry holds to events, and from two fleets to what must be published between them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from turnout.fleet.events_and_commands import (
    DemandSeen,
    Event,
    ModelRemoved,
    ModelSet,
    WorkerDraining,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import Fleet, ModelHistory
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.publication import Publication, SavedFleet
from turnout.fleet.replica_rules import Replica, ReplicaId
from turnout.fleet.route_rules import AdminWish, Demand, DemandReport, ModelRoutes
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.view_rules import orders_of, routes_of, statuses
from turnout.fleet.worker_rules import DrainedBy, Enrolment, OrderSheet, StoredHeartbeat, Worker

_USED_GRAIN_S = 30.0  # a busy fleet would be written again with every heartbeat
NOBODY = Demand()

GatewayDemand = tuple[float, Mapping[str, DemandReport]]
"""When a gateway's report came, and the report."""


def model_events(fleet: Fleet, models: Mapping[str, Model]) -> list[Event]:
    changed: list[Event] = [ModelSet(m) for name, m in models.items() if fleet.models.get(name) != m]
    return changed + [ModelRemoved(name) for name in fleet.models if name not in models]


def worker_events(
    fleet: Fleet,
    asked: Collection[WorkerId],
    enrolments: Mapping[WorkerId, Enrolment],
    heartbeats: Mapping[WorkerId, StoredHeartbeat],
) -> list[Event]:
    """What is new of the workers that were `asked` about. Those of them without an enrolment have been removed."""
    events: list[Event] = [WorkerRemoved(w) for w in asked if w in fleet.workers and w not in enrolments]
    for worker_id, enrolment in enrolments.items():
        known, heartbeat = fleet.workers.get(worker_id), heartbeats.get(worker_id)
        if heartbeat is not None and (known is None or heartbeat.seq > known.seq):
            events.append(
                WorkerHeard(
                    worker_id,
                    enrolment.url,
                    heartbeat.machine,
                    heartbeat.reports,
                    heartbeat.seq,
                    heartbeat.seen,
                    enrolment.name,
                    heartbeat.leaving,
                )
            )
        if enrolment.draining != (known is not None and DrainedBy.ADMIN in known.drained_by):
            events.append(WorkerDraining(worker_id, enrolment.draining))
    return events


def demand_event(
    fleet: Fleet,
    asked: Iterable[GatewayDemand],
    queues: Mapping[str, Demand],
    wishes: Iterable[AdminWish],
    now: float,
) -> DemandSeen:
    """What gateways, queues and admins want together; a model that none of them names is not asked for any more."""
    demand = dict(queues)
    for came_at, reports in asked:
        for name, report in reports.items():
            so_far = demand.get(name, NOBODY)
            demand[name] = Demand(
                so_far.waiting + report.waiting,
                so_far.running + report.running,
                max(so_far.asked_at, came_at if report.waiting or report.running else came_at - report.ago_s),
            )
    for wish in wishes:
        demand[wish.model] = _wished(fleet, demand.get(wish.model, NOBODY), wish, now)
    silent = {n: Demand(asked_at=d.asked_at) for n, d in fleet.demand.items() if n not in demand}
    return DemandSeen(silent | demand)


def _wished(fleet: Fleet, asked: Demand, wish: AdminWish, now: float) -> Demand:
    """A wish to wake counts as a request that waits, until a replica is there or somebody asks."""
    if wish.stop:
        return replace(asked, stop=True)
    there = any(r.model == wish.model and r.open for r in fleet.replicas.values())
    waiting = asked.waiting or int(not (asked.running or there))
    return replace(asked, waiting=waiting, asked_at=max(asked.asked_at, now - wish.ago_s))


def publication(
    before: Fleet, after: Fleet, inherited: SavedFleet | None, *, with_history: bool
) -> Publication | None:
    """What changed from one to the other; None when nothing did. With what an earlier manager `inherited`, everything is
    said anew and what no longer is so taken back. `with_history` adds what changes with every second."""
    replicas = _replicas(before, after)
    known: Mapping[WorkerId, Worker] = {} if inherited else before.workers
    changed = [w.id for w in after.workers.values() if w.id not in known or known[w.id].version != w.version]
    orders: dict[WorkerId, OrderSheet | None] = {
        worker: OrderSheet(after.workers[worker].version, own)
        for worker, own in orders_of(after, changed).items()
    }
    orders |= dict.fromkeys(
        (inherited.versions if inherited else before.workers).keys() - after.workers.keys()
    )
    rerouted = after.models.keys() if inherited else _rerouted(before, after) & after.models.keys()
    routes: dict[str, ModelRoutes | None] = {**routes_of(after, rerouted)}
    routes |= dict.fromkeys((inherited.routed if inherited else before.models.keys()) - after.models.keys())
    with_history = with_history or before.failures != after.failures or before.given_up != after.given_up
    if not (replicas or orders or routes or with_history):
        return None
    if not with_history:
        return Publication(replicas, orders, routes)
    history = ModelHistory(after.at, after.pace, after.failures, after.given_up, after.wake_s)
    return Publication(replicas, orders, routes, history, statuses(after))


def with_elsewhere(
    update: Publication | None,
    before: Mapping[str, Model],
    after: Mapping[str, Model],
    statuses: Mapping[str, ModelStatus],
) -> Publication | None:
    """Adds the models whose gangs no worker runs: gateways must know of them, though no replica of ours is theirs."""
    if update is not None and update.statuses is not None:
        update = replace(update, statuses={**update.statuses, **statuses})
    gone: dict[str, ModelRoutes | None] = dict.fromkeys(before.keys() - after.keys())
    come = {n: ModelRoutes(video=m.video is not None) for n, m in after.items() if before.get(n) != m}
    if not (gone or come):
        return update
    update = update or Publication()
    return replace(update, routes={**gone, **update.routes, **come})


def _replicas(before: Fleet, after: Fleet) -> dict[ReplicaId, Replica | None]:
    changed: dict[ReplicaId, Replica | None] = {}
    for replica_id, replica in after.replicas.items():
        old = before.replicas.get(replica_id)
        if old is not replica and (old is None or _lasting(old) != _lasting(replica)):
            changed[replica_id] = replica
    return changed | {i: None for i in before.replicas if i not in after.replicas}


def _lasting(replica: Replica) -> tuple[object, ...]:
    return (
        replica.want,
        replica.phase,
        replica.phase_since,
        replica.ready_at,
        replica.closing,
        replica.ordered,
        replica.heard,
        replica.used_at // _USED_GRAIN_S,
    )


def _rerouted(before: Fleet, after: Fleet) -> set[str]:
    """Models whose routes may have changed."""
    moved = {
        w.id for w in after.workers.values() if _reachability(before.workers.get(w.id)) != _reachability(w)
    }
    models = {
        name
        for name in after.models
        if after.models[name] is not before.models.get(name)
        or after.given_up.get(name) is not before.given_up.get(name)
    }
    set_or_removed = (m for m in before.models.values() if after.models.get(m.name) is not m)
    for model in (*(after.models[name] for name in models), *set_or_removed):
        if model.version.version_of is not None:
            models.add(model.version.version_of)
    for replica_id, replica in after.replicas.items():
        old = before.replicas.get(replica_id)
        if replica.worker in moved or (
            old is not replica and (old is None or _shown(old) != _shown(replica))
        ):
            models.add(replica.model)
    models.update(r.model for i, r in before.replicas.items() if i not in after.replicas)
    return models


def _reachability(worker: Worker | None) -> tuple[object, ...] | None:
    return (worker.url, worker.standing) if worker else None


def _shown(replica: Replica) -> tuple[object, ...]:
    return (replica.want, replica.phase, replica.closing is None, replica.address)
