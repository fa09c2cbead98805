"""What a gang that no worker runs tells of itself, and how its model stands by that. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.tasks.task_rules import GangId

_LOAD_S = 600.0  # for a gang to load its model


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

    @property
    def stays_since(self) -> float:
        """Its stay begins when the model is loaded, or a slow start would use it up; but a gang that does not get there cannot
        keep its place for ever."""
        return self.since + _LOAD_S if self.ready_at is None else self.ready_at


def gang_statuses(reports: Iterable[GangReport]) -> dict[str, ModelStatus]:
    """How the models of these gangs stand, as far as they tell."""
    known: dict[str, ModelStatus] = {}
    for report in reports:
        if report.ready:
            known[report.model] = ModelStatus(ModelState.READY)
        else:
            where = next((rank.address for rank in report.ranks if rank.address), "Ray")
            reason = "" if report.formed else "its ranks come up"
            reason = f"once more ({report.trouble})" if report.trouble else reason
            starting = ModelStatus(
                ModelState.STARTING, worker=where, for_s=report.at - report.since, reason=reason
            )
            known.setdefault(report.model, starting)
    return known
