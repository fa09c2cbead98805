"""A few places that tenants take in turn: whoever holds up its own places holds up nobody else."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from turnout.chat.seat_rules import SeatQueue, Waiter
from turnout.errors import Limited, Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.tenants.turn_rules import Turn


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """`places` in all, `of_one` of them for one tenant. `waiting` and `wait_s` bound the queue; `busy` is what those hear who
    are not let in, `code` its code."""

    places: int
    of_one: int
    waiting: int
    wait_s: float
    busy: str
    code: str


class TenantTurns:
    """Owns who holds a place and who waits."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._held: Counter[TenantId] = Counter()
        self._queue = SeatQueue()
        self._futures: dict[Waiter, asyncio.Future[None]] = {}  # of those in the queue

    @property
    def idle(self) -> bool:
        return not self._held and len(self._queue) == 0

    @asynccontextmanager
    async def turn(self, whose: Turn) -> AsyncGenerator[None]:
        await self.enter(whose)
        try:
            yield
        finally:
            self.leave(whose)

    async def enter(self, whose: Turn) -> None:
        """Returns when the tenant has one place more; raises Limited or Unavailable when too many wait."""
        if len(self._queue) >= self._limits.waiting:
            crowded_out = self._queue.crowded_out(whose)
            if crowded_out is None:
                raise self._too_many()
            self._queue.leave(crowded_out)
            self._futures.pop(crowded_out).set_exception(self._too_many())
        waiter = Waiter(whose, None, frozenset())
        future = self._futures[waiter] = asyncio.get_running_loop().create_future()
        self._queue.join(waiter)
        self._seat()
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await future
        except BaseException as err:
            self._queue.leave(waiter)
            self._futures.pop(waiter, None)
            if future.done() and not future.cancelled() and future.exception() is None:
                self.leave(whose)  # it was given a place at the last moment
            if isinstance(err, TimeoutError):
                raise Unavailable(self._limits.busy, code=self._limits.code) from err
            raise

    def leave(self, whose: Turn) -> None:
        self._held[whose] -= 1
        if self._held[whose] == 0:
            del self._held[whose]
        self._seat()

    def _seat(self) -> None:
        while self._held.total() < self._limits.places and (waiter := self._next()) is not None:
            self._queue.serve(waiter)
            future = self._futures.pop(waiter)
            if not future.done():
                self._held[waiter.tenant] += 1
                future.set_result(None)

    def _next(self) -> Waiter | None:
        of_one = self._limits.of_one
        return next((one for one in self._queue.in_turn() if self._held[one.tenant] < of_one), None)

    def _too_many(self) -> Limited:
        return Limited(self._limits.busy, code=self._limits.code, retry_after_s=5)
