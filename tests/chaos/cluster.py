"""A whole service on one machine with two of everything that may be doubled: gateways, managers, workers and gangs.

Each part is restarted when it dies, as `turnout up` does it. S3 is reached through a gate that can be shut, and each part
may have a clock of its own.
"""

import asyncio
import contextlib
import resource
import secrets
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil
from tests.nat_box import Box
from tests.pace import Patience
from tests.service import is_engine

from turnout.processes.child import Child
from turnout.processes.local_parts import Part, run_parts
from turnout.run.config import Config, load
from turnout.run.listening import listen
from turnout.run.open_stores import embedded_redis_dir, open_stores
from turnout.run.run_manager import declare
from turnout.run.run_up import write_resolved
from turnout.run.state_dir import write_private
from turnout.store.connection import RedisConnection
from turnout.store.valkey import redis_url, start_valkey
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Role, mint

MODEL = "wan-tiny-t2v"
CHAT_MODEL = "smollm2"
_GANG_BYTES, _CHAT_BYTES = 1_200 * 2**20, 300 * 2**20
GATEWAYS = ("gateway-a", "gateway-b")
MANAGERS = ("manager-a", "manager-b")
WORKERS = ("worker-a", "worker-b")
SETTINGS: dict[str, Any] = {
    "port": 0,
    "lease_s": 6.0,
    "stall_s": 8.0,
    "checkpoint_steps": 3,
    "checkpoint_s": 5.0,
    "limit_running": 1_000,
    "limit_waiting": 1_000,
    "limit_submits_per_minute": 100_000,
}
TWO_GANGS: dict[str, Any] = {"memory_bytes": 2**30, "max_replicas": 2, "idle_s": 600}
WAN: dict[str, Any] = {"weights": f"builtin:{MODEL}", "family": MODEL, "ulysses": 2, **TWO_GANGS}
CHAT_MODELS: dict[str, Any] = {
    CHAT_MODEL: {
        "engine": "llamacpp",
        "weights": f"builtin:{CHAT_MODEL}",
        "needs": {"memory_bytes": _CHAT_BYTES},
        "min_replicas": 2,
        "max_replicas": 2,
        "concurrency": 4,
    }
}


class Clock:
    """The wall clock of one part and its children, as far from the true one as its file says."""

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self._file.write_bytes(bytes(8))
        self.environ = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}

    def step(self, offset_s: int) -> None:
        with self._file.open("r+b") as file:  # in place: processes have it mapped
            file.write(struct.pack("=q", offset_s))


GateMode = Literal["open", "away", "slow", "stalled"]


