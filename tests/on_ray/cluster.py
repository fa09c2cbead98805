"""A real Ray cluster of several nodes on one machine, started as an operator starts it, and Turnout on it.

Every process of a cluster is a child of a `ray start --block` that this module started, so cleaning up touches
nothing else.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
import yaml
from tests.conftest import make_task, wait_until
from tests.pace import patient
from tests.ports import free_port

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.ray_identity import namespace_of
from turnout.fleet.status_rules import why_tasks_wait
from turnout.processes.child import Child
from turnout.run.config import Config, load
from turnout.run.open_stores import open_stores
from turnout.run.run_up import write_resolved
from turnout.store.valkey import valkey_binary
from turnout.stores import Stores
from turnout.tasks.task_rules import Limits, Recorded, Task, TaskId, TenantId
from turnout.tasks.video_rules import VideoSpec
from turnout.tenants.key_rules import Role, mint

RAY = str(Path(sys.executable).with_name("ray"))
ENVIRON = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LOG_TO_STDERR": "0",
}
_START_S = 480.0
_TRIES = 8
_OBJECT_STORE_BYTES = 100 * 2**20


def node_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What nodes run with, and programs that work with them."""
    return {**os.environ, **ENVIRON, **environ}


class Node:
    """One `ray start --block` and all that it started. `prefix` is a command that it runs under (ip netns exec …)."""

    def __init__(self, args: list[str], log: Path, environ: Mapping[str, str], prefix: list[str]) -> None:
        self._log = log
        self._argv = [*prefix, RAY, "start", *args, "--block"]
        self._environ = node_environ(environ)
        self._family: dict[int, psutil.Process] = {}
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as out:
            return subprocess.Popen(
                self._argv, stdout=out, stderr=out, env=self._environ, start_new_session=True
            )

    def wait_started(self) -> None:
        """Starts it once more when it gives up: a raylet waits 30 s for its agents and ends itself, which is too short
        where much else goes on, and cannot be set."""
        deadline, tries = time.monotonic() + patient(_START_S), 1
        while "Ray runtime started" not in self._log.read_text():
            ended = self.process.poll() is not None
            if time.monotonic() > deadline or (ended and tries == _TRIES):
                pytest.fail(f"a Ray node did not start: {self._log.read_text()[-2000:]}")
            if ended:
                self.kill()
                self.process = self._start()
                tries += 1
            self.family()
            time.sleep(0.2)

    def family(self) -> list[psutil.Process]:
        """All processes of the node that live, those included that lost their parent since the last look."""
        with contextlib.suppress(psutil.NoSuchProcess):
            me = psutil.Process(self.process.pid)
            for child in (me, *me.children(recursive=True)):
                self._family[child.pid] = child
        return [p for p in self._family.values() if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def part(self, name: str) -> psutil.Process:
        return next(p for p in self.family() if p.name() == name)

    def kill(self) -> None:
        """As if its power was cut."""
        for _ in range(20):
            family = self.family()
            if not family:
                break
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=1)
        self.process.wait()


@dataclass
class Cluster:
    """`address` is the head's. Nodes beyond the head are made by `add`."""

    address: str
    folder: Path
    environ: Mapping[str, str]
    head: Node
    nodes: list[Node] = field(default_factory=list)

    def add(self, cpus: float, *, prefix: list[str] | None = None, extra: list[str] | None = None) -> Node:
        args = ["--address", self.address, "--num-cpus", f"{cpus:g}"]
        args += ["--object-store-memory", str(_OBJECT_STORE_BYTES), *(extra or [])]
        log = self.folder / f"node-{len(self.nodes)}.log"
        node = Node(args, log, self.environ, prefix or [])
        self.nodes.append(node)
        return node

    def restart_head(self, cpus: float = 0) -> None:
        """A new head at the old address. Ray would take its nodes on this machine for a head that still runs."""
        (self.folder / "s" / "ray_current_cluster").unlink(missing_ok=True)
        self.head = start_head(self.folder, int(self.address.rpartition(":")[2]), cpus, self.environ, [], [])
        self.head.wait_started()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What our own processes logged, line by line."""
        for path in (self.folder / "s").glob("session_*/logs/worker-*.err"):
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    if line.startswith("{"):
                        yield json.loads(line)

    def logs(self) -> str:
        """What our own processes logged; Ray's are left out."""
        found = sorted((self.folder / "s").glob("session_*/logs/worker-*.err"))
        found += sorted((self.folder / "s").glob("session_*/logs/serve/*.log"))
        return "\n".join(
            f"== {path.name}\n{text}" for path in found if (text := path.read_text(errors="replace")[-3000:])
        )


