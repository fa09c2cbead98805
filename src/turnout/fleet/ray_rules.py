"""How many gangs each model has on Ray, and who makes room when there is none for all. Pure. Ray carries it out: `hosts/ray`.

A model that may have N gangs has N deployments of Serve, its slots, and each is scaled by itself.
A deployment that is told "one replica less" chooses which one leaves. With one slot a deployment, it is never a busy one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.model_rules import Model
from turnout.fleet.scaling_rules import leave_order, replicas_needed, times_since
from turnout.tasks.task_rules import GangId

_PATIENCE_S = 5.0  # an idle gang takes what waits within a fraction of a second


@dataclass(frozen=True, slots=True)
class QueueState:
    """A model's queue and its gangs. `oldest_s` is the age of the oldest unfinished task; `busy` and
    `idle` are the slots whose gang holds a task, and whose gang is ready for one. `yields`: another model has its
    turn, and there is no room for both. `wanted` are the slots that are to have a gang."""

    waiting: int = 0
    oldest_s: float = 0.0
    busy: frozenset[int] = frozenset()
    idle: frozenset[int] = frozenset()
    yields: bool = False
    wanted: frozenset[int] = frozenset()


def wants_gang(model: Model, slot: int, queue: QueueState) -> bool:
    """Whether this slot's gang has work, will have, or must be there anyway. One that is busy when its model must
    yield is drained: what it renders is checkpointed and goes on at its next turn."""
    if queue.yields:
        return False
    if slot in queue.busy:
        return True
    # Idle gangs that leave an old task in the queue are broken, whatever they report: do not count on them.
    distrusted = len(queue.idle) if queue.waiting and queue.oldest_s > _PATIENCE_S else 0
    load = len(queue.busy) + queue.waiting + distrusted
    count = replicas_needed(load, 1, model.scaling.min_replicas, model.scaling.max_replicas) - len(queue.busy)
    free = (s for s in range(model.scaling.max_replicas) if s not in queue.busy)
    awake_first = sorted(free, key=lambda s: (s not in queue.idle, s))
    return slot in awake_first[: max(0, count)]


def slots_to_fill(
    model: Model, queue: QueueState, awake: Mapping[str, int], idle_since: Mapping[str, float], now: float
) -> tuple[frozenset[int], dict[str, float]]:
    """The slots that are to have a gang, and since when each gang that is not needed has not been. `awake` has the slot of
    each gang that lives. One that is not needed stays for `idle_s`, unless its model must yield."""
    needed = {slot for slot in range(model.scaling.max_replicas) if wants_gang(model, slot, queue)}
    since = times_since(idle_since, (gang for gang, slot in awake.items() if slot not in needed), now)
    kept = {awake[gang] for gang, at in since.items() if now - at < model.scaling.idle_s and not queue.yields}
    return frozenset(needed | kept), since


@dataclass(frozen=True, slots=True)
class GangWaits:
    """Since when models have not fitted on the cluster, since when they have had tasks and no gang, since when gangs have
    not been needed, and which models make room for the one that has waited longest (`yielding` is the first of them)."""

    misfit_since: Mapping[str, float] = field(default_factory=dict[str, float])
    waiting_since: Mapping[str, float] = field(default_factory=dict[str, float])
    idle_since: Mapping[str, float] = field(default_factory=dict[str, float])
    yielding: str | None = None
    making_room: tuple[str, ...] = ()

    def yields(self, model: str) -> bool:
        """Whether it may have no gang now: it makes room, or the room that is made is for one that has waited longer."""
        if not self.making_room:
            return False
        first = min(self.waiting_since, key=lambda name: self.waiting_since[name], default=None)
        return model in self.making_room or (model in self.waiting_since and model != first)

    def misfits(self, now: float, fit_s: float) -> list[str]:
        """Models that have not fitted for so long that no autoscaler will bring the nodes."""
        return [name for name, since in self.misfit_since.items() if now - since >= fit_s]


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that has a gang: since when its oldest one is ready, and whether it has tasks. One that is `kept_warm` does not
    leave."""

    ready_at: float
    used: bool = False
    kept_warm: bool = False


def plan_waits(
    before: GangWaits,
    waiting: Collection[str],
    fitting: Collection[str],
    residents: Mapping[str, Resident],
    turn_s: float,
    now: float,
) -> GangWaits:
    """What follows when the models `waiting` have tasks that wait, `fitting` could have a gang on an empty cluster, and
    `residents` have one. A model that has waited for `turn_s` gets room from one that has been ready for as long, and after each
    further `turn_s` from one more: a large one may need several to leave."""
    misfit_since = times_since(before.misfit_since, (m for m in waiting if m not in fitting), now)
    making_room = before.making_room or ((before.yielding,) if before.yielding else ())
    # A model that makes room has no gang because of it: its own wait begins afterwards.
    without = (m for m in waiting if m in fitting and m not in residents and m not in making_room)
    waiting_since = times_since(before.waiting_since, without, now)
    starving = {name for name, since in waiting_since.items() if now - since >= turn_s}
    if not starving:  # the one that waited has its place
        return GangWaits(misfit_since, waiting_since, before.idle_since)
    first = min(starving, key=lambda name: waiting_since[name])
    turns = int((now - waiting_since[first]) // turn_s)
    if len(making_room) < turns:
        others = {m: r for m, r in residents.items() if m not in starving and m not in making_room}
        leaver = who_leaves(others, turn_s, now)
        if leaver is not None:
            making_room = (*making_room, leaver)
        elif turns > len(making_room) + 1:
            # All have left who may, and it has no place: others hold the cluster. Let the rest work, and try again later.
            making_room, waiting_since = (), {**waiting_since, first: now}
    yielding = making_room[0] if making_room else None
    return GangWaits(misfit_since, waiting_since, before.idle_since, yielding, making_room)


def who_leaves(residents: Mapping[str, Resident], turn_s: float, now: float) -> str | None:
    """The model that must leave room, if one has been ready for `turn_s`. On workers a stay grows with the time that loading
    took; here the operator has said how long it is, and whoever waits has waited as long already."""
    over = {m: r for m, r in residents.items() if now - r.ready_at >= turn_s and not r.kept_warm}
    return min(
        over, key=lambda m: leave_order(True, over[m].used, over[m].ready_at, over[m].ready_at), default=None
    )


def slot_of(gang: str, model: str) -> int | None:
    """The slot that a gang's name tells; None for a gang that has none."""
    number, _, rest = gang.removeprefix(f"ray-{model}-").partition("-")
    return int(number) if gang.startswith(f"ray-{model}-") and number.isdigit() and rest else None


def deployment_name(model: str, slot: int) -> str:
    """Of the Serve deployment that is a slot."""
    return f"VideoGenerator-{model}-{slot}"


def gang_prefix(model: str, slot: int) -> str:
    return f"ray-{model}-{slot}-"


def queue_state(
    model: Model,
    length: int,
    running: int,
    oldest_s: float,
    held: Mapping[GangId, int],
    reports: Mapping[GangId, GangReport],
) -> QueueState:
    """`held` is how many tasks each gang of the model holds; `reports` are those of gangs that live."""
    slots = {gang: slot_of(gang, model.name) for gang in {*held, *reports}}
    busy = frozenset(slot for gang, slot in slots.items() if slot is not None and held.get(gang, 0) > 0)
    idle = frozenset(
        slot
        for gang, slot in slots.items()
        if slot is not None and gang in reports and reports[gang].formed and slot not in busy
    )
    return QueueState(max(0, length - running), oldest_s, busy, idle)
