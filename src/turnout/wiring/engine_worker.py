"""Wires a worker that joins a gateway by HTTP and runs engine servers for it."""

import asyncio
import random
import socket
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager

import uvicorn

from turnout.adapters.commands import LocalCommands
from turnout.adapters.relay import Relay
from turnout.config import Config
from turnout.domain.serving import Gpu, Machine, ServedModel
from turnout.engines.llamacpp import builtin_weights
from turnout.engines.servers import Launch, Programs, plan_launch
from turnout.wire.tokens import relay_token
from turnout.wiring import on_stop
from turnout.wiring.worker_desk import WorkerDesk, worker_relay_settings
from turnout.worker.engine_control import HttpEngine
from turnout.worker.gpus import GpuGate, count_cpus, open_nvml, read_machine
from turnout.worker.hands import Hands, Kit
from turnout.worker.joiner import Joiner, JoinSettings, reachable_host
from turnout.worker.orphans import Ledger
from turnout.worker.ports import EnginePorts
from turnout.worker.server import Door, control_app


async def run_engine_worker(
    config: Config, join: str, key: str, listening: socket.socket, public_url: str | None
) -> None:
    """Joins the gateway at `join` with a worker key, and serves what it is ordered to, until SIGTERM."""
    home = config.state_dir / "worker"
    host, port = listening.getsockname()[:2]
    url = public_url or f"http://{reachable_host(str(host), join)}:{port}"
    read_gpus = open_nvml()

    def machine() -> Machine:
        return read_machine(read_gpus, builtin_weights())

    settings = JoinSettings(join, key, socket.gethostname(), url, home / "identity.json")
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
            door = Door(hands, lambda: relay_token(joiner.secret) if joiner.secret else None)
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
                await joiner.run(hands)
                relay.close()
                server.should_exit = True
                await serving


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
