"""The scripts that Redis runs, each with its one call site: a function of the same name with named arguments and a typed
answer. Every call is one round trip."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, Literal

from redis.exceptions import NoScriptError

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import text
from turnout.domain.fairness import LOADING_WAIT_S, Waiting
from turnout.domain.leases import HeldTurn
from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.serving import WorkerId
from turnout.domain.tasks import GangId, State, Task, TaskId, TenantId

Argument = str | bytes | int | float


class Script:
    """A script's first statement, `local a, b = unpack(ARGV)`, names its arguments: they are passed by name, and `rest`
    follows them."""

    def __init__(self, name: str) -> None:
        here = files(__name__)
        source = here.joinpath(f"{name}.lua").read_text()
        found = re.search(r"^local ([\w,\s]+?) = unpack\(ARGV\b", source, re.MULTILINE)
        if found is None:
            raise ValueError(f"{name}.lua does not name its arguments")
        self._names = tuple(re.split(r",\s*", found[1]))
        self._source = here.joinpath("names.lua").read_text() + source
        self._sha = sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, link: RedisConnection, rest: Sequence[Argument] = (), **named: Argument) -> Any:
        return await self._run(link.client.execute_command, link, rest, named)

    async def promise(self, link: RedisConnection, rest: Sequence[Argument] = (), **named: Argument) -> Any:
        """As `run`; what it wrote is as safe as the settings ask when this returns."""
        return await self._run(link.promise, link, rest, named)

    async def _run(
        self,
        execute: Callable[..., Awaitable[Any]],
        link: RedisConnection,
        rest: Sequence[Argument],
        named: dict[str, Argument],
    ) -> Any:
        arguments = [named.pop(name) for name in self._names]
        if named:
            raise TypeError(f"no such arguments: {', '.join(named)}")
        keys_and_arguments = (1, link.keys.prefix, *arguments, *rest)
        async with translated():
            try:
                return await execute("EVALSHA", self._sha, *keys_and_arguments)
            except NoScriptError:
                return await execute("EVAL", self._source, *keys_and_arguments)


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


_submit = Script("submit")


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


_commit = Script("commit")


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


_forget_task = Script("forget_task")


async def forget_task(
    link: RedisConnection, *, id: TaskId, tenant: TenantId, state: State, event: bytes
) -> bool:
    """Removes an ended task and its events, and tells so by `event`; False when its state is another."""
    return bool(await _forget_task.run(link, id=id, tenant=tenant, state=state, event=event))


_position = Script("position")


async def position(link: RedisConnection, *, model: str, tenant: TenantId, id: TaskId) -> Line | None:
    """Where a task is in line; None if it is not waiting."""
    return _line(await _position.run(link, model=model, tenant=tenant, id=id))


def _line(found: list[Any]) -> Line | None:
    if not found:
        return None
    before, *rest = found
    tenants = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return Line(before, [Waiting(text(name), float(tag), count) for name, tag, count in tenants])


_claim = Script("claim")


async def claim(
    link: RedisConnection,
    *,
    model: str,
    gang: GangId,
    max_running: int,
    loading: bool = False,
    wanted: TaskId | None = None,
) -> TaskId | None:
    """Binds the next turn to the task that is next, or to the one that is `wanted`; it must then be committed as claimed."""
    found: bytes | None = await _claim.run(
        link,
        model=model,
        gang=gang,
        max_running=max_running,
        loading=int(loading),
        loading_wait_ms=LOADING_WAIT_S * 1000,
        wanted=wanted or "",
    )
    return None if found is None else TaskId(text(found))


_renew = Script("renew")


async def renew(link: RedisConnection, *, id: TaskId, gang: GangId | Literal[""], attempt: int) -> bool:
    """Extends the lease; False when that attempt of the gang does not hold the task."""
    return bool(await _renew.run(link, id=id, gang=gang, attempt=attempt))


_leases = Script("leases")


async def leases(link: RedisConnection, *, model: str) -> list[HeldTurn]:
    """All claimed turns of the model, and how often each was renewed."""
    found = await _leases.run(link, model=model)
    return [
        HeldTurn(turn.decode(), TaskId(text(task)), renewals, idle_ms / 1000)
        for turn, task, renewals, idle_ms in found
    ]


_forget_queue = Script("forget_queue")


async def forget_queue(link: RedisConnection, *, model: str) -> bool:
    """Removes what is left of a model's queue; False while it has unfinished tasks."""
    return bool(await _forget_queue.run(link, model=model))


