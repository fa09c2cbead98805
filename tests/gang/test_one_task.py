"""A gang that is started for one task, or for as long as there is work, and what it ends with."""

import pytest
from tests.conftest import Stores, make_task
from tests.gang.conftest import LIMITS, MODEL, NumberEngine, leading

from turnout.engines.base import EngineError
from turnout.gang.exit_codes import ExitCode
from turnout.tasks.task_rules import Cancelled, Failed, GangId, State, TaskFailure, TaskId


async def test_it_takes_the_task_that_it_was_started_for_and_no_other(stores: Stores) -> None:
    first = await stores.tasks.submit(make_task(steps=2), LIMITS)
    second = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(), task=second.id) as gang:
        assert await gang is ExitCode.COMPLETED
    assert (await stores.tasks.get(second.id)).state is State.COMPLETED
    assert (await stores.tasks.get(first.id)).state is State.QUEUED


async def test_its_exit_code_is_the_verdict(stores: Stores) -> None:
    def refuse(step: int) -> None:
        raise EngineError("too large")

    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(refuse)) as gang:
        assert await gang is ExitCode.FAILED
    assert (await stores.tasks.get(task.id)).state is State.FAILED


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Cancelled(1.0), ExitCode.CANCELLED),
        (Failed(1.0, 1, TaskFailure("x", "y")), ExitCode.FAILED),
        (None, ExitCode.HELD),
    ],
)
async def test_a_task_that_others_have_or_that_has_ended_is_left_alone(
    stores: Stores, end: Cancelled | Failed | None, code: ExitCode
) -> None:
    task = await stores.tasks.submit(make_task(steps=2), LIMITS)
    assert await stores.queue.claim(MODEL, GangId("other"), LIMITS)
    if end is not None:
        await stores.tasks.apply(task.id, end)
    async with leading(stores, "g", NumberEngine(), task=task.id) as gang:
        assert await gang is code
    async with leading(stores, "h", NumberEngine(), task=TaskId("video_gone")) as gang:
        assert await gang is ExitCode.CANCELLED


async def test_a_gang_without_work_leaves_after_its_idle_time(stores: Stores) -> None:
    await stores.tasks.submit(make_task(steps=2), LIMITS)
    async with leading(stores, "g", NumberEngine(), once=False, idle_exit_s=0.3) as gang:
        assert await gang is ExitCode.COMPLETED
    assert await stores.queue.holdings(MODEL) == {}, "it left no consumer behind"


async def test_to_claim_one_task_costs_its_tenant_a_turn_and_nobody_else_one(stores: Stores) -> None:
    a = [await stores.tasks.submit(make_task("a", steps=2), LIMITS) for _ in range(3)]
    b = [await stores.tasks.submit(make_task("b", steps=2), LIMITS) for _ in range(2)]
    gang = GangId("g")
    assert (await stores.queue.claim(MODEL, gang, LIMITS, b[1].id)) is not None
    assert await stores.queue.claim(MODEL, gang, LIMITS, b[1].id) is None, "it does not wait any more"
    order = [task.id for _ in range(4) if (task := await stores.queue.claim(MODEL, gang, LIMITS))]
    assert order == [a[0].id, a[1].id, b[0].id, a[2].id]
    assert (await stores.backlog.figures(MODEL)).running == 5
