"""Kills every kind of process of a gang on Ray while it renders. Nothing is lost, each task has one result with the
same bytes as an undisturbed one, and how long each recovery took is printed.

The head has no place for gangs, and its state lies in a Redis of its own; two nodes have place for one gang each.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
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
    deployed,
    driver,
    free_port,
    running_cluster,
    settings,
    start_head,
    tiny,
)

from turnout.adapters.process import Child
from turnout.adapters.valkey import _binary  # pyright: ignore[reportPrivateUsage]
from turnout.domain.slots import GangReport
from turnout.domain.tasks import Cancelled, Finished, Interrupted, State, TaskId

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(1800)]
STEPS = 30
CHECKPOINT_STEPS = 3


@pytest.fixture(scope="module")
def gcs_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis on a port, because Ray's head knows no other."""
    port = free_port()
    log = tmp_path_factory.mktemp("gcs") / "redis.log"
    with asyncio.Runner() as runner:
        argv = [
            str(_binary()),
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(log.parent),
        ]
        child = runner.run(Child.start("gcs-redis", argv, log=log))
        yield f"127.0.0.1:{port}"
        runner.run(child.stop(5))


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


async def test_whatever_dies_the_video_is_made_once(on_ray: OnRay, cluster: Cluster, figures: Any) -> None:
    undisturbed = await on_ray.submit("two", STEPS)
    expected = await on_ray.video(await on_ray.ended(undisturbed.id))
    faults: dict[str, Callable[[GangReport], None]] = {
        "rank killed": lambda gang: os.kill(gang.ranks[1].pid, signal.SIGKILL),
        "rank 0 killed": lambda gang: os.kill(gang.ranks[0].pid, signal.SIGKILL),
        "rank stopped (SIGSTOP)": lambda gang: os.kill(gang.ranks[1].pid, signal.SIGSTOP),
        "gang's leader killed": lambda gang: leader_of(cluster).kill(),
        "raylet killed": lambda gang: node_of(cluster, gang.ranks[0].pid).part("raylet").kill(),
    }
    for name, cause in faults.items():
        task = await on_ray.submit("two", STEPS)
        seen = await on_ray.at_step(task.id, 7)
        [gang] = await on_ray.formed("two")
        began = time.monotonic()
        cause(gang)
        resumed = await on_ray.until(
            task.id,
            lambda t: t.attempt > 1 and t.step > 0 and t.stage == "denoising",
            f"{name}: to go on",
            400,
        )
        took_s = time.monotonic() - began
        done = await on_ray.ended(task.id, 400)
        assert await on_ray.video(done) == expected
        assert await results(on_ray, task.id) == 1
        lost = await steps_lost(on_ray, task.id)
        assert lost <= CHECKPOINT_STEPS + 1
        figures(
            f"ray: {name} at step {seen.step} of {STEPS}: rendering again after {took_s:.1f} s "
            f"at step {resumed.step}, {lost} steps lost"
        )
    await asyncio.to_thread(cluster.add(2).wait_started)  # for the one whose raylet was killed
    await a_dead_head_stops_nothing(on_ray, cluster, expected, figures)


async def a_dead_head_stops_nothing(on_ray: OnRay, cluster: Cluster, expected: bytes, figures: Any) -> None:
    task = await on_ray.submit("two", STEPS)
    before = await on_ray.at_step(task.id, 3)
    ray.shutdown()  # Ray ends a driver whose node is gone; this one is here to watch
    cluster.head.kill()
    began = time.monotonic()
    await on_ray.at_step(task.id, before.step + 5)
    without_head = await on_ray.wires.tasks.get(task.id)
    assert without_head.attempt == 1, "the gang went on without a head"
    port = int(cluster.address.rpartition(":")[2])
    cluster.head = start_head(cluster.folder, port, 0, cluster.environ, [], [])
    await asyncio.to_thread(cluster.head.wait_started)
    back_s = time.monotonic() - began
    connect(cluster.address)
    done = await on_ray.ended(task.id, 400)
    assert await on_ray.video(done) == expected
    again = await on_ray.submit("two", 4)
    await on_ray.ended(again.id, 400)
    figures(
        f"ray: head killed (GCS on Redis): the gang rendered on, head back after {back_s:.0f} s, task ended in attempt "
        f"{done.attempt}; a new task after that: {(await on_ray.wires.tasks.get(again.id)).state}"
    )


async def test_scaling_down_stops_the_idle_gang_and_not_the_busy_one(on_ray: OnRay, figures: Any) -> None:
    long = await on_ray.submit("pair", 300)
    short = await on_ray.submit("pair", 4)
    await on_ray.ended(short.id, 400)
    busy = (await on_ray.wires.tasks.get(long.id)).gang

    async def one_left() -> bool:
        return [g.gang for g in await on_ray.gangs() if g.model == "pair"] == [busy]

    await wait_until(one_left, "the idle gang to leave", 120)
    running = await on_ray.wires.tasks.get(long.id)
    assert (running.attempt, running.state) == (1, State.IN_PROGRESS)
    await on_ray.wires.tasks.apply(long.id, Cancelled(time.time()))
    figures(
        "ray: two gangs, one busy: 2 → 1 stopped the idle one; the busy one is still in its first attempt"
    )


async def test_a_redeploy_costs_at_most_one_checkpoint_interval(on_ray: OnRay, figures: Any) -> None:
    from turnout.wiring.on_ray.app import run_app

    undisturbed = await on_ray.submit("two", STEPS)
    expected = await on_ray.video(await on_ray.ended(undisturbed.id, 400))
    task = await on_ray.submit("two", STEPS)
    await on_ray.at_step(task.id, 8)
    began = time.monotonic()
    await asyncio.to_thread(run_app, replace(on_ray.config, preview_steps=7))
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
