"""The whole service on one machine: an embedded Redis unless one is configured, a gateway, a manager, a worker."""

import asyncio
import json
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from turnout.background import BackgroundLoops
from turnout.people.site import open_site
from turnout.processes.child import Child, LocalLauncher
from turnout.processes.environment_rules import for_computing
from turnout.processes.life_signs import LifeSigns
from turnout.processes.local_parts import Part, run_parts
from turnout.processes.log_files import keep_bounded
from turnout.run.address_space import check_address_space
from turnout.run.config import Config, dump
from turnout.run.listening import check_open_mode, listen
from turnout.run.open_files import raise_open_files
from turnout.run.open_stores import embedded_redis_dir, find_redis_url, find_webhook_secret, open_stores
from turnout.run.run_manager import declare
from turnout.run.signals import on_stop
from turnout.run.state_dir import alone_on, make_private, make_writable, write_private
from turnout.run.tls import server_tls
from turnout.store.address_rules import in_url
from turnout.store.valkey import redis_url, start_valkey
from turnout.stores import Stores
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import (
    CODE_S,
    OWN_ADMIN,
    OWN_WORKER,
    Role,
    matches,
    mint,
    secret_digest,
    split_token,
)
from turnout.tenants.key_store import KeyStore

_ANSWER_S = 10.0  # of one request: a gateway that hangs is killed meanwhile


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach the running service; the CLI reads URL and key from `service.json`. `public_url` is for others than this
    machine: behind TLS the two differ, because nobody has a certificate for loopback. `page_link` logs a browser in,
    once and within `CODE_S`."""

    url: str
    api_key: str
    public_url: str
    page_link: str


@dataclass(frozen=True, slots=True)
class RayCluster:
    """Where gangs are to run; `address` None: on a cluster that is started here and ends with the service."""

    address: str | None


async def run_up(
    config: Config, ready: Callable[[Address, asyncio.Event], None], cluster: RayCluster | None = None
) -> None:
    """Runs until SIGINT or SIGTERM, or until someone sets the event that `ready` is given. Gangs are children of
    this machine's worker, or run on a Ray cluster."""
    check_address_space()
    if config.access.no_auth:
        check_open_mode(config.gateway, config.gateway.host)
    make_writable(config.state_dir)
    raise_open_files()  # the parts inherit it
    stopping = asyncio.Event()
    on_stop(stopping.set)
    open_site(config.access.site)  # here, too: sooner than by a gateway that does not start
    secure = server_tls(config.gateway) is not None
    with (
        alone_on(config.state_dir),
        listen(config.gateway.host, config.gateway.port) as listening,
        listen("127.0.0.1", 0) if secure else nullcontext(listening) as local,
    ):
        logs = config.state_dir / "logs"
        async with _redis(config) as (url, redis_parts):
            # The embedded server answers when a write is on its disk: there is nothing more to ask for.
            accept_after = config.redis.accept_after if config.redis.redis_url else "write"
            config = config.with_settings(
                redis_url=url,
                redis_password=None,
                redis_sentinel_password=None,
                accept_after=accept_after,
            )
            async with open_stores(config.with_settings(traces_endpoint=None)) as stores:
                address = await _address(config, stores, local, listening)
                join_token = await _join_token(stores.tenants.keys)
                # The gateway knows only registered models: they must be there before it answers.
                await declare(config, stores.fleet.models)
                # Whose copy is read here, wherever it signs.
                await find_webhook_secret(config, stores.webhook_secrets)
            told = config.with_settings(
                public_url=config.gateway.public_url or address.public_url,
                open_key=address.api_key if config.access.no_auth else None,
                model_pulls=config.worker.model_pulls is not False,
            )
            children = _Children(
                LocalLauncher(logs),
                write_resolved(told),
                _write_workers(told),
                config.worker.worker_environ,
                config.state_dir / "alive",
            )
            fds = {"--fd": listening.fileno(), **({"--local-fd": local.fileno()} if secure else {})}
            parts = [
                *redis_parts,
                *children.parts(fds, address.url, join_token, cluster, config.gangs.drain_s),
            ]
            loops = BackgroundLoops({"logs": partial(keep_bounded, [logs], config.telemetry.log_quota_bytes)})
            async with loops.running():
                await run_parts(parts, stopping, partial(_announce, address, stopping, ready))


async def _announce(
    address: Address, stopping: asyncio.Event, ready: Callable[[Address, asyncio.Event], None]
) -> None:
    """Once the gateway answers: the socket takes connections from the beginning."""
    async with httpx.AsyncClient(timeout=_ANSWER_S, trust_env=False) as http:
        while True:
            with suppress(httpx.HTTPError):
                await http.get(f"{address.url}/health")
                break
            await asyncio.sleep(0.1)  # it died with the request
    ready(address, stopping)


