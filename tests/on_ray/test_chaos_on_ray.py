"""Kills every kind of process of a gang on Ray while it renders. Nothing is lost, each task has one result with the
same bytes as an undisturbed one, and how long each recovery took is printed.

The head has no place for gangs, and its state lies in a Redis of its own; two nodes have place for one gang each.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from tests.conftest import wait_until
from tests.on_ray.cluster import (
    Cluster,
    OnRay,
    connect,
    deploy,
    deployed,
    driver,
    running_cluster,
    running_redis,
    settings,
    tiny,
)

from turnout.fleet.gang_rules import GangReport
from turnout.tasks.task_rules import Cancelled, Finished, Interrupted, State, TaskId

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(1800)]
STEPS = 30
LONG = 150  # takes longer than a head needs to come back
CHECKPOINT_STEPS = 3


@pytest.fixture(scope="module")
def gcs_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis("127.0.0.1", tmp_path_factory.mktemp("gcs")) as address:
        yield address


@pytest.fixture(scope="module")
def cluster(gcs_redis: str) -> Iterator[Cluster]:
    # Nodes wait 60 s for their head; a busy machine may need longer to start one.
    environ = {"RAY_REDIS_ADDRESS": gcs_redis, "RAY_gcs_rpc_server_reconnect_timeout_s": "300"}
    with running_cluster(0, 2, 2, environ=environ) as cluster, driver(cluster.address):
        yield cluster


@pytest.fixture
async def on_ray(cluster: Cluster, valkey: str, tmp_path: Path) -> AsyncIterator[OnRay]:
    models = {"two": tiny(2, idle_s=60.0), "pair": tiny(2, max_replicas=2, idle_s=3.0)}
    config = settings(tmp_path, valkey, models, checkpoint_steps=CHECKPOINT_STEPS, checkpoint_s=60.0)
    async with deployed(config) as on_ray:
        try:
            yield on_ray
        except BaseException:
            print(cluster.logs()[-20_000:])
            raise


FAULTS: dict[str, Callable[[Cluster, GangReport], None]] = {
    "rank killed": lambda _, gang: os.kill(gang.ranks[1].pid, signal.SIGKILL),
    "rank 0 killed": lambda _, gang: os.kill(gang.ranks[0].pid, signal.SIGKILL),
    "rank stopped (SIGSTOP)": lambda _, gang: os.kill(gang.ranks[1].pid, signal.SIGSTOP),
    "gang's leader killed": lambda cluster, _: leader_of(cluster).kill(),
    "raylet killed": lambda cluster, gang: node_of(cluster, gang.ranks[0].pid).part("raylet").kill(),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_dies_the_video_is_made_once(
    on_ray: OnRay, cluster: Cluster, fault: str, figures: Any
) -> None:
    # Ranks live for a moment longer than their leader or raylet.
    steps = STEPS if "rank" in fault else LONG
    undisturbed = await on_ray.submit("two", steps)
    expected = await on_ray.video(await on_ray.ended(undisturbed.id))
    task = await on_ray.submit("two", steps)
    seen = await on_ray.at_step(task.id, 7)
    [gang] = await on_ray.formed("two")
    began = time.monotonic()
    FAULTS[fault](cluster, gang)
    resumed = await on_ray.until(
        task.id,
        lambda t: t.attempt > 1 and t.step > 0 and t.stage == "denoising",
        "rendering to go on",
        400,
    )
    took_s = time.monotonic() - began
    done = await on_ray.ended(task.id, 400)
    # Without its raylet a gang that is still alive gives its task back, which counts against no task.
    assert done.failures in ((0, 1) if fault == "raylet killed" else (1,))
    assert await on_ray.video(done) == expected
    assert await results(on_ray, task.id) == 1
    lost = await steps_lost(on_ray, task.id)
    assert lost <= CHECKPOINT_STEPS + 1
    figures(
        f"ray: {fault} at step {seen.step} of {steps}: rendering again after {took_s:.1f} s "
        f"at step {resumed.step}, {lost} steps lost"
    )
    if fault == "raylet killed":
        await asyncio.to_thread(cluster.add(2).wait_started)  # for the tests that follow


async def test_a_dead_head_stops_nothing(on_ray: OnRay, cluster: Cluster, figures: Any) -> None:
    undisturbed = await on_ray.submit("two", LONG)
    expected = await on_ray.video(await on_ray.ended(undisturbed.id))
    task = await on_ray.submit("two", LONG)
    before = await on_ray.at_step(task.id, 3)
    ray.shutdown()  # Ray ends a driver whose node is gone; this one is here to watch
    cluster.head.kill()
    began = time.monotonic()
    await asyncio.to_thread(cluster.restart_head)
    back_s = time.monotonic() - began
    connect(cluster.address)
    meanwhile = await on_ray.stores.tasks.get(task.id)
    assert meanwhile.attempt == 1
    assert meanwhile.step > before.step, "the gang went on without a head"
    done = await on_ray.ended(task.id, 400)
    assert (done.attempt, await on_ray.video(done)) == (1, expected)
    began = time.monotonic()
    asleep = await on_ray.submit("pair", 4)
    assert (await on_ray.ended(asleep.id, 400)).state is State.COMPLETED
    figures(
        f"ray: head killed (GCS on Redis), back after {back_s:.0f} s: the gang went on from step {before.step} to "
        f"{meanwhile.step} without it and ended in its first attempt; then a model that slept made its video in "
        f"{time.monotonic() - began:.0f} s"
    )


async def test_scaling_down_stops_the_idle_gang_and_not_the_busy_one(on_ray: OnRay, figures: Any) -> None:
    long = await on_ray.submit("pair", 5000)
    short = await on_ray.submit("pair", 4)
    await on_ray.ended(short.id, 400)
    busy = (await on_ray.stores.tasks.get(long.id)).gang

    async def one_left() -> bool:
        return [g.gang for g in await on_ray.gangs() if g.model == "pair"] == [busy]

    await wait_until(one_left, "the idle gang to leave", 120)
    running = await on_ray.stores.tasks.get(long.id)
    assert (running.attempt, running.state) == (1, State.IN_PROGRESS)
    await on_ray.stores.tasks.apply(long.id, Cancelled(time.time()))
    figures(
        "ray: two gangs, one busy: 2 → 1 stopped the idle one; the busy one is still in its first attempt"
    )


async def test_a_redeploy_costs_at_most_one_checkpoint_interval(on_ray: OnRay, figures: Any) -> None:
    undisturbed = await on_ray.submit("two", STEPS)
    expected = await on_ray.video(await on_ray.ended(undisturbed.id, 400))
    task = await on_ray.submit("two", STEPS)
    await on_ray.at_step(task.id, 8)
    began = time.monotonic()
    await asyncio.to_thread(deploy, on_ray.config.with_settings(preview_steps=7))
    done = await on_ray.ended(task.id, 400)
    assert await on_ray.video(done) == expected
    assert done.failures == 0
    lost = await steps_lost(on_ray, task.id)
    assert lost <= CHECKPOINT_STEPS
    figures(
        f"ray: redeployed mid-video: {done.attempt} attempts, {lost} steps lost, video {time.monotonic() - began:.0f} s after it"
    )


async def test_nothing_is_left_after_down(cluster: Cluster) -> None:
    assert ray.util.list_named_actors(all_namespaces=True) == []


def leader_of(cluster: Cluster) -> psutil.Process:
    for node in cluster.nodes:
        for process in node.family():
            if "VideoGenerator-two" in " ".join(process.cmdline()):
                return process
    raise AssertionError("no leader runs")


def node_of(cluster: Cluster, pid: int) -> Any:
    return next(node for node in cluster.nodes if pid in [p.pid for p in node.family()])


async def results(on_ray: OnRay, task: TaskId) -> int:
    return sum(isinstance(r.event, Finished) for r in await on_ray.story(task))


async def steps_lost(on_ray: OnRay, task: TaskId) -> int:
    """The most that one interruption cost: the last step told before it, less the step where the next one stood."""
    worst, reached, stood = 0, 0, None
    for recorded in await on_ray.story(task):
        event: Any = recorded.event
        if isinstance(event, Interrupted):
            stood = reached
        elif event.kind == "progress" and event.stage == "denoising":
            if stood is not None:
                worst, stood = max(worst, stood - event.step), None
            reached = event.step
    return worst
