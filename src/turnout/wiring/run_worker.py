"""Stores a worker that joins a gateway by HTTP and runs replicas for it: engine servers, and, where it shares the
service's Redis and object store, gangs."""

import asyncio
import importlib.util
import json
import os
import random
import secrets
import shutil
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from turnout.adapters.commands import LocalCommands
from turnout.adapters.host_identity import network_name
from turnout.adapters.tunnel.worker_end import Dial, Dialer
from turnout.config import Config, dump
from turnout.domain.errors import Misconfigured
from turnout.domain.serving import TUNNEL, EngineKind, Gpu, Machine, ReplicaId, ServedModel
from turnout.engines import gang_launch as gang_launches
from turnout.engines.engine_servers import KEYED, Launch, Outside, Programs, plan_launch
from turnout.engines.gang_launch import GangProgram
from turnout.engines.llamacpp import builtin_weights
from turnout.relay import Relay
from turnout.schemas.direct_messages import MAX_TALLY_BYTES
from turnout.schemas.relay_tokens import relay_token
from turnout.wiring.signals import on_stop
from turnout.wiring.state_dir import alone_on, write_private
from turnout.wiring.stores import open_stores
from turnout.wiring.vllm_programs import keep_zygote, python_of, vllm_program
from turnout.worker.direct_access import DirectAccess
from turnout.worker.engine_control import HttpEngine
from turnout.worker.engine_ports import EnginePorts, check_engine_host
from turnout.worker.gang_holdings import GangHoldings
from turnout.worker.hardware import GpuGate, cached_weights, count_cpus, hub_cache, open_nvml, read_machine
from turnout.worker.joiner import Joiner, JoinSettings, reachable_host, trusting
from turnout.worker.orphans import Ledger
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import control_app
from turnout.worker.replica_set import ReplicaSet, ReplicaSetContext

_PING_S = 5.0  # a gateway whose machine is gone leaves its tally after three of these at most


@dataclass(frozen=True, slots=True)
class Joining:
    """The gateway at `url` is joined with a worker key. `name` is shown to admins, and names the worker's own folder,
    so that several can live on one machine. Gateways come by `public_url`, or by a tunnel, or else directly."""

    url: str
    key: str
    name: str | None = None
    public_url: str | None = None
    tunnel: bool = False


async def run_engine_worker(config: Config, joining: Joining, listening: socket.socket) -> None:
    """Joins, and serves what it is ordered to, until SIGTERM. Raises Misconfigured when it cannot join like this."""
    home = config.state_dir / (f"worker-{joining.name}" if joining.name else "worker")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with alone_on(home):
        try:
            await _join(config, joining, listening, home)
        except BaseExceptionGroup as group:  # not except*: what is raised there may be wrapped again
            found = group.subgroup(Misconfigured)
            if found is None:
                raise
            raise _first(found) from None


async def _join(config: Config, joining: Joining, listening: socket.socket, home: Path) -> None:
    if config.engine_host is not None:
        check_engine_host(config.engine_host)
    found = found_engines(config)
    host, port = listening.getsockname()[:2]
    if joining.tunnel:
        url = TUNNEL
    else:
        url = joining.public_url or f"http://{reachable_host(str(host), joining.url)}:{port}"
    read_gpus, hub = open_nvml(), hub_cache(os.environ)

    def machine() -> Machine:
        weights = [*builtin_weights(), *cached_weights(hub)]
        return read_machine(read_gpus, weights, engines=found, max_memory_bytes=config.worker_memory_bytes)

    settings = JoinSettings(
        joining.url,
        joining.key,
        joining.name or socket.gethostname(),
        url,
        home / "identity.json",
        config.ca_file,
    )
    joiner = Joiner(settings, machine)
    ledger = Ledger(home / "engines.json")
    commands, kept_at = LocalCommands(home / "logs"), home / "zygote"
    zygote = keep_zygote(python_of(config.vllm), commands, kept_at) if config.vllm_zygote else None
    programs = Programs(vllm=vllm_program(config, kept_at, bool(read_gpus())), cpus=count_cpus())
    async with aclosing(HttpEngine()) as engine, _open_gangs(config, ledger, found) as gangs:
        kit = ReplicaSetContext(
            commands,
            engine,
            ledger,
            _planner(config, read_gpus, programs, _gang_program(config, home, found)),
            GpuGate(read_gpus),
            recalled=lambda: tallies.recalled(),
        )

        def changed() -> None:
            joiner.changed()
            tallies.look()
            if gangs is not None:
                gangs.look()

        async with ReplicaSet(kit, changed) as hands:
            # Who gives a public URL has put something before this worker: nobody is led past it unasked.
            tallies = DirectAccess(hands, "" if joining.public_url else network_name())
            admission = ProxyAdmission(
                hands, lambda: relay_token(joiner.identity.secret) if joiner.identity else None
            )
            relay = Relay(admission, worker_relay_settings())
            server = _Server(
                uvicorn.Config(
                    control_app(hands, admission, tallies, joiner.prove),
                    http=relay.protocol,
                    ws="websockets-sansio",
                    ws_max_size=MAX_TALLY_BYTES,
                    ws_ping_interval=_PING_S,
                    ws_ping_timeout=2 * _PING_S,
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=3,
                )
            )
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(server.serve(sockets=[listening]), name="door")
                tending = group.create_task(gangs.run(hands), name="gangs") if gangs else None
                on_stop(joiner.leave)
                beside = [group.create_task(zygote, name="zygote")] if zygote else []
                if joining.tunnel:
                    dialer = _dialer(config, joining, joiner, str(host), int(port))
                    beside.append(group.create_task(dialer.run(), name="tunnels"))
                await joiner.run(hands)
                for task in beside:
                    task.cancel()
                if gangs is not None and tending is not None:
                    tending.cancel()
                    await gangs.tend(hands)  # what did not leave in peace is put back now
                relay.close()
                server.should_exit = True
                await serving


