"""Gives chat requests seats at replicas: routes as the manager pushed them, requests in flight, and the queue.

There is one for each gateway process, on its event loop. A request for a model that is asleep or absent waits in a
bounded queue while the model wakes; the manager learns of it from `demand`. Many requests for one cold model are one
demand, so it is started once. Who is seated next is decided in `chat.seat_rules`; this module must not decide it.

A request whose replica failed goes to another one. If all replicas have failed it, it waits for a new one, because the
manager replaces what is gone, drained or asleep within seconds. After `retry_s` it may go back to a replica that failed
it, if that is still routed to. The relay bounds the attempts: the last failure is what the client gets.
"""

import asyncio
from collections.abc import Callable, Mapping

from turnout.chat.routing_rules import choose
from turnout.chat.seat_rules import SeatQueue, Waiter, next_seat, refusal_of, seats_for
from turnout.errors import InvalidRequest, Limited, TurnoutError, Unavailable, no_such
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Demand, ModelRoutes, Route, cannot_serve
from turnout.fleet.version_rules import choose_version
from turnout.tasks.task_rules import TenantId

_AVOID_S = 10.0  # a replica that failed a request gets no other for this long, unless nothing else is free
_NONE = frozenset[ReplicaId]()


class Seat:
    """Room for one request at one replica. It is given back exactly once, with `release`."""

    __slots__ = ("_board", "_open", "model", "route")

    def __init__(self, model: str, route: Route, board: "Switchboard") -> None:
        self.model = model
        self.route = route
        self._board = board
        self._open = True

    def release(self, *, failed: bool = False) -> None:
        if self._open:
            self._open = False
            self._board.leave(self, failed=failed)


class _ModelRequests:
    """What this gateway has of one model."""

    __slots__ = ("asked_at", "queue", "running")

    def __init__(self) -> None:
        self.queue = SeatQueue()
        self.running = 0
        self.asked_at = 0.0


