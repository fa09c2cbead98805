"""The claim script and `fairness.FairQueue`, which plans are made with, are one rule."""

import random
from collections import Counter
from dataclasses import replace

from tests.conftest import Stores, make_task

from turnout.tasks.fairness_rules import FairQueue, class_base
from turnout.tasks.task_rules import GangId, Interrupted, Limits, Priority, Task, TaskId, TenantId

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
