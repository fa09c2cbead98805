"""The queue of turns in Redis: claim, lease, takeover. scripts/names.lua says how turns and tasks belong together."""

import time

from turnout.errors import Newer, NotFound, Stale
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text
from turnout.tasks import task_scripts
from turnout.tasks.lease_rules import HeldTurn, Overdue
from turnout.tasks.task_log import MAX_RACES, TaskLog
from turnout.tasks.task_rules import Claimed, GangId, Interrupted, Limits, State, Task, TaskId, evolve
from turnout.tenants.usage_rules import day_of

_GROUP = "gangs"
_NOBODY = b"nobody"
_CLOSED_S = 2 * 3600


class TaskQueue:
    """`Queue`, `Leases` and `QueueGangs`."""

    def __init__(self, link: RedisConnection, tasks: TaskLog) -> None:
        self._link = link
        self._tasks = tasks

    async def begin_claims(self, gang: GangId, call: str) -> str:
        """From now on only claims of this `call` get something: those of earlier ones may be of a connection that is gone. Returns
        the call before."""
        async with translated():
            name = self._link.keys.claiming(gang)
            before: bytes | None = await self._link.client.set(name, call, ex=_CLOSED_S, get=True)
        return text(before or b"")

    async def held_by(self, model: str, gang: GangId) -> Task | None:
        """A task that was claimed for the gang and that it still holds."""
        for task_id in await self._bound_to(model, gang, 1):
            try:
                task = await self._tasks.get(task_id)
                if task.state is State.QUEUED:  # whoever claimed it died between the two scripts of a claim
                    task = await self._tasks.apply(task_id, Claimed(time.time(), task.attempt + 1, gang))
                return task if task.gang == gang else None
            except (Stale, NotFound, Newer):
                continue
        return None

    async def claim(
        self, model: str, gang: GangId, limits: Limits, *, loading: bool = False, call: str | None = None
    ) -> Task | None:
        """The next task, claimed for the gang with a new attempt number; None when there is none for it.
        While it is `loading` it leaves tasks to gangs that may begin sooner (`fairness_rules.LOADING_WAIT_S`)."""
        found = await self.try_claim(model, gang, limits, loading=loading, call=call)
        return found if isinstance(found, Task) else None

    async def try_claim(
        self, model: str, gang: GangId, limits: Limits, *, loading: bool, call: str | None
    ) -> Task | task_scripts.LeftToOthers | None:
        """As `claim`, and whether others may get what this gang does not."""
        while True:
            task_id = await task_scripts.claim(
                self._link,
                model=model,
                gang=gang,
                max_running=limits.max_running,
                loading=loading,
                call=call,
            )
            if task_id is None or isinstance(task_id, task_scripts.LeftToOthers):
                return task_id
            try:
                task = await self._tasks.get(task_id)
                return await self._tasks.apply(task_id, Claimed(time.time(), task.attempt + 1, gang))
            except (Stale, NotFound):
                continue  # cancelled between the two scripts; its turn went with it
            except Newer:
                await self._set_down(model, task_id)

    async def _set_down(self, model: str, task_id: TaskId) -> None:
        """Leaves the turn of a newer version's task to no gang, so that none seems busy. That version takes it back."""
        async with translated():
            turn = await self._link.client.hget(self._link.keys.task(task_id), "turn")
            if turn is not None:
                queue = self._link.keys.queue(model)
                await self._link.client.xclaim(queue, _GROUP, _NOBODY, 0, [turn], justid=True)

    async def renew(self, task: TaskId, gang: GangId, attempt: int) -> bool:
        """Extends the lease and books the work up to now; False when it is no longer this attempt's."""
        now = time.time()
        return await task_scripts.renew(
            self._link, id=task, gang=gang, attempt=attempt, at=now, day=day_of(now)
        )

    async def leases(self, model: str) -> list[HeldTurn]:
        return await task_scripts.leases(self._link, model=model)

    async def take_back(self, overdue: Overdue) -> Task | None:
        """Puts back the task, as it is now; None when the turn is no longer held."""
        reason = "the gang's lease ran out: it stopped responding"
        return await self._put_back(overdue.turn, overdue.task, reason, counts=overdue.counts, seen=False)

    async def release(self, model: str, gang: GangId, reason: str, *, counts: bool = True) -> list[Task]:
        """Puts back at once what a gang that is known to be dead still holds. `counts`: it died by itself."""
        bound = await self._bound_to(model, gang, 100)
        released = [
            await self._put_back(turn, task_id, reason, counts=counts) for task_id, turn in bound.items()
        ]
        return [task for task in released if task is not None]

    async def make_way(self, model: str, limits: Limits) -> list[Task]:
        """Puts back what guests have under way where others wait for it: their gangs drop it with their next report, and claim
        what is next. It goes on from its checkpoint later."""
        found = await task_scripts.make_way(self._link, model=model, max_running=limits.max_running)
        put_back = [
            await self._put_back(turn, task_id, "it made way for others", counts=False)
            for turn, task_id in found
        ]
        return [task for task in put_back if task is not None]

    async def _bound_to(self, model: str, gang: GangId, limit: int) -> dict[TaskId, str]:
        """The tasks that the gang has claimed, with their turns."""
        async with translated():
            queue = self._link.keys.queue(model)
            if not await self._link.client.exists(queue):
                return {}
            held = await self._link.client.xpending_range(queue, _GROUP, "-", "+", limit, consumername=gang)
            if not held:
                return {}
            turns = [entry["message_id"] for entry in held]
            ids: list[bytes | None] = await self._link.client.hmget(self._link.keys.bound(model), turns)
        return {TaskId(text(task)): turn.decode() for turn, task in zip(turns, ids, strict=True) if task}

    async def _put_back(
        self, turn: str, task_id: TaskId, reason: str, *, counts: bool, seen: bool = True
    ) -> Task | None:
        """The task as it is now; None when it moved on by itself. The turn is the fence: a task that was claimed again
        since has another. `seen`: somebody saw the attempt end."""
        for _ in range(MAX_RACES):
            try:
                stored = await self._tasks.read(task_id)
            except (NotFound, Newer):
                return None
            if stored.turn != turn:
                return None
            task, event = stored.task, None  # its claimer died between the two scripts of a claim
            if task.state is State.IN_PROGRESS:
                event = Interrupted(time.time(), task.attempt, reason, counts=counts)
                task = evolve(task, event)
            if await self._tasks.write(task, stored.version, event, stored.task, seen=seen):
                return task
        return None

    async def close(self, gang: GangId) -> None:
        """From now on the gang gets no task; it keeps what it holds. Must be repeated within the hour."""
        async with translated():
            await self._link.client.set(self._link.keys.closed(gang), 1, ex=_CLOSED_S)

    async def open(self, gang: GangId) -> None:
        """Takes `close` back."""
        async with translated():
            await self._link.client.delete(self._link.keys.closed(gang))

    async def holdings(self, model: str) -> dict[GangId, int]:
        """How many tasks each gang holds."""
        async with translated():
            if not await self._link.client.exists(self._link.keys.queue(model)):
                return {}
            consumers = await self._link.client.xinfo_consumers(self._link.keys.queue(model), _GROUP)
        return {GangId(text(c["name"])): int(c["pending"]) for c in consumers if c["name"] != _NOBODY}

    async def leave(self, model: str, gang: GangId) -> None:
        """Forgets a gang that holds nothing."""
        known = await self.holdings(model)
        async with translated():
            if gang in known and not known[gang]:
                await self._link.client.xgroup_delconsumer(self._link.keys.queue(model), _GROUP, gang)
            await self._link.client.delete(self._link.keys.closed(gang), self._link.keys.claiming(gang))
