"""Gangs in slots: a model that may have N gangs has N slots, and each is awake or asleep by itself. Pure.

Slots, because whoever only says «one gang less» cannot say which: here a busy one is never it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.domain.tasks import GangId
from turnout.domain.video_model import Model

_PATIENCE_S = 5.0  # an idle gang takes what waits within a fraction of a second


@dataclass(frozen=True, slots=True)
class Line:
    """A model's line of tasks and who stands at it. `oldest_s` is the age of the oldest unfinished task; `busy` and
    `idle` are the slots whose gang holds a task, and whose gang is ready for one. `yields`: another model has its
    turn, and there is no room for both."""

    waiting: int = 0
    oldest_s: float = 0.0
    busy: frozenset[int] = frozenset()
    idle: frozenset[int] = frozenset()
    yields: bool = False


def wants_gang(model: Model, slot: int, line: Line) -> bool:
    """Whether this slot's gang has work, will have, or must be there anyway. One that is busy when its model must
    yield is drained: what it renders is checkpointed and goes on at its next turn."""
    if line.yields:
        return False
    if slot in line.busy:
        return True
    # Idle gangs that leave an old task lying are unwell, whatever they say: count on others.
    distrusted = len(line.idle) if line.waiting and line.oldest_s > _PATIENCE_S else 0
    count = max(line.waiting + distrusted, model.min_replicas - len(line.busy))
    free = (s for s in range(model.max_replicas) if s not in line.busy)
    awake_first = sorted(free, key=lambda s: (s not in line.idle, s))
    return slot in awake_first[: max(0, count)]


def who_yields(without_place_s: Mapping[str, float], up_s: Mapping[str, float], turn_s: float) -> str | None:
    """The model that must leave room, if one must: that which has been up longest, and for its turn at least, while
    another has had tasks and no place for as long."""
    hungry = {model for model, waited_s in without_place_s.items() if waited_s >= turn_s}
    had_its_turn = {m: s for m, s in up_s.items() if s >= turn_s and m not in hungry}
    return max(had_its_turn, key=lambda m: had_its_turn[m]) if hungry and had_its_turn else None


def slot_of(gang: str, model: str) -> int | None:
    """The slot that a gang's name tells; None for a gang that has none."""
    number, _, rest = gang.removeprefix(f"ray-{model}-").partition("-")
    return int(number) if gang.startswith(f"ray-{model}-") and number.isdigit() and rest else None


def gang_prefix(model: str, slot: int) -> str:
    return f"ray-{model}-{slot}-"


@dataclass(frozen=True, slots=True)
class RankReport:
    """Where a rank is; nothing is known of one that has no process yet."""

    number: int
    node: str = ""
    address: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class GangReport:
    """A gang as it tells of itself every second or two."""

    gang: GangId
    model: str
    slot: int
    since: float
    at: float
    formation: int = 0
    ranks: tuple[RankReport, ...] = ()

    @property
    def formed(self) -> bool:
        return bool(self.ranks) and all(rank.pid for rank in self.ranks)


def line_of(
    model: Model,
    length: int,
    running: int,
    oldest_s: float,
    held: Mapping[GangId, int],
    reports: Mapping[GangId, GangReport],
) -> Line:
    """`held` is how many tasks each gang of the model holds; `reports` are those of gangs that live."""
    slots = {gang: slot_of(gang, model.name) for gang in {*held, *reports}}
    busy = frozenset(slot for gang, slot in slots.items() if slot is not None and held.get(gang, 0) > 0)
    idle = frozenset(
        slot
        for gang, slot in slots.items()
        if slot is not None and gang in reports and reports[gang].formed and slot not in busy
    )
    return Line(max(0, length - running), oldest_s, busy, idle)
