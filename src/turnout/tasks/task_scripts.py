"""The scripts of tasks and their queue, each with its one call site: a function of the same name with named arguments and a
typed answer. Every call is one round trip."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnout.store.connection import RedisConnection
from turnout.store.records import text
from turnout.store.scripts import Script
from turnout.tasks.fairness_rules import LOADING_WAIT_S, Waiting
from turnout.tasks.lease_rules import HeldTurn
from turnout.tasks.task_rules import GangId, State, Task, TaskId, TenantId


@dataclass(frozen=True, slots=True)
class Line:
    """How many of its tenant's tasks wait before a task, and how many each tenant has."""

    before: int
    waiting: list[Waiting]


@dataclass(frozen=True, slots=True)
class Accepted:
    """`line` is None if its line was damaged."""

    line: Line | None


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


_submit = Script("tasks/submit", "tasks/turns")


async def submit(
    link: RedisConnection,
    *,
    task: Task,
    doc: bytes,
    event: bytes,
    retention_ms: int,
    first_place: int,
    max_waiting: int,
    max_running: int,
    per_minute: int,
    idempotency: str,
    digest: str,
) -> Accepted | AcceptedBefore | OtherDigest | OverRate | Full:
    """Accepts a task, or refuses it and leaves no trace. `idempotency` may be empty."""
    answer: list[Any] = await _submit.promise(
        link,
        id=task.id,
        doc=doc,
        tenant=task.tenant,
        model=task.model,
        state=task.state,
        event=event,
        now_ms=int(task.created_at * 1000),
        retention_ms=retention_ms,
        first_place=first_place,
        max_waiting=max_waiting,
        max_running=max_running,
        per_minute=per_minute,
        idempotency=idempotency,
        digest=digest,
    )
    match answer:
        case [b"new", line]:
            return Accepted(_line(line))
        case [b"same", known]:
            return AcceptedBefore(TaskId(text(known)))
        case [b"conflict"]:
            return OtherDigest()
        case [b"rate", wait_ms]:
            return OverRate(wait_ms / 1000)
        case _:
            return Full(answer[1], answer[2])


_commit = Script("tasks/commit", "tenants/usage", "tasks/turns")


async def commit(
    link: RedisConnection,
    *,
    id: TaskId,
    version: int,
    doc: bytes,
    state: State,
    attempt: int,
    move: Literal["keep", "requeue", "end"],
    event: bytes,
    ended_ms: int,
    ttl_ms: int,
    webhook: bool,
    day: str,
    usage_ms: int,
    used: Sequence[tuple[str, int]],
) -> bool:
    """Writes a task's next version with its event, and what becomes of its turn; False if the version was another.

    An empty event is not recorded. `used` is counted on `day`.
    """
    done = await _commit.run(
        link,
        [one for pair in used for one in pair],
        id=id,
        version=version,
        doc=doc,
        state=state,
        attempt=attempt,
        move=move,
        event=event,
        ended_ms=ended_ms,
        ttl_ms=ttl_ms,
        webhook=int(webhook),
        day=day,
        usage_ms=usage_ms,
    )
    return bool(done)


_forget_task = Script("tasks/forget_task", "tasks/turns")


async def forget_task(
    link: RedisConnection, *, id: TaskId, tenant: TenantId, state: State, event: bytes
) -> bool:
    """Removes an ended task and its events, and tells so by `event`; False when its state is another."""
    return bool(await _forget_task.run(link, id=id, tenant=tenant, state=state, event=event))


_position = Script("tasks/position", "tasks/turns")


async def position(link: RedisConnection, *, model: str, tenant: TenantId, id: TaskId) -> Line | None:
    """Where a task is in line; None if it is not waiting."""
    return _line(await _position.run(link, model=model, tenant=tenant, id=id))


def _line(found: list[Any]) -> Line | None:
    if not found:
        return None
    before, *rest = found
    tenants = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return Line(before, [Waiting(text(name), float(tag), count) for name, tag, count in tenants])


_claim = Script("tasks/claim", "tasks/turns")


async def claim(
    link: RedisConnection,
    *,
    model: str,
    gang: GangId,
    max_running: int,
    loading: bool = False,
) -> TaskId | None:
    """Binds the next turn to the task that is next; it must then be committed as claimed."""
    found: bytes | None = await _claim.run(
        link,
        model=model,
        gang=gang,
        max_running=max_running,
        loading=int(loading),
        loading_wait_ms=LOADING_WAIT_S * 1000,
    )
    return None if found is None else TaskId(text(found))


_renew = Script("tasks/renew", "tasks/turns")


async def renew(link: RedisConnection, *, id: TaskId, gang: GangId | Literal[""], attempt: int) -> bool:
    """Extends the lease; False when that attempt of the gang does not hold the task."""
    return bool(await _renew.run(link, id=id, gang=gang, attempt=attempt))


_leases = Script("tasks/leases", "tasks/turns")


async def leases(link: RedisConnection, *, model: str) -> list[HeldTurn]:
    """All claimed turns of the model, and how often each was renewed."""
    found = await _leases.run(link, model=model)
    return [HeldTurn(turn.decode(), TaskId(text(task)), renewals) for turn, task, renewals in found]


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
