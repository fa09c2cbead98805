"""Who is next: tenants take turns, and inside a tenant priority, then age, decides.

Each tenant has a tag that grows by one with every task served; the smallest tag among those that wait is served next
(ties by name). The clock is the highest tag served. A tenant that comes back starts at the clock, or at its own tag if
that is higher; one that was passed over because it may not run more goes on at the clock. So all tags of those who wait
are the clock or one above it, and no tenant is served more than twice while another waits: absence earns no credit, and
to submit one task at a time earns none either. The claim script does this in Redis; this module says what it will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from turnout.domain.tasks import Priority

_CLASS = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}
CLASS_SPAN = 10**13  # tasks a priority class can number; 3 × this stays exact in a double


@dataclass(frozen=True, slots=True)
class Waiting:
    """One tenant's line: its tag and how many tasks wait."""

    tenant: str
    tag: float
    count: int


def class_base(priority: Priority) -> int:
    """The lowest score in a tenant's line that a task of this priority can have."""
    return _CLASS[priority] * CLASS_SPAN


def position(own: Waiting, place: int, others: Sequence[Waiting]) -> int:
    """How many tasks are served before the one at `place` (0 = first) of its own tenant's line."""
    turn = own.tag + place
    ahead = place
    for other in others:
        before = ceil(turn - other.tag)
        if other.tag + before == turn and other.tenant < own.tenant:
            before += 1
        ahead += max(0, min(before, other.count))
    return ahead
