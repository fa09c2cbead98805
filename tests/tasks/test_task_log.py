"""Promises of the task log and the queue, on a real server."""

import asyncio
import time

import pytest
from tests.conftest import Stores, make_task, wait_until

from turnout.errors import Conflict, Limited, NotFound, Stale
from turnout.tasks import task_scripts
from turnout.tasks.lease_rules import Overdue
from turnout.tasks.task_rules import (
    NOBODY_TOOK_IT,
    Cancelled,
    Claimed,
    Expired,
    Finished,
    GangId,
    Idempotency,
    Limits,
    Priority,
    Recorded,
    Result,
    State,
    TaskFailure,
    TaskId,
    TenantId,
)

G1, G2 = GangId("g1"), GangId("g2")
LIMITS = Limits(100, 100, 1000)
MODEL = "wan-tiny-t2v"
RESULT = Result("v", "t", "s", 1)


async def test_the_same_idempotency_key_and_body_give_the_same_task(stores: Stores) -> None:
    first, second = make_task(), make_task()
    key = Idempotency("k", "digest")
    assert await stores.tasks.submit(first, LIMITS, key) == first
    assert await stores.tasks.submit(second, LIMITS, key) == first
    assert (await stores.backlog.figures(MODEL)).length == 1


async def test_the_same_idempotency_key_with_another_body_is_a_conflict(stores: Stores) -> None:
    await stores.tasks.submit(make_task(), LIMITS, Idempotency("k", "one"))
    with pytest.raises(Conflict):
        await stores.tasks.submit(make_task(), LIMITS, Idempotency("k", "two"))


async def test_idempotency_keys_of_two_tenants_do_not_meet(stores: Stores) -> None:
    mine, theirs = make_task("a"), make_task("b")
    assert await stores.tasks.submit(mine, LIMITS, Idempotency("k", "d")) == mine
    assert await stores.tasks.submit(theirs, LIMITS, Idempotency("k", "d")) == theirs


async def test_a_refused_submission_leaves_no_trace(stores: Stores) -> None:
    tight = Limits(max_waiting=1, max_running=1, submits_per_minute=1000)
    await stores.tasks.submit(make_task(), tight)
    await stores.tasks.submit(make_task(), tight)
    before = sorted(await stores.link.client.keys(f"{stores.link.keys.prefix}*"))
    with pytest.raises(Limited, match="0 tasks running and 2 waiting; 1 may run and 1 more may wait"):
        await stores.tasks.submit(make_task(), tight, Idempotency("k", "d"))
    assert sorted(await stores.link.client.keys(f"{stores.link.keys.prefix}*")) == before


async def test_submissions_a_minute_are_limited_and_say_when_to_come_back(stores: Stores) -> None:
    slow = Limits(100, 100, submits_per_minute=2)
    now = time.time() // 60 * 60 + 10  # all in one minute
    for _ in range(2):
        await stores.tasks.submit(_at(now), slow)
    with pytest.raises(Limited) as refused:
        await stores.tasks.submit(_at(now), slow)
    assert refused.value.retry_after_s == pytest.approx(50, abs=0.1)
    await stores.tasks.submit(_at(now + 60), slow)


def _at(when: float):
    from dataclasses import replace

    return replace(make_task(), created_at=when)


async def test_no_tenant_waits_for_all_of_anothers_backlog(stores: Stores) -> None:
    for _ in range(10):
        await stores.tasks.submit(make_task("big"), LIMITS)
    small = make_task("small")
    assert await stores.tasks.submit_with_position(small, LIMITS) == (small, 1)
    assert await stores.tasks.position(small) == 1
    order = [await stores.queue.claim(MODEL, G1, LIMITS) for _ in range(3)]
    assert [t.tenant for t in order if t] == ["big", "small", "big"]


async def test_who_submits_one_task_at_a_time_does_not_keep_another_waiting(stores: Stores) -> None:
    patient = make_task("b")
    await stores.tasks.submit(patient, LIMITS)
    claimed: list[TaskId] = []
    for _ in range(2):
        await stores.tasks.submit(make_task("a"), LIMITS)
        task = await stores.queue.claim(MODEL, G1, LIMITS)
        assert task
        claimed.append(task.id)
    assert patient.id in claimed


