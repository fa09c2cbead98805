"""Tasks in Redis. A change reads the task and its version, calls `evolve`, and writes by a script if the version is the same."""

import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Literal, NamedTuple

from turnout.errors import Conflict, Limited, Newer, NotFound, Stale, Unauthorized, Unavailable, no_such
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import NewerRecord
from turnout.store.records import number, read_all, set_aside, text
from turnout.tasks import task_scripts
from turnout.tasks.fairness_rules import position
from turnout.tasks.task_records import EVENT, TASK
from turnout.tasks.task_rules import (
    Deleted,
    Event,
    Expired,
    Idempotency,
    Limits,
    State,
    Task,
    TaskFailure,
    TaskId,
    TenantId,
    evolve,
)
from turnout.tasks.task_traces import TaskTraces
from turnout.tasks.video_rules import VideoSpec
from turnout.tenants.allowance_rules import Allowance, limits_on, over_allowance
from turnout.tenants.caller import right_ended
from turnout.tenants.usage_log import amounts_of
from turnout.tenants.usage_rules import attempt_work, day_of, used_by

MAX_RACES = (
    50  # writers of one task are its gang, a canceller and the manager: more races than this are a fault
)


_AT_ONCE = 100


class StoredTask(NamedTuple):
    """`turn` is the one that a gang has claimed for it."""

    task: Task
    version: int
    turn: str | None


