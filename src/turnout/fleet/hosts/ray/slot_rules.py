"""Gangs that Ray places: a model that may have N gangs has N slots, and each slot is scaled by itself. Pure.

A deployment that is told "one replica less" chooses which one leaves. With one slot a deployment, it is never a busy one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from turnout.fleet.scaling_rules import had_its_turn, replicas_needed, times_since
from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.fleet.video_model_rules import Model
from turnout.tasks.task_rules import GangId

_LOAD_S = 600.0  # for a gang to load its model
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
    count = replicas_needed(load, 1, model.min_replicas, model.max_replicas) - len(queue.busy)
    free = (s for s in range(model.max_replicas) if s not in queue.busy)
    awake_first = sorted(free, key=lambda s: (s not in queue.idle, s))
    return slot in awake_first[: max(0, count)]


def slots_to_fill(
    model: Model, queue: QueueState, awake: Mapping[str, int], idle_since: Mapping[str, float], now: float
) -> tuple[frozenset[int], dict[str, float]]:
    """The slots that are to have a gang, and since when each gang that is not needed has not been. `awake` has the slot of
    each gang that lives. One that is not needed stays for `idle_s`, unless its model must yield."""
    needed = {slot for slot in range(model.max_replicas) if wants_gang(model, slot, queue)}
    since = times_since(idle_since, (gang for gang, slot in awake.items() if slot not in needed), now)
    kept = {awake[gang] for gang, at in since.items() if now - at < model.idle_s and not queue.yields}
    return frozenset(needed | kept), since


@dataclass(frozen=True, slots=True)
class GangTurns:
    """Since when models have not fitted on the cluster, since when they have had tasks and no gang, since when gangs have
    not been needed, and which model makes room for another."""

    misfit_since: Mapping[str, float] = field(default_factory=dict[str, float])
    waiting_since: Mapping[str, float] = field(default_factory=dict[str, float])
    idle_since: Mapping[str, float] = field(default_factory=dict[str, float])
    yielding: str | None = None

    def misfits(self, now: float, fit_s: float) -> list[str]:
        """Models that have not fitted for so long that no autoscaler will bring the nodes."""
        return [name for name, since in self.misfit_since.items() if now - since >= fit_s]


def take_turns(
    before: GangTurns,
    waiting: Collection[str],
    fitting: Collection[str],
    resident_s: Mapping[str, float],
    kept_warm: Collection[str],
    turn_s: float,
    now: float,
) -> GangTurns:
    """What follows when the models `waiting` have tasks that wait, `fitting` could have a gang on an empty cluster, and
    `resident_s` says how long each present model has had one."""
    misfit_since = times_since(before.misfit_since, (m for m in waiting if m not in fitting), now)
    # The model that makes room has no gang because of it: its own wait begins afterwards.
    without = (m for m in waiting if m in fitting and m not in resident_s and m != before.yielding)
    waiting_since = times_since(before.waiting_since, without, now)
    waited_s = {name: now - since for name, since in waiting_since.items()}
    if before.yielding is not None and any(had_its_turn(s, turn_s) for s in waited_s.values()):
        yielding = before.yielding  # until the one that waits has its place
    else:
        yielding = who_yields(waited_s, {m: s for m, s in resident_s.items() if m not in kept_warm}, turn_s)
    return GangTurns(misfit_since, waiting_since, before.idle_since, yielding)


def who_yields(waited_s: Mapping[str, float], resident_s: Mapping[str, float], turn_s: float) -> str | None:
    """The model that must leave room, if one must: that which has been resident longest, and for its turn at least,
    while another has had tasks and no place for as long."""
    starving = {model for model, waited in waited_s.items() if had_its_turn(waited, turn_s)}
    candidates = {m: s for m, s in resident_s.items() if had_its_turn(s, turn_s) and m not in starving}
    return max(candidates, key=lambda m: candidates[m]) if starving and candidates else None


def slot_of(gang: str, model: str) -> int | None:
    """The slot that a gang's name tells; None for a gang that has none."""
    number, _, rest = gang.removeprefix(f"ray-{model}-").partition("-")
    return int(number) if gang.startswith(f"ray-{model}-") and number.isdigit() and rest else None


def deployment_name(model: str, slot: int) -> str:
    """Of the Serve deployment that is a slot."""
    return f"VideoGenerator-{model}-{slot}"


def gang_prefix(model: str, slot: int) -> str:
    return f"ray-{model}-{slot}-"


@dataclass(frozen=True, slots=True)
class RankReport:
    """Where a rank is, and the name of its GPU; nothing is known of one that has no process yet."""

    number: int
    node: str = ""
    address: str = ""
    pid: int = 0
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class GangReport:
    """A gang as it tells of itself every second or two. `ready_at` is when it first had its model loaded; `trouble` is why it
    broke, until it is ready again."""

    gang: GangId
    model: str
    slot: int
    since: float
    at: float
    formation: int = 0
    ranks: tuple[RankReport, ...] = ()
    ready_at: float | None = None
    trouble: str = ""

    @property
    def formed(self) -> bool:
        return bool(self.ranks) and all(rank.pid for rank in self.ranks)

    @property
    def ready(self) -> bool:
        return self.ready_at is not None and not self.trouble

    def resident_s(self, now: float) -> float:
        """How long its turn has lasted. A turn begins when the model is loaded, or a slow start would use it up; but a
        gang that does not get there cannot keep its place for ever."""
        return max(0.0, now - (self.since + _LOAD_S if self.ready_at is None else self.ready_at))


def gang_statuses(reports: Iterable[GangReport]) -> dict[str, ModelStatus]:
    """How the models of these gangs stand, as far as they tell."""
    known: dict[str, ModelStatus] = {}
    for report in reports:
        if report.ready:
            known[report.model] = ModelStatus(ModelState.READY, replicas=1)
        else:
            where = next((rank.address for rank in report.ranks if rank.address), "Ray")
            reason = "" if report.formed else "its ranks come up"
            reason = f"once more ({report.trouble})" if report.trouble else reason
            starting = ModelStatus(
                ModelState.STARTING, worker=where, for_s=report.at - report.since, reason=reason
            )
            known.setdefault(report.model, starting)
    return known


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