async def test_a_tenant_that_was_held_back_does_not_get_all_its_turns_at_once(stores: Stores) -> None:
    one = Limits(100, max_running=1, submits_per_minute=1000)
    for tenant in ("a",) * 4 + ("b",) * 9:
        await stores.tasks.submit(make_task(tenant), LIMITS)
    held = await stores.queue.claim(MODEL, G1, one)
    assert held and held.tenant == "a"
    for _ in range(5):
        task = await stores.queue.claim(MODEL, G1, one)
        assert task and task.tenant == "b"
        await stores.tasks.apply(task.id, Cancelled(time.time()))
    await stores.tasks.apply(held.id, Cancelled(time.time()))
    claimed = [await stores.queue.claim(MODEL, G1, LIMITS) for _ in range(3)]
    assert "b" in [t.tenant for t in claimed if t]


async def test_priority_orders_a_tenants_own_tasks_only(stores: Stores) -> None:
    low, normal, high = (make_task("a", priority=p) for p in (Priority.LOW, Priority.NORMAL, Priority.HIGH))
    other = make_task("b", priority=Priority.LOW)
    for task in (low, normal, other, high):
        await stores.tasks.submit(task, LIMITS)
    claimed = [await stores.queue.claim(MODEL, G1, LIMITS) for _ in range(4)]
    assert [t.id for t in claimed if t] == [high.id, other.id, normal.id, low.id]


async def test_a_tenant_at_its_running_limit_is_passed_over(stores: Stores) -> None:
    one = Limits(100, max_running=1, submits_per_minute=1000)
    for tenant in ("a", "a", "b"):
        await stores.tasks.submit(make_task(tenant), one)
    claimed = [await stores.queue.claim(MODEL, G1, one) for _ in range(3)]
    assert [t.tenant if t else None for t in claimed] == ["a", "b", None]
    assert (await stores.backlog.figures(MODEL)).length == 3


async def test_who_may_not_wait_is_refused_while_as_many_run_as_may(stores: Stores) -> None:
    one = Limits(max_waiting=0, max_running=1, submits_per_minute=1000)
    await stores.tasks.submit(make_task("a"), one)
    assert await stores.queue.claim(MODEL, G1, one)
    with pytest.raises(Limited, match="1 tasks running and 0 waiting"):
        await stores.tasks.submit(make_task("a"), one)
    await stores.tasks.submit(make_task("b"), one)


async def test_two_gangs_never_get_the_same_task(stores: Stores) -> None:
    for _ in range(30):
        await stores.tasks.submit(make_task(), LIMITS)
    claims = await asyncio.gather(*(stores.queue.claim(MODEL, GangId(f"g{n}"), LIMITS) for n in range(40)))
    ids = [t.id for t in claims if t]
    assert len(ids) == len(set(ids)) == 30


async def test_a_renewed_lease_is_not_taken_and_a_lapsed_one_is(stores: Stores) -> None:
    await stores.tasks.submit(make_task(), LIMITS)
    task = await stores.queue.claim(MODEL, G1, LIMITS)
    assert task
    (before,) = await stores.queue.leases(MODEL)
    assert await stores.queue.renew(task.id, task.gang or GangId(""), task.attempt)
    (held,) = await stores.queue.leases(MODEL)
    assert held.task == task.id and held.renewals > before.renewals
    reaped = await stores.queue.take_back(Overdue(held.turn, held.task, counts=True))
    assert reaped and reaped.state is State.QUEUED
    assert await stores.queue.take_back(Overdue(held.turn, held.task, counts=True)) is None
    assert not await stores.queue.renew(task.id, task.gang or GangId(""), task.attempt)
    again = await stores.queue.claim(MODEL, G2, LIMITS)
    assert again
    assert again.attempt == 2
    assert await stores.queue.take_back(Overdue(held.turn, held.task, counts=True)) is None, "another's turn"
    with pytest.raises(Stale):
        await stores.tasks.apply(task.id, Finished(time.time(), task.attempt, RESULT))
    await stores.tasks.apply(task.id, Finished(time.time(), again.attempt, RESULT))
    assert (await stores.backlog.figures(MODEL)).length == 0


async def test_an_earlier_attempt_of_the_same_gang_renews_nothing(stores: Stores) -> None:
    await stores.tasks.submit(make_task(), LIMITS)
    first = await stores.queue.claim(MODEL, G1, LIMITS)
    assert first
    await stores.queue.release(MODEL, G1, "its ranks were cut off")
    second = await stores.queue.claim(MODEL, G1, LIMITS)
    assert second and second.id == first.id
    assert not await stores.queue.renew(first.id, first.gang or GangId(""), first.attempt)
    assert await stores.queue.renew(second.id, second.gang or GangId(""), second.attempt)