def _dialer(config: Config, joining: Joining, joiner: Joiner, host: str, port: int) -> Dialer:
    def dial() -> Dial | None:
        identity = joiner.identity
        if identity is None:
            return None
        scheme, _, rest = joining.url.rstrip("/").partition(":")
        return Dial(
            f"{'wss' if scheme == 'https' else 'ws'}:{rest}/workers/{identity.id}/tunnel", identity.secret
        )

    return Dialer(
        dial, lambda: joiner.gateways, lambda: asyncio.open_connection(host, port), trusting(config.ca_file)
    )


def _first(group: BaseExceptionGroup[Misconfigured]) -> Misconfigured:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


class _Server(uvicorn.Server):
    """Leaves the signals to the joiner, which drains the engines first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def found_engines(config: Config) -> frozenset[EngineKind]:
    """What this machine can run. GangHoldings take tasks from the service's queue and put videos into its object store, so
    they need its Redis named."""
    able = {
        EngineKind.COMMAND: True,
        EngineKind.LLAMACPP: importlib.util.find_spec("xllamacpp") is not None,
        EngineKind.VLLM: shutil.which(config.vllm) is not None,
        EngineKind.WAN: config.redis_url is not None
        and all(importlib.util.find_spec(name) for name in ("torch", "diffusers")),
    }
    return frozenset(kind for kind, can in able.items() if can)


@asynccontextmanager
async def _open_gangs(
    config: Config, ledger: Ledger, found: frozenset[EngineKind]
) -> AsyncGenerator[GangHoldings | None]:
    if EngineKind.WAN not in found:
        yield None
        return
    async with open_stores(config) as stores:
        yield GangHoldings(stores.queue, ledger.entries)


def _gang_program(config: Config, home: Path, found: frozenset[EngineKind]) -> GangProgram | None:
    if EngineKind.WAN not in found:
        return None
    run_dir = home / "gangs"
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    write_private(home / "config.json", json.dumps(dump(config), indent=1))
    return GangProgram(home / "config.json", run_dir, config.drain_s)


def _planner(
    config: Config,
    read_gpus: Callable[[], tuple[Gpu, ...]],
    programs: Programs,
    gang_program: GangProgram | None,
) -> Callable[[ReplicaId, ServedModel, tuple[int, ...]], Launch]:
    ports = EnginePorts(random.Random())

    def plan(replica: ReplicaId, model: ServedModel, gpus: tuple[int, ...]) -> Launch:
        mine = [gpu for gpu in read_gpus() if gpu.index in gpus]
        if model.engine is EngineKind.WAN and gang_program is not None:
            return gang_launches.plan(model, mine, replica, gang_program)
        if config.engine_host is None or model.engine not in KEYED:
            return plan_launch(model, mine, ports.take(), programs)
        outside = Outside(config.engine_host, secrets.token_urlsafe(32))
        return plan_launch(model, mine, ports.take(outside.host), programs, outside)

    return plan
