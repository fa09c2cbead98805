"""The life of a service on a cluster that others use, too: deployed, lost, deployed again, changed, removed."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve
from ray.exceptions import RayError
from tests.conftest import wait_until
from tests.on_ray.cluster import (
    Cluster,
    OnRay,
    command,
    deploy,
    deployed,
    driver,
    node_environ,
    running_cluster,
    running_gateway,
    settings,
    tiny,
)
from tests.service import Service

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.ray_identity import namespace_of
from turnout.run.config import Config, dump, load
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import State, TaskId

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
WISH = {"model": "two", "prompt": "a red ball", "size": "64x64", "frames": 9, "steps": 6}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(0, extra=["--labels", "calm=yes"]) as cluster:
        cluster.add(4).wait_started()
        yield cluster


@contextlib.contextmanager
def strangers_app(name: str = "theirs") -> Iterator[None]:
    """Somebody else's, with a deployment that is called as one of ours is."""

    class Manager:
        def __call__(self) -> str:
            return "theirs"

    made: Any = serve.deployment(Manager)
    app = made.options(ray_actor_options={"num_cpus": 0}).bind()
    serve.start(proxy_location="Disabled")
    serve.run(app, name=name, route_prefix=None)
    try:
        yield
    finally:
        serve.delete(name)


def on_cluster(cluster: Cluster, config: Config) -> Service:
    where = ["--ray", "--address", cluster.address]
    return Service(config.state_dir, {**dump(config), "port": 0}, where, node_environ(cluster.environ))


@contextlib.asynccontextmanager
async def running(service: Service, cluster: Cluster) -> AsyncIterator[None]:
    try:
        await service.start(240)
        yield
    except BaseException:
        print(service.output.read_text()[-3000:], service.log(), cluster.logs()[-10_000:], file=sys.stderr)
        raise
    finally:
        if service.running:
            await service.kill()


async def test_up_deploys_again_what_is_gone_and_leaves_when_it_is_told_elsewhere(
    cluster: Cluster, valkey: str, tmp_path: Path
) -> None:
    config = settings(tmp_path, valkey, {"two": tiny(2, idle_s=60.0)})
    service = on_cluster(cluster, config)
    async with open_stores(config) as stores, running(service, cluster):
        on_ray = OnRay(config, stores)
        assert (await on_ray.ended(await ask(service))).state is State.COMPLETED
        with driver(cluster.address):
            serve.delete(namespace_of(config), _blocking=False)
        log = config.state_dir / "logs" / "ray.log"
        await wait_until(lambda: "deployment gone from ray" in log.read_text(), "up to notice it", 60)
        await wait_until(lambda: ready(service), "the service to be ready again", 240)
        assert (await on_ray.ended(await ask(service))).state is State.COMPLETED

        with driver(cluster.address):
            serve.shutdown()
        assert (await on_ray.ended(await ask(service))).state is State.COMPLETED

        where = ["--address", cluster.address, "--config", str(tmp_path / "turnout.yaml")]
        told = await command(cluster.environ, sys.executable, "-m", "turnout", "down", "--ray", *where)
        assert "The `turnout up` of" in told
        await wait_until(lambda: not service.running, "turnout up to end", 60)
        assert service.returncode == 0
    with driver(cluster.address):
        assert ray.util.list_named_actors(all_namespaces=True) == []


async def test_up_deploys_again_on_a_head_that_has_forgotten_everything(valkey: str, tmp_path: Path) -> None:
    config = settings(tmp_path, valkey, {"two": tiny(2, idle_s=60.0)})
    with running_cluster(2) as cluster:
        service = on_cluster(cluster, config)
        async with open_stores(config) as stores, running(service, cluster):
            on_ray = OnRay(config, stores)
            assert (await on_ray.ended(await ask(service))).state is State.COMPLETED
            cluster.head.kill()
            assert "manager" in await not_ready(service)
            waiting = await ask(service)
            await asyncio.to_thread(cluster.restart_head, 2)
            assert (await on_ray.ended(waiting, 400)).state is State.COMPLETED
            await wait_until(lambda: ready(service), "the service to be ready again", 60)
            assert await service.stop() == 0


async def ready(service: Service) -> bool:
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        return (await client.get(f"{service.url}/ready")).status_code == 200


async def not_ready(service: Service) -> str:
    said: list[str] = []

    async def look() -> bool:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            answer = await client.get(f"{service.url}/ready")
        if answer.status_code != 200:
            said.append(answer.text)
        return bool(said)

    await wait_until(look, "/ready to say it", 30)
    return said[-1]