async def test_a_claimer_that_dies_between_bind_and_claim_loses_nothing(stores: Stores) -> None:
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    assert await task_scripts.claim(stores.link, model=MODEL, gang=G1, max_running=10) == task.id
    assert await stores.queue.claim(MODEL, G2, LIMITS) is None
    (held,) = await stores.queue.leases(MODEL)
    back = await stores.queue.take_back(Overdue(held.turn, held.task, counts=True))
    assert back
    assert (back.id, back.failures) == (task.id, 0)
    claimed = await stores.queue.claim(MODEL, G2, LIMITS)
    assert claimed
    assert claimed.attempt == 1


async def test_a_task_cancelled_between_bind_and_claim_takes_its_turn_along(stores: Stores) -> None:
    task, other = make_task(), make_task()
    for each in (task, other):
        await stores.tasks.submit(each, LIMITS)
    await task_scripts.claim(stores.link, model=MODEL, gang=G1, max_running=10)
    await stores.tasks.apply(task.id, Cancelled(time.time()))
    with pytest.raises(Stale):
        await stores.tasks.apply(task.id, Claimed(time.time(), 1, G1))
    figures = await stores.backlog.figures(MODEL)
    assert (figures.length, figures.running) == (1, 0)
    claimed = await stores.queue.claim(MODEL, G1, LIMITS)
    assert claimed
    assert claimed.id == other.id


async def test_racing_writers_never_lose_an_event(stores: Stores) -> None:
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    claimed = await stores.queue.claim(MODEL, G1, LIMITS)
    assert claimed
    outcomes = await asyncio.gather(
        *(stores.tasks.apply(task.id, Finished(time.time(), 1, RESULT)) for _ in range(5)),
        *(stores.tasks.apply(task.id, Cancelled(time.time())) for _ in range(5)),
        return_exceptions=True,
    )
    assert sum(not isinstance(o, BaseException) for o in outcomes) == 1
    kinds = [r.event.kind for r in await stores.events.history(task.id)]
    assert len(kinds) == 3
    assert (await stores.tasks.get(task.id)).ended


async def test_the_tail_sees_every_event_once_in_order(stores: Stores) -> None:
    seen: list[Recorded] = []

    async def watch() -> None:
        async for recorded in stores.events.tail():
            seen.append(recorded)

    watcher = asyncio.create_task(watch())
    await wait_until(lambda: _blocked(stores), "the tail to listen")
    tasks = [make_task() for _ in range(20)]
    await asyncio.gather(*(stores.tasks.submit(t, LIMITS) for t in tasks))
    await wait_until(lambda: len(seen) >= 20, "20 events")
    watcher.cancel()
    assert {r.task for r in seen} == {t.id for t in tasks}
    cursors = [tuple(map(int, r.cursor.split("-"))) for r in seen]
    assert cursors == sorted(set(cursors))


async def _blocked(stores: Stores) -> bool:
    return int((await stores.link.client.info("clients"))["blocked_clients"]) > 0


async def test_pages_walk_a_tenants_tasks_both_ways(stores: Stores) -> None:
    tasks = [make_task("a") for _ in range(5)]
    for task in tasks:
        await stores.tasks.submit(task, LIMITS)
    await stores.tasks.submit(make_task("b"), LIMITS)
    tenant = TenantId("a")
    ids = [t.id for t in sorted(tasks, key=lambda t: (int(t.created_at * 1000), t.id))]
    first, more = await stores.tasks.page(tenant, after=None, limit=2, order="desc")
    assert ([t.id for t in first], more) == (ids[:2:-1], True)
    rest, more = await stores.tasks.page(tenant, after=first[-1].id, limit=10, order="desc")
    assert ([t.id for t in rest], more) == (ids[2::-1], False)
    oldest, _ = await stores.tasks.page(tenant, after=None, limit=1, order="asc")
    assert oldest[0].id == ids[0]
    with pytest.raises(NotFound):
        await stores.tasks.page(tenant, after=tasks[0].id.__class__("nope"), limit=1, order="asc")


