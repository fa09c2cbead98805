"""Who is next: tenants take turns, and inside a tenant priority, then age, decides. Guests come last.

Each tenant has a tag that grows by one with every task served; the smallest tag among those that wait is served next
(ties by name). The clock is the highest tag served. A tenant that comes back starts at the clock, or at its own tag if
that is higher; one that was passed over because it may not run more goes on at the clock. So all tags of those who wait
are the clock or one above it, and no tenant is served more than twice while another waits: absence earns no credit, and
to submit one task at a time earns none either.

What guests ask for stands in a line of its own, by the same rule. It is looked at only when nobody in the first line may be
served, so any number of guests changes nothing for anybody else. What a guest has under way makes way, too: a task that waits
for `MAKE_WAY_S`, and may run, puts one of them back (`make_way`). The claim script does this in Redis; `FairQueue` is the same rule in Python
(a test compares the two), and `position` says what it will do.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, TypeVar

from turnout.tasks.task_rules import Priority, TenantId

T = TypeVar("T")

_CLASS = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2, Priority.GUEST: 3}
LOADING_WAIT_S = 1.0
"""A gang that is still loading takes a task only when no other gang of the model is at work and the task has waited so long:
an idle gang would have taken it by then, and one that is at work may be free sooner than the model is loaded."""
MAKE_WAY_S = 0.25
"""An idle gang would have taken it by then: it waits for an open claim. One that is late costs a guest a step or two."""
CLASS_SPAN = 10**13  # tasks a priority class can number; 4 × this stays exact in a double


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


class FairQueue(Generic[T]):
    """The tasks that wait for one video model, by the rule of the claim script."""

    __slots__ = ("_guests", "_tenants")

    def __init__(self) -> None:
        self._tenants = _FairLine[T]()
        self._guests = _FairLine[T]()

    def __len__(self) -> int:
        return self._tenants.count + self._guests.count

    def join(self, tenant: TenantId, place: int, task: T) -> None:
        """`place` is the task's number on top of its `class_base`; it keeps it when it comes back."""
        line = self._tenants if place < class_base(Priority.GUEST) else self._guests
        line.join(tenant, place, task)

    def claim(self, running: Mapping[TenantId, int], max_running: int) -> T | None:
        """The next task, if any tenant that waits may run one more."""
        found = self._tenants.claim(running, max_running)
        return self._guests.claim(running, max_running) if found is None else found


class _FairLine(Generic[T]):
    __slots__ = ("_clock", "_served", "_tags", "_waiting", "count")

    def __init__(self) -> None:
        self._waiting: dict[TenantId, list[tuple[int, T]]] = {}  # a heap: by place
        self._tags: dict[TenantId, int] = {}  # of those who wait
        self._served: dict[TenantId, int] = {}  # of those served last, above the clock
        self._clock = 0
        self.count = 0

    def join(self, tenant: TenantId, place: int, task: T) -> None:
        if tenant not in self._waiting:
            self._waiting[tenant] = []
            self._tags[tenant] = max(self._clock, self._served.get(tenant, 0))
        heapq.heappush(self._waiting[tenant], (place, task))
        self.count += 1

    def claim(self, running: Mapping[TenantId, int], max_running: int) -> T | None:
        for tenant in sorted(self._waiting, key=lambda name: (self._tags[name], name)):
            if running.get(tenant, 0) < max_running:
                return self._serve(tenant)
        return None

    def _serve(self, tenant: TenantId) -> T:
        tag, line = self._tags[tenant], self._waiting[tenant]
        _, task = heapq.heappop(line)
        self.count -= 1
        self._clock = tag
        self._served = {name: other for name, other in self._served.items() if other > tag}
        self._served[tenant] = tag + 1
        for name, other in self._tags.items():  # to be passed over earns no credit
            if (other, name) < (tag, tenant):
                self._tags[name] = tag
        self._tags[tenant] = tag + 1
        if not line:
            del self._waiting[tenant], self._tags[tenant]
        return task