_replace_webhook_secret = Script("replace_webhook_secret")


async def replace_webhook_secret(
    link: RedisConnection, *, tenant: TenantId, before: bytes, after: bytes
) -> bool:
    """False when the stored secret is not `before` any more."""
    return bool(await _replace_webhook_secret.promise(link, tenant=tenant, before=before, after=after))


_hold_mutex = Script("hold_mutex")


async def hold_mutex(link: RedisConnection, *, name: str, owner: str, ttl_ms: int) -> bool:
    """Takes or renews a right; False when another holds it."""
    return bool(await _hold_mutex.run(link, name=name, owner=owner, ttl_ms=ttl_ms))


_lease_share = Script("lease_share")


async def lease_share(
    link: RedisConnection,
    *,
    tenant: TenantId,
    gateway: str,
    limits: ChatLimits,
    request: ShareRequest,
    number: int,
    slots_ms: int,
) -> Grant:
    """As much of the request as the tenant's account holds; a request whose number came before gets the same again."""
    requests, tokens, slots, left_requests, left_tokens = await _lease_share.run(
        link,
        tenant=tenant,
        gateway=gateway,
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrency=limits.concurrency,
        requests=request.requests,
        tokens=request.tokens,
        debt_requests=request.lent_requests,
        debt_tokens=request.debt + request.lent_tokens,
        number=number,
        wanted_slots=request.slots,
        slots_ms=slots_ms,
    )
    return Grant(requests, tokens, slots, float(left_requests), float(left_tokens))


_add_usage = Script("add_usage")


async def add_usage(
    link: RedisConnection,
    *,
    batch: str,
    usage_ms: int,
    amounts: Sequence[tuple[str, TenantId, str, str, int]],
) -> bool:
    """Adds (day, tenant, model, figure, amount)…; False when a batch of that name was added before."""
    rest = [one for amount in amounts for one in amount]
    return bool(await _add_usage.run(link, rest, batch=batch, usage_ms=usage_ms))


_store_heartbeat = Script("store_heartbeat")


async def store_heartbeat(
    link: RedisConnection, *, worker: WorkerId, doc: bytes, heartbeat_ms: int, worker_ms: int
) -> int | None:
    """Stores a heartbeat and returns its number, which grows; None when the worker is unknown."""
    seq = await _store_heartbeat.run(
        link, worker=worker, doc=doc, heartbeat_ms=heartbeat_ms, worker_ms=worker_ms
    )
    return int(seq) or None


Operation = Literal["hset", "hincrby", "expire", "hdel", "del", "orders", "tell"]
Write = tuple[Operation, str, str | int, str | bytes | int]
"""An operation with the key, field and value that it takes; an empty one where it takes none."""

_publish = Script("publish")


async def publish(
    link: RedisConnection, *, right: str, owner: str, orders_ms: int, writes: Sequence[Write]
) -> bool:
    """Carries out all writes, or none and returns False when `owner` does not hold the right."""
    rest = [one for write in writes for one in write]
    return bool(await _publish.run(link, rest, right=right, owner=owner, orders_ms=orders_ms))


_prove_write = Script("prove_write")


async def prove_write(link: RedisConnection, *, fresh: str) -> str:
    """Writes something, and returns the id of this data; empty when there is none and `fresh` is empty."""
    return (await _prove_write.run(link, fresh=fresh)).decode(errors="replace")