def start_head(
    folder: Path, port: int, cpus: float, environ: Mapping[str, str], prefix: list[str], extra: list[str]
) -> Node:
    args = ["--head", "--port", str(port), "--num-cpus", f"{cpus:g}", "--include-dashboard=false"]
    args += ["--temp-dir", str(folder / "s"), "--ray-client-server-port", str(free_port())]
    args += ["--object-store-memory", str(_OBJECT_STORE_BYTES), *extra]
    return Node(args, folder / "head.log", environ, prefix)


@contextmanager
def running_cluster(
    *cpus: float,
    environ: Mapping[str, str] | None = None,
    host: str | None = None,
    port: int | None = None,
    prefix: list[str] | None = None,
    extra: list[str] | None = None,
) -> Iterator[Cluster]:
    """A head with that many CPUs, and a node for each further number."""
    # Not pytest's own folder: sockets lie in it, and their paths must be short.
    folder = Path(tempfile.mkdtemp(prefix="trn-", dir="/tmp"))
    port = port or free_port()
    head = start_head(folder, port, cpus[0], environ or {}, prefix or [], extra or [])
    cluster = Cluster(f"{host or own_address()}:{port}", folder, environ or {}, head)
    try:
        head.wait_started()
        for number in cpus[1:]:
            # One after the other: nodes that start together on one machine may choose the same names for sockets.
            cluster.add(number).wait_started()
        yield cluster
    finally:
        for node in (*cluster.nodes, cluster.head):
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_redis(host: str, folder: Path) -> Iterator[str]:
    """The `host:port` of a Redis for those who know no sockets in files, or must lose it with their network."""
    port = free_port()
    argv = [str(valkey_binary()), "--port", str(port), "--bind", host, "--save", "", "--dir", str(folder)]
    argv += ["--protected-mode", "no"]
    with asyncio.Runner() as runner:
        child = runner.run(Child.start("redis", argv, log=folder / "redis.log"))
        yield f"{host}:{port}"
        runner.run(child.stop(5))


def program(name: str) -> str:
    return name if "/" in name else str(Path(sys.executable).with_name(name))


async def command(environ: Mapping[str, str], name: str, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program(name), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=node_environ(environ),
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), patient(180))
    assert process.returncode == 0, said.decode()[-3000:]
    return said.decode()


@contextmanager
def driver(address: str) -> Iterator[None]:
    """Connects this process to the cluster for a while."""
    connect(address)
    try:
        yield
    finally:
        ray.shutdown()


def connect(address: str) -> None:
    os.environ.update(ENVIRON)
    ray.init(address=address, namespace="turnout", log_to_driver=False, logging_level=logging.ERROR)


def own_address() -> str:
    from ray._private.services import get_node_ip_address

    return str(get_node_ip_address())


