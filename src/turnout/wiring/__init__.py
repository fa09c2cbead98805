"""Chooses the adapters and runs each role with them. Nothing else knows which adapter is behind a port."""

import asyncio
import base64
import fcntl
import gc
import ipaddress
import os
import random
import secrets
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.adapters.blobs import ObjectBlobs, open_blobs
from turnout.adapters.redis.gangs import RedisGangBoard
from turnout.adapters.redis.link import Link
from turnout.adapters.redis.queue import RedisQueue
from turnout.adapters.redis.quotas import RedisQuotas
from turnout.adapters.redis.registry import RedisRegistry
from turnout.adapters.redis.stores import RedisKeyStore, RedisMutex, RedisOutbox
from turnout.adapters.redis.tasks import RedisTaskLog
from turnout.adapters.redis.usage import RedisUsage
from turnout.config import Config
from turnout.domain.errors import Misconfigured, Unavailable
from turnout.domain.fleet import Rules
from turnout.domain.serving import EngineKind, ServedModel
from turnout.domain.tasks import GangId
from turnout.gang.supervisor import GangOrders, GangSupervisor
from turnout.observe import get_log
from turnout.ports import Fetcher
from turnout.worker.joiner import trusting

if TYPE_CHECKING:
    from turnout.gateway.parts import Parts


@dataclass(frozen=True, slots=True)
class Wires:
    """The adapters that roles share."""

    tasks: RedisTaskLog
    queue: RedisQueue
    keys: RedisKeyStore
    outbox: RedisOutbox
    mutex: RedisMutex
    blobs: ObjectBlobs
    registry: RedisRegistry
    quotas: RedisQuotas
    usage: RedisUsage
    gangs: RedisGangBoard
    link: Link


def embedded_redis_dir(config: Config) -> Path:
    return config.state_dir / "redis"


def find_redis_url(config: Config) -> str:
    """The configured server, or the embedded one that `turnout up` runs on this state directory."""
    if config.redis_url:
        return config.redis_url
    from turnout.adapters.valkey import redis_url

    password = embedded_redis_dir(config) / "password"
    try:
        return redis_url(embedded_redis_dir(config), password.read_text())
    except FileNotFoundError as err:
        raise Misconfigured(
            f"no Redis: {config.state_dir} has no embedded one yet (turnout up makes it), and no --redis-url was given"
        ) from err


def new_wires(config: Config) -> Wires:
    """Connects to nothing yet; whoever calls it closes `link` in the end."""
    link = Link(find_redis_url(config), config.redis_prefix)
    tasks = RedisTaskLog(link, config.retention_s)
    return Wires(
        tasks,
        RedisQueue(link, tasks),
        RedisKeyStore(link),
        RedisOutbox(link, tasks),
        RedisMutex(link),
        open_blobs(config.blobs or str(config.state_dir / "objects"), config.blobs_endpoint),
        RedisRegistry(link),
        RedisQuotas(link),
        RedisUsage(link),
        RedisGangBoard(link),
        link,
    )


@asynccontextmanager
async def open_wires(config: Config) -> AsyncGenerator[Wires]:
    wires = new_wires(config)
    try:
        yield wires
    finally:
        await wires.link.close()


@asynccontextmanager
async def open_key_store(config: Config) -> AsyncGenerator[RedisKeyStore]:
    link = Link(find_redis_url(config), config.redis_prefix)
    try:
        yield RedisKeyStore(link)
    finally:
        await link.close()


