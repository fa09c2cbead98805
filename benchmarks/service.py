"""A Turnout to measure, on a free port and a temporary directory: all of it, or the front alone (no worker)."""

import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from turnout.processes.child import LocalLauncher
from turnout.run.config import DEFAULT_MODELS, Config, dump, load
from turnout.run.listening import listen
from turnout.run.open_stores import embedded_redis_dir, open_key_store, open_stores
from turnout.run.run_manager import declare
from turnout.run.state_dir import write_private
from turnout.store.valkey import redis_url, socket_path, start_valkey
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Role, mint

MODEL = "wan-tiny-t2v"
_READY_S = 60.0
_UNLIMITED = 1_000_000_000
_SETTINGS: dict[str, Any] = {
    "port": 0,
    "limit_waiting": _UNLIMITED,
    "limit_running": _UNLIMITED,
    "limit_submits_per_minute": _UNLIMITED,
}


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. `parts` are its processes by role ("redis", "gateway", …)."""

    config: Config
    url: str
    api_key: str
    parts: dict[str, psutil.Process]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    @property
    def redis_socket(self) -> Path:
        return socket_path(embedded_redis_dir(self.config))

    @property
    def redis_password(self) -> str:
        return (embedded_redis_dir(self.config) / "password").read_text()

    def log(self, name: str) -> list[dict[str, Any]]:
        """What a process logged, oldest first."""
        state = self.config.state_dir
        paths = [folder / f"{name}.log" for folder in (state / "logs", state / "worker" / "logs")]
        lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]


@asynccontextmanager
async def front(
    roles: Sequence[str] = ("manager", "gateway"), environ: Mapping[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Service]:
    """Redis, a gateway and a manager: what accepts tasks and tells of them. Nothing renders. `environ` is the
    gateway's, laid over ours."""
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        models = {MODEL: DEFAULT_MODELS[MODEL]}  # no others: another checkout must be able to read them
        flags = {**_SETTINGS, "models": models, "state_dir": Path(directory) / "state", **settings}
        config = load(flags, {}, _empty_file(directory)).config
        config.state_dir.mkdir()
        password = secrets.token_hex(24)
        redis_dir = embedded_redis_dir(config)
        write_private(redis_dir / "password", password)
        launcher = LocalLauncher(config.state_dir / "logs")
        children = {"redis": await start_valkey(redis_dir, password, config.state_dir / "logs" / "redis.log")}
        try:
            with listen(config.gateway.host, config.gateway.port) as listening:
                # As `turnout up` does: the embedded server answers when a write is on its disk.
                config = config.with_settings(redis_url=redis_url(redis_dir, password), accept_after="write")
                token = await _new_key(config)
                async with open_stores(config) as stores:
                    await declare(config, stores.fleet.models)
                options = ("--config", str(_write_changed(config)))
                fd = listening.fileno()
                if "manager" in roles:
                    children["manager"] = await launcher.start("manager", ["manager", *options])
                children["gateway"] = await launcher.start(
                    "gateway", ["gateway", *options, "--fd", str(fd)], environ=environ, pass_fds=[fd]
                )
                url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                # Without a manager a gateway is never ready: no lease would expire.
                sign = "/ready" if "manager" in roles else "/health"
                await _wait_ready(url, config.state_dir / "logs" / "gateway.log", sign)
                parts = {role: psutil.Process(child.pid) for role, child in children.items()}
                yield Service(config, url, token, parts)
        finally:
            for child in reversed(children.values()):
                await child.stop(10.0)


@asynccontextmanager
async def whole(directory: Path, *arguments: str, **settings: Any) -> AsyncGenerator[Service]:
    """`turnout up` as a user runs it, with its data in `directory`; `arguments` are further flags. What the tests set in the
    environment, which some benchmarks import, has no say."""
    file = directory / "turnout.yaml"
    file.write_text(yaml.safe_dump({**_SETTINGS, "state_dir": str(directory / "state"), **settings}))
    config = load({}, {}, file).config
    output = directory / "up.log"
    with output.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "turnout", "up", "--config", str(file), *arguments),
            env={name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")},
            stdout=out,
            stderr=out,
        )
    try:
        address = await _address(config.state_dir / "service.json", process, output)
        await _wait_ready(address["url"], output)
        yield Service(config, address["url"], address["api_key"], _parts(process.pid))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), 120)


def of_checkout(checkout: Path) -> dict[str, str]:
    """What makes a gateway run the sources of another checkout."""
    return {"PYTHONPATH": str(checkout / "src")}


def _empty_file(directory: str) -> Path:
    """Stands for the configuration file, so that one in the current directory has no say."""
    file = Path(directory) / "turnout.yaml"
    file.touch()
    return file


def _write_changed(config: Config) -> Path:
    """What is not as by default, so that an older checkout finds no setting that it does not know."""
    usual = dump(Config())
    path = config.state_dir / "config.json"
    write_private(path, json.dumps({k: v for k, v in dump(config).items() if v != usual.get(k)}))
    return path


async def _new_key(config: Config) -> str:
    key, token = mint(
        secrets.token_hex(6), secrets.token_hex(24), TenantId("default"), Role.ADMIN, "benchmark", time.time()
    )
    async with open_key_store(config) as (keys, _):
        await keys.add(key)
    return token


async def _wait_ready(url: str, log: Path, sign: str = "/ready") -> None:
    deadline = time.monotonic() + _READY_S
    async with httpx.AsyncClient(base_url=url, timeout=5, trust_env=False) as client:
        while True:
            try:
                if (await client.get(sign)).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the service was not ready in {_READY_S:.0f} s: {log.read_text()[-2000:]}"
                )
            await asyncio.sleep(0.05)


async def _address(path: Path, process: asyncio.subprocess.Process, output: Path) -> dict[str, str]:
    deadline = time.monotonic() + _READY_S
    while not path.exists():
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError(f"turnout up did not start: {output.read_text()[-2000:]}")
        await asyncio.sleep(0.05)
    return json.loads(path.read_text())


def _parts(pid: int) -> dict[str, psutil.Process]:
    found: dict[str, psutil.Process] = {}
    for process in psutil.Process(pid).children(recursive=True):
        words = process.cmdline()
        if "turnout" in words:
            found.setdefault(words[words.index("turnout") + 1], process)
        elif words and words[0].endswith("valkey-server"):
            found["redis"] = process
    return found