@dataclass
class OnRay:
    """Turnout on a cluster that this process is connected to, seen through its stores."""

    config: Config
    stores: Stores

    async def submit(self, model: str, steps: int = 6, prompt: str = "a red ball", seed: int = 7) -> Task:
        spec = VideoSpec(prompt, "", 64, 64, 9, 8, steps, guidance=(3.0, 3.0), shift=5.0, seed=seed)
        made = make_task(model=model, max_attempts=8)
        task = Task(made.id, made.tenant, model, spec, time.time(), max_attempts=8)
        return await self.stores.tasks.submit(task, Limits(submits_per_minute=10_000, max_running=100))

    async def until(
        self, task: TaskId, holds: Callable[[Task], bool], what: str, timeout_s: float = 240
    ) -> Task:
        seen: list[Task] = []

        async def look() -> bool:
            seen[:] = [await self.stores.tasks.get(task)]
            return holds(seen[0])

        try:
            await wait_until(look, what, timeout_s)
        except BaseException:
            print(seen, await self.story(task), await self.gangs(), file=sys.stderr)
            raise
        return seen[0]

    async def ended(self, task: TaskId, timeout_s: float = 240) -> Task:
        return await self.until(task, lambda t: t.ended, f"{task} to end", timeout_s)

    async def at_step(self, task: TaskId, step: int, attempt: int = 1) -> Task:
        return await self.until(
            task, lambda t: t.step >= step and t.attempt >= attempt and t.stage is not None, f"step {step}"
        )

    async def story(self, task: TaskId) -> list[Recorded]:
        return await self.stores.events.history(task)

    async def video(self, task: Task) -> bytes:
        assert task.result is not None, task
        return await self.stores.blobs.get(task.result.video)

    async def gangs(self) -> list[GangReport]:
        return list((await self.stores.fleet.gangs.all()).values())

    async def formed(self, model: str, count: int = 1) -> list[GangReport]:
        """Waits for that many formed gangs of the model."""

        async def enough() -> bool:
            return sum(g.formed for g in await self.gangs() if g.model == model) >= count

        await wait_until(enough, f"{count} gangs of {model}", 240)
        return [g for g in await self.gangs() if g.model == model]

    async def told(self, model: str, words: str) -> None:
        """Waits until the owners of the model's tasks are told so."""
        heard: list[str] = []

        async def look() -> bool:
            status = (await self.stores.fleet.status.statuses()).get(model)
            heard.append((status and why_tasks_wait(status)) or "")
            return words in heard[-1]

        try:
            await wait_until(look, words, 120)
        except BaseException:
            print(dict.fromkeys(heard), file=sys.stderr)
            raise

    async def asleep(self, timeout_s: float = 60) -> None:
        async def none() -> bool:
            return not await self.gangs()

        await wait_until(none, "all gangs to leave", timeout_s)


def settings(folder: Path, redis: str, models: dict[str, Any], **more: Any) -> Config:
    """A configuration on that Redis under a prefix of its own, with objects in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "state_dir": str(folder / "state"),
        "redis_url": redis,
        "redis_prefix": f"t{os.urandom(5).hex()}",
        "models": models,
        "lease_s": 8.0,
        "stall_s": 8.0,
        "drain_s": 30.0,
        "checkpoint_steps": 3,
        "checkpoint_s": 5.0,
        **more,
    }
    file = folder / "turnout.yaml"
    file.write_text(yaml.safe_dump(values))
    return load({}, {}, file).config


def tiny(ulysses: int, **more: Any) -> dict[str, Any]:
    return {
        "weights": "builtin:wan-tiny-t2v",
        "family": "wan-tiny-t2v",
        "ulysses": ulysses,
        "idle_s": 5.0,
        **more,
    }


@asynccontextmanager
async def running_gateway(config: Config, host: str | None = None) -> AsyncIterator[Config]:
    """A gateway as a process of its own, which all nodes reach at `host`; the configuration that names it."""
    address = f"{host or own_address()}:{free_port()}"
    config = config.with_settings(host="0.0.0.0", port=int(address.rpartition(":")[2]))
    async with open_stores(config) as stores:
        made = mint(os.urandom(6).hex(), "unused", TenantId("default"), Role.ADMIN, "test", time.time())
        await stores.tenants.keys.add(made[0])
    file = write_resolved(config)
    log = config.state_dir / "gateway.log"
    argv = [sys.executable, "-m", "turnout", "gateway", "--config", str(file)]
    child = await Child.start("gateway", argv, log=log)
    try:
        await wait_until(lambda: _answers(f"http://{address}/health"), "the gateway to answer", 120)
        yield config.with_settings(ray_gateway_url=f"http://{address}")
    except BaseException:
        print(log.read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        await child.stop(10)


async def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
            return (await client.get(url)).status_code == 200
    return False


@asynccontextmanager
async def deployed(config: Config, host: str | None = None) -> AsyncIterator[OnRay]:
    """Beside a gateway of its own at `host`."""
    from turnout.fleet.hosts.ray.cluster_service import take_down

    async with running_gateway(config, host) as told:
        await asyncio.to_thread(deploy, told)
        try:
            async with open_stores(told) as stores:
                yield OnRay(told, stores)
        finally:
            await asyncio.to_thread(take_down, namespace_of(told))


def deploy(config: Config) -> None:
    """As `turnout up` does; the configuration names the gateway."""
    from turnout.fleet.hosts.ray.cluster_service import run_app

    assert config.ray.ray_gateway_url
    run_app(config, config.ray.ray_gateway_url)
