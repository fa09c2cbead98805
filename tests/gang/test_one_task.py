"""A gang that is started for one task, or for as long as there is work, and what it ends with."""

from types import SimpleNamespace

import pytest
from tests.conftest import Stores, make_task, wait_until
from tests.gang.conftest import LIMITS, MODEL, NumberEngine, leading

from turnout.engines.base import EngineError
from turnout.gang.exit_codes import ExitCode
from turnout.tasks.task_rules import State


async def test_it_takes_the_task_that_is_next_and_leaves(stores: Stores) -> None:
    first = await stores.tasks.submit(make_task(steps=2), LIMITS)
    second = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine()) as gang:
        assert await gang is ExitCode.COMPLETED
    assert (await stores.tasks.get(first.id)).state is State.COMPLETED
    assert (await stores.tasks.get(second.id)).state is State.QUEUED


async def test_a_task_that_takes_longer_than_the_gangs_deadline_fails(stores: Stores) -> None:
    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(), deadline_s=0.0) as gang:
        assert await gang is ExitCode.FAILED
    failure = (await stores.tasks.get(task.id)).failure
    assert failure is not None and "deadline" in failure.message


async def test_a_gang_that_is_old_takes_no_further_task(stores: Stores) -> None:
    first = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(), once=False, leave_after_s=0.0) as gang:
        assert await gang is ExitCode.COMPLETED
    assert (await stores.tasks.get(first.id)).state is State.QUEUED
    assert await stores.queue.holdings(MODEL) == {}


async def test_each_task_of_a_gang_has_the_whole_deadline(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only steps move: three tasks of three steps each, five for each task."""
    clock = SimpleNamespace(now=0.0)
    for module in ("leader", "attempt"):
        monkeypatch.setattr(f"turnout.gang.{module}.time", SimpleNamespace(monotonic=lambda: clock.now))

    def step(_: int) -> None:
        clock.now += 1.0

    tasks = [await stores.tasks.submit(make_task(steps=3), LIMITS) for _ in range(3)]

    async def all_ended() -> bool:
        return all([(await stores.tasks.get(task.id)).ended for task in tasks])

    async with leading(stores, "g", NumberEngine(step), once=False, deadline_s=5.0):
        await wait_until(all_ended, "all tasks to end")
    assert [(await stores.tasks.get(task.id)).state for task in tasks] == [State.COMPLETED] * 3
    assert clock.now > 5.0


async def test_its_exit_code_is_the_verdict(stores: Stores) -> None:
    def refuse(step: int) -> None:
        raise EngineError("too large")

    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(refuse)) as gang:
        assert await gang is ExitCode.FAILED
    assert (await stores.tasks.get(task.id)).state is State.FAILED


async def test_a_gang_without_work_leaves_after_its_idle_time(stores: Stores) -> None:
    await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(), once=False, idle_exit_s=0.3) as gang:
        assert await gang is ExitCode.COMPLETED
    assert await stores.queue.holdings(MODEL) == {}, "it left no consumer behind"
