"""What others see of the fleet: orders for a worker, routes for gateways, and why a model is not ready. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from turnout.domain.fleet import Fleet
from turnout.domain.serving import (
    ModelRoutes,
    Phase,
    Replica,
    ReplicaOrder,
    Route,
    Standing,
    Want,
    Worker,
    WorkerId,
)

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


def routes(fleet: Fleet) -> Mapping[str, ModelRoutes]:
    return routes_of(fleet, fleet.models)


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


def explain(fleet: Fleet, model: str) -> str:
    """How the model stands, in words for a user."""
    return _explain(fleet, model, [r for r in fleet.replicas.values() if r.model == model])


def explain_all(fleet: Fleet) -> dict[str, str]:
    own: dict[str, list[Replica]] = {name: [] for name in fleet.models}
    for replica in fleet.replicas.values():
        if replica.model in own:
            own[replica.model].append(replica)
    return {name: _explain(fleet, name, replicas) for name, replicas in own.items()}


def _explain(fleet: Fleet, model: str, replicas: Sequence[Replica]) -> str:
    if model not in fleet.models:
        return "there is no such model"
    ready = [r for r in replicas if r.open and r.phase is Phase.READY]
    if any(fleet.workers[r.worker].standing is Standing.ALIVE for r in ready if r.worker in fleet.workers):
        return f"ready: {len(ready)} replica{'s' if len(ready) > 1 else ''}"
    given_up = fleet.given_up.get(model)
    if given_up is not None and given_up.until is None:
        return given_up.reason
    for replica in replicas:
        if replica.coming:
            return _coming(fleet, replica)
    failures = fleet.failures.get(model)
    if failures is not None and fleet.at < failures.retry_at:
        times = {1: "once", 2: "twice"}.get(failures.count, f"{failures.count} times")
        return f"failed {times}: {failures.reason}; next try in {failures.retry_at - fleet.at:.0f} s"
    for replica in replicas:
        why = _leaving(fleet, replica)
        if why is not None:
            return why
    if ready:
        return f"worker {_name(fleet, ready[0].worker)} does not answer"
    pace = fleet.pace.get(model)
    if pace is None or pace.waiting_since is None:
        return "asleep" if any(r.asleep for r in replicas) else "not started: nobody asks for it"
    return f"waiting for {fleet.at - pace.waiting_since:.0f} s: {_obstacle(fleet, model)}"


def _coming(fleet: Fleet, replica: Replica) -> str:
    verb = "waking" if replica.phase is Phase.SLEEPING else "starting"
    return f"{verb} on {_name(fleet, replica.worker)} for {fleet.at - replica.phase_since:.0f} s"


def _leaving(fleet: Fleet, replica: Replica) -> str | None:
    where = _name(fleet, replica.worker)
    if replica.closing is not None:
        under_way = f", {replica.busy} requests under way" if replica.busy else ""
        return f"leaving {where} ({replica.closing.reason}{under_way})"
    if replica.want is Want.GONE:
        return f"stopping on {where} for {fleet.at - replica.ordered_at:.0f} s"
    return None


def _obstacle(fleet: Fleet, model: str) -> str:
    alive = [w for w in fleet.workers.values() if w.standing is Standing.ALIVE and not w.draining]
    if not fleet.workers:
        return "no worker has joined"
    if not alive:
        return "no worker is alive"
    making_room = sorted(
        {r.model for r in fleet.replicas.values() if r.closing is not None and r.closing.room_for == model}
    )
    if making_room:
        return f"{', '.join(making_room)} makes room for it"
    if not any(w.settled for w in alive):
        return f"{_name(fleet, alive[0].id)} still stops replicas that were placed elsewhere"
    if any(fleet.at - w.freed_at < fleet.rules.freeing_s for w in alive):
        return "memory is being freed"
    return "other models hold the memory it needs"


def _name(fleet: Fleet, worker: WorkerId) -> str:
    known = fleet.workers.get(worker)
    return known.name or known.id if known else worker