class TaskLog:
    """Every write is atomic and appends the event that led to it."""

    def __init__(self, link: RedisConnection, retention_s: float, traces: TaskTraces | None = None) -> None:
        self._link = link
        self._retention_ms = int(retention_s * 1000)
        self._traces = traces

    async def submit(self, task: Task, limits: Limits, idempotency: Idempotency | None = None) -> Task:
        """Accepts the task, or returns the one that the same idempotency key made before.

        Raises Conflict for a reused key with another digest, Limited past a limit. A refusal leaves no trace.
        """
        return (await self.submit_with_position(task, limits, idempotency))[0]

    async def admit(
        self,
        task: Task,
        limits: Limits,
        idempotency: Idempotency | None = None,
        allowances: tuple[Allowance, ...] = (),
    ) -> Task | None:
        """Counts a task for which an address is called before it is submitted; or returns the one that the same idempotency
        key made before. Raises as `submit`."""
        outcome = await task_scripts.admit(
            self._link,
            tenant=task.tenant,
            now_ms=int(task.created_at * 1000),
            limits=limits,
            idempotency=idempotency,
            a_day=limits_on(allowances, "videos"),
        )
        if isinstance(outcome, task_scripts.AcceptedBefore):
            return await self.get(outcome.id)
        if outcome is not None:
            raise _refusal(outcome, task, limits, idempotency)
        return None

    async def submit_with_position(
        self,
        task: Task,
        limits: Limits,
        idempotency: Idempotency | None = None,
        allowances: tuple[Allowance, ...] = (),
        *,
        admitted: bool = False,
    ) -> tuple[Task, int | None]:
        """As `submit`, with the task's position. `admitted`: by `admit`. What was asked for today counts against the
        `allowances`, too."""
        outcome = await task_scripts.submit(
            self._link,
            task=task,
            limits=limits,
            idempotency=idempotency,
            retention_ms=self._retention_ms,
            admitted=admitted,
            a_day=limits_on(allowances, "videos"),
        )
        match outcome:
            case task_scripts.Accepted(line):
                return task, _position(task, line)
            case task_scripts.AcceptedBefore(known):
                task = await self.get(known)
                return task, await self.position(task)
            case _:
                raise _refusal(outcome, task, limits, idempotency)

    async def get(self, task_id: TaskId) -> Task:
        """Raises NotFound."""
        return (await self.read(task_id)).task

    async def named(self, tenant: TenantId, key: str) -> TaskId | None:
        """The tenant's task that was submitted with this idempotency key, if it is still there."""
        async with translated():
            found = await self._link.client.hget(self._link.keys.idempotency(tenant, key), "task")
        return TaskId(text(found)) if found else None

    async def read(self, task_id: TaskId) -> StoredTask:
        async with translated():
            doc, version, turn = await self._link.client.hmget(
                self._link.keys.task(task_id), "doc", "v", "turn"
            )
        if doc is None:
            raise no_such("video", task_id, "video_id")
        try:
            task = TASK.load(doc)
            if task.id != task_id:  # it would be written to another's place
                raise ValueError(f"it has the id {task.id[:50]!r}")
            return StoredTask(task, int(version or b""), turn.decode() if turn else None)
        except NewerRecord as err:
            raise Newer(f"{task_id} was written by a newer version: {err}", code="newer_version") from err
        except (ValueError, RecursionError) as err:
            await set_aside(self._link, "task", task_id, doc, err)
            return await self._end_unreadable(task_id)

    async def _end_unreadable(self, task_id: TaskId) -> StoredTask:
        """Ends the task for its owner with a clear error, by what is known of it beside its document."""
        key = self._link.keys.task(task_id)
        async with translated():
            found = await self._link.client.hmget(key, "v", "tenant", "model", "attempt", "state")
            if None in (found[1], found[2], found[4]):
                await self._link.client.delete(key)
                raise no_such("video", task_id, "video_id")
            version, attempt = number(found[0], 1), number(found[3])
            if found[0] != str(version).encode():
                await self._link.client.hset(key, "v", version)
        now = time.time()
        failure = TaskFailure("record_unreadable", "The task's record could not be read; an operator can.")
        task = Task(
            task_id,
            TenantId(text(found[1] or b"")),
            text(found[2] or b""),
            VideoSpec("", "", 16, 16, 1, 1, 1, guidance=(1.0, 1.0), shift=1.0, seed=0),
            created_at=now,
            state=State.FAILED,
            attempt=attempt,
            finished_at=now,
            failure=failure,
        )
        if await self.write(task, version, Expired(now, failure)):
            return StoredTask(task, version + 1, None)
        raise Unavailable(f"{task_id} is being written by another.", retry_after_s=1.0)

    async def apply(self, task_id: TaskId, event: Event) -> Task:
        """The task after `event`. Raises Stale when the event changes nothing, NotFound when the task is gone."""
        for _ in range(MAX_RACES):
            task, version, _ = await self.read(task_id)
            after = evolve(task, event)
            if after is task:
                raise Stale(f"{event.kind} came too late: {task_id} is {task.state}, attempt {task.attempt}.")
            if await self.write(after, version, event, task):
                return after
        raise Unavailable(f"{task_id} is being written by too many at once.", retry_after_s=1.0)

    async def write(
        self,
        task: Task,
        version: int,
        event: Event | None,
        before: Task | None = None,
        *,
        seen: bool = True,
    ) -> bool:
        """Writes the task over `version`, with its event; False if it has moved on. `before` is the task as it was: the work of
        an attempt that ends is booked, if somebody has `seen` the end."""
        at = event.at if event is not None else task.finished_at or 0.0
        written = await task_scripts.commit(
            self._link,
            task=task,
            version=version,
            event=event,
            retention_ms=self._retention_ms,
            used=task_scripts.CommitUse(
                day_of(at),
                amounts_of(used_by(before, task)),
                attempt_work(before, task, seen=seen),
                at,
                (before and before.claimed_at) or at,
            ),
        )
        if written and event is not None and self._traces is not None:
            await self._traces.written(task, event)
        return written

    async def forget(self, task: Task) -> None:
        """Removes an ended task and its events."""
        event = EVENT.dump(Deleted(time.time()))
        await task_scripts.forget_task(
            self._link, id=task.id, tenant=task.tenant, state=task.state, event=event
        )

    async def page(
        self, tenant: TenantId, *, after: TaskId | None, limit: int, order: Literal["asc", "desc"]
    ) -> tuple[list[Task], bool]:
        """A tenant's tasks by age, and whether there are more. Raises NotFound for an unknown `after`."""
        mine = self._link.keys.tasks_of(tenant)
        client = self._link.client
        async with translated():
            start = 0
            if after is not None:
                rank = await (client.zrevrank if order == "desc" else client.zrank)(mine, after)
                if rank is None:
                    raise no_such("video", after, "after")
                start = rank + 1
            tasks: list[Task] = []
            while len(tasks) <= limit:  # one more than asked tells whether there are more
                ids = await client.zrange(mine, start, start + limit, desc=order == "desc")
                if not ids:
                    break
                start += len(ids)
                pipe = client.pipeline(transaction=False)
                names = [TaskId(text(task_id)) for task_id in ids]
                for task_id in names:
                    pipe.hget(self._link.keys.task(task_id), "doc")
                docs = dict(zip(names, await pipe.execute(), strict=True))
                read = await read_all(self._link, TASK, docs)
                for task_id, doc in docs.items():
                    if task_id in read and read[task_id].id == task_id:
                        tasks.append(read[task_id])
                    elif doc is not None:
                        with suppress(NotFound, Unavailable):  # it goes, or is of a newer version
                            tasks.append(await self.get(task_id))
        return tasks[:limit], len(tasks) > limit

    async def all_of(self, tenant: TenantId) -> AsyncGenerator[Task]:
        """All tasks that a tenant has now, oldest first; those that cannot be read are left out."""
        client = self._link.client
        async with translated():
            ids = [TaskId(text(i)) for i in await client.zrange(self._link.keys.tasks_of(tenant), 0, -1)]
        for start in range(0, len(ids), _AT_ONCE):
            batch = ids[start : start + _AT_ONCE]
            async with translated():
                pipe = client.pipeline(transaction=False)
                for task_id in batch:
                    pipe.hget(self._link.keys.task(task_id), "doc")
                docs = dict(zip(batch, await pipe.execute(), strict=True))
            for task in (await read_all(self._link, TASK, docs)).values():
                yield task

    async def position(self, task: Task) -> int | None:
        """How many tasks are served before this one; None when it is not waiting."""
        if task.state is not State.QUEUED:
            return None
        return _position(
            task, await task_scripts.position(self._link, model=task.model, tenant=task.tenant, id=task.id)
        )


