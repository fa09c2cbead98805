"""A gang over two Ray nodes: the same video as one process, whatever rank is killed; from zero and back to it.

One cluster and one gang for all of it, because starting them is what takes the time.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
import ray
from tests.on_ray.cluster import Cluster, OnRay, deployed, driver, running_cluster, settings, tiny

from turnout.fleet.hosts.ray.ray_identity import namespace_of
from turnout.tasks.task_rules import Interrupted, Stage, State, Task

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
STEPS = 40  # so many that a rank is killed before the last, though this process sees them late
GOES_ON = (Stage.DENOISING, Stage.DECODING, Stage.UPLOADING)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(1, 1) as cluster, driver(cluster.address):
        yield cluster


async def test_a_gang_on_two_nodes_from_zero_to_zero(
    cluster: Cluster, valkey: str, tmp_path: Path, figures: Any
) -> None:
    config = settings(tmp_path, valkey, {"pair": tiny(2), "never": tiny(8)}, ray_fit_s=5.0)
    async with deployed(config) as on_ray, asyncio.TaskGroup() as group:
        assert await on_ray.gangs() == []
        await the_manager_answers_and_comes_back(namespace_of(config))
        began = time.monotonic()
        task = await on_ray.submit("pair", STEPS)
        rendered_alone = group.create_task(alone(tmp_path, asdict(task.spec), config.state_dir))
        hopeless = await on_ray.submit("never")
        done = await on_ray.ended(task.id)
        cold_s = time.monotonic() - began
        [gang] = [g for g in await on_ray.gangs() if g.model == "pair"]
        assert len({rank.node for rank in gang.ranks}) == len(gang.ranks) == 2
        again, reformed_s = await a_killed_rank_costs_no_video(on_ray)
        every_rank_logs_task_attempt_and_node(cluster, again)

        refused = await on_ray.ended(hopeless.id)
        assert refused.state is State.FAILED
        assert refused.failure is not None
        assert "8 ranks" in refused.failure.message

        await on_ray.asleep()
        expected = await rendered_alone
        assert await on_ray.video(done) == expected
        assert await on_ray.video(again) == expected
    assert ray.util.list_named_actors(all_namespaces=True) == []
    figures(
        f"ray: 2 ranks on 2 nodes, submit → video from zero {cold_s:.0f} s; killed rank → put back and rendering again "
        f"{reformed_s:.0f} s; same bytes as one process"
    )


async def the_manager_answers_and_comes_back(namespace: str) -> None:
    first: Any = await cast(Any, ray.get_actor("manager", namespace)).health.remote()
    os.kill(first.pid, signal.SIGKILL)
    second: Any = await cast(Any, ray.get_actor("manager", namespace)).health.remote()
    assert second.pid != first.pid


async def a_killed_rank_costs_no_video(on_ray: OnRay) -> tuple[Task, float]:
    task = await on_ray.submit("pair", STEPS)  # the same wish again
    await on_ray.at_step(task.id, 4)
    [gang] = [g for g in await on_ray.gangs() if g.model == "pair"]
    began = time.monotonic()
    os.kill(gang.ranks[1].pid, signal.SIGKILL)
    await on_ray.until(
        task.id, lambda t: t.attempt == 2 and (t.ended or t.stage in GOES_ON), "the task to go on"
    )
    recovered_s = time.monotonic() - began
    done = await on_ray.ended(task.id)
    story = [recorded.event for recorded in await on_ray.story(task.id)]
    assert sum(isinstance(event, Interrupted) for event in story) == 1
    return done, recovered_s


def every_rank_logs_task_attempt_and_node(cluster: Cluster, task: Task) -> None:
    said = {
        (line["attempt"], line["rank"], bool(line["node"]))
        for line in cluster.lines()
        if line.get("task") == task.id and line.get("role") == "rank"
    }
    assert said == {(attempt, rank, True) for attempt in (1, 2) for rank in range(2)}


async def alone(folder: Path, spec: dict[str, Any], state_dir: Path) -> bytes:
    (folder / "spec.json").write_text(json.dumps(spec))
    out = folder / "alone.mp4"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.on_ray.alone",
        str(folder / "spec.json"),
        str(out),
        str(state_dir / "models"),
    )
    assert await process.wait() == 0
    return out.read_bytes()
