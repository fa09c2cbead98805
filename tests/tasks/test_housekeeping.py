"""The housekeeper on real stores: what it puts back, ends and removes, and that only one works at a time."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Stores, make_task, wait_until

from turnout.background import BackgroundLoops
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.fleet_rules import GivenUp, ModelHistory
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.publication import Publication
from turnout.store.object_store import Blobs, open_blobs
from turnout.tasks.housekeeping import Housekeeper
from turnout.tasks.task_rules import GangId, Limits, State, Task, TaskId

MODEL = "wan-tiny-t2v"
LIMITS = Limits(100, 100, 1000)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return open_blobs(str(tmp_path / "objects"))


def manager(stores: Stores, blobs: Blobs, name: str = "m1") -> Housekeeper:
    async def deliver() -> None:
        deliveries.append(name)

    deliveries: list[str] = []
    made = Housekeeper(
        name,
        stores.fleet.models,
        stores.fleet.status,
        stores.tasks,
        stores.queue,
        stores.backlog,
        blobs,
        stores.mutex,
        deliver,
        lease_s=0.2,
        retention_s=60,
    )
    delivered[name] = deliveries
    return made


delivered: dict[str, list[str]] = {}


@asynccontextmanager
async def working(made: Housekeeper) -> AsyncIterator[None]:
    async with BackgroundLoops(made.loops()).running():
        yield
    await made.leave()


async def register(stores: Stores) -> None:
    video = VideoPart(FAMILIES[MODEL])
    await stores.fleet.models.put(Model(MODEL, EngineKind.VIDEO, "w", video=video))


async def make_older(stores: Stores, task: Task, seconds: float) -> None:
    await stores.link.client.zincrby(stores.link.keys.unfinished(MODEL), -seconds * 1000, task.id)


async def state_of(stores: Stores, task: TaskId) -> State:
    return (await stores.tasks.get(task)).state


async def test_a_lease_that_ran_out_puts_the_task_back(stores: Stores, blobs: Blobs) -> None:
    await register(stores)
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    await stores.queue.claim(MODEL, GangId("g"), LIMITS)

    async def queued() -> bool:
        return await state_of(stores, task.id) is State.QUEUED

    async with working(replace(manager(stores, blobs), lease_s=1.0)):
        await wait_until(queued, "the task to be put back")
    assert (await stores.tasks.get(task.id)).failures == 0, (
        "nobody had heard the gang: who knows what it died of"
    )


async def test_tasks_of_a_model_that_this_version_cannot_read_are_kept(stores: Stores, blobs: Blobs) -> None:
    kept, dismissed = make_task(), make_task(model="removed")
    for task in (kept, dismissed):
        await stores.tasks.submit(task, LIMITS)
    await stores.link.client.hset(stores.link.keys.models(), MODEL, b'{"format":2,"engine":"sglang"}')

    async def ended() -> bool:
        return await state_of(stores, dismissed.id) is State.FAILED

    async with working(manager(stores, blobs)):
        await wait_until(ended, "the other model's task to be dismissed")
    assert await state_of(stores, kept.id) is State.QUEUED


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_clock_that_is_set_anew_ends_no_lease_and_no_task(
    stores: Stores, blobs: Blobs, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(stores)
    running, waiting = make_task(), make_task()
    for task in (running, waiting):
        await stores.tasks.submit(task, LIMITS)
    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS)
    assert claimed
    await blobs.put(f"tasks/{running.id}/1-g/checkpoint-1.safetensors", b"x", "")
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + step_s)
    keeper = replace(manager(stores, blobs), lease_s=1.2)
    async with working(keeper):
        for _ in range(40):  # for longer than a lease
            assert await stores.queue.renew(claimed.id, claimed.gang or GangId(""), claimed.attempt)
            await asyncio.sleep(0.05)
    assert (await stores.tasks.get(claimed.id)).attempt == 1
    assert await state_of(stores, claimed.id) is State.IN_PROGRESS
    assert await state_of(stores, waiting.id) is State.QUEUED
    assert [b.key async for b in blobs.list("tasks/")]


async def test_no_lease_ends_while_there_is_no_gateway_to_renew_through(stores: Stores, blobs: Blobs) -> None:
    await register(stores)
    await stores.tasks.submit(make_task(), LIMITS)
    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS)
    assert claimed
    alive, looks = list[str](), 0

    async def gateways() -> list[str]:
        nonlocal looks
        looks += 1
        return alive

    async def put_back() -> bool:
        return await state_of(stores, claimed.id) is State.QUEUED

    async with working(replace(manager(stores, blobs), lease_s=0.4, gateways=gateways)):
        await wait_until(lambda: looks > 20, "many looks, longer than a lease")
        assert await state_of(stores, claimed.id) is State.IN_PROGRESS
        alive.append("gw-1")
        await wait_until(put_back, "the lease to end")
    assert (await stores.tasks.get(claimed.id)).failures == 0, "nobody is to blame"


async def test_a_task_that_nobody_took_is_failed_with_a_reason(stores: Stores, blobs: Blobs) -> None:
    await register(stores)
    old, young = make_task(), make_task()
    for task in (old, young):
        await stores.tasks.submit(task, LIMITS)
    await make_older(stores, old, 120)

    async def failed() -> bool:
        return await state_of(stores, old.id) is State.FAILED

    async with working(manager(stores, blobs)):
        await wait_until(failed, "the old task to be ended")
    assert await state_of(stores, young.id) is State.QUEUED


async def test_waiting_tasks_of_a_removed_model_end_with_a_reason(stores: Stores, blobs: Blobs) -> None:
    await register(stores)
    running, waiting = make_task(), make_task()
    for task in (running, waiting):
        await stores.tasks.submit(task, LIMITS)
    await stores.queue.claim(MODEL, GangId("g"), LIMITS)

    async def ended() -> bool:
        return await state_of(stores, waiting.id) is State.FAILED

    async with working(replace(manager(stores, blobs), lease_s=60)):
        await stores.fleet.models.remove(MODEL)
        await wait_until(ended, "the waiting task to end")
    failure = (await stores.tasks.get(waiting.id)).failure
    assert failure
    assert (failure.code, failure.message) == ("model_removed", f"The model {MODEL} was removed.")
    assert await state_of(stores, running.id) is State.IN_PROGRESS, "its gang finishes it"


async def test_tasks_of_a_model_that_no_machine_can_run_end_after_a_while(
    stores: Stores, blobs: Blobs
) -> None:
    await register(stores)
    old, young = make_task(), make_task()
    for task in (old, young):
        await stores.tasks.submit(task, LIMITS)
    await make_older(stores, old, 61)
    assert await stores.mutex.hold("fleet", "m", 60)
    notes = ModelHistory(0.0, given_up={MODEL: GivenUp("no worker can run wan engines")})
    assert await stores.fleet.manager_state.publish("fleet", "m", Publication(history=notes))

    async def ended() -> bool:
        return await state_of(stores, old.id) is State.FAILED

    async with working(replace(manager(stores, blobs), retention_s=600)):
        await wait_until(ended, "the old task to end")
    failure = (await stores.tasks.get(old.id)).failure
    assert failure
    assert failure.code == "model_unavailable"
    assert "no worker can run wan engines" in failure.message
    assert await state_of(stores, young.id) is State.QUEUED


async def test_objects_past_the_retention_are_swept(stores: Stores, blobs: Blobs, tmp_path: Path) -> None:
    for key in ("tasks/old/1/video.mp4", "tasks/new/1/video.mp4"):
        await blobs.put(key, b"x", "video/mp4")
    past = time.time() - 120
    os.utime(tmp_path / "objects/tasks/old/1/video.mp4", (past, past))

    async def swept() -> bool:
        return [b.key async for b in blobs.list("tasks/")] == ["tasks/new/1/video.mp4"]

    async with working(manager(stores, blobs)):
        await wait_until(swept, "the old object to be swept")


async def test_a_short_retention_is_kept_in_time(stores: Stores, blobs: Blobs) -> None:
    """A sweep an hour left objects there for many times as long."""

    async def swept() -> bool:
        return [blob async for blob in blobs.list("tasks/")] == []

    async with working(replace(manager(stores, blobs), retention_s=1)):
        for number in range(2):
            await blobs.put(f"tasks/{number}/1/video.mp4", b"x", "video/mp4")
            await wait_until(swept, f"object {number} to be swept")


async def test_one_manager_works_and_the_other_takes_over(stores: Stores, blobs: Blobs) -> None:
    first, second = manager(stores, blobs, "first"), manager(stores, blobs, "second")
    async with working(first):
        await wait_until(lambda: bool(delivered["first"]), "the first to work")
        async with working(second):
            seen = len(delivered["first"])
            await wait_until(lambda: len(delivered["first"]) > seen, "the first to go on")
            assert not delivered["second"]
    async with working(second):
        await wait_until(lambda: bool(delivered["second"]), "the second to take over")
