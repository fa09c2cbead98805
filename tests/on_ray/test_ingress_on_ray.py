"""Turnout as an operator of a Ray cluster deploys it: `serve run`, the gateway behind Serve's own HTTP server (HAProxy),
and Ray's own tools tell of what is there."""

import asyncio
import contextlib
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import ray
from tests.conftest import wait_until
from tests.on_ray.cluster import (
    Cluster,
    OnRay,
    command,
    driver,
    free_port,
    node_environ,
    program,
    running_cluster,
    settings,
    tiny,
)
from tests.workers import JoinedWorker
from websockets.asyncio.client import connect as open_socket

from turnout.run.open_stores import open_stores
from turnout.stores import Stores
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Role, mint

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
MODEL = "two"
CHAT_MODEL = "smollm2"
CHAT = {"engine": "llamacpp", "weights": "builtin:smollm2", "needs": {"memory_bytes": 512 * 2**20}}
WISH = {"model": MODEL, "prompt": "a red ball", "seed": 7, "size": "128x128", "frames": 17, "steps": 30}


@pytest.fixture(scope="module")
def dashboard() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(dashboard: str) -> Iterator[Cluster]:
    """HAProxy's files and ports are this test's own. Not pytest's own folder: a socket lies in it, and Ray puts a long
    name between."""
    folder = Path(tempfile.mkdtemp(prefix="trn-", dir="/tmp"))
    environ = {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
    }
    shown = ["--include-dashboard=true", "--dashboard-port", dashboard.rpartition(":")[2]]
    try:
        with running_cluster(2, environ=environ, extra=shown) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder)


async def test_a_video_through_serve_s_own_door(
    cluster: Cluster, dashboard: str, valkey: str, tmp_path: Path, figures: Any
) -> None:
    models = {MODEL: tiny(2, idle_s=900.0), CHAT_MODEL: CHAT}
    config = settings(tmp_path, valkey, models, blobs_shared=True, redis_prefix="turnout")
    async with open_stores(config) as stores:
        token, admin, join = [await new_key(stores, role) for role in (Role.USER, Role.ADMIN, Role.WORKER)]
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            served(cluster, tmp_path / "turnout.yaml") as url,
            httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False) as client,
        ):
            answer = await client.post("/generate", json=WISH)
            assert answer.status_code == 200, answer.text
            task = answer.json()["task_id"]
            following = asyncio.create_task(follow(client, task))
            await OnRay(config, stores).at_step(task, 1)
            [gang] = (await client.get("/ready")).json()["gangs"]
            assert gang == {"model": MODEL, "state": "formed", "ranks": 2, "nodes": 1}
            await rays_own_tools_tell_the_truth(cluster, dashboard)
            events = await asyncio.wait_for(following, 240)
            assert [event["type"] for event in events if "complete" in event["type"]] == ["video.completed"]

            again = (await client.post("/v1/videos", json=WISH)).json()["id"]
            heard = await hear(f"{url}/v1/videos/{again}/ws".replace("http", "ws", 1), token)
            assert heard[-1]["type"] == "video.completed"
            contents = [(await client.get(f"/v1/videos/{video}/content")).content for video in (task, again)]
            assert contents[0] == contents[1]
            assert contents[0][4:8] == b"ftyp"

            async with worker_at(url, join, tmp_path / "worker"):
                await the_other_calls_answer_as_at_the_gateway(client, admin)
                await a_chat_is_answered_whole_and_as_a_stream(client)
        assert await command(cluster.environ, "turnout", "down", "--address", cluster.address)
        with driver(cluster.address):
            assert ray.util.list_named_actors(all_namespaces=True) == []
    figures(f"ray: through Serve's ingress with HAProxy: {len(events)} events, 2 videos, the same bytes")


async def new_key(stores: Stores, role: Role) -> str:
    made = mint(f"k-{role}", secrets.token_urlsafe(32), TenantId("acme"), role, "test", time.time())
    await stores.tenants.keys.add(made[0])
    return made[1]


@asynccontextmanager
async def worker_at(url: str, key: str, home: Path) -> AsyncIterator[None]:
    """A worker that joined through Serve's door."""
    worker = JoinedWorker(cast("Any", SimpleNamespace(url=url)), home, key, "--worker-id", "box-1")
    await worker.start()
    try:
        yield
    except BaseException:
        print(worker.log.read_text()[-5000:])
        raise
    finally:
        await worker.stop()


