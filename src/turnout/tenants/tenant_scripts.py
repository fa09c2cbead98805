"""The scripts that add up what tenants used, and take a worker's GPU time back."""

from collections.abc import Sequence

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