@dataclass(frozen=True, slots=True)
class _Children:
    """Starts the parts of the service as child processes, which all read the same configuration; but for the worker, which is
    told nothing of Redis and the objects, and inherits no secret. In `alive` they give signs of life."""

    launcher: LocalLauncher
    config: Path
    of_worker: Path
    more: tuple[str, ...]
    alive: Path

    def parts(
        self,
        fds: Mapping[str, int],
        gateway_url: str,
        join_token: str,
        cluster: RayCluster | None,
        drain_s: float,
    ) -> list[Part]:
        """With a cluster the manager is there."""
        make_private(self.alive)
        gateway, worker = partial(self._gateway, fds), partial(self._worker, gateway_url, join_token)
        found = [
            Part("gateway", gateway, 10.0, LifeSigns(self.alive / "gateway")),
            Part("worker", worker, drain_s + 10.0, LifeSigns(self.alive / "worker")),
        ]
        if cluster is not None:
            ray = Part("ray", partial(self._ray, cluster, gateway_url), drain_s + 60.0)
            return [found[0], ray, found[1]]
        return [Part("manager", self._manager, 5.0, LifeSigns(self.alive / "manager")), *found]

    async def _gateway(self, fds: Mapping[str, int]) -> Child:
        words = [word for name, fd in fds.items() for word in (name, str(fd))]
        return await self._start("gateway", *words, *self._signs("gateway"), pass_fds=list(fds.values()))

    async def _manager(self) -> Child:
        return await self._start("manager", *self._signs("manager"))

    async def _worker(self, gateway_url: str, join_token: str) -> Child:
        words = ("--join", gateway_url, "--listen-port", "0", "--config", str(self.of_worker))
        return await self.launcher.start(
            "worker",
            ["worker", *words, *self._signs("worker")],
            environ={"TURNOUT_JOIN_TOKEN": join_token},
            inherited=for_computing(os.environ, self.more),
        )

    async def _ray(self, cluster: RayCluster, gateway_url: str) -> Child:
        where = ["--address", cluster.address] if cluster.address else []
        return await self._start("ray", "serve", "--gateway", gateway_url, *where)

    async def _start(self, part: str, *words: str, **more: Any) -> Child:
        return await self.launcher.start(part, [part, *words, "--config", str(self.config)], **more)

    def _signs(self, part: str) -> tuple[str, str]:
        return "--alive-file", str(self.alive / part)


def write_resolved(config: Config) -> Path:
    """The configuration as one private file, so that child processes see what this one sees."""
    path = config.state_dir / "config.json"
    write_private(path, json.dumps(dump(config), indent=1))
    return path


def _write_workers(config: Config) -> Path:
    """What this machine's worker is told: nothing that it does not need."""
    path = config.state_dir / "worker" / "settings.json"
    write_private(path, json.dumps(dump(config.of_computing()), indent=1))
    return path


@asynccontextmanager
async def _redis(config: Config) -> AsyncGenerator[tuple[str, list[Part]]]:
    """The Redis to use: the configured one, or an embedded one as a part of this service."""
    if config.redis.redis_url:
        yield find_redis_url(config), []
        return
    directory = embedded_redis_dir(config)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = directory / "password"
    if not secret.exists():
        write_private(secret, secrets.token_urlsafe(32))
    password = secret.read_text()
    first = await start_valkey(directory, password, config.state_dir / "logs" / "redis.log")
    running = iter([first])  # it is needed before the other parts start; a restart starts another

    async def redis() -> Child:
        return next(running, None) or await start_valkey(
            directory, password, config.state_dir / "logs" / "redis.log"
        )

    try:
        yield redis_url(directory, password), [Part("redis", redis, 10.0)]
    finally:
        if first.returncode is None:
            await first.stop(10.0)


async def _address(config: Config, stores: Stores, local: socket.socket, listening: socket.socket) -> Address:
    """Keeps the key that an earlier run left, when it is still good; makes one otherwise."""
    url = _url("http", local)
    path = config.state_dir / "service.json"
    token = _left_token(path)
    parts = split_token(token) if token is not None and await _is_good(token, stores.tenants.keys) else None
    if token is None or parts is None:
        key, token = mint(
            secrets.token_hex(6),
            secrets.token_urlsafe(32),
            TenantId("default"),
            Role.ADMIN,
            OWN_ADMIN,
            time.time(),
        )
        await stores.tenants.keys.add(key)
        key_id = key.id
    else:
        key_id = parts[0]
    write_private(path, json.dumps({"url": url, "api_key": token, "pid": os.getpid()}))
    code = secrets.token_urlsafe(32)
    await stores.tenants.sessions.put_code(secret_digest(code), key_id, CODE_S)
    public_url = url if local is listening else _url("https", listening)
    return Address(url, token, public_url, f"{public_url}/#code={code}")


async def _join_token(keys: KeyStore) -> str:
    """A key for the worker of this run; those of earlier runs are of no more use."""
    name = OWN_WORKER
    for key in await keys.all():
        if key.role is Role.WORKER and key.name == name:
            await keys.revoke(key.id)
    key, token = mint(
        secrets.token_hex(6), secrets.token_urlsafe(32), TenantId("default"), Role.WORKER, name, time.time()
    )
    await keys.add(key)
    return token


def _left_token(path: Path) -> str | None:
    try:
        found: object = json.loads(path.read_text())["api_key"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


async def _is_good(token: str, keys: KeyStore) -> bool:
    parts = split_token(token)
    if parts is None:
        return False
    key = await keys.find(parts[0])
    return key is not None and matches(key, parts[1]) and not key.expired(time.time())


def _url(scheme: str, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else in_url(host)
    return f"{scheme}://{reachable}:{port}"