class Switchboard:
    """`now` is a monotonic clock; `max_waiting` bounds each model's queue, `patience_s` each wait in it. After
    `retry_s` in the queue a request may go back to replicas that failed it."""

    def __init__(
        self,
        now: Callable[[], float],
        max_waiting: int = 1000,
        patience_s: float = 300.0,
        retry_s: float = 10.0,
    ) -> None:
        self._now = now
        self._max_waiting = max_waiting
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._routes: Mapping[str, ModelRoutes] | None = None  # a gateway that just began knows nothing yet
        self._models: dict[str, _ModelRequests] = {}
        self._loads: dict[ReplicaId, int] = {}
        self._failed: dict[ReplicaId, float] = {}  # until when it is avoided
        self._futures: dict[Waiter, asyncio.Future[Seat]] = {}
        self.changed = asyncio.Event()  # the demand is worth telling

    def knows_routes(self) -> bool:
        return self._routes is not None

    def has_replica(self, model: str) -> bool:
        """Whether one is ready, though it may be full."""
        there = self._routes.get(model) if self._routes is not None else None
        return there is not None and bool(there.routes)

    def refuse_pictures(self, model: str) -> None:
        """Raises InvalidRequest for a model that does not see: some engines answer with 500, which clients repeat."""
        there = self._routes.get(model) if self._routes is not None else None
        if there is not None and there.vision is False:
            raise InvalidRequest(
                f"{model} does not see pictures: send text alone, or choose a model that does.",
                "messages",
                "pictures_not_supported",
            )

    def serving(self, model: str, asker: Callable[[], bytes]) -> str:
        """The model that answers for this name: itself, or one of its versions."""
        there = self._routes.get(model) if self._routes is not None else None
        if there is None or not there.versions:
            return model
        return choose_version(model, there.versions, asker(), self._can_serve)

    def _can_serve(self, model: str) -> bool:
        there = self._routes.get(model) if self._routes is not None else None
        return there is not None and refusal_of(there) is None

    def update(self, routes: Mapping[str, ModelRoutes]) -> None:
        """Takes new routes, and seats or refuses whoever waits."""
        self._routes = routes
        for model, requests in tuple(self._models.items()):
            self._seat_waiting(model, requests)
            if model not in routes and not requests.running:
                del self._models[model]

    def take(
        self, model: str, affinity: bytes | None, tried: frozenset[ReplicaId] = _NONE, guest: bool = False
    ) -> Seat | None:
        """A seat at once, or None when the request must wait; replicas in `tried` are not considered. A seat that is
        free is one that nobody who waits may take, so nobody is overtaken.

        Raises NotFound, InvalidRequest and Unavailable."""
        if self._routes is None:
            return None
        there = self._routes.get(model)
        if there is not None and not there.video:
            requests = self._requests(model)
            requests.asked_at = self._now()
            seats = seats_for(there.concurrency, guest)
            route = choose(there.routes, self._loads, seats, affinity, self._avoided(), tried)
            if route is not None:
                return self._enter(model, requests, route)
        refusal = _refusal(model, there)
        if refusal is not None:
            raise refusal
        return None

    async def wait(
        self,
        model: str,
        tenant: TenantId,
        affinity: bytes | None,
        tried: frozenset[ReplicaId] = _NONE,
        guest: bool = False,
    ) -> Seat:
        """A seat as soon as there is one. Raises what `take` does, Limited when the queue is full, and Unavailable
        past the deadline."""
        seat = self.take(model, affinity, tried, guest)
        if seat is not None:
            return seat
        requests = self._requests(model)
        self._make_room(model, requests.queue, tenant, guest)
        loop = asyncio.get_running_loop()
        waiter, future = Waiter(tenant, affinity, tried, guest), loop.create_future()
        self._futures[waiter] = future
        requests.queue.join(waiter)
        requests.asked_at = self._now()
        self.changed.set()
        retry = loop.call_later(self._retry_s, self._allow_again, model, requests, waiter) if tried else None
        try:
            async with asyncio.timeout(self._patience_s):
                seat = await future
            return seat
        except TimeoutError as err:
            raise Unavailable(
                f"{model} was not ready within {self._patience_s:g} s.",
                "model",
                "model_not_ready",
                retry_after_s=30,
            ) from err
        finally:
            if retry is not None:
                retry.cancel()
            if seat is None:
                self._give_up(requests.queue, waiter, future)

    def leave(self, seat: Seat, *, failed: bool) -> None:
        replica = seat.route.replica
        requests = self._models[seat.model]
        requests.running -= 1
        requests.asked_at = now = self._now()
        left = self._loads.get(replica, 0) - 1
        if left > 0:
            self._loads[replica] = left
        else:
            self._loads.pop(replica, None)
        if failed:
            self._failed[replica] = now + _AVOID_S
        elif self._failed:
            self._failed.pop(replica, None)
        if len(requests.queue):
            self._seat_waiting(seat.model, requests)

    def demand(self) -> dict[str, Demand]:
        """What this gateway sees of each model that was asked for."""
        return {
            model: Demand(len(requests.queue), requests.running, requests.asked_at)
            for model, requests in self._models.items()
        }

    def _requests(self, model: str) -> _ModelRequests:
        requests = self._models.get(model)
        if requests is None:
            requests = self._models[model] = _ModelRequests()
        return requests

    def _enter(self, model: str, requests: _ModelRequests, route: Route) -> Seat:
        requests.running += 1
        self._loads[route.replica] = self._loads.get(route.replica, 0) + 1
        return Seat(model, route, self)

    def _seat_waiting(self, model: str, requests: _ModelRequests) -> None:
        """Seats all who can be seated now; called after everything that may free a seat."""
        if self._routes is None:
            return
        there, queue = self._routes.get(model), requests.queue
        if there is None or _refusal(model, there) is not None:
            for waiter in tuple(queue.in_turn()):
                self._refuse(queue, waiter, _refusal(model, there))
            return
        while (found := next_seat(queue, there, self._loads, self._avoided())) is not None:
            waiter, route = found
            future = self._futures.pop(waiter)
            if future.done():  # its client has gone, and it leaves as soon as it runs
                queue.leave(waiter)
            else:
                queue.serve(waiter)
                future.set_result(self._enter(model, requests, route))

    def _refuse(self, queue: SeatQueue, waiter: Waiter, error: TurnoutError | None) -> None:
        queue.leave(waiter)
        future = self._futures.pop(waiter)
        if error is not None and not future.done():
            future.set_exception(error)

    def _make_room(self, model: str, queue: SeatQueue, tenant: TenantId, guest: bool) -> None:
        """Raises Limited when the queue is full of others' requests that have as good a right to it."""
        if len(queue) < self._max_waiting:
            return
        full = Limited(
            f"{self._max_waiting} requests wait for {model} already.",
            code="too_many_waiting",
            retry_after_s=5,
        )
        crowded_out = queue.crowded_out(tenant, guest)
        if crowded_out is None:
            raise full
        self._refuse(queue, crowded_out, full)

    def _allow_again(self, model: str, requests: _ModelRequests, waiter: Waiter) -> None:
        """A request that still waits may go back to the replicas that failed it."""
        waiter.tried = _NONE
        self._seat_waiting(model, requests)

    def _give_up(self, queue: SeatQueue, waiter: Waiter, future: asyncio.Future[Seat]) -> None:
        """Takes a request out of the queue; a seat that came at that very moment is given back."""
        queue.leave(waiter)
        self._futures.pop(waiter, None)
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            future.result().release()

    def _avoided(self) -> frozenset[ReplicaId]:
        if not self._failed:
            return _NONE
        now = self._now()
        self._failed = {replica: until for replica, until in self._failed.items() if until > now}
        return frozenset(self._failed)


def _refusal(model: str, there: ModelRoutes | None) -> TurnoutError | None:
    """Why no request for the model is seated, now or later; None while it makes sense to wait."""
    if there is None:
        return no_such("model", model)
    if there.video:
        return InvalidRequest(f"{model} makes videos: ask for one at /v1/videos.", "model", "wrong_kind")
    reason = refusal_of(there)
    return None if reason is None else cannot_serve(model, reason)
