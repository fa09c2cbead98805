"""Which of the requests that wait for one model gets a free seat. Pure.

A seat is room for one more request at one replica. The rule has four parts:

- A request may take any free seat, but not one at a replica that has failed it (`tried`).
- Tenants take turns by the rule of the video queue (`tasks.fairness_rules`): each has a tag that grows by one with every
  request seated, and the smallest tag is next. A tenant that comes back starts at the tag served last, or at its own
  if that is higher: it is served at most once before the others that wait.
- Guests come after everybody else, in the queue and out of it: a request of theirs leaves the last seat of a replica to others
  (`seats_for`), and is the first to go when the queue is full.
- Inside a tenant the oldest request is first. One that may take none of the free seats keeps its position, and
  those behind it are looked at.

The owner of the queue calls `next_seat` until it finds nobody, after everything that can free a seat. So a seat that
is free afterwards is one that nobody in the queue may take, and a newcomer may have it at once.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from turnout.chat.routing_rules import choose
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.tasks.task_rules import TenantId


class Waiter:
    """One request that waits; `tried` are the replicas that it may not take."""

    __slots__ = ("affinity", "guest", "tenant", "tried")

    def __init__(
        self,
        tenant: TenantId,
        affinity: bytes | None,
        tried: AbstractSet[ReplicaId],
        guest: bool = False,
    ) -> None:
        self.tenant = tenant
        self.guest = guest
        self.affinity = affinity
        self.tried = tried


class SeatQueue:
    """The requests that wait for one model."""

    __slots__ = ("_clock", "_count", "_guests", "_tags", "_waiting")

    def __init__(self) -> None:
        self._guests: set[TenantId] = set()  # of those who wait
        self._waiting: dict[TenantId, dict[Waiter, None]] = {}  # oldest first
        self._tags: dict[TenantId, int] = {}  # of all who wait, and of those who were served last
        self._clock = 0  # the highest tag served; no tag is more than one above it
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, waiter: Waiter) -> None:
        tenant = waiter.tenant
        if tenant not in self._waiting:
            self._waiting[tenant] = {}
            if waiter.guest:
                self._guests.add(tenant)
            self._tags[tenant] = max(self._clock, self._tags.get(tenant, 0))
        self._waiting[tenant][waiter] = None
        self._count += 1

    def leave(self, waiter: Waiter) -> None:
        """Takes a request out, if it is still there."""
        own = self._waiting.get(waiter.tenant)
        if own is None or waiter not in own:
            return
        del own[waiter]
        self._count -= 1
        if not own:
            del self._waiting[waiter.tenant]
            self._guests.discard(waiter.tenant)

    def serve(self, waiter: Waiter) -> None:
        """Takes out a request that was seated: its tenant's turn is over."""
        tag = max(self._clock, self._tags[waiter.tenant])  # to have been passed over earns no credit
        self.leave(waiter)
        if tag > self._clock:  # a new round: the tags of those who left are not above it
            self._clock = tag
            self._tags = {tenant: self._tags[tenant] for tenant in self._waiting}
        self._tags[waiter.tenant] = tag + 1

    def in_turn(self) -> Iterator[Waiter]:
        """All who wait: the tenant that is next first, with all its requests."""
        guests = self._guests
        for tenant in sorted(self._waiting, key=lambda name: (name in guests, self._tags[name], name)):
            yield from self._waiting[tenant]

    def crowded_out(self, tenant: TenantId, guest: bool = False) -> Waiter | None:
        """Who leaves a full queue for a newcomer of `tenant`: a guest, if the newcomer is none; else the newest request of the
        tenant that has most, if that has more than the newcomer's would have; else nobody, and the newcomer is refused."""
        if guest and not self._guests:
            return None
        among = self._guests or self._waiting.keys()
        most = max(among, key=lambda name: (len(self._waiting[name]), name))
        if not guest and self._guests:
            return next(reversed(self._waiting[most]))
        if len(self._waiting[most]) <= len(self._waiting.get(tenant, ())) + 1:
            return None
        return next(reversed(self._waiting[most]))


def seats_for(concurrency: int, guest: bool) -> int:
    """How many requests a replica may have for another one to be seated there."""
    return max(1, concurrency - guest)


def next_seat(
    queue: SeatQueue, there: ModelRoutes, loads: Mapping[ReplicaId, int], avoid: AbstractSet[ReplicaId]
) -> tuple[Waiter, Route] | None:
    """The next request to be seated and its replica; None when nobody who waits may take any free seat."""
    for waiter in queue.in_turn():
        seats = seats_for(there.concurrency, waiter.guest)
        route = choose(there.routes, loads, seats, waiter.affinity, avoid, waiter.tried)
        if route is not None:
            return waiter, route
        if not waiter.tried:
            return None  # it may sit anywhere, so no seat is free
    return None


def refusal_of(there: ModelRoutes) -> str | None:
    """Why waiting for the model makes no sense now; None while a replica takes requests, or there is hope."""
    return None if any(route.usable for route in there.routes) else there.refusal
