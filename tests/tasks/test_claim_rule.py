"""The claim script and `fairness.FairQueue`, which plans are made with, are one rule."""

import random
from collections import Counter
from dataclasses import replace

from tests.conftest import Stores, make_task

from turnout.tasks.fairness_rules import FairQueue, class_base
from turnout.tasks.task_rules import Cancelled, GangId, Interrupted, Limits, Priority, Task, TaskId, TenantId

MODEL = "wan-tiny-t2v"
LIMITS = Limits(max_waiting=1000, max_running=2, submits_per_minute=10**6)
GANG = GangId("g")


async def test_the_script_and_the_planned_queue_serve_in_the_same_order(stores: Stores) -> None:
    rng = random.Random(7)
    queue, places, running = FairQueue[TaskId](), dict[TaskId, int](), Counter[TenantId]()
    held: list[Task] = []
    for number in range(1, 250):
        act = rng.random()
        if act < 0.45:
            tenant, priority = rng.choice("abc"), rng.choice(list(Priority))
            task = make_task(tenant, priority=priority)
            await stores.tasks.submit(task, LIMITS)
            places[task.id] = class_base(priority) + number
            queue.join(task.tenant, places[task.id], task.id)
        elif act < 0.8:
            claimed = await stores.queue.claim(MODEL, GANG, LIMITS)
            expected = queue.claim(running, LIMITS.max_running)
            assert (claimed.id if claimed else None) == expected
            if claimed is not None:
                running[claimed.tenant] += 1
                held.append(claimed)
        elif held:
            task = held.pop(rng.randrange(len(held)))
            running[task.tenant] -= 1
            await stores.tasks.apply(task.id, Interrupted(0.0, task.attempt, "drained", counts=False))
            queue.join(task.tenant, places[task.id], task.id)
    assert len(queue) > 0


async def test_a_flood_of_guests_changes_nothing_for_a_tenant(stores: Stores) -> None:
    limits = Limits(max_waiting=1000, max_running=8, submits_per_minute=10**6)
    for guest in range(500):
        _, ahead = await stores.tasks.submit_with_position(
            make_task(f"t-g-{guest:03}", priority=Priority.GUEST), limits
        )
        assert ahead == guest
    asked = [make_task(tenant) for tenant in ("acme", "acme", "brick", "acme")]
    ahead = [(await stores.tasks.submit_with_position(task, limits))[1] for task in asked]
    assert ahead == [0, 1, 1, 3], "as if no guest were there"
    late = make_task("t-g-000", priority=Priority.GUEST)
    assert (await stores.tasks.submit_with_position(late, limits))[1] == 504
    served = [await stores.queue.claim(MODEL, GangId(f"g{n}"), limits) for n in range(6)]
    assert [task and task.tenant for task in served[:4]] == ["acme", "brick", "acme", "acme"]
    assert [task and task.tenant for task in served[4:]] == ["t-g-000", "t-g-001"]
    assert await stores.tasks.position(late) == 498, "each guest has a turn before one has two"


async def test_what_guests_have_under_way_makes_way_once_for_each_task_that_waits(stores: Stores) -> None:
    guests = [make_task(f"t-g-{n}", priority=Priority.GUEST) for n in range(3)]
    for number, task in enumerate(guests):
        await stores.tasks.submit(task, LIMITS)
        assert await stores.queue.claim(MODEL, GangId(f"g{number}"), LIMITS) is not None
    mine = [make_task("acme") for _ in range(2)]
    await stores.tasks.submit(mine[0], LIMITS)
    assert await stores.queue.make_way(MODEL, LIMITS) == [], "an idle gang would take it at once"
    await stores.link.client.zadd(stores.link.keys.unfinished(MODEL), {mine[0].id: 1.0})
    [put_back] = await stores.queue.make_way(MODEL, LIMITS)
    assert put_back.id == guests[2].id and put_back.failures == 0, "nobody is to blame"
    assert await stores.queue.make_way(MODEL, LIMITS) == [], "its gang has not noticed yet"
    claimed = await stores.queue.claim(MODEL, GangId("g2"), LIMITS)
    assert claimed is not None and claimed.id == mine[0].id
    await stores.tasks.submit(mine[1], LIMITS)
    await stores.link.client.zadd(stores.link.keys.unfinished(MODEL), {mine[1].id: 1.0})
    assert len(await stores.queue.make_way(MODEL, LIMITS)) == 1
    await stores.tasks.apply(mine[1].id, Cancelled(2.0))
    again = await stores.queue.claim(MODEL, GangId("g1"), LIMITS)
    assert again is not None and again.tenant.startswith("t-g-"), "it goes on when nobody else waits"


async def test_tenants_at_their_bound_do_not_push_guests_out(stores: Stores) -> None:
    limits = Limits(max_waiting=10, max_running=1, submits_per_minute=1000)
    await stores.tasks.submit(make_task("acme"), limits)
    assert await stores.queue.claim(MODEL, GangId("g0"), limits) is not None
    waits = make_task("acme")
    await stores.tasks.submit(waits, limits)
    await stores.tasks.submit(make_task("t-g-1", priority=Priority.GUEST), limits)
    guest = await stores.queue.claim(MODEL, GangId("g1"), limits)
    assert guest is not None and guest.tenant == "t-g-1"
    await stores.link.client.zadd(stores.link.keys.unfinished(MODEL), {waits.id: 1.0})
    assert await stores.queue.make_way(MODEL, limits) == [], "it could not run"


async def test_a_gang_that_loads_leaves_tasks_to_those_that_may_begin_sooner(stores: Stores) -> None:
    new, old, further = make_task(), replace(make_task(), created_at=0.0), make_task()
    await stores.tasks.submit(new, LIMITS)
    assert await stores.queue.claim(MODEL, GANG, LIMITS, loading=True) is None, (
        "an idle gang would take it at once"
    )
    await stores.link.client.zadd(stores.link.keys.unfinished(MODEL), {new.id: 1.0})  # it has waited for long
    claimed = await stores.queue.claim(MODEL, GANG, LIMITS, loading=True)
    assert claimed is not None and claimed.id == new.id
    await stores.tasks.submit(old, LIMITS)
    await stores.link.client.zadd(stores.link.keys.unfinished(MODEL), {old.id: 1.0})
    assert await stores.queue.claim(MODEL, GangId("h"), LIMITS, loading=True) is None, (
        "the first may be free sooner"
    )
    await stores.tasks.submit(further, LIMITS)
    assert await stores.queue.claim(MODEL, GangId("h"), LIMITS) is not None
