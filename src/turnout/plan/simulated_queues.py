"""The requests that wait for one model, and who takes them: by the rules of the video queue, or of the gateway's seats."""

import random
from collections import Counter
from collections.abc import Iterator

from turnout.chat.routing_rules import choose
from turnout.chat.seat_rules import SeatQueue, Waiter, next_seat, refusal_of
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes
from turnout.plan.scenario import ServiceSettings
from turnout.plan.simulated_machine import SimulatedEngine
from turnout.plan.traffic import PlannedRequest
from turnout.tasks.fairness_rules import FairQueue, class_base
from turnout.tasks.task_rules import TenantId

_NOBODY = frozenset[ReplicaId]()
_PREFIXES = 64  # beginnings of prompts that requests share

Match = tuple[PlannedRequest, SimulatedEngine]


class SimulatedTaskQueue:
    """Video tasks. A gang that has no task asks for one. `running` and `held` count each tenant's
    tasks, for all models."""

    def __init__(
        self,
        settings: ServiceSettings,
        running: Counter[TenantId],
        held: Counter[TenantId],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._queue = FairQueue[PlannedRequest]()
        self._running = running
        self._held = held
        self._rng = rng
        self._asking: list[SimulatedEngine] = []

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def join(self, request: PlannedRequest) -> bool:
        """Whether it was accepted: the submit script refuses what is over its tenant's limits."""
        if self._held[request.tenant] >= self._settings.limit_running + self._settings.limit_waiting:
            return False
        self._held[request.tenant] += 1
        self._queue.join(request.tenant, class_base(request.priority) + request.number, request)
        return True

    def ask(self, engine: SimulatedEngine) -> None:
        self._asking.append(engine)

    def leave(self, engine: SimulatedEngine) -> None:
        if engine in self._asking:
            self._asking.remove(engine)

    def matches(self) -> Iterator[Match]:
        while self._asking and len(self._queue):
            request = self._queue.claim(self._running, self._settings.limit_running)
            if request is None:
                return
            self._running[request.tenant] += 1
            # Whoever asks first gets it: they ask five times a second.
            yield request, self._asking.pop(self._rng.randrange(len(self._asking)))

    def ended(self, request: PlannedRequest) -> None:
        self._running[request.tenant] -= 1
        self._held[request.tenant] -= 1

    def refuse_all(self) -> list[PlannedRequest]:
        refused: list[PlannedRequest] = []
        while (request := self._queue.claim({}, 1)) is not None:
            self._held[request.tenant] -= 1
            refused.append(request)
        return refused


class SimulatedSeats:
    """Chat requests at one gateway."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._queue = SeatQueue()
        self._waiters: dict[Waiter, PlannedRequest] = {}
        self._engines: dict[ReplicaId, SimulatedEngine] = {}
        self._loads: dict[ReplicaId, int] = {}
        self._routes = ModelRoutes()
        self._failed: set[ReplicaId] = set()  # those that broke their requests; the manager does not know yet

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def refusal(self) -> str | None:
        return refusal_of(self._routes)

    def route(self, routes: ModelRoutes, engines: dict[ReplicaId, SimulatedEngine]) -> None:
        self._routes, self._engines = routes, engines
        self._failed.intersection_update(route.replica for route in routes.routes)

    def fail(self, engine: SimulatedEngine) -> None:
        """Requests do not go there again: each has seen its connection break."""
        self._failed.add(engine.id)

    def seat(self, request: PlannedRequest) -> SimulatedEngine | None:
        """An engine that takes the request at once."""
        routes = self._routes
        found = choose(
            routes.routes, self._loads, routes.concurrency, _affinity(request), _NOBODY, self._failed
        )
        return self._take(found.replica) if found is not None else None

    def join(self, request: PlannedRequest) -> tuple[Waiter | None, PlannedRequest | None]:
        """The request's place in the queue, if there is one, and whom it crowded out, if anybody."""
        crowded_out = None
        if len(self._queue) >= self._settings.max_waiting:
            other = self._queue.crowded_out(request.tenant) if len(self._queue) else None
            if other is None:
                return None, None
            crowded_out = self.give_up(other)
        waiter = Waiter(request.tenant, _affinity(request), self._failed)
        self._queue.join(waiter)
        self._waiters[waiter] = request
        return waiter, crowded_out

    def give_up(self, waiter: Waiter) -> PlannedRequest | None:
        """Takes the request out, if it still waits."""
        request = self._waiters.pop(waiter, None)
        self._queue.leave(waiter)
        return request

    def matches(self) -> Iterator[Match]:
        while (found := next_seat(self._queue, self._routes, self._loads, _NOBODY)) is not None:
            waiter, route = found
            self._queue.serve(waiter)
            yield self._waiters.pop(waiter), self._take(route.replica)

    def ended(self, engine: SimulatedEngine) -> None:
        left = self._loads.get(engine.id, 0) - 1
        if left > 0:
            self._loads[engine.id] = left
        else:
            self._loads.pop(engine.id, None)

    def refuse_all(self) -> list[PlannedRequest]:
        refused = list(self._waiters.values())
        for waiter in tuple(self._waiters):
            self.give_up(waiter)
        return refused

    def _take(self, replica: ReplicaId) -> SimulatedEngine:
        self._loads[replica] = self._loads.get(replica, 0) + 1
        return self._engines[replica]


def _affinity(request: PlannedRequest) -> bytes:
    return b"%d" % (request.number % _PREFIXES)
