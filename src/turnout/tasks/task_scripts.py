"""The scripts of tasks and their queue, each with its one call site: a function of the same name with named arguments and a
typed answer. Every call is one round trip."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from turnout.store.connection import RedisConnection
from turnout.store.records import text
from turnout.store.scripts import Script
from turnout.tasks.fairness_rules import LOADING_WAIT_S, MAKE_WAY_S, Waiting, class_base
from turnout.tasks.lease_rules import HeldTurn
from turnout.tasks.task_records import EVENT, TASK
from turnout.tasks.task_rules import (
    Event,
    GangId,
    Idempotency,
    Limits,
    State,
    Submitted,
    Task,
    TaskId,
    TenantId,
)
from turnout.tenants.usage_log import USAGE_MS
from turnout.tenants.usage_rules import AttemptWork, day_of


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """How many of its tenant's tasks wait before a task, how many in the line before its own, and how many each tenant of its
    own has."""

    before: int
    earlier: int
    waiting: list[Waiting]


@dataclass(frozen=True, slots=True)
class Accepted:
    """`line` is None if its line was damaged."""

    line: QueuePlace | None


@dataclass(frozen=True, slots=True)
class AcceptedBefore:
    id: TaskId


@dataclass(frozen=True, slots=True)
class OtherDigest:
    pass


@dataclass(frozen=True, slots=True)
class OverRate:
    wait_s: float


@dataclass(frozen=True, slots=True)
class Full:
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class DaySpent:
    most: int


@dataclass(frozen=True, slots=True)
class PersonGone:
    """Whoever asks was disabled or removed meanwhile."""


_Refused: TypeAlias = AcceptedBefore | OtherDigest | OverRate | Full | DaySpent | PersonGone
_LIMITS = ("tenants/allowance", "tasks/submission_limits")
_admit = Script("tasks/admit", *_LIMITS)


async def admit(
    link: RedisConnection,
    *,
    tenant: TenantId,
    now_ms: int,
    limits: Limits,
    idempotency: Idempotency | None,
    a_day: Sequence[tuple[str, int]],
) -> _Refused | None:
    """Counts a submission for which an address is called before it is accepted; else says why it is refused."""
    answer: list[Any] = await _admit.promise(
        link,
        [one for limit in a_day for one in limit],
        tenant=tenant,
        now_ms=now_ms,
        max_waiting=limits.max_waiting,
        max_running=limits.max_running,
        per_minute=limits.submits_per_minute,
        idempotency=idempotency.key if idempotency else "",
        digest=idempotency.digest if idempotency else "",
        day=day_of(now_ms / 1000),
    )
    return None if answer == [b"new"] else _not_accepted(answer)


def _not_accepted(answer: list[Any]) -> _Refused:
    match answer:
        case [b"same", known]:
            return AcceptedBefore(TaskId(text(known)))
        case [b"conflict"]:
            return OtherDigest()
        case [b"rate", wait_ms]:
            return OverRate(wait_ms / 1000)
        case [b"day", most]:
            return DaySpent(most)
        case [b"gone"]:
            return PersonGone()
        case _:
            return Full(answer[1], answer[2])


_submit = Script("tasks/submit", "tasks/turns", *_LIMITS, "people/staying")


async def submit(
    link: RedisConnection,
    *,
    task: Task,
    limits: Limits,
    idempotency: Idempotency | None,
    retention_ms: int,
    admitted: bool,
    a_day: Sequence[tuple[str, int]],
) -> Accepted | _Refused:
    """Accepts a task, or refuses it and leaves no trace. `admitted`: it was counted by `admit`. `a_day` are (account, how many
    videos it may ask for in a day)…"""
    answer: list[Any] = await _submit.promise(
        link,
        [one for limit in a_day for one in limit],
        id=task.id,
        doc=TASK.dump(task),
        tenant=task.tenant,
        model=task.model,
        state=task.state,
        event=EVENT.dump(Submitted(task.created_at)),
        now_ms=int(task.created_at * 1000),
        retention_ms=retention_ms,
        first_place=class_base(task.priority),
        max_waiting=limits.max_waiting,
        max_running=limits.max_running,
        per_minute=limits.submits_per_minute,
        idempotency=idempotency.key if idempotency else "",
        digest=idempotency.digest if idempotency else "",
        admitted=int(admitted),
        day=day_of(task.created_at),
        person=task.person or "",
    )
    return Accepted(_line(answer[1])) if answer[0] == b"new" else _not_accepted(answer)


@dataclass(frozen=True, slots=True)
class CommitUse:
    """What a write adds to what its tenant used: `amounts` on `day`, and the work of an attempt that begins or ends `at` a time,
    which began at `begun_at` if no work of it was booked."""

    day: str
    amounts: Sequence[tuple[str, int]]
    work: AttemptWork
    at: float
    begun_at: float


_commit = Script("tasks/commit", "tenants/usage", "tasks/turns")


async def commit(
    link: RedisConnection,
    *,
    task: Task,
    version: int,
    event: Event | None,
    retention_ms: int,
    used: "CommitUse",
) -> bool:
    """Writes a task over `version`, with its event and what becomes of its turn; False if the version was another.

    A write that leaves a task queued gives its turn back: only a claimed task keeps one. What was `used` is counted with it.
    """
    done = await _commit.run(
        link,
        [one for pair in used.amounts for one in pair],
        id=task.id,
        version=version,
        doc=TASK.dump(task),
        state=task.state,
        attempt=task.attempt,
        move="end" if task.ended else "requeue" if task.state is State.QUEUED else "keep",
        event=b"" if event is None else EVENT.dump(event),
        ended_ms=int((task.finished_at or 0.0) * 1000),
        ttl_ms=retention_ms if task.ended else 2 * retention_ms,
        webhook=int(task.webhook_url is not None),
        day=used.day,
        usage_ms=USAGE_MS,
        work=used.work,
        at_ms=int(used.at * 1000),
        begun_ms=int(used.begun_at * 1000),
    )
    return bool(done)


_forget_task = Script("tasks/forget_task", "tasks/turns")


async def forget_task(
    link: RedisConnection, *, id: TaskId, tenant: TenantId, state: State, event: bytes
) -> bool:
    """Removes an ended task and its events, and tells so by `event`; False when its state is another."""
    return bool(await _forget_task.run(link, id=id, tenant=tenant, state=state, event=event))


_position = Script("tasks/position", "tasks/turns")


async def position(link: RedisConnection, *, model: str, tenant: TenantId, id: TaskId) -> QueuePlace | None:
    """Where a task is in line; None if it is not waiting."""
    return _line(await _position.run(link, model=model, tenant=tenant, id=id))


def _line(found: list[Any]) -> QueuePlace | None:
    if not found:
        return None
    before, earlier, *rest = found
    tenants = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return QueuePlace(
        before, earlier, [Waiting(text(name), float(tag), count) for name, tag, count in tenants]
    )


@dataclass(frozen=True, slots=True)
class LeftToOthers:
    """The gang gets nothing: it was closed, loads, or claims by a later call. Others may."""


_claim = Script("tasks/claim", "tasks/turns")


async def claim(
    link: RedisConnection,
    *,
    model: str,
    gang: GangId,
    max_running: int,
    loading: bool = False,
    call: str | None = None,
) -> TaskId | LeftToOthers | None:
    """Binds the next turn to the task that is next; it must then be committed as claimed."""
    found: bytes | int | None = await _claim.run(
        link,
        model=model,
        gang=gang,
        max_running=max_running,
        loading=int(loading),
        loading_wait_ms=LOADING_WAIT_S * 1000,
        call=call or "",
    )
    if isinstance(found, int):
        return LeftToOthers()
    return None if found is None else TaskId(text(found))


_renew = Script("tasks/renew", "tenants/usage", "tasks/turns")


async def renew(
    link: RedisConnection, *, id: TaskId, gang: GangId, attempt: int, at: float, day: str
) -> bool:
    """Extends the lease and books its work up to `at`; False when that attempt of the gang does not hold the task."""
    return bool(
        await _renew.run(
            link, id=id, gang=gang, attempt=attempt, at_ms=int(at * 1000), day=day, usage_ms=USAGE_MS
        )
    )


_leases = Script("tasks/leases", "tasks/turns")


async def leases(link: RedisConnection, *, model: str) -> list[HeldTurn]:
    """All claimed turns of the model, and how often each was renewed."""
    found = await _leases.run(link, model=model)
    return [HeldTurn(turn.decode(), TaskId(text(task)), renewals) for turn, task, renewals in found]


_make_way = Script("tasks/make_way", "tasks/turns")


async def make_way(link: RedisConnection, *, model: str, max_running: int) -> list[tuple[str, TaskId]]:
    """(turn, task)… of guests' attempts that are in the way of others; each is named once."""
    found = await _make_way.run(link, model=model, max_running=max_running, wait_ms=MAKE_WAY_S * 1000)
    return [(turn.decode(), TaskId(text(task))) for turn, task in found]


_forget_queue = Script("tasks/forget_queue", "tasks/turns")


async def forget_queue(link: RedisConnection, *, model: str) -> bool:
    """Removes what is left of a model's queue; False while it has unfinished tasks."""
    return bool(await _forget_queue.run(link, model=model))


_replace_webhook_secret = Script("tasks/replace_webhook_secret")


async def replace_webhook_secret(
    link: RedisConnection, *, tenant: TenantId, before: bytes, after: bytes
) -> bool:
    """False when the stored secret is not `before` any more."""
    return bool(await _replace_webhook_secret.promise(link, tenant=tenant, before=before, after=after))
