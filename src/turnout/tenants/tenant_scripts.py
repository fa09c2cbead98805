"""The scripts that add up what tenants used, and take a worker's GPU time back."""

from collections.abc import Mapping, Sequence

from turnout.fleet.machine_rules import WorkerId
from turnout.store.connection import RedisConnection
from turnout.store.records import number, text
from turnout.store.scripts import Script
from turnout.tasks.task_rules import TenantId

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
