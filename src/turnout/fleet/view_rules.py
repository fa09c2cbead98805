"""What others see of the fleet: orders for a worker, routes for gateways, and how each model stands. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from turnout.fleet.capability_rules import sees
from turnout.fleet.fleet_rules import Fleet, load_of
from turnout.fleet.gang_rules import GangReport, gang_statuses
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model, Runner
from turnout.fleet.placement_rules import could_ever_fit
from turnout.fleet.replica_rules import Phase, Replica, ReplicaOrder, Want
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.status_rules import RUN_BY, ModelState, ModelStatus, StatusCause
from turnout.fleet.version_rules import versions_of
from turnout.fleet.worker_rules import Standing, Worker

_ROUTED = frozenset({Phase.READY, Phase.SLEEPING})


def orders_of(fleet: Fleet, workers: Iterable[WorkerId]) -> dict[WorkerId, tuple[ReplicaOrder, ...]]:
    """All that each of these workers should have; what is not named should be gone."""
    own: dict[WorkerId, list[Replica]] = {worker: [] for worker in workers}
    if own:
        for replica in fleet.replicas.values():
            if replica.worker in own:
                own[replica.worker].append(replica)
    return {worker: _orders(replicas) for worker, replicas in own.items()}


def _orders(replicas: Iterable[Replica]) -> tuple[ReplicaOrder, ...]:
    return tuple(ReplicaOrder(r.id, r.spec, r.gpus, r.want, r.closing is not None) for r in replicas)


def routes_of(fleet: Fleet, models: Iterable[str]) -> dict[str, ModelRoutes]:
    """Where requests for these models go."""
    found: dict[str, list[Route]] = {name: [] for name in models}
    if not found:
        return {}
    for replica in fleet.replicas.values():
        if replica.model not in found or replica.phase not in _ROUTED or replica.want is Want.GONE:
            continue
        worker = fleet.workers.get(replica.worker)
        if worker is not None:
            found[replica.model].append(_route(replica, worker))
    return {
        name: ModelRoutes(
            tuple(there),
            fleet.models[name].concurrency,
            given_up.reason if (given_up := fleet.given_up.get(name)) else None,
            fleet.models[name].video is not None,
            versions_of(name, fleet.models.values()),
            sees(fleet.models[name]),
        )
        for name, there in found.items()
    }


def _route(replica: Replica, worker: Worker) -> Route:
    return Route(
        replica.id,
        worker.id,
        worker.url,
        replica.address,
        closing=replica.closing is not None,
        asleep=replica.phase is Phase.SLEEPING or replica.want is Want.ASLEEP,
        suspect=worker.standing is not Standing.ALIVE,
    )


def statuses(fleet: Fleet) -> dict[str, ModelStatus]:
    """How each model stands."""
    own: dict[str, list[Replica]] = {name: [] for name in fleet.models}
    for replica in fleet.replicas.values():
        if replica.model in own:
            own[replica.model].append(replica)
    return {
        name: replace(
            _status(fleet, name, replicas),
            wake_s=fleet.wake_s.get(name),
            idle_left_s=_idle_left_s(fleet, name, replicas),
        )
        for name, replicas in own.items()
    }


def _idle_left_s(fleet: Fleet, name: str, replicas: Sequence[Replica]) -> float | None:
    """As `scale` lets it leave: so long after the last request, and after the last use of any replica."""
    model, demand = fleet.models[name], fleet.demand.get(name)
    ready = [r for r in replicas if r.open and r.phase is Phase.READY]
    if not ready or model.scaling.min_replicas or load_of(fleet, name) or any(r.busy for r in ready):
        return None
    used_at = max(max(r.used_at, r.ready_at or 0.0) for r in ready)
    return max(0.0, model.scaling.idle_s - (fleet.at - max(used_at, demand.asked_at if demand else 0.0)))


def statuses_elsewhere(
    models: Iterable[Model], gangs_by: Runner, gangs: Iterable[GangReport], reasons: Mapping[str, str]
) -> dict[str, ModelStatus]:
    """How the models stand whose gangs are not placed here: as their gangs tell, or `reasons` why they have none."""
    gangs = list(gangs)
    told, ready = gang_statuses(gangs), Counter(g.model for g in gangs if g.ready)
    told |= {
        name: ModelStatus(ModelState.STOPPED, reason=why) for name, why in reasons.items() if not ready[name]
    }
    return {
        model.name: replace(
            told.get(model.name, ModelStatus(ModelState.STOPPED)),
            cause=RUN_BY[model.video.run_by(gangs_by)],
            replicas=ready[model.name],
        )
        for model in models
        if model.video is not None
    }


def _status(fleet: Fleet, model: str, replicas: Sequence[Replica]) -> ModelStatus:
    ready = [r for r in replicas if r.open and r.phase is Phase.READY]
    if any(fleet.workers[r.worker].standing is Standing.ALIVE for r in ready if r.worker in fleet.workers):
        return ModelStatus(ModelState.READY, replicas=len(ready))
    given_up = fleet.given_up.get(model)
    if given_up is not None and given_up.until is None:
        return ModelStatus(ModelState.FAILED, reason=given_up.reason)
    for replica in replicas:
        if replica.coming:
            return ModelStatus(
                ModelState.STARTING,
                worker=_name(fleet, replica.worker),
                for_s=fleet.at - replica.phase_since,
                waking=replica.phase is Phase.SLEEPING,
                reason=replica.detail if replica.phase is Phase.STARTING else "",
            )
    failures = fleet.failures.get(model)
    if failures is not None and fleet.at < failures.retry_at:
        return ModelStatus(
            ModelState.FAILED,
            failures=failures.count,
            reason=failures.reason,
            retry_s=failures.retry_at - fleet.at,
        )
    for replica in replicas:
        if replica.leaving:
            return _leaving(fleet, replica)
    if ready:
        return ModelStatus(ModelState.FAILED, StatusCause.WORKER_SILENT, worker=_name(fleet, ready[0].worker))
    pressure = fleet.pace.get(model)
    if pressure is None or pressure.waiting_since is None:
        return ModelStatus(ModelState.ASLEEP if any(r.asleep for r in replicas) else ModelState.STOPPED)
    return _waiting(fleet, model, fleet.at - pressure.waiting_since)


def _leaving(fleet: Fleet, replica: Replica) -> ModelStatus:
    where, closing = _name(fleet, replica.worker), replica.closing
    if closing is not None:
        return ModelStatus(ModelState.STOPPING, worker=where, reason=closing.reason, busy=replica.busy)
    return ModelStatus(ModelState.STOPPING, worker=where, for_s=fleet.at - replica.ordered_at)


def _waiting(fleet: Fleet, model: str, for_s: float) -> ModelStatus:
    alive = [w for w in fleet.workers.values() if w.standing is Standing.ALIVE and not w.draining]
    by = sorted(
        {r.model for r in fleet.replicas.values() if r.closing is not None and r.closing.room_for == model}
    )
    worker = ""
    if not fleet.workers:
        cause = StatusCause.NO_WORKER
    elif not alive:
        cause = StatusCause.NO_WORKER_ALIVE
    elif (silent := _silent_host(fleet, model, alive)) is not None:
        cause, worker = StatusCause.WORKER_SILENT, _name(fleet, silent.id)
    elif by:
        cause = StatusCause.ROOM_BEING_MADE
    elif not any(w.settled for w in alive):
        cause, worker = StatusCause.WORKER_UNSETTLED, _name(fleet, alive[0].id)
    elif any(fleet.at - w.freed_at < fleet.rules.freeing_s for w in alive):
        cause = StatusCause.MEMORY_BEING_FREED
    else:
        cause, by = StatusCause.MEMORY_HELD, _holders(fleet, model, alive)
    return ModelStatus(ModelState.WAITING, cause, worker=worker, for_s=for_s, by=tuple(by))


def _holders(fleet: Fleet, model: str, alive: Sequence[Worker]) -> list[str]:
    """The other models on the workers that could run this one."""
    spec = fleet.models[model]
    hosts = {worker.id for worker in alive if could_ever_fit(spec, worker.machine)}
    return sorted({r.model for r in fleet.replicas.values() if r.worker in hosts and r.model != model})


def _silent_host(fleet: Fleet, model: str, alive: Sequence[Worker]) -> Worker | None:
    """A worker that could run the model and is not heard from, if no other could."""
    spec = fleet.models[model]
    if any(could_ever_fit(spec, worker.machine) for worker in alive):
        return None
    silent = (w for w in fleet.workers.values() if w.standing is not Standing.ALIVE)
    return next((w for w in silent if could_ever_fit(spec, w.machine)), None)


def _name(fleet: Fleet, worker: WorkerId) -> str:
    known = fleet.workers.get(worker)
    return known.name or known.id if known else worker