async def test_services_and_strangers_share_a_cluster(cluster: Cluster, valkey: str, tmp_path: Path) -> None:
    first = settings(tmp_path / "first", valkey, {"one": tiny(1)})
    second = settings(tmp_path / "second", valkey, {"one": tiny(1)})
    with driver(cluster.address), strangers_app():
        async with deployed(first) as a:
            async with deployed(second) as b:
                tasks = [await a.submit("one"), await b.submit("one")]
                for on_ray, task in zip((a, b), tasks, strict=True):
                    assert (await on_ray.ended(task.id)).state is State.COMPLETED
                other = (first.redis.redis_url or "").replace("?", "-other?")
                another = a.config.with_settings(redis_url=other)
                with pytest.raises(Misconfigured, match="another Redis"):
                    await asyncio.to_thread(deploy, another)
            assert set(serve.status().applications) == {"theirs", namespace_of(first)}
            assert (await a.ended((await a.submit("one")).id)).state is State.COMPLETED
        assert set(serve.status().applications) == {"theirs"}
        assert await serve.get_app_handle("theirs").remote() == "theirs"


async def test_a_change_of_idle_time_or_port_leaves_the_gang_and_its_timer_as_they_are(
    cluster: Cluster, valkey: str, tmp_path: Path
) -> None:
    config = settings(tmp_path, valkey, {"one": tiny(1, idle_s=300.0)}, ray_manager_labels={"calm": "yes"})
    with driver(cluster.address):
        async with deployed(config) as on_ray:
            config = on_ray.config
            calm = [n["NodeID"] for n in ray.nodes() if n["Labels"].get("calm") == "yes"]
            assert [(await health(config)).node] == calm
            await on_ray.ended((await on_ray.submit("one")).id)
            [gang] = await on_ray.gangs()
            before = await idle_since(on_ray)
            await asyncio.to_thread(deploy, config.with_settings(port=1, limit_waiting=7))
            shorter = with_idle_s(config, tmp_path, 200.0)
            await asyncio.to_thread(deploy, shorter)
            assert [g.gang for g in await on_ray.gangs()] == [gang.gang]
            again = await on_ray.ended((await on_ray.submit("one")).id)
            assert (again.state, again.attempt) == (State.COMPLETED, 1)
            assert [g.gang for g in await on_ray.gangs()] == [gang.gang]

            before = await idle_since(on_ray)
            pid = (await health(config)).pid
            await asyncio.to_thread(
                ray.kill, ray.get_actor("manager", namespace_of(config)), no_restart=False
            )

            async def restarted() -> bool:
                return (await health(config)).pid != pid

            await wait_until(restarted, "the manager to come back", 60)
            assert await idle_since(on_ray) == before

            await asyncio.to_thread(deploy, with_idle_s(config, tmp_path, 1.0))
            await on_ray.asleep()


async def test_serve_deploy_takes_a_changed_file(cluster: Cluster, valkey: str, tmp_path: Path) -> None:
    """As the controller gets it from `serve deploy`, whose command needs a dashboard."""
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    config = settings(tmp_path, valkey, {"one": tiny(1, idle_s=300.0)}, blobs_shared=True)
    file = tmp_path / "turnout.yaml"

    async def deploy_file() -> dict[str, Any]:
        printed = await command({}, sys.executable, "-m", "turnout", "ray", "app", "--config", str(file))
        import yaml

        values: dict[str, Any] = yaml.safe_load(printed)
        client: Any = _get_global_client()
        await asyncio.to_thread(client.deploy_apps, ServeDeploySchema.model_validate(values), _blocking=True)
        return values

    with driver(cluster.address):
        serve.start(proxy_location="Disabled")
        async with running_gateway(config) as told, open_stores(config) as stores:
            file.write_text(json.dumps(dump(told)))
            on_ray = OnRay(config, stores)
            try:
                await deploy_file()
                await on_ray.ended((await on_ray.submit("one")).id)
                [gang] = await on_ray.gangs()
                version = (await health(config)).terms.version
                with_idle_s(told, tmp_path, 2.0)
                await deploy_file()

                async def changed() -> bool:
                    with contextlib.suppress(ValueError, RayError):
                        return (await health(config)).terms.version != version
                    return False

                await wait_until(changed, "the manager to have the new file", 60)
                assert [g.gang for g in await on_ray.gangs()] in ([gang.gang], [])
                await on_ray.asleep()
            finally:
                from turnout.fleet.hosts.ray.cluster_service import take_down

                await asyncio.to_thread(take_down, namespace_of(config))
        assert ray.util.list_named_actors(all_namespaces=True) == []


def with_idle_s(config: Config, folder: Path, idle_s: float) -> Config:
    file = folder / "turnout.yaml"
    values = json.loads(json.dumps(dump(config)))
    values["models"]["one"]["idle_s"] = idle_s
    file.write_text(json.dumps(values))
    return load({}, {}, file).config


async def health(config: Config) -> Any:
    manager: Any = ray.get_actor("manager", namespace_of(config))
    return await manager.health.remote()


async def idle_since(on_ray: OnRay) -> float:
    """Since when its only gang has been idle, as it is kept for the next manager."""
    found: list[float] = []

    async def known() -> bool:
        found[:] = (await on_ray.stores.fleet.gangs.waits()).idle_since.values()
        return bool(found)

    await wait_until(known, "the gang to be idle", 60)
    return found[0]


async def ask(service: Service) -> TaskId:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, trust_env=False) as client:
        answer = await client.post("/v1/videos", json=WISH)
    answer.raise_for_status()
    return TaskId(answer.json()["id"])
