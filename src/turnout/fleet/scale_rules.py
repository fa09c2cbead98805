"""How many replicas each model should have: claims on room where there are too few, closings where too many. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from turnout.fleet.events_and_commands import Close, Command, Reopen, SetWant
from turnout.fleet.fleet_rules import Fleet, ModelPressure, load_of, same_engine
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import Phase, Replica, Want
from turnout.fleet.scaling_rules import replicas_needed

_NO_PACE = ModelPressure()


class Urgency(IntEnum):
    """Who gets room first. Only a model that has users and nothing to serve them may end another's stay."""

    WAITED_FOR = 0
    KEPT_WARM = 1
    LOADED = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """One replica that a model should have and has not, and since when."""

    urgency: Urgency
    since: float
    model: str


@dataclass(slots=True)
class Scaled:
    """`waited_for`: some model has users and nothing to serve them."""

    waited_for: bool = False
    pace: dict[str, ModelPressure] = field(default_factory=dict[str, ModelPressure])
    claims: list[Claim] = field(default_factory=list[Claim])
    commands: list[Command] = field(default_factory=list[Command])


def scale(fleet: Fleet, now: float) -> Scaled:
    by_model: dict[str, list[Replica]] = {name: [] for name in fleet.models}
    for replica in fleet.replicas.values():
        if replica.model in by_model:
            by_model[replica.model].append(replica)
    scaled = Scaled(
        any(p.waiting_since is not None for name, p in fleet.pace.items() if name not in fleet.given_up)
    )
    closed: list[Replica] = []
    for name, replicas in by_model.items():
        closed += [r for r in replicas if r.closing is not None and r.closing.room_for is not None]
        _scale_one(fleet, fleet.models[name], replicas, now, scaled)
    _reopen_what_nobody_needs(fleet, closed, scaled)
    scaled.claims.sort(key=lambda claim: _turn(claim, fleet.models[claim.model]))
    return scaled


def _turn(claim: Claim, model: Model) -> tuple[Urgency, float, int, int, str]:
    """Who waited longest comes first. Of those who came together the largest does, which fewest machines have room for; the
    name only makes the order certain."""
    needs = model.needs
    return (
        claim.urgency,
        claim.since,
        -needs.gpus,
        -max(needs.gpu_memory_bytes, needs.memory_bytes),
        claim.model,
    )


def _scale_one(fleet: Fleet, model: Model, replicas: Sequence[Replica], now: float, scaled: Scaled) -> None:
    demand = fleet.demand.get(model.name)
    load = load_of(fleet, model.name)
    serving = [r for r in replicas if r.open]
    stopped = demand is not None and demand.stop and not demand.waiting
    needed = replicas_needed(
        0 if stopped else load,
        model.concurrency,
        model.scaling.min_replicas,
        model.scaling.max_replicas,
    )
    recent = demand is not None and now - demand.asked_at < model.scaling.idle_s
    kept = max(needed, 1) if (recent or load) and not stopped else needed
    have = len(serving)
    if needed > have and len(replicas) > have:
        back: list[Command] = [
            SetWant(r.id, Want.READY, "asked for again") for r in replicas if _dozing(r, fleet, model)
        ]
        back += [Reopen(r.id) for r in replicas if _idled_out(r, fleet, model)]
        reopened = back[: needed - have]
        scaled.commands += reopened
        have += len(reopened)

    old = fleet.pace.get(model.name, _NO_PACE)
    pace = ModelPressure(
        waiting_since=_since(old.waiting_since, now) if needed and not have else None,
        pressed_since=_since(old.pressed_since, now) if needed > have else None,
        slack_since=_since(old.slack_since, now) if have > kept else None,
    )
    if needed > have:
        scaled.claims += _claims(fleet, model, serving, needed, have, load, pace, now)
    elif have > kept:
        closings: list[Close] = []
        if stopped:
            closings = list(_stopped(model, serving, have - kept))
        elif not (scaled.waited_for and model.scaling.min_replicas and have == kept + 1):
            # One that is kept warm has perhaps moved for whoever waits: `place` knows which of its replicas must leave.
            closings = list(_surplus(model, serving, have - kept, pace, now))
        if closings:
            pace = _NO_PACE
        scaled.commands += closings
    if pace != _NO_PACE:
        scaled.pace[model.name] = old if pace == old else pace


