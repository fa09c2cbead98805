"""Where chat requests go: routes as the manager pushed them, places under way, and the line of those who wait.

One for each gateway process, on its event loop; the manager learns of the demand from `demand`. A request for a
model that is asleep or absent waits in a bounded line while it wakes; many requests for one cold model are one
demand, so it is started once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from turnout.domain.errors import InvalidRequest, Limited, NotFound, Unavailable
from turnout.domain.routing import choose
from turnout.domain.serving import Demand, ModelRoutes, ReplicaId, Route

_NOBODY = frozenset[ReplicaId]()
_ASIDE_S = 10.0  # a replica that failed a request gets no other for this long, unless it is the only one


class Seat:
    """One request at one replica. Given back exactly once, with `release`."""

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


@dataclass(slots=True)
class _Waiting:
    affinity: bytes | None
    tried: frozenset[ReplicaId]
    place: asyncio.Future[Seat]


@dataclass(slots=True)
class _Line:
    waiting: deque[_Waiting] = field(default_factory=deque[_Waiting])
    running: int = 0
    asked_at: float = 0.0


class Switchboard:
    """`now` is a monotonic clock; `max_waiting` bounds each model's line, `patience_s` each wait in it."""

    def __init__(self, now: Callable[[], float], max_waiting: int = 1000, patience_s: float = 300.0) -> None:
        self._now = now
        self._max_waiting = max_waiting
        self._patience_s = patience_s
        self._routes: Mapping[str, ModelRoutes] | None = None  # a gateway that just began knows nothing yet
        self._lines: dict[str, _Line] = {}
        self._loads: dict[ReplicaId, int] = {}
        self._aside: dict[ReplicaId, float] = {}
        self.changed = asyncio.Event()  # the demand is worth telling

    def update(self, routes: Mapping[str, ModelRoutes]) -> None:
        """Takes new routes, and seats whoever can be seated now."""
        self._routes = routes
        for model in tuple(self._lines):
            self._seat(model)
            if model not in routes and not self._lines[model].running:
                del self._lines[model]

    def take(
        self, model: str, affinity: bytes | None, tried: frozenset[ReplicaId] = frozenset()
    ) -> Seat | None:
        """A place at once, or None when the request must wait. A replica that was `tried` and failed this request
        is never tried again with it. Raises NotFound, InvalidRequest and Unavailable."""
        if self._routes is None:
            return None
        there = self._routes.get(model)
        if there is None:
            raise _unknown(model)
        if there.video:
            raise _makes_videos(model)
        line = self._line(model)
        line.asked_at = self._now()
        if line.waiting:
            return None  # first come, first served
        route = self._choose(there, affinity, tried)
        if route is None:
            if there.refusal is not None:
                raise Unavailable(
                    f"{model} cannot be served: {there.refusal}",
                    "model",
                    "model_unavailable",
                    retry_after_s=10,
                )
            return None
        return self._enter(model, line, route)

    async def wait(
        self, model: str, affinity: bytes | None, tried: frozenset[ReplicaId] = frozenset()
    ) -> Seat:
        """A place as soon as there is one. Raises Limited when the line is full, Unavailable past the deadline."""
        place = self.take(model, affinity, tried)
        if place is not None:
            return place
        line = self._line(model)
        if len(line.waiting) >= self._max_waiting:
            raise Limited(
                f"{self._max_waiting} requests wait for {model} already.",
                code="too_many_waiting",
                retry_after_s=5,
            )
        waiting = _Waiting(affinity, tried, asyncio.get_running_loop().create_future())
        line.asked_at = self._now()
        line.waiting.append(waiting)
        self.changed.set()
        seated = False
        try:
            async with asyncio.timeout(self._patience_s):
                place = await waiting.place
            seated = True
            return place
        except TimeoutError as err:
            raise Unavailable(
                f"{model} was not ready within {self._patience_s:g} s.",
                "model",
                "model_not_ready",
                retry_after_s=30,
            ) from err
        finally:
            if not seated:
                self._give_up(line, waiting)

    def leave(self, place: Seat, *, failed: bool) -> None:
        replica = place.route.replica
        line = self._lines[place.model]
        line.running -= 1
        line.asked_at = now = self._now()
        left = self._loads.get(replica, 0) - 1
        if left > 0:
            self._loads[replica] = left
        else:
            self._loads.pop(replica, None)
        if failed:
            self._aside[replica] = now + _ASIDE_S
        elif self._aside:
            self._aside.pop(replica, None)
        if line.waiting:
            self._seat(place.model)

    def refusal(self, model: str) -> str | None:
        """Why the model cannot be served now; None while there is hope."""
        there = (self._routes or {}).get(model)
        if there is None or any(route.usable for route in there.routes):
            return None
        return there.refusal

    def demand(self) -> dict[str, Demand]:
        """What this gateway sees of each model that was asked for."""
        return {
            model: Demand(len(line.waiting), line.running, line.asked_at)
            for model, line in self._lines.items()
        }

    def _line(self, model: str) -> _Line:
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = _Line()
        return line

    def _enter(self, model: str, line: _Line, route: Route) -> Seat:
        line.running += 1
        self._loads[route.replica] = self._loads.get(route.replica, 0) + 1
        return Seat(model, route, self)

    def _seat(self, model: str) -> None:
        """Gives places to those in the line who can have one, first come, first served."""
        line, there = self._lines[model], (self._routes or {}).get(model)
        for waiting in tuple(line.waiting):
            if waiting.place.done():
                continue  # it was cancelled, and leaves the line as soon as it runs
            if there is None:
                waiting.place.set_exception(_unknown(model))
            elif there.video:
                waiting.place.set_exception(_makes_videos(model))
            elif there.refusal is not None and not there.routes:
                waiting.place.set_exception(
                    Unavailable(
                        f"{model} cannot be served: {there.refusal}",
                        "model",
                        "model_unavailable",
                        retry_after_s=10,
                    )
                )
            else:
                route = self._choose(there, waiting.affinity, waiting.tried)
                if route is None and not waiting.tried:
                    return
                if route is None:
                    continue  # it waits for another replica than those that failed it: others may pass
                waiting.place.set_result(self._enter(model, line, route))
            line.waiting.remove(waiting)

    def _give_up(self, line: _Line, waiting: _Waiting) -> None:
        """Takes a request out of the line; a place that came at that very moment is given back."""
        if waiting in line.waiting:
            line.waiting.remove(waiting)
        if not waiting.place.cancel() and not waiting.place.cancelled() and waiting.place.exception() is None:
            waiting.place.result().release()

    def _choose(
        self, there: ModelRoutes, affinity: bytes | None, tried: frozenset[ReplicaId]
    ) -> Route | None:
        routes = [r for r in there.routes if r.replica not in tried] if tried else there.routes
        return choose(routes, self._loads, there.concurrency, affinity, self._put_aside())

    def _put_aside(self) -> frozenset[ReplicaId]:
        if not self._aside:
            return _NOBODY
        now = self._now()
        self._aside = {replica: until for replica, until in self._aside.items() if until > now}
        return frozenset(self._aside)


def _unknown(model: str) -> NotFound:
    return NotFound(f"There is no model {model[:100]}.", "model", "model_not_found")


def _makes_videos(model: str) -> InvalidRequest:
    return InvalidRequest(f"{model} makes videos: ask for one at /v1/videos.", "model", "wrong_kind")
