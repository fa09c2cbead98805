"""The scripts that add up what tenants used, take a worker's GPU time back, and count what people ask for in a day."""

from collections.abc import Mapping, Sequence

from turnout.fleet.machine_rules import WorkerId
from turnout.store.connection import RedisConnection
from turnout.store.records import number, text
from turnout.store.scripts import Script
from turnout.tasks.task_rules import TenantId
from turnout.tenants.allowance_rules import Bounded

_add_usage = Script("tenants/add_usage", "tenants/usage")


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


_spend_allowance = Script("tenants/spend_allowance", "tenants/allowance")


async def spend_allowance(
    link: RedisConnection, *, day: str, what: Bounded, by: int, limits: Sequence[tuple[str, int]]
) -> int | None:
    """Counts against (account, most)…, or gives back; the bound that is reached, if one is: then nothing was counted."""
    rest = [one for limit in limits for one in limit]
    reached = int(await _spend_allowance.run(link, rest, day=day, what=what, by=by))
    return None if reached < 0 else reached


_take_back_gpu_time = Script("tenants/take_back_gpu_time")


async def take_back_gpu_time(
    link: RedisConnection, *, worker: WorkerId, months: Sequence[str]
) -> dict[str, int]:
    """Undoes what was booked for a worker in these months; the ms by model, of no model for what was free."""
    answer = await _take_back_gpu_time.run(link, months, worker=worker)
    return {text(model): number(ms) for model, ms in zip(answer[::2], answer[1::2], strict=True)}


_divide_gpu_time = Script("tenants/divide_gpu_time", "tenants/usage")


async def divide_gpu_time(
    link: RedisConnection,
    *,
    number_before: str,
    usage_ms: int,
    parts: Sequence[tuple[TenantId, str, str, str, int]],
    work: Sequence[tuple[str, int]],
    users: Mapping[str, bytes],
) -> bool:
    """Writes (tenant, day, state, model, ms)… and that this work (tenant:model, ms)… was divided by; False when another division
    came in between."""
    rest = [one for row in (*parts, *work, *users.items()) for one in row]
    return bool(
        await _divide_gpu_time.run(
            link, rest, number_before=number_before, usage_ms=usage_ms, parts=len(parts), works=len(work)
        )
    )
