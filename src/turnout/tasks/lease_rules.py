"""Which gangs lost their lease: those that a watcher saw renew nothing for as long as a lease lasts. Pure.

Only the watcher's own monotonic clock is asked, and only time in which it could see counts. So no clock that is set
anew, on whatever machine, ends a lease, and neither does an outage of Redis or of all gateways: after one, all leases begin again,
because gangs could not renew meanwhile. A gang that renewed nothing since then may have been lost to the outage, so nobody is blamed.

A gang renews six times in a lease and waits a sixth of it for an answer. A look may come a quarter of a lease after the
last one and still count: even then a gang that lives renews in time.
"""

from collections.abc import Collection
from dataclasses import dataclass

from turnout.tasks.task_rules import TaskId


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A claimed turn; `renewals` grows with each."""

    turn: str
    task: TaskId
    renewals: int


@dataclass(frozen=True, slots=True)
class Overdue:
    """`counts` is False when the gang was not heard since the last outage."""

    turn: str
    task: TaskId
    counts: bool


@dataclass(frozen=True, slots=True)
class _Watched:
    held: HeldTurn
    since: float
    heard: bool


class LeaseWatch:
    """The leases of one model. `look` is to be called several times in a lease."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._looked_at: float | None = None
        self._watched: dict[str, _Watched] = {}

    def interrupted(self) -> None:
        """The queue could not be read, or somebody else watched it: all leases begin again."""
        self._looked_at = None
        self._watched = {}

    def look(self, held: Collection[HeldTurn], asked_at: float, now: float) -> list[Overdue]:
        """Those whose lease ran out. `asked_at` is when `held` was asked for, `now` when the answer came."""
        went_on = self._looked_at is not None and now - self._looked_at <= self._lease_s / 4
        known = self._watched if went_on else {}
        self._looked_at = now
        # A turn that appears while the watch goes on was claimed just now, by a gang that lived.
        self._watched = {
            turn.turn: _seen(known.get(turn.turn), turn, now) or _Watched(turn, now, went_on) for turn in held
        }
        return [
            Overdue(w.held.turn, w.held.task, w.heard)
            for w in self._watched.values()
            if asked_at - w.since >= self._lease_s
        ]


def _seen(before: _Watched | None, turn: HeldTurn, now: float) -> _Watched | None:
    if before is None:
        return None
    return _Watched(turn, now, True) if turn.renewals != before.held.renewals else before
