"""Wires a worker that joins a gateway by HTTP and runs engine servers for it."""

import asyncio
import random
import socket
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from turnout.adapters.commands import LocalCommands
from turnout.adapters.relay import Relay
from turnout.adapters.tunnel.dialer import Dial, Dialer
from turnout.config import Config
from turnout.domain.errors import Misconfigured
from turnout.domain.serving import TUNNEL, Gpu, Machine, ServedModel
from turnout.engines.llamacpp import builtin_weights
from turnout.engines.servers import Launch, Programs, plan_launch
from turnout.wire.tokens import relay_token
from turnout.wiring import alone_on, on_stop
from turnout.wiring.worker_desk import WorkerDesk, worker_relay_settings
from turnout.worker.engine_control import HttpEngine
from turnout.worker.gpus import GpuGate, count_cpus, open_nvml, read_machine
from turnout.worker.hands import Hands, Kit
from turnout.worker.joiner import Joiner, JoinSettings, reachable_host, trusting
from turnout.worker.orphans import Ledger
from turnout.worker.ports import EnginePorts
from turnout.worker.server import Door, control_app


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
        except* Misconfigured as group:
            raise _first(group) from None


async def _join(config: Config, joining: Joining, listening: socket.socket, home: Path) -> None:
    host, port = listening.getsockname()[:2]
    if joining.tunnel:
        url = TUNNEL
    else:
        url = joining.public_url or f"http://{reachable_host(str(host), joining.url)}:{port}"
    read_gpus = open_nvml()

    def machine() -> Machine:
        return read_machine(read_gpus, builtin_weights())

    settings = JoinSettings(
        joining.url,
        joining.key,
        joining.name or socket.gethostname(),
        url,
        home / "identity.json",
        config.ca_file,
    )
    joiner = Joiner(settings, machine)
    async with aclosing(HttpEngine()) as engine:
        kit = Kit(
            LocalCommands(home / "logs"),
            engine,
            Ledger(home / "engines.json"),
            _planner(read_gpus, EnginePorts(random.Random())),
            GpuGate(read_gpus),
        )
        async with Hands(kit, joiner.changed) as hands:
            door = Door(
                hands, lambda: relay_token(joiner.identity.secret) if joiner.identity else None, joiner.prove
            )
            relay = Relay(WorkerDesk(door), worker_relay_settings())
            server = _Server(
                uvicorn.Config(
                    control_app(door),
                    http=relay.protocol,
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=3,
                )
            )
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(server.serve(sockets=[listening]), name="door")
                on_stop(joiner.leave)
                dialling = None
                if joining.tunnel:
                    dialer = _dialer(config, joining, joiner, str(host), int(port))
                    dialling = group.create_task(dialer.run(), name="tunnels")
                await joiner.run(hands)
                if dialling is not None:
                    dialling.cancel()
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


def _planner(
    read_gpus: Callable[[], tuple[Gpu, ...]], ports: EnginePorts
) -> Callable[[ServedModel, tuple[int, ...]], Launch]:
    programs = Programs(cpus=count_cpus())

    def plan(model: ServedModel, gpus: tuple[int, ...]) -> Launch:
        mine = [gpu for gpu in read_gpus() if gpu.index in gpus]
        return plan_launch(model, mine, ports.take(), programs)

    return plan
