"""What tenants used: added up, never twice, and videos with the write that ends them."""

import time

from tests.conftest import Stores, make_task

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.worker_rules import Enrolment
from turnout.tasks.task_rules import Cancelled, Finished, GangId, Interrupted, Limits, Result, TenantId
from turnout.tenants.gpu_cost_rules import GpuDay
from turnout.tenants.gpu_time_rules import BookedReport, GpuBooking, GpuCell, cells_of
from turnout.tenants.usage_log import UsageLog
from turnout.tenants.usage_rules import UsageRow, Used, day_of, this_month_and_last

ACME, OTHER, W = TenantId("acme"), TenantId("other"), WorkerId("w")


async def test_batches_add_up_and_a_repeated_one_counts_once(stores: Stores) -> None:
    usage = UsageLog(stores.link)
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
    (row,) = await UsageLog(stores.link).read([day_of(ended)], TenantId("acme"))
    spec = task.spec
    video_ms = spec.frames * 1000 // spec.fps
    assert row.used == Used(videos=1, video_ms=video_ms, render_ms=2500, work_ms=2500, attempts=1)


async def test_the_work_of_every_attempt_counts_also_of_those_that_died(stores: Stores) -> None:
    limits = Limits()
    task = make_task()
    await stores.tasks.submit(task, limits)
    first = await stores.queue.claim(task.model, GangId("g"), limits)
    assert first and first.claimed_at
    died = first.claimed_at + 4
    await stores.tasks.apply(task.id, Interrupted(died, first.attempt, "rank 1 died"))
    second = await stores.queue.claim(task.model, GangId("g"), limits)
    assert second and second.claimed_at
    await stores.tasks.apply(task.id, Cancelled(second.claimed_at + 1.5))
    day = day_of(died)
    (row,) = await stores.tenants.usage.read([day], task.tenant)
    assert abs(row.used.work_ms - 5500) <= 2
    (table,) = await stores.tenants.usage.gpu_days([day], workers=False)
    assert table.work_ms == {task.model: row.used.work_ms}, "all tenants' together"


async def test_gpu_time_is_read_by_model_and_by_worker(stores: Stores) -> None:
    days = ["2026-11-14", "2026-11-15"]
    booking = GpuBooking(
        days[1],
        {W: BookedReport("e", {"busy:X:m": 5}, 12.5, {"m": 3.0}, 3.0, 4.0)},
        booked_by(W, {"busy:X:m:7b": 5, "free:X:": 2}),
    )
    await stores.mutex.hold("fleet", "m1", 60)
    for _ in range(2):
        assert await stores.fleet.manager_state.publish("fleet", "m1", Publication(gpu_time=booking))
    assert not await stores.fleet.manager_state.publish("fleet", "m2", Publication(gpu_time=booking))
    nothing, table = await stores.tenants.usage.gpu_days(days, workers=True)
    assert nothing == GpuDay(days[0])
    assert {cell.name: ms for cell, ms in table.by_model.items()} == {"busy:X:m:7b": 10, "free:X:": 4}
    assert {cell.name: ms for cell, ms in table.by_worker.items()} == {"busy:X:w": 10, "free:X:w": 4}
    assert not (await stores.tenants.usage.gpu_days(days, workers=False))[1].by_worker
    assert (await stores.fleet.manager_state.saved()).gpu_reports == booking.reports
    keys = stores.link.keys
    for key in (keys.gpu_models(days[1]), keys.gpu_workers(days[1]), keys.gpu_booked("2026-11", W)):
        assert await stores.link.client.pttl(key) > 0
    gone = GpuBooking(days[1], {W: None}, {})
    assert await stores.fleet.manager_state.publish("fleet", "m1", Publication(gpu_time=gone))
    assert not (await stores.fleet.manager_state.saved()).gpu_reports


def booked_by(worker: WorkerId, counts: dict[str, int]) -> dict[tuple[str, GpuCell], int]:
    return {(worker, cell): ms for cell, ms in cells_of(counts).items()}


async def test_what_one_worker_booked_is_taken_back_and_others_time_stays(stores: Stores) -> None:
    usage, days = stores.tenants.usage, ["2026-10-31", "2026-11-15"]
    await stores.mutex.hold("fleet", "m1", 60)
    rogue = booked_by(W, {"busy:X:m:7b": 4_000, "free:X:": 2, "idle:cpu:n": 3})
    honest = booked_by(WorkerId("w2"), {"busy:X:m:7b": 70, "free:X:": 30})
    for day in days:
        booking = Publication(gpu_time=GpuBooking(day, {}, rogue | honest))
        assert await stores.fleet.manager_state.publish("fleet", "m1", booking)
    assert await usage.times_taken_back() == 0
    taken = await usage.take_back(W, ["2026-11", "2026-10", "2026-09"])
    assert taken == {"m:7b": 8_000, "": 4, "n": 6}
    for table in await usage.gpu_days(days, workers=True):
        assert table.by_model == cells_of({"busy:X:m:7b": 70, "free:X:": 30})
        assert table.by_worker == cells_of({"busy:X:w2": 70, "free:X:w2": 30})
    assert await usage.times_taken_back() == 1
    assert await usage.take_back(W, ["2026-11", "2026-10"]) == {}, "once"
    assert await usage.times_taken_back() == 1


async def test_a_worker_that_was_evicted_books_nothing_more(stores: Stores) -> None:
    await stores.mutex.hold("fleet", "m1", 60)
    await stores.fleet.workers.enrol(Enrolment(W, "w", "tunnel:", "digest"))
    booking = GpuBooking("2026-11-15", {}, booked_by(W, {"busy:X:m": 5}))
    assert await stores.fleet.manager_state.publish("fleet", "m1", Publication(gpu_time=booking))
    await stores.fleet.workers.evict(W)
    assert await stores.fleet.manager_state.publish("fleet", "m1", Publication(gpu_time=booking))
    (table,) = await stores.tenants.usage.gpu_days(["2026-11-15"], workers=True)
    assert table.by_model == cells_of({"busy:X:m": 5})
    assert await stores.tenants.usage.take_back(W, ["2026-11"]) == {"m": 5}


def test_gpu_time_can_be_taken_back_of_this_month_and_the_last() -> None:
    assert this_month_and_last("2026-11-15") == ("2026-11", "2026-10")
    assert this_month_and_last("2026-01-01") == ("2026-01", "2025-12")
    assert this_month_and_last("2026-12-31") == ("2026-12", "2026-11")