async def the_other_calls_answer_as_at_the_gateway(client: httpx.AsyncClient, admin: str) -> None:
    async def joined() -> bool:
        found = await client.get("/workers", headers={"Authorization": f"Bearer {admin}"})
        assert found.status_code == 200, found.text
        return [worker["name"] for worker in found.json()["data"]] == ["box-1"]

    await wait_until(joined, "the worker to join", 60)
    assert (await client.get("/health")).json()["status"] == "ok"
    assert {m["id"] for m in (await client.get("/v1/models")).json()["data"]} == {MODEL, CHAT_MODEL}


async def a_chat_is_answered_whole_and_as_a_stream(client: httpx.AsyncClient) -> None:
    body = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 8}
    whole = await client.post("/v1/chat/completions", json=body, timeout=240)
    assert whole.status_code == 200, whole.text
    assert whole.json()["choices"][0]["message"]["content"]
    async with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        events = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert len(events) > 4
    assert events[-1] == "data: [DONE]"
    refused = await client.post("/v1/chat/completions", json={**body, "model": "none"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


@asynccontextmanager
async def served(cluster: Cluster, config: Path) -> AsyncIterator[str]:
    """`serve run` on the cluster until the end; the door's URL."""
    port = free_port()
    await command(cluster.environ, "serve", "start", "--address", cluster.address, "--http-host", "127.0.0.1",
        "--http-port", str(port), "--proxy-location", "HeadOnly",
    )  # fmt: skip
    log = config.with_name("serve-run.log")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            program("serve"), "run", "turnout.serve:app", f"config={config}", "ingress=true",
            "--address", cluster.address,
            stdout=out, stderr=out, env=node_environ(cluster.environ), start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    async def answers() -> bool:
        assert process.returncode is None, log.read_text()[-3000:]
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"{url}/health")).status_code == 200
        return False

    try:
        await wait_until(answers, "the door to open", 240)
        yield url
    finally:
        print(log.read_text()[-6000:], cluster.logs()[-20_000:])
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 120)
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def rays_own_tools_tell_the_truth(cluster: Cluster, dashboard: str) -> None:
    async with httpx.AsyncClient(base_url=dashboard, timeout=60, trust_env=False) as client:
        applications = (await client.get("/api/serve/applications/")).json()["applications"]
        [app] = applications.values()
        replicas = {
            name: [r["state"] for r in found["replicas"]] for name, found in app["deployments"].items()
        }
        assert replicas == {
            "APIEntrypoint": ["RUNNING"],
            "Manager": ["RUNNING"],
            f"VideoGenerator-{MODEL}-0": ["RUNNING"],
        }
        asked = {"filter_keys": "state", "filter_predicates": "=", "filter_values": "ALIVE"}
        found = (await client.get("/api/v0/actors", params=asked)).json()["data"]["result"]["result"]
    names = {actor["name"].partition("#")[0].partition("SERVE_REPLICA::")[0] for actor in found}
    assert "manager" in names
    assert sum(name.startswith(f"ray-{MODEL}-0-") for name in names) == 2, names
    status = await command(cluster.environ, "serve", "status", "--address", dashboard)
    assert f"VideoGenerator-{MODEL}-0" in status
    ours = json.loads(
        await command(cluster.environ, "turnout", "ray", "status", "--json", "--address", cluster.address)
    )
    assert ours["deployments"][f"VideoGenerator-{MODEL}-0"] == "HEALTHY"
    assert ours["manager"]["pid"]
    [gang] = ours["gangs"].values()
    assert len(gang["ranks"]) == 2
    script = (
        "import asyncio, ray\n"
        "from turnout.fleet.hosts.ray.ingress import GangsByRay\n"
        f"ray.init('{cluster.address}', log_to_driver=False)\n"
        "manager = ray.get_actor('manager', namespace='turnout')\n"
        "print(ray.get(manager.health.remote()).pid, *asyncio.run(GangsByRay('turnout', None).all()))"
    )
    said = await command(cluster.environ, sys.executable, "-c", script)
    assert said.splitlines()[-1].split() == [str(ours["manager"]["pid"]), gang["gang"]]


async def follow(client: httpx.AsyncClient, task: str) -> list[dict[str, Any]]:
    """The task's events by SSE, until it ends."""
    async with client.stream("GET", f"/v1/videos/{task}/events", timeout=240) as answer:
        assert answer.status_code == 200
        lines = [line async for line in answer.aiter_lines()]
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def hear(url: str, token: str) -> list[dict[str, Any]]:
    """The same by WebSocket."""
    async with open_socket(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        return [json.loads(message) async for message in socket]