async def test_nothing_in_redis_lives_for_ever(stores: Stores) -> None:
    task = make_task(webhook_url="https://example.com/hook")
    await stores.tasks.submit(task, LIMITS, Idempotency("k", "d"))
    await stores.queue.claim(MODEL, G1, LIMITS)
    await stores.tasks.apply(task.id, Finished(time.time(), 1, RESULT))
    await stores.outbox.again(task.id, time.time())
    await stores.outbox.done(task.id)
    client, prefix = stores.link.client, stores.link.keys.prefix
    lasting = {
        k.decode().removeprefix(f"{prefix}:")
        for k in await client.keys(f"{prefix}*")
        if await client.ttl(k) < 0
    }
    # What stays is one key per model or service, whatever the number of tasks.
    own = {f"queue:{MODEL}", f"clock:{MODEL}", f"served:{MODEL}"}
    assert lasting == own | {"totals", "events", "places", "queues", "fleet:news"}
    assert await stores.backlog.forget(MODEL)
    assert not own & {k.decode().removeprefix(f"{prefix}:") for k in await client.keys(f"{prefix}*")}


async def test_a_closed_gang_gets_no_task_and_keeps_what_it_has(stores: Stores) -> None:
    for _ in range(2):
        await stores.tasks.submit(make_task(), LIMITS)
    held = await stores.queue.claim(MODEL, G1, LIMITS)
    assert held
    await stores.queue.close(G1)
    assert await stores.queue.claim(MODEL, G1, LIMITS) is None
    assert await stores.queue.renew(held.id, held.gang or GangId(""), held.attempt)
    await stores.queue.open(G1)
    assert await stores.queue.claim(MODEL, G1, LIMITS)
    await stores.queue.close(G1)
    await stores.queue.release(MODEL, G1, "it died")
    await stores.queue.leave(MODEL, G1)
    assert await stores.queue.holdings(MODEL) == {}
    assert not await stores.link.client.keys(f"{stores.link.keys.prefix}:closed:*"), "nothing of it is left"


async def test_a_queue_is_forgotten_only_when_it_is_empty(stores: Stores) -> None:
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    assert await stores.backlog.models() == [MODEL]
    assert not await stores.backlog.forget(MODEL)
    gone = Expired(time.time(), TaskFailure("model_removed", "It is gone."))
    assert (await stores.tasks.apply(task.id, gone)).failure == gone.failure
    assert await stores.backlog.forget(MODEL)
    assert await stores.backlog.models() == []


async def test_a_task_nobody_took_is_found_and_expired(stores: Stores) -> None:
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    assert await stores.backlog.unfinished(MODEL, 10) == []
    assert await stores.backlog.unfinished(MODEL, -10) == [task.id]
    expired = await stores.tasks.apply(task.id, Expired(time.time(), NOBODY_TOOK_IT))
    assert expired.failure
    assert expired.failure.code == "expired"
    assert (await stores.backlog.figures(MODEL)).length == 0


async def test_a_webhook_waits_in_the_outbox_until_it_is_done(stores: Stores) -> None:
    task = make_task(webhook_url="https://example.com/hook")
    await stores.tasks.submit(task, LIMITS)
    now = time.time()
    assert await stores.outbox.due(now + 1, 30, {}) == []
    await stores.tasks.apply(task.id, Cancelled(now))
    (delivery,) = await stores.outbox.due(now + 1, 30, {})
    assert (delivery.entry, delivery.of, delivery.tries) == (task.id, await stores.tasks.get(task.id), 0)
    assert await stores.outbox.due(now + 2, 30, {}) == [], "held by the one who took it"
    await stores.outbox.again(task.id, now + 40)
    assert await stores.outbox.due(now + 39, 30, {}) == []
    (second,) = await stores.outbox.due(now + 41, 30, {})
    assert second.tries == 1
    await stores.outbox.done(task.id)
    assert await stores.outbox.due(now + 1000, 30, {}) == []


async def test_a_mutex_has_one_holder_and_lapses(stores: Stores) -> None:
    assert await stores.mutex.hold("m", "a", 60)
    assert await stores.mutex.hold("m", "a", 60)
    assert not await stores.mutex.hold("m", "b", 60)
    await stores.mutex.drop("m", "b")
    assert not await stores.mutex.hold("m", "b", 60)
    await stores.mutex.drop("m", "a")
    assert await stores.mutex.hold("m", "b", 0.05)
    await wait_until(lambda: stores.mutex.hold("m", "a", 60), "the right to lapse")
