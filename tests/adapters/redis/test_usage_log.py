"""What tenants used: added up, never twice, and videos with the write that ends them."""

import time

from tests.conftest import Stores, make_task

from turnout.adapters.redis.usage_log import RedisUsage
from turnout.domain.tasks import Cancelled, Finished, GangId, Result, TenantId
from turnout.domain.usage import UsageRow, Used, day_of
from turnout.ports.tasks import Limits

ACME, OTHER = TenantId("acme"), TenantId("other")


async def test_batches_add_up_and_a_repeated_one_counts_once(stores: Stores) -> None:
    usage = RedisUsage(stores.link)
    rows = [
        UsageRow("2026-11-14", ACME, "org/model:7b", Used(2, 30, 12, 1)),
        UsageRow("2026-11-15", OTHER, "m", Used(1, 5, 6)),
    ]
    for batch in ("gw-1", "gw-1", "gw-2"):
        await usage.add(batch, rows)
    days = ["2026-11-13", "2026-11-14", "2026-11-15"]
    mine = UsageRow("2026-11-14", ACME, "org/model:7b", Used(4, 60, 24, 2))
    assert await usage.read(days, ACME) == [mine]
    assert await usage.read(days) == [mine, UsageRow("2026-11-15", OTHER, "m", Used(2, 10, 12))]
    assert await usage.read(days[:1]) == []
    keys = [k async for k in stores.link.client.scan_iter(f"{stores.link.keys.prefix}:usage:*")]
    assert all([await stores.link.client.pttl(key) > 0 for key in keys])


async def test_a_video_is_counted_when_it_ends_and_only_once(stores: Stores) -> None:
    limits = Limits()
    task = make_task()
    await stores.tasks.submit(task, limits)
    await stores.tasks.submit(waiting := make_task(), limits)
    claimed = await stores.queue.claim(task.model, GangId("g"), limits)
    assert claimed and claimed.started_at
    ended = claimed.started_at + 2.5
    await stores.tasks.apply(claimed.id, Finished(ended, claimed.attempt, Result("v", "t", "s", 1)))
    await stores.tasks.apply(waiting.id, Cancelled(time.time()))
    (row,) = await RedisUsage(stores.link).read([day_of(ended)], TenantId("acme"))
    spec = task.spec
    assert row.used == Used(videos=1, video_ms=spec.frames * 1000 // spec.fps, render_ms=2500)
