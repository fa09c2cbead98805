"""How many gangs a model should have: started on demand, kept while there is work, stopped when idle. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.domain.models import Model
from turnout.domain.tasks import GangId


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang as its worker sees it. `idle_since` is when it last had nothing to do; None while it is busy."""

    id: GangId
    idle_since: float | None
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class StartGang:
    model: str


@dataclass(frozen=True, slots=True)
class StopGang:
    gang: GangId
    reason: str


def plan_gangs(model: Model, tasks: int, gangs: Sequence[GangView], now: float) -> list[StartGang | StopGang]:
    """What to start and stop, given how many unfinished tasks the model has. A busy gang is never stopped."""
    present = [g for g in gangs if not g.stopping]
    wanted = min(model.max_replicas, max(model.min_replicas, tasks))
    if len(present) < wanted:
        # A gang that is still leaving holds its ranks' memory: wait for it.
        room = model.max_replicas - len(gangs)
        return [StartGang(model.name)] * min(wanted - len(present), room)
    spare = len(present) - wanted
    idle = sorted(
        (g for g in present if g.idle_since is not None and now - g.idle_since >= model.idle_s),
        key=lambda g: g.idle_since or 0.0,
    )
    return [StopGang(g.id, f"idle for {model.idle_s:g} s") for g in idle[:spare]]
