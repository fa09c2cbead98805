"""The script that adds up what tenants used."""

from collections.abc import Sequence

from turnout.store.connection import RedisConnection
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
