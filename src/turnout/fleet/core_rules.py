"""The manager's decisions: the fleet after what happened, and what to do about it. Pure.

`step` takes events in, ages what time alone changes, decides in three passes (tend each replica, scale each model,
place what is wanted) and returns the fleet as decided. Commands are facts for the log; the orders and routes that
follow from them are read off the fleet (`views`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from turnout.fleet.events_and_commands import (
    Blame,
    Close,
    Command,
    DemandSeen,
    Event,
    ForgetReplica,
    GiveUp,
    ModelRemoved,
    ModelSet,
    Reopen,
    SetWant,
    StartReplica,
    TakeUp,
    Tick,
    WorkerDraining,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, Rules, evolve
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.place_rules import place
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.scale_rules import scale
from turnout.fleet.tend_rules import tend
from turnout.fleet.worker_rules import DrainedBy, OrderRefusal, Standing, Worker


def step(
    fleet: Fleet, events: Sequence[Event], now: float, ids: Iterator[ReplicaId]
) -> tuple[Fleet, tuple[Command, ...]]:
    """The fleet after the events and the decisions they led to. `ids` yields names that were never used."""
    return plan(absorb(fleet, events, now), now, ids)


def plan(fleet: Fleet, now: float, ids: Iterator[ReplicaId]) -> tuple[Fleet, tuple[Command, ...]]:
    """Decides for the fleet as it is now."""
    tended = tend(fleet, now)
    fleet = apply(fleet, tended, now)
    scaled = scale(fleet, now)
    fleet = apply(replace(fleet, pace=scaled.pace), scaled.commands, now)
    placed = place(fleet, scaled.claims, now, ids)
    return apply(fleet, placed, now), (*tended, *scaled.commands, *placed)


def absorb(fleet: Fleet, events: Sequence[Event], now: float) -> Fleet:
    """The fleet after the events; what comes late or twice changes nothing."""
    models, demand = dict(fleet.models), dict(fleet.demand)
    workers, replicas = dict(fleet.workers), dict(fleet.replicas)
    heard = {event.id for event in events if isinstance(event, WorkerHeard)}
    by_worker: dict[WorkerId, list[ReplicaId]] = {worker: [] for worker in heard}
    for replica in fleet.replicas.values() if heard else ():
        if replica.worker in heard:
            by_worker[replica.worker].append(replica.id)
    became_ready: dict[str, float] = {}
    for event in events:
        match event:
            case ModelSet(model):
                models[model.name] = model
                workers |= {w.id: _without_refusal(w, model.name) for w in workers.values() if w.refusals}
            case ModelRemoved(name):
                models.pop(name, None)
                demand.pop(name, None)
            case WorkerHeard():
                old = workers.get(event.id)
                if old is None or event.seq > old.seq:
                    own = [i for i in by_worker[event.id] if i in replicas]
                    worker = _heard(old, event, own, now)
                    workers[event.id] = _report(worker, own, replicas, became_ready, now, fleet.rules)
            case WorkerDraining(worker_id, draining):
                if known := workers.get(worker_id):
                    workers[worker_id] = known.drained(DrainedBy.ADMIN, draining)
            case WorkerRemoved(worker_id):
                workers.pop(worker_id, None)  # `tend` forgets its replicas
            case DemandSeen(seen):
                for name, one in seen.items():
                    if name in models:
                        before = demand.get(name)
                        asked_at = max(one.asked_at, before.asked_at) if before else one.asked_at
                        demand[name] = replace(one, asked_at=asked_at)
            case Tick():
                pass
    return replace(
        fleet,
        models=models,
        workers=_aged(workers, fleet, now),
        replicas=replicas,
        demand=demand,
        # A replica that became ready relieves its model: look at the load afresh.
        pace={
            k: replace(p, pressed_since=None) if k in became_ready else p
            for k, p in fleet.pace.items()
            if k in models
        },
        failures=_in_a_row(fleet, models, now),
        given_up={k: g for k, g in fleet.given_up.items() if k in models},
        wake_s={k: s for k, s in {**fleet.wake_s, **became_ready}.items() if k in models},
        at=now,
    )


def _in_a_row(fleet: Fleet, models: Mapping[str, Model], now: float) -> Mapping[str, Failures]:
    """Without those of models of which a replica came up after the last failure and was ready for long, whatever becomes of it
    then. One that was there before says nothing of those that fail beside it."""
    if not fleet.failures:
        return fleet.failures
    left = {name: failures for name, failures in fleet.failures.items() if name in models}
    for one in fleet.replicas.values():
        failures = left.get(one.model)
        if failures is None or one.phase is not Phase.READY or one.ready_at is None:
            continue
        if one.ready_at >= failures.retry_at and now - one.ready_at >= fleet.rules.healthy_s:
            del left[one.model]
    return left


def _heard(old: Worker | None, event: WorkerHeard, own: Sequence[ReplicaId], now: float) -> Worker:
    reports = {report.id: report for report in event.reports}
    strangers = reports.keys() - own
    # A worker follows only orders that are newer than what it has: after a loss of Redis, get ahead of it.
    version = old.version if old else 1
    ahead = event.seen > version or (old is None and event.seen >= version)
    heard = Worker(
        event.id,
        event.machine,
        event.url,
        now,
        drained_by=old.drained_by if old else frozenset(),
        reports=reports,
        name=event.name or (old.name if old else ""),
        seq=event.seq,
        seen=0 if ahead else event.seen,
        version=event.seen + 1 if ahead else version,
        hold=old.hold if old else 0,
        strangers=frozenset(i for i in strangers if reports[i].phase not in (Phase.GONE, Phase.FAILED)),
        freed_at=old.freed_at if old else float("-inf"),
        # A worker that has seen no orders has begun anew, and may have another configuration.
        refusals={m: r for m, r in old.refusals.items() if now < r.until} if old and event.seen else {},
    )
    return heard.drained(DrainedBy.ITSELF, event.leaving)


def _report(
    worker: Worker,
    own: Sequence[ReplicaId],
    replicas: dict[ReplicaId, Replica],
    became_ready: dict[str, float],
    now: float,
    rules: Rules,
) -> Worker:
    """Moves the worker's replicas as it reports them; the worker, with other orders when one has left. Adds to
    `became_ready` how long those took that did."""
    left = lost = slept = False
    refusals = dict(worker.refusals)
    for replica_id in own:
        replica = replicas[replica_id]
        report = worker.reports.get(replica_id)
        after = evolve(replica, report, worker, now, rules.absent_s)
        if after is None:
            del replicas[replica_id]
            left, lost = True, lost or replica.want is not Want.GONE
            refusal = _refusal(replica, report, worker, now + rules.refusal_s)
            if refusal is not None:
                refusals[replica.model] = refusal
        elif after is not replica:
            replicas[replica_id] = after
            slept = slept or (after.asleep and not replica.asleep)
            if after.phase is Phase.READY and replica.phase is not Phase.READY:
                became_ready[after.model] = now - replica.phase_since
    if not left:
        return replace(worker, freed_at=now) if slept else worker
    version = worker.version + 1
    hold = version if lost else worker.hold
    return replace(worker, version=version, hold=hold, freed_at=now, refusals=refusals)


def _without_refusal(worker: Worker, model: str) -> Worker:
    """A model that was changed may be taken now."""
    return replace(worker, refusals={m: r for m, r in worker.refusals.items() if m != model})


def _refusal(
    replica: Replica, report: ReplicaReport | None, worker: Worker, until: float
) -> OrderRefusal | None:
    """Why a replica that has just left was never started there, if its worker is to blame."""
    if replica.want is Want.GONE or worker.leaving:
        return None
    if report is None:
        return None if replica.heard else OrderRefusal("it did not start it", until, told=False)
    return OrderRefusal(report.detail, until) if report.refused else None


def _aged(workers: dict[WorkerId, Worker], fleet: Fleet, now: float) -> dict[WorkerId, Worker]:
    rules, heard_since = fleet.rules, now - fleet.rules.suspect_s
    if rules.suspect_s == inf:
        return workers
    silent = [w for w in workers.values() if w.heard_at <= heard_since or w.standing is not Standing.ALIVE]
    for worker in silent:  # nearly always nobody
        standing = rules.standing(now - worker.heard_at)
        if now - worker.heard_at >= rules.forget_s:
            del workers[worker.id]
        elif standing is not worker.standing:
            workers[worker.id] = replace(worker, standing=standing)
    return workers


def apply(fleet: Fleet, commands: Iterable[Command], now: float) -> Fleet:
    """The fleet as the commands want it."""
    commands = tuple(commands)
    if not commands:
        return fleet
    replicas, workers = dict(fleet.replicas), dict(fleet.workers)
    failures, given_up = dict(fleet.failures), dict(fleet.given_up)
    changed: set[WorkerId] = set()
    for command in commands:
        match command:
            case StartReplica(replica_id, model, worker_id, gpus, needs, _):
                replicas[replica_id] = Replica(
                    replica_id,
                    model,
                    worker_id,
                    gpus,
                    needs,
                    Want.READY,
                    Phase.STARTING,
                    created_at=now,
                    phase_since=now,
                    used_at=now,
                    spec=fleet.models[model],
                    ordered=workers[worker_id].version + 1,
                    ordered_at=now,
                )
                changed.add(worker_id)
            case SetWant(replica_id, want, _):
                one = replicas[replica_id]
                if (
                    one.phase is Phase.READY
                ):  # it leaves in order, so failures after it are not in a row with those before
                    failures.pop(one.model, None)
                replicas[replica_id] = _wanted(one, want, workers[one.worker], now)
                changed.add(one.worker)
            case Close(replica_id, then, reason, room_for):
                one = replicas[replica_id]
                replicas[replica_id] = replace(one, closing=Closing(now, then, reason, room_for))
                changed.add(one.worker)
            case Reopen(replica_id):
                one = replicas[replica_id]
                replicas[replica_id] = replace(one, closing=None)
                changed.add(one.worker)
            case ForgetReplica(replica_id, _):
                one = replicas.pop(replica_id)
                changed.add(one.worker)
                known = workers.get(one.worker)
                if known is not None:
                    workers[known.id] = replace(known, freed_at=now, hold=known.version + 1)
            case Blame(model, count, reason, retry_at):
                failures[model] = Failures(count, reason, retry_at)
            case GiveUp(model, reason, until):
                given_up[model] = GivenUp(reason, until)
            case TakeUp(model):
                given_up.pop(model, None)
    for worker_id in changed & workers.keys():
        workers[worker_id] = replace(workers[worker_id], version=workers[worker_id].version + 1)
    return replace(fleet, replicas=replicas, workers=workers, failures=failures, given_up=given_up)


def _wanted(replica: Replica, want: Want, worker: Worker, now: float) -> Replica:
    waking = want is Want.READY and replica.phase is Phase.SLEEPING
    needs = replica.needs
    if want is Want.GONE and replica.asleep:  # it leaves from its sleep, and takes no more on the way
        needs = replace(needs, gpu_memory_bytes=needs.asleep_gpu_memory_bytes)
    return replace(
        replica,
        want=want,
        needs=needs,
        closing=replica.closing if want is Want.ASLEEP else None,
        ordered=worker.version + 1,
        ordered_at=now,
        phase_since=now if waking else replica.phase_since,
        ready_at=None if waking else replica.ready_at,
    )
