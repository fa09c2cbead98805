"""What the manager does when the leader of a gang on Ray dies, and when it only seems to."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from tests.conftest import Stores, make_task, wait_until

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.leader_watch import LeaderWatch
from turnout.tasks.task_rules import GangId, Limits, State, Task

MODEL = "wan-tiny-t2v"
GANG = GangId("ray-wan-tiny-t2v-0-abc")
LIMITS = Limits(100, 100, 1000)


class Leader:
    """An actor's handle, as far as it is asked. `fate` is what Ray says of it."""

    def __init__(self) -> None:
        self.fate: Exception | None = None
        self.asked = 0
        self.__ray_ready__ = SimpleNamespace(remote=self._answer)

    async def _answer(self) -> None:
        self.asked += 1
        if self.fate is not None:
            raise self.fate


def report() -> GangReport:
    return GangReport(GANG, MODEL, 0, time.time(), time.time())


@asynccontextmanager
async def watching(stores: Stores) -> AsyncIterator[LeaderWatch]:
    async with asyncio.TaskGroup() as group:
        watch = LeaderWatch(stores, group)
        try:
            yield watch
        finally:
            watch.close()


async def held_task(stores: Stores) -> Task:
    await stores.tasks.submit(make_task(), LIMITS)
    task = await stores.queue.claim(MODEL, GANG, LIMITS)
    assert task is not None
    return task


async def test_the_death_of_a_leader_counts_once_and_its_ranks_get_nothing_more(stores: Stores) -> None:
    task, leader = await held_task(stores), Leader()
    async with watching(stores) as watch:
        watch.hear(leader, GANG, report())
        await watch.write()
        assert list(await stores.fleet.gangs.all()) == [GANG]
        leader.fate = ActorDiedError()

        async def waits() -> bool:
            return (await stores.tasks.get(task.id)).state is State.QUEUED

        await wait_until(waits, "the task to wait again")
        assert (await stores.tasks.get(task.id)).failures == 1
        assert await stores.queue.claim(MODEL, GANG, LIMITS) is None
        assert await stores.queue.claim(MODEL, GangId("another"), LIMITS) is not None


@pytest.mark.parametrize("fate", [ActorUnavailableError("cut off", None), None])
async def test_a_leader_that_is_away_or_left_in_peace_is_not_taken_for_dead(
    stores: Stores, fate: Any
) -> None:
    task, leader = await held_task(stores), Leader()
    leader.fate = fate
    async with watching(stores) as watch:
        watch.hear(leader, GANG, report())
        await wait_until(lambda: leader.asked > 1, "the leader to be asked twice")
        watch.hear(leader, GANG, None)
        await watch.write()
        leader.fate = ActorDiedError()
        assert await stores.fleet.gangs.all() == {}
        assert (await stores.tasks.get(task.id)).state is State.IN_PROGRESS