def _position(task: Task, line: task_scripts.QueuePlace | None) -> int | None:
    own = None if line is None else next((of for of in line.waiting if of.tenant == task.tenant), None)
    if line is None or own is None:
        return None  # its line was damaged, or is being written
    return line.earlier + position(own, line.before, [of for of in line.waiting if of is not own])


def _refusal(
    outcome: task_scripts.OtherDigest
    | task_scripts.OverRate
    | task_scripts.Full
    | task_scripts.DaySpent
    | task_scripts.PersonGone,
    task: Task,
    limits: Limits,
    idempotency: Idempotency | None,
) -> Conflict | Limited | Unauthorized:
    match outcome:
        case task_scripts.OtherDigest():
            param = idempotency.param if idempotency else ""
            return Conflict(f"This {param} was used with another request.", param, "idempotency_conflict")
        case task_scripts.PersonGone():
            return right_ended()
        case task_scripts.OverRate(wait_s):
            return Limited(
                f"Over {limits.submits_per_minute} submissions a minute.",
                code="rate_limit_exceeded",
                retry_after_s=wait_s,
            )
        case task_scripts.DaySpent(most):
            return over_allowance("videos", most, task.created_at)
        case task_scripts.Full(running, waiting):
            return Limited(
                f"You have {running} tasks running and {waiting} waiting; "
                f"{limits.max_running} may run and {limits.max_waiting} more may wait.",
                code="too_many_tasks",
                retry_after_s=10,
            )
