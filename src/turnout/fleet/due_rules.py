"""When the manager must look again though nothing has happened. Pure.

It knows every time-out of `tend`, `scale` and `place`. Times in the past have been acted on already, or wait for
something to happen.
"""

from collections.abc import Iterator
from math import inf

from turnout.fleet.fleet_rules import Fleet, stay_s
from turnout.fleet.replica_rules import Phase, Want


def next_due(fleet: Fleet, now: float) -> float:
    """The first time after `now` at which time alone may change a decision; infinity when it never does."""
    due = inf
    for times in (_of_replicas(fleet), _of_models(fleet), _of_workers(fleet)):
        for at in times:
            if now < at < due:
                due = at
    return due


def _of_replicas(fleet: Fleet) -> list[float]:
    rules, times, stays_count = fleet.rules, list[float](), _is_pressed(fleet)
    for replica in fleet.replicas.values():
        model = fleet.models.get(replica.model)
        if replica.phase is Phase.READY and replica.want is Want.READY and replica.closing is None:
            if model is not None and replica.busy == 0:
                times.append(max(replica.used_at, replica.ready_at or 0.0) + model.scaling.idle_s)
            if stays_count and replica.ready_at is not None:
                times.append(replica.ready_at + stay_s(fleet, replica))
        elif replica.want is Want.GONE:
            times.append(replica.phase_since + rules.forget_failed_s)
        elif replica.coming:
            times.append(replica.phase_since + replica.spec.scaling.load_timeout_s)
        elif replica.closing is not None and replica.closing.then is not replica.want:
            times.append(replica.closing.since + rules.settle_s)
        elif model is not None and replica.asleep:
            times.append(replica.phase_since + model.scaling.asleep_s)
        else:
            times.append(replica.ordered_at + rules.sleep_timeout_s)
    return times


def _of_models(fleet: Fleet) -> Iterator[float]:
    for name, pace in fleet.pace.items():
        if pace.pressed_since is not None:
            yield pace.pressed_since + fleet.rules.add_after_s
        if pace.slack_since is not None:
            yield pace.slack_since + fleet.models[name].scaling.idle_s
    for name, demand in fleet.demand.items():
        if not (demand.waiting or demand.running):
            yield demand.asked_at + fleet.models[name].scaling.idle_s
    yield from (failures.retry_at for failures in fleet.failures.values())
    yield from (given_up.until for given_up in fleet.given_up.values() if given_up.until is not None)


def _of_workers(fleet: Fleet) -> list[float]:
    rules, workers = fleet.rules, fleet.workers.values()
    times = [worker.freed_at + rules.freeing_s for worker in workers] if _is_pressed(fleet) else []
    times += [refusal.until for worker in workers for refusal in worker.refusals.values()]
    if rules.suspect_s < inf:
        times += [w.heard_at + limit_s for w in workers for limit_s in (rules.suspect_s, rules.gone_s)]
    return times


def _is_pressed(fleet: Fleet) -> bool:
    return any(pace.pressed_since is not None for pace in fleet.pace.values())
