"""What an attempt that lost its task may still do: nothing that its successor would notice."""

import asyncio
import time
from dataclasses import dataclass, replace

import pytest
from tests.conftest import Stores, make_task, wait_until
from tests.gang.conftest import LIMITS, MODEL, HeldStep, NumberEngine, leading
from tests.pace import patient

from turnout.store.object_store import Blobs
from turnout.tasks.task_rules import Cancelled, GangId, State, Task, TaskId


async def objects(stores: Stores, task: Task, word: str = "") -> set[str]:
    return {blob.key async for blob in stores.blobs.list(f"tasks/{task.id}/") if word in blob.key}


async def submitted(stores: Stores, steps: int = 10) -> Task:
    return await stores.tasks.submit(make_task(steps=steps), LIMITS)


async def checkpointed(stores: Stores, task: TaskId, step: int) -> None:
    async def there() -> bool:
        return f"checkpoint-{step}." in ((await stores.tasks.get(task)).checkpoint or "")

    await wait_until(there, f"checkpoint {step}")


async def test_a_dropped_attempt_leaves_the_checkpoint_that_its_successor_needs(stores: Stores) -> None:
    task = await submitted(stores)
    stopped = HeldStep(5)
    async with leading(stores, "g1", NumberEngine(stopped)) as first:
        await asyncio.to_thread(stopped.reached.wait, patient(30))
        await checkpointed(stores, task.id, 4)
        await stores.queue.release(MODEL, GangId("g1"), "it stopped responding")
        stopped.go()
        await first
        left = await stores.tasks.get(task.id)
        assert left.checkpoint and await stores.blobs.get(left.checkpoint)
    successor = NumberEngine()
    async with leading(stores, "g2", successor):
        pass
    assert successor.resumed_at == [4]
    assert (await stores.tasks.get(task.id)).state is State.COMPLETED
    assert await objects(stores, task, "checkpoint") == set(), "all go when the task has ended"


async def test_a_revived_gang_touches_nothing_of_the_live_one(stores: Stores) -> None:
    task = await submitted(stores, steps=20)
    zombie, live = HeldStep(5), HeldStep(17)
    async with leading(stores, "g1", NumberEngine(zombie)) as first:
        await asyncio.to_thread(zombie.reached.wait, patient(30))
        await stores.queue.release(MODEL, GangId("g1"), "it stopped responding")
        async with leading(stores, "g2", NumberEngine(live)):
            await asyncio.to_thread(live.reached.wait, patient(30))
            await checkpointed(stores, task.id, 16)

            async def settled() -> bool:
                """All of its reports are written, and its own older checkpoints gone: it deletes them after it has recorded
                the newest."""
                told = await stores.tasks.get(task.id)
                left = await objects(stores, task, "/2-g2/checkpoint")
                return (told.step, len(left)) == (17, 1) and "preview-16." in (told.preview or "")

            await wait_until(settled, "the live gang to have told all, and to have one checkpoint")
            before = await objects(stores, task)
            record = await stores.tasks.get(task.id)
            zombie.go()
            await first
            assert await objects(stores, task) >= {k for k in before if "/2-g2/" in k}
            assert await stores.tasks.get(task.id) == record
            assert not [k for k in await objects(stores, task, "/1-g1/") if k not in before]
            live.go()
    assert (await stores.tasks.get(task.id)).state is State.COMPLETED


async def test_two_gangs_with_the_same_attempt_number_write_to_different_objects(stores: Stores) -> None:
    """As it happens when Redis loses a claim."""
    task = await submitted(stores)
    zombie = HeldStep(7)
    async with leading(stores, "g1", NumberEngine(zombie)) as first:
        await asyncio.to_thread(zombie.reached.wait, patient(30))
        await checkpointed(stores, task.id, 6)

        async def lost() -> bool:
            stored = await stores.tasks.read(task.id)
            unclaimed = replace(task, checkpoint=stored.task.checkpoint)
            return await stores.tasks.write(unclaimed, stored.version, None)

        await wait_until(lost, "the claim to be lost")
        live = HeldStep(9)
        async with leading(stores, "g2", NumberEngine(live)):
            await asyncio.to_thread(live.reached.wait, patient(30))
            await checkpointed(stores, task.id, 8)
            claimed = await stores.tasks.get(task.id)
            assert (claimed.attempt, claimed.gang) == (1, "g2")
            zombie.go()
            live.go()
        await first
    assert (await stores.tasks.get(task.id)).state is State.COMPLETED


