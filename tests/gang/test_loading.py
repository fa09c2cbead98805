"""What a task's owner learns while the gang's model loads."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from tests.conftest import Stores, make_task, wait_until
from tests.gang.conftest import LIMITS, MODEL, NumberEngine, leading
from tests.gangs import open_door
from tests.pace import patient

from turnout.errors import Misconfigured
from turnout.gang.attempt import AttemptContext
from turnout.gang.cadence_rules import Cadence
from turnout.gang.group import Group
from turnout.gang.heartbeat import RankHeartbeat
from turnout.gang.leader import Leader
from turnout.gang.rank_commands import RankCommander
from turnout.gang.rank_place import RankDuties, RankPlace
from turnout.tasks.gang_messages import ClaimedTask
from turnout.tasks.task_rules import Cancelled, GangId, LoadedBytes, State, Task


class Loading:
    """A model whose loading the test moves on."""

    def __init__(self, met: bool) -> None:
        self.loaded: LoadedBytes | None = None
        self.error: Exception | None = None
        self.answered = asyncio.Event()  # claims with a task; before that their answers are under way
        self.answered.set()
        self.done = threading.Event()
        self.met = met
        self.drain: Callable[[], None] = lambda: None

    def __call__(self) -> RankCommander:
        self.done.wait(600)  # longer than any test
        if self.error is not None:
            raise self.error
        return RankCommander(Group(RankPlace(0, 1, 0)), NumberEngine(), RankHeartbeat(None))


@asynccontextmanager
async def loading_gang(stores: Stores, met: bool = True) -> AsyncIterator[Loading]:
    model = Loading(met)
    async with open_door(stores) as door:
        with ThreadPoolExecutor(1) as thread:
            api = door.api("g")
            claim = api.claim

            async def claim_late(**asked: Any) -> ClaimedTask | None:
                task = await claim(**asked)
                if task is not None:  # at first a gang that loads leaves a task to others
                    await model.answered.wait()
                return task

            api.claim = claim_late  # type: ignore[method-assign]
            context = AttemptContext(api, Cadence(2, 1000, 4), 600.0, thread, lambda: model.loaded)
            leader = Leader(context, RankDuties(MODEL, GangId("g")), model, lambda: model.met)
            model.drain = leader.drain
            job = asyncio.create_task(leader.run(), name="gang")
            try:
                yield model
            finally:
                model.done.set()
                model.answered.set()
                leader.drain()
                with contextlib.suppress(Misconfigured):
                    await asyncio.wait_for(job, patient(60))


async def shows(stores: Stores, task: Task, loaded: LoadedBytes) -> None:
    async def there() -> bool:
        return (await stores.tasks.get(task.id)).loaded == loaded

    await wait_until(there, f"{loaded} to be told")


async def test_loading_is_told_while_it_grows(stores: Stores) -> None:
    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with loading_gang(stores) as model:
        for count in (1, 5):
            model.loaded = LoadedBytes(count, 9)
            await shows(stores, task, model.loaded)
        model.done.set()

        async def completed() -> bool:
            return (await stores.tasks.get(task.id)).state is State.COMPLETED

        await wait_until(completed, "the video")
    assert (await stores.tasks.get(task.id)).loaded is None


async def test_a_task_that_is_cancelled_meanwhile_makes_way_for_the_next(stores: Stores) -> None:
    first = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with loading_gang(stores) as model:
        model.loaded = LoadedBytes(1, 9)
        await shows(stores, first, model.loaded)
        await stores.tasks.apply(first.id, Cancelled(time.time()))
        second = await stores.tasks.submit(make_task(steps=2), LIMITS)
        model.loaded = LoadedBytes(2, 9)
        await shows(stores, second, model.loaded)
        assert not model.done.is_set()


async def test_a_gang_that_is_drained_while_it_loads_gives_its_task_back_at_once_and_without_blame(
    stores: Stores,
) -> None:
    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with loading_gang(stores) as model:
        model.loaded = LoadedBytes(1, 9)
        await shows(stores, task, model.loaded)
        model.drain()

        async def given_back() -> bool:
            return (await stores.tasks.get(task.id)).state is State.QUEUED

        await wait_until(given_back, "the task to wait again")
        assert not model.done.is_set()
    assert (await stores.tasks.get(task.id)).failures == 0


async def test_a_task_whose_claim_is_answered_late_is_told_that_the_model_did_not_load(
    stores: Stores,
) -> None:
    """Else a busy gateway's answers reach no gang in time, and the task is claimed by one after the other."""
    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with loading_gang(stores) as model:
        model.answered.clear()

        async def claimed() -> bool:
            return (await stores.tasks.get(task.id)).attempt == 1

        await wait_until(claimed, "the claim to be on its way back")
        model.error = Misconfigured("there are no weights")
        model.done.set()
        await asyncio.sleep(0.5)  # it looks twice
        model.answered.set()

        async def put_back() -> bool:
            return (await stores.tasks.get(task.id)).failures == 1

        await wait_until(put_back, "the failed attempt to count")
    assert "there are no weights" in str(await stores.events.history(task.id))


async def test_half_a_gang_leaves_the_task_to_a_whole_one(stores: Stores) -> None:
    async with loading_gang(stores, met=False) as half:
        task = await stores.tasks.submit(make_task(steps=2), LIMITS)
        async with leading(stores, "whole", NumberEngine()) as job:
            await job
        done = await stores.tasks.get(task.id)
        assert (done.state, done.attempt) == (State.COMPLETED, 1)
        later = await stores.tasks.submit(make_task(steps=2), LIMITS)
        half.met, half.loaded = True, LoadedBytes(1, 9)
        await shows(stores, later, half.loaded)