def _since(old: float | None, now: float) -> float:
    return now if old is None else old


def _dozing(replica: Replica, fleet: Fleet, model: Model) -> bool:
    """Told to fall asleep and not yet asleep, still able to serve, and nobody waits for its memory."""
    waited_for = replica.closing is not None and replica.closing.room_for is not None
    return replica.want is Want.ASLEEP and not waited_for and _able(replica, fleet, model)


def _idled_out(replica: Replica, fleet: Fleet, model: Model) -> bool:
    """Closed because nobody used it, and still able to serve."""
    return (
        replica.closing is not None
        and replica.closing.room_for is None
        and _could_serve(replica, fleet, model)
    )


def _could_serve(replica: Replica, fleet: Fleet, model: Model) -> bool:
    return replica.want is Want.READY and _able(replica, fleet, model)


def _able(replica: Replica, fleet: Fleet, model: Model) -> bool:
    return (
        replica.phase is Phase.READY
        and not fleet.workers[replica.worker].draining
        and same_engine(replica.spec, model)
    )


def _claims(
    fleet: Fleet,
    model: Model,
    serving: Sequence[Replica],
    needed: int,
    have: int,
    load: int,
    pace: ModelPressure,
    now: float,
) -> Iterator[Claim]:
    failures = fleet.failures.get(model.name)
    if failures is not None and now < failures.retry_at:
        return
    since = _since(pace.pressed_since, now)
    floor = min(needed, max(model.scaling.min_replicas, 1 if load else 0))
    for number in range(have, floor):
        if load and number == 0:
            yield Claim(Urgency.WAITED_FOR, _since(pace.waiting_since, now), model.name)
        else:
            yield Claim(Urgency.KEPT_WARM, since, model.name)
    if have >= floor and now - since >= fleet.rules.add_after_s:
        # At most double: a burst that the first new replica absorbs should not fill the fleet.
        coming = sum(r.coming for r in serving)
        for _ in range(min(needed - have, max(1, len(serving) - coming) - coming)):
            yield Claim(Urgency.LOADED, since, model.name)


def _surplus(
    model: Model, serving: Sequence[Replica], count: int, pace: ModelPressure, now: float
) -> Iterator[Close]:
    """Closes what was idle for long; and where load is spread so thin that none ever is, the least used."""
    thin = pace.slack_since is not None and now - pace.slack_since >= model.scaling.idle_s
    if not thin and not any(r.busy == 0 and now - r.used_at >= model.scaling.idle_s for r in serving):
        return
    ready = sorted((r for r in serving if r.phase is Phase.READY), key=lambda r: r.used_at)
    idle = [
        r for r in ready if r.busy == 0 and now - max(r.used_at, r.ready_at or 0.0) >= model.scaling.idle_s
    ]
    for replica in (idle or (ready[:1] if thin else []))[:count]:
        reason = f"idle for {model.scaling.idle_s:g} s" if idle else "the load went down"
        yield Close(replica.id, rest_of(model, replica), reason)


def _stopped(model: Model, serving: Sequence[Replica], count: int) -> Iterator[Close]:
    """Closes them whether they are idle or not: each finishes what it has."""
    ready = [r for r in serving if r.phase is Phase.READY]
    for replica in ready[:count]:
        yield Close(replica.id, rest_of(model, replica), "an admin stopped it")


def rest_of(model: Model, replica: Replica) -> Want:
    """What a replica that is not needed any more becomes."""
    return Want.ASLEEP if model.scaling.sleep and replica.spec.scaling.sleep else Want.GONE


def _reopen_what_nobody_needs(fleet: Fleet, closed: Sequence[Replica], scaled: Scaled) -> None:
    claiming = {claim.model for claim in scaled.claims}
    for replica in closed:
        closing = replica.closing
        if closing is None or closing.room_for in claiming:
            continue
        if _could_serve(replica, fleet, fleet.models[replica.model]):
            scaled.commands.append(Reopen(replica.id))
            mine = next((c for c in scaled.claims if c.model == replica.model), None)
            if mine is not None:
                scaled.claims.remove(mine)