async def test_a_cancelled_task_leaves_no_checkpoint(stores: Stores) -> None:
    task = await submitted(stores)
    held = HeldStep(5)
    async with leading(stores, "g1", NumberEngine(held)):
        await asyncio.to_thread(held.reached.wait, patient(30))
        await checkpointed(stores, task.id, 4)
        await stores.tasks.apply(task.id, Cancelled(time.time()))
        held.go()
    assert await objects(stores, task, "checkpoint") == set()


@dataclass
class StoppedDelete:
    """An object store whose delete is reached long after the checkpoint was recorded."""

    blobs: Blobs
    reached: asyncio.Event
    go: asyncio.Event

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self.blobs, name)

    async def delete(self, keys: list[str]) -> None:
        self.reached.set()
        await self.go.wait()
        await self.blobs.delete(keys)


async def test_a_gang_stopped_between_its_checkpoint_and_the_cleaning_up_deletes_nothing_newer(
    stores: Stores,
) -> None:
    task = await submitted(stores, steps=20)
    slow = StoppedDelete(stores.blobs, asyncio.Event(), asyncio.Event())
    zombie, live = HeldStep(5), HeldStep(17)
    async with leading(replace(stores, blobs=slow), "g1", NumberEngine(zombie)) as first:  # type: ignore[arg-type]
        await asyncio.wait_for(slow.reached.wait(), patient(30))
        await asyncio.to_thread(zombie.reached.wait, patient(30))
        await stores.queue.release(MODEL, GangId("g1"), "it stopped responding")
        async with leading(stores, "g2", NumberEngine(live)):
            await asyncio.to_thread(live.reached.wait, patient(30))
            await checkpointed(stores, task.id, 16)
            slow.go.set()
            zombie.go()
            await first
            kept = (await stores.tasks.get(task.id)).checkpoint
            assert kept and await stores.blobs.get(kept)
            live.go()


@dataclass
class SlowCheckpoints:
    """An object store that ends a checkpoint's upload late, and whether anyone still waits for it or not."""

    blobs: Blobs
    go: asyncio.Event
    begun: set[asyncio.Future[None]]

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self.blobs, name)

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        async def upload() -> None:
            if "checkpoint" in key:
                await self.go.wait()
            await self.blobs.put(key, data, content_type)

        put = asyncio.ensure_future(upload())
        self.begun.add(put)
        await asyncio.shield(put)


async def test_a_checkpoint_that_is_being_uploaded_when_the_video_ends_does_not_stay(stores: Stores) -> None:
    task = await submitted(stores)
    slow = SlowCheckpoints(stores.blobs, asyncio.Event(), set())

    async def completed() -> bool:
        return (await stores.tasks.get(task.id)).state is State.COMPLETED

    async with leading(replace(stores, blobs=slow), "g1", NumberEngine()):  # type: ignore[arg-type]
        await wait_until(completed, "the video")
        await asyncio.sleep(0.2)  # the attempt would clean up now
        slow.go.set()
    await asyncio.gather(*slow.begun)
    assert await objects(stores, task, "checkpoint") == set()


def lose_a_peer(step: int) -> None:
    if step == 2:
        raise RuntimeError("[transport/tcp/pair.cc:547] GLHF! 🏖️ Connection closed by peer [127.0.0.1]:33")


async def test_the_owner_is_told_in_words_when_a_rank_is_lost(stores: Stores) -> None:
    task = await stores.tasks.submit(replace(make_task(steps=4), max_attempts=1), LIMITS)
    with pytest.raises(ExceptionGroup):
        async with leading(stores, "g1", NumberEngine(lose_a_peer)) as gang:
            await gang
    failed = await stores.tasks.get(task.id)
    assert failed.failure and "another rank of the gang ended" in failed.failure.message
    assert "GLHF" not in failed.failure.message