def find_webhook_secret(config: Config) -> str:
    """What webhooks are signed with: configured, or made once and kept in the state directory."""
    if config.webhook_secret:
        return config.webhook_secret
    path = config.state_dir / "webhook-secret"
    if not path.exists():
        write_private(path, f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")
    return path.read_text()


def write_private(path: Path, content: str) -> None:
    """Only the owner can read it, from the first byte on; replaced in one move."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(content)
    fresh.replace(path)


class alone_on:
    """Holds a directory for this process; raises Misconfigured when another does."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"
        self._file = self._path.open("a+")

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            self._file.seek(0)
            raise Misconfigured(
                f"Turnout is already running on {self._path.parent} (pid {self._file.read().strip()}); "
                "use it, stop it, or give another --state-dir (a worker: another --id)"
            ) from err
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()


def new_task_id() -> str:
    """Sorts by time: milliseconds, then chance."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(8)}"


async def run_gateway(config: Config, listening: socket.socket) -> None:
    """Serves HTTP on a socket that is bound already, so that a restart refuses no connection."""
    import uvicorn

    from turnout.adapters.outbound import WORKERS, Outbound
    from turnout.adapters.relay import Relay, RelaySettings
    from turnout.gateway.app import create_app, stop_streams
    from turnout.wiring.gateway_desk import desk_of

    tls = trusting(config.ca_file)
    async with (
        open_wires(config) as wires,
        aclosing(Outbound(config.allow_private_urls)) as fetcher,
        aclosing(Outbound(True, reach=WORKERS, tls=tls)) as prober,
    ):
        await _refuse_open_door(listening, wires.keys)

        class Server(uvicorn.Server):
            """Ends live streams before it waits for open requests."""

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                stop_streams(app)
                await super().shutdown(sockets)
                relay.close()

        parts = gateway_parts(config, wires, fetcher, prober)
        app = create_app(parts)
        relay = Relay(desk_of(app), RelaySettings(max_body_bytes=config.max_body_bytes), tls)
        settings = uvicorn.Config(
            app,
            http=relay.protocol,
            ws="websockets-sansio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=3,
        )
        # What is there now stays: the collector need not look at all of it again for every few thousand requests.
        gc.collect()
        gc.freeze()
        await Server(settings).serve(sockets=[listening])
        await app.state.usage_book.flush()  # also what was cut just now


def gateway_parts(config: Config, wires: Wires, fetcher: Fetcher, prober: Fetcher) -> "Parts":
    from turnout.adapters.network import network_name
    from turnout.adapters.straight import StraightWays
    from turnout.adapters.tunnel.bank import TunnelBank
    from turnout.gateway.parts import Parts

    return Parts(
        config=config,
        tasks=wires.tasks,
        queue=wires.queue,
        keys=wires.keys,
        blobs=wires.blobs,
        mutex=wires.mutex,
        registry=wires.registry,
        quotas=wires.quotas,
        usage=wires.usage,
        gangs=wires.gangs,
        fetcher=fetcher,
        prober=prober,
        tunnels=TunnelBank(),
        shortcuts=StraightWays(network_name(), trusting(config.ca_file)),
        now=time.time,
        new_id=new_task_id,
        new_seed=lambda: secrets.randbits(32),
    )


async def _refuse_open_door(listening: socket.socket, keys: RedisKeyStore) -> None:
    host = str(listening.getsockname()[0])
    if not ipaddress.ip_address(host).is_loopback and not await keys.all():
        raise Misconfigured(
            f"{host} is not loopback and there are no keys: make one with `turnout keys create --direct`"
        )


async def run_manager(config: Config) -> None:
    """The manager as a process of its own, until SIGTERM."""
    stopping = asyncio.Event()
    on_stop(stopping.set)
    await manage(config, stopping)


async def manage(
    config: Config, stopping: asyncio.Event, elsewhere: frozenset[EngineKind] = frozenset()
) -> None:
    """Models of the engines `elsewhere` get no replicas: others start them."""
    from turnout.adapters.outbound import Outbound
    from turnout.manager.fleet import FleetManager
    from turnout.manager.loop import Manager
    from turnout.manager.webhooks import deliver_due

    async with open_wires(config) as wires, aclosing(Outbound(config.allow_private_urls)) as fetcher:
        secret = find_webhook_secret(config)

        async def deliver() -> None:
            await deliver_due(
                wires.outbox,
                fetcher,
                secret,
                time.time,
                retention_s=config.retention_s,
                chance=random.random,
            )

        manager = Manager(
            f"{socket.gethostname()}-{os.getpid()}",
            wires.registry,
            wires.tasks,
            wires.queue,
            wires.blobs,
            wires.mutex,
            deliver,
            config.lease_s,
            config.retention_s,
        )
        name = f"m-{secrets.token_hex(4)}"  # new for each process: replicas are named after it
        rules = Rules(min_resident_s=config.min_resident_s)
        fleet = FleetManager(name, wires.registry, wires.mutex, wires.queue, rules, elsewhere)
        await declare(config, wires.registry)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run(stopping), name="housekeeping")
            group.create_task(fleet.run(stopping), name="fleet")


async def declare(config: Config, registry: RedisRegistry) -> None:
    """Makes the registry follow the configuration, waiting for Redis if need be."""
    while True:
        try:
            for name in await registry.declare_models(config.served):
                get_log().info("model removed", model=name, by="configuration")
            return
        except Unavailable:
            await asyncio.sleep(0.5)


async def run_gang(
    config: Config,
    model_name: str,
    gang: GangId,
    *,
    once: bool,
    declared: ServedModel | None = None,
    ready_file: Path | None = None,
) -> None:
    """`declared` is the model as it was ordered, which may differ from what is configured here."""
    from turnout.wiring.nursery import NurseryRanks

    if declared is not None:
        others = (model for model in config.served if model.name != declared.name)
        config = replace(config, served=(*others, declared))
    model = config.model(model_name)
    orders = GangOrders(model.name, gang, model.ranks, config.stall_s, config.step_timeout_s, config.drain_s)
    async with open_wires(config) as wires:
        supervisor = GangSupervisor(
            orders,
            NurseryRanks(config, model, gang, once=once),
            wires.queue,
            lambda: ready_file.touch() if ready_file else None,
        )
        on_stop(supervisor.stop)
        await supervisor.run()


def on_stop(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
