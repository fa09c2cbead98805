"""Two nodes with one CPU each: a gang of two ranks has just room, others' work holds it up with a reason, and Ray's own metrics
tell of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
import ray
from tests.conftest import wait_until
from tests.on_ray.cluster import Cluster, deployed, driver, running_cluster, settings, tiny

from turnout.tasks.task_rules import State

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # gloo would take the nodes' address; the operator says otherwise.
    with running_cluster(1, 1, environ={"GLOO_SOCKET_IFNAME": "lo"}) as cluster, driver(cluster.address):
        yield cluster


async def test_each_rank_on_a_node_of_its_own_and_the_wait_for_it_explained(
    cluster: Cluster, valkey: str, tmp_path: Path
) -> None:
    models = {"two": tiny(2), "slow": tiny(2, load_timeout_s=0.5)}
    config = settings(tmp_path, valkey, models, ray_strategy="STRICT_SPREAD")
    hog = cast(Any, ray.remote(Hog)).options(num_cpus=1).remote()
    await hog.ready.remote()
    async with deployed(config) as on_ray:
        task = await on_ray.submit("two")
        await on_ray.told("two", "waiting for a gang: other work on the cluster holds the CPU that it needs")
        ray.kill(hog)
        [gang] = await on_ray.formed("two")
        assert len({rank.node for rank in gang.ranks}) == 2
        await on_ray.at_step(task.id, 1)
        assert "127.0.0.1" in between(*(rank.pid for rank in gang.ranks))
        assert (await on_ray.ended(task.id)).state is State.COMPLETED
        await rays_metrics_tell_of_it()
        await on_ray.submit("slow")
        await on_ray.told("slow", "its model was not loaded within 0.5 s (load_timeout_s)")


def between(one: int, other: int) -> set[str]:
    """The addresses of the connections from the one process to the other."""
    ports = {c.laddr.port for c in psutil.Process(other).net_connections("tcp")}
    found = [c.raddr for c in psutil.Process(one).net_connections("tcp") if c.raddr]
    return {str(far.ip) for far in found if far.port in ports}


class Hog:
    def ready(self) -> None: ...


async def rays_metrics_tell_of_it() -> None:
    urls = [f"http://{n['NodeManagerAddress']}:{n['MetricsExportPort']}/metrics" for n in ray.nodes()]
    expected = [
        "ray_turnout_video_stage_seconds_bucket{",
        'stage="step"',
        "ray_turnout_tasks_ended_total{",
        "ray_turnout_gangs{",
        "ray_turnout_queue_length{",
    ]
    seen = ""

    async def all_there() -> bool:
        nonlocal seen
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            seen = "".join([answer.text for answer in await asyncio.gather(*map(client.get, urls))])
        return all(words in seen for words in expected)

    try:
        await wait_until(all_there, "the metrics", 90)
    except BaseException:
        print("\n".join(line for line in seen.splitlines() if "turnout" in line))
        raise
    ended = [line for line in seen.splitlines() if line.startswith("ray_turnout_tasks_ended_total{")]
    assert any('state="completed"' in line and line.endswith(" 1.0") for line in ended), ended