@dataclass
class Gate:
    """A TCP proxy before S3. Away: connections are cut. Slow: each piece waits. Stalled: nothing passes."""

    mode: GateMode = "open"
    port: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def set(self, mode: GateMode) -> None:
        self.mode = mode
        if mode == "away":
            for writer in self._writers:
                writer.transport.abort()

    @asynccontextmanager
    async def before(self, host: str, port: int, listen: str = "127.0.0.1") -> AsyncIterator[None]:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.mode == "away":
                return writer.transport.abort()
            try:
                far_reader, far_writer = await asyncio.open_connection(host, port)
            except OSError:
                return writer.transport.abort()
            both = {writer, far_writer}
            self._writers |= both
            try:
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
            finally:
                self._writers -= both

        server = await asyncio.start_server(carry, listen, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            self.set("away")
            server.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                while self.mode == "stalled":
                    await asyncio.sleep(0.1)
                if self.mode == "slow":
                    await asyncio.sleep(0.3)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()


class Cluster:
    """Made by `running_cluster`. `children` are the parts as they run now, by name. Where there is a `box`, the workers are in it and
    can only call out."""

    def __init__(self, config: Config, gate: Gate, clocks: dict[str, Clock], box: Box | None) -> None:
        self.config = config
        self.gate = gate
        self.clocks = clocks
        self.box = box
        self.children: dict[str, Child] = {}
        self.urls: list[str] = []
        self.api_key = ""
        self.redis_may_run = asyncio.Event()
        self.redis_may_run.set()
        self._disk_full = False
        self.restarts = -len((*GATEWAYS, *MANAGERS, *WORKERS, "redis"))

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def lease_s(self) -> float:
        return self.config.tasks.lease_s

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(self.children[name].pid)

    def family(self) -> Iterator[psutil.Process]:
        """All processes of all parts."""
        for child in self.children.values():
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(child.pid)
                yield parent
                yield from parent.children(recursive=True)

    def gangs(self) -> list[psutil.Process]:
        """The gangs' supervisors."""
        found: list[psutil.Process] = []
        for name in WORKERS:
            with contextlib.suppress(psutil.Error):
                for process in self.process(name).children(recursive=True):
                    words = process.cmdline()
                    named = words[words.index("turnout") + 1 :][:1] if "turnout" in words else []
                    if named == ["gang"] and "turnout.worker.subreaper" not in words:
                        found.append(process)
        return sorted(found, key=lambda p: p.pid)

    def ranks(self) -> list[psutil.Process]:
        """What the gangs' fork servers have forked."""
        found: list[psutil.Process] = []
        for gang in self.gangs():
            with contextlib.suppress(psutil.Error):
                for server in gang.children():
                    found += server.children()
        return sorted(found, key=lambda p: p.pid)

    def engines(self) -> list[psutil.Process]:
        """Those of the chat model."""
        found: list[psutil.Process] = []
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if is_engine(process):
                    found.append(process)
        return sorted(found, key=lambda p: p.pid)

    def fill_disk(self) -> None:
        """No process can write to a file: their limit on a file's size does what a full disk does."""
        self._disk_full = True
        for process in self.family():
            limit_files(process.pid, 0)

    def free_disk(self) -> None:
        self._disk_full = False
        for _ in range(2):  # again, for those that were forked meanwhile
            for process in self.family():
                limit_files(process.pid, resource.RLIM_INFINITY)

    @asynccontextmanager
    async def redis(self) -> AsyncIterator[Any]:
        link = RedisConnection(str(self.config.redis.redis_url), "turnout")
        try:
            yield link.client
        finally:
            await link.close()

    def parts(self, options: tuple[str, ...], fds: list[int], join_token: str, password: str) -> list[Part]:
        logs = self.config.state_dir / "logs"

        async def redis() -> Child:
            await self.redis_may_run.wait()
            directory = embedded_redis_dir(self.config)
            return await start_valkey(directory, password, logs / "redis.log", environ=self._clock("redis"))

        def role(name: str, arguments: list[str], fd: int | None = None, **environ: str) -> Part:
            async def start() -> Child:
                own = {**self._clock(name), **environ}
                fds = [] if fd is None else [fd]
                inside = [] if self.box is None or name not in WORKERS else self.box.words
                argv = [*inside, sys.executable, "-m", "turnout", *arguments]
                return await Child.start(name, argv, log=logs / f"{name}.log", environ=own, pass_fds=fds)

            return Part(name, self._kept(name, start), 20.0)

        gateways = [
            role(name, ["gateway", *options, "--fd", str(fd)], fd)
            for name, fd in zip(GATEWAYS, fds, strict=True)
        ]
        reached = ("--listen-port", "0") if self.box is None else ("--tunnel", "--allow-plaintext")
        workers = [
            role(
                name,
                ["worker", *options, "--join", url, *reached, "--id", name],
                TURNOUT_JOIN_TOKEN=join_token,
            )
            for name, url in zip(WORKERS, self.urls, strict=True)
        ]
        managers = [role(name, ["manager", *options]) for name in MANAGERS]
        return [Part("redis", self._kept("redis", redis), 10.0), *managers, *gateways, *workers]

    def _kept(self, name: str, start: Callable[[], Awaitable[Child]]) -> Callable[[], Awaitable[Child]]:
        async def started() -> Child:
            child = self.children[name] = await start()
            self.restarts += 1
            if self._disk_full:
                limit_files(child.pid, 0)
            return child

        return started

    def _clock(self, name: str) -> dict[str, str]:
        return self.clocks[name].environ if name in self.clocks else {}


def limit_files(pid: int, soft_bytes: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft_bytes, hard))


