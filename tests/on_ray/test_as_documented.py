"""Two nodes that want a token, and `turnout up --ray --address` on them, as docs/ray.md says; then it is killed."""

import contextlib
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.on_ray.cluster import (
    Cluster,
    OnRay,
    command,
    free_port,
    node_environ,
    running_cluster,
    settings,
    tiny,
)
from tests.service import Service

from turnout.run.config import dump
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import State, TaskId

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
WISH = {"model": "two", "prompt": "a red ball", "size": "128x128", "frames": 17, "steps": 60}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with running_cluster(0, 2, environ=token) as cluster:
        yield cluster


async def test_a_killed_up_leaves_the_gangs_to_the_next_one(
    cluster: Cluster, valkey: str, tmp_path: Path, figures: Any
) -> None:
    # Leases last until the next `up` answers.
    config = settings(tmp_path, valkey, {"two": tiny(2, idle_s=60.0)}, lease_s=120.0)
    where = ["--ray", "--address", cluster.address]
    service = Service(
        config.state_dir,
        {**dump(config), "host": "0.0.0.0", "port": free_port()},
        where,
        node_environ(cluster.environ),
    )
    async with contextlib.AsyncExitStack() as stack:
        on_ray = OnRay(config, await stack.enter_async_context(open_stores(config)))
        stack.push_async_callback(stop, service)
        await service.start(240)
        task = await ask(service)
        before = await on_ray.at_step(task, 3)
        [gang] = await on_ray.gangs()
        await service.kill()

        await service.start(240)
        done = await on_ray.ended(task)
        assert (done.attempt, done.state) == (1, State.COMPLETED)
        again = await on_ray.ended(await ask(service))
        assert again.state is State.COMPLETED
        assert [g.gang for g in await on_ray.gangs()] == [gang.gang]
        assert await service.stop() == 0
        assert await on_ray.gangs() == []

    printed = service.output.read_text()
    assert "RankHost" not in printed, "the logs of ranks come out at one driver"
    assert any(line.get("role") == "rank" for line in cluster.lines())
    left = json.loads(await status(cluster, cluster.environ, tmp_path))
    assert (left["deployments"], left["manager"]) == ({}, None)
    stranger = {**cluster.environ, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with pytest.raises(AssertionError, match="no Ray cluster"):
        await status(cluster, stranger, tmp_path)
    figures(
        f"ray: `turnout up` killed at step {before.step}: the gang went on, and the next `up` took it over"
    )


async def stop(service: Service) -> None:
    if service.running:
        await service.stop()


async def ask(service: Service) -> TaskId:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, trust_env=False) as client:
        answer = await client.post("/v1/videos", json=WISH)
    answer.raise_for_status()
    return TaskId(answer.json()["id"])


async def status(cluster: Cluster, environ: Any, folder: Path) -> str:
    words = ("-m", "turnout", "ray", "status", "--json", "--address", cluster.address)
    words += ("--config", str(folder / "turnout.yaml"))
    return (await command(environ, sys.executable, *words)).splitlines()[-1]
