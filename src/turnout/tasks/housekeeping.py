"""The one housekeeper: leases that ran out, tasks nobody took or ever will, webhooks that are due, objects past their
time.

Any number may run; the one that holds the mutex works, the others wait. All its state is in Redis.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from turnout.background import Work
from turnout.errors import Newer, NotFound, Stale, Unavailable
from turnout.fleet.fleet_store import FleetStatus
from turnout.fleet.model_store import ModelStore
from turnout.store.mutex import Mutex
from turnout.store.object_store import Blobs
from turnout.tasks.backlog import Backlog
from turnout.tasks.lease_rules import LeaseWatch
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import NOBODY_TOOK_IT, Expired, Limits, TaskFailure, TaskId
from turnout.telemetry.log import get_log

log = get_log()

_TICK_S = 1.0
_LOOKS = 8  # at the leases, in one lease
_MUTEX_S = 10.0
_SWEEP_EVERY_S = 3600.0  # at most: all objects are listed
_JOIN_S = 60.0  # how long a task waits for a machine that can run its model to join


Duty: TypeAlias = tuple[str, Callable[[], Awaitable[object]], float]
"""What is done, by name, and every how many seconds."""


@dataclass(frozen=True, slots=True)
class Housekeeper:
    """`deliver` sends the webhooks that are due; `others` are duties of other rooms. `gateways` are those that live: gangs renew
    through them."""

    id: str
    models: ModelStore
    fleet_status: FleetStatus
    tasks: TaskLog
    queue: TaskQueue
    backlog: Backlog
    blobs: Blobs
    mutex: Mutex
    deliver: Callable[[], Awaitable[object]]
    lease_s: float
    retention_s: float
    others: Sequence[Duty] = ()
    gateways: Callable[[], Awaitable[Collection[str]]] | None = None
    watches: dict[str, LeaseWatch] = field(default_factory=dict[str, LeaseWatch])

    def loops(self) -> dict[str, Work]:
        """By name: each runs for ever."""
        duties = (
            ("leases", self._reap, min(_TICK_S, self.lease_s / _LOOKS)),
            ("expiry", self._expire, 60.0),
            ("dismissal", self._dismiss, 3.0),
            ("webhooks", self.deliver, _TICK_S),
            ("sweep", self._sweep, min(_SWEEP_EVERY_S, self.retention_s / 10)),
            *self.others,
        )
        return {name: partial(self._repeat, name, duty, every_s) for name, duty, every_s in duties}

    async def leave(self) -> None:
        """Lets another one work at once; call it when the loops have ended."""
        try:
            await self.mutex.drop("manager", self.id)
        except Unavailable as err:
            log.warning("housekeeping lock not released, it will expire", error=str(err))

    async def _repeat(self, name: str, duty: Callable[[], Awaitable[object]], every_s: float) -> None:
        due = 0.0
        while True:
            try:
                if await self.mutex.hold("manager", self.id, _MUTEX_S) and time.monotonic() >= due:
                    await duty()
                    due = time.monotonic() + every_s
            except Unavailable as err:
                log.warning("housekeeping postponed", loop=name, error=str(err))
            await asyncio.sleep(min(_TICK_S, every_s))

    async def _reap(self) -> None:
        try:
            if self.gateways is not None and not await self.gateways():
                raise Unavailable("no gateway lives through which gangs could renew")
            for model in await self.backlog.models():
                watch = self.watches.setdefault(model, LeaseWatch(self.lease_s))
                asked_at = time.monotonic()
                held = await self.queue.leases(model)
                for overdue in watch.look(held, asked_at, time.monotonic()):
                    task = await self.queue.take_back(overdue)
                    if task is not None:
                        log.warning("lease ran out", **task.log_ids, state=task.state)
        except Unavailable:
            for watch in self.watches.values():
                watch.interrupted()
            raise

    async def _expire(self) -> None:
        for model in await self.backlog.models():
            for task_id in await self.backlog.unfinished(model, self.retention_s):
                await self._end(task_id, NOBODY_TOOK_IT)

    async def _dismiss(self) -> None:
        """Ends the waiting tasks of models that were removed, and of those that no machine can run."""
        registered, known = await self.models.names(), await self.models.all()
        given_up = await self.fleet_status.given_up()
        for model in await self.backlog.models():
            refusal = given_up.get(model)
            if model not in registered or (model in known and known[model].video is None):
                failure, age_s = (
                    TaskFailure("model_removed", f"The model {model} was removed.", {"model": model}),
                    0.0,
                )
            elif refusal is not None and refusal.until is None:
                failure = TaskFailure(
                    "model_unavailable",
                    f"{model} cannot be served: {refusal.reason}.",
                    {"model": model, "reason": refusal.reason},
                )
                age_s = _JOIN_S
            else:
                continue
            for task_id in await self.backlog.unfinished(model, age_s):
                await self._end(task_id, failure)
            if model not in registered:
                await self.backlog.forget(model)

    async def _end(self, task_id: TaskId, failure: TaskFailure) -> None:
        try:
            await self.tasks.apply(task_id, Expired(time.time(), failure))
            log.warning("task ended unrendered", task=task_id, why=failure.code)
        except (Stale, NotFound, Newer):
            return  # it is being rendered at last, it is gone, or not ours to judge

    async def _sweep(self) -> None:
        """Objects outlive their task by nothing: both go after the retention."""
        before = await self.backlog.now() - self.retention_s
        old = [blob.key async for blob in self.blobs.list("tasks/") if blob.modified_at < before]
        await self.blobs.delete(old)
        if old:
            log.info("objects swept", count=len(old))


async def make_way(backlog: Backlog, queue: TaskQueue, limits: Limits) -> None:
    """Puts back what guests have under way where others wait for it."""
    for model in await backlog.models():
        for task in await queue.make_way(model, limits):
            log.info("task made way", **task.log_ids, tenant=task.tenant)