@asynccontextmanager
async def running_cluster(
    home: Path,
    s3_endpoint: str,
    video: Mapping[str, Any],
    *,
    clocks: bool,
    chat: bool,
    box: Box | None = None,
) -> AsyncIterator[Cluster]:
    """All parts up, the models registered; nothing is left when it ends."""
    gate, host = Gate(), box.cloud if box else "127.0.0.1"
    s3_host, _, s3_port = s3_endpoint.removeprefix("http://").rpartition(":")
    async with gate.before(s3_host, int(s3_port), host):
        (home / "turnout.yaml").touch()
        password = secrets.token_hex(24)
        flags = {
            **SETTINGS,
            "models": {MODEL: video, **(CHAT_MODELS if chat else {})},
            # One gang fits, so that each worker has one.
            "worker_memory_bytes": _GANG_BYTES + (_CHAT_BYTES if chat else 0),
            "state_dir": home / "state",
            "blobs": f"s3://vid/{secrets.token_hex(4)}",
            "blobs_endpoint": f"http://{host}:{gate.port}",
        }
        config = load(flags, {}, home / "turnout.yaml").config
        config.state_dir.mkdir(mode=0o700)
        redis_dir = embedded_redis_dir(config)
        write_private(redis_dir / "password", password)
        config = load(
            {**flags, "redis_url": redis_url(redis_dir, password)}, {}, home / "turnout.yaml"
        ).config
        cluster = Cluster(
            config, gate, clocks_in(home, (*GATEWAYS, *MANAGERS, *WORKERS, "redis")) if clocks else {}, box
        )
        with listen(host, 0) as one, listen(host, 0) as two:
            cluster.urls = [f"http://{host}:{s.getsockname()[1]}" for s in (one, two)]
            first = await start_valkey(redis_dir, password, config.state_dir / "logs" / "redis.log")
            try:
                cluster.api_key, join_token = await _prepare(config)
            finally:
                await first.stop(10)
            options = ("--config", str(write_resolved(config)))
            parts = cluster.parts(options, [one.fileno(), two.fileno()], join_token, password)
            stopping, up = asyncio.Event(), asyncio.Event()

            async def ready() -> None:
                for url in cluster.urls:
                    await wait_for(lambda url=url: answers(url), f"{url} to answer", 90)
                up.set()

            async with asyncio.TaskGroup() as group:
                running = group.create_task(run_parts(parts, stopping, ready), name="parts")
                try:
                    await wait_for(up.is_set, "all parts to start", 180)
                    yield cluster
                finally:
                    cluster.redis_may_run.set()
                    for process in cluster.family():
                        with contextlib.suppress(psutil.Error):
                            process.resume()
                    stopping.set()
                    await asyncio.shield(running)


def clocks_in(home: Path, names: Iterable[str]) -> dict[str, Clock]:
    library = home / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    return {name: Clock(home / f"clock-{name}", library) for name in names}


async def _prepare(config: Config) -> tuple[str, str]:
    """An admin's key and a worker's, and the models."""
    async with open_stores(config) as stores:
        tokens: list[str] = []
        for role in (Role.ADMIN, Role.WORKER):
            key, token = mint(
                secrets.token_hex(6), secrets.token_hex(24), TenantId("default"), role, "chaos", time.time()
            )
            await stores.tenants.keys.add(key)
            tokens.append(token)
        await declare(config, stores.fleet.models)
    return tokens[0], tokens[1]


async def answers(url: str) -> bool:
    try:
        async with httpx.AsyncClient(timeout=5) as client:
            return (await client.get(f"{url}/health")).status_code == 200
    except httpx.HTTPError:
        return False


async def wait_for(predicate: Callable[[], Awaitable[bool] | bool], what: str, limit_s: float) -> None:
    patience = Patience(limit_s)
    while True:
        outcome = predicate()
        if outcome if isinstance(outcome, bool) else await outcome:
            return
        if patience.lost:
            raise TimeoutError(f"waited {patience.waited_s:.0f} s for {what}")
        await asyncio.sleep(0.05)
