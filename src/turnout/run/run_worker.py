"""Runs a worker: it joins a gateway by HTTP and runs replicas for it, which are engine servers and gangs. It holds no
credential but its own key."""

import asyncio
import contextlib
import json
import os
import random
import secrets
import shutil
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from turnout.background import BackgroundLoops, Work
from turnout.engines.servers import gang_launch as gang_launches
from turnout.engines.servers.engine_servers import KEYED, Launch, Programs, plan_launch
from turnout.engines.servers.gang_launch import GangProgram, service_file
from turnout.engines.servers.llamacpp import builtin_weights
from turnout.errors import Misconfigured, Unavailable, first_in
from turnout.fleet.machine_rules import Gpu, Machine
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.worker_rules import TUNNEL
from turnout.gang.gang_api import GangApi, ServiceAccess
from turnout.processes.commands import LocalCommands
from turnout.processes.log_files import keep_bounded
from turnout.processes.scratch import sweep
from turnout.relay import Relay
from turnout.run.config import Config, dump
from turnout.run.gang_service import new_api, read_access, write_access
from turnout.run.joining import Joining, check_joining, gateway_tls, order_rules, warn_of_root
from turnout.run.open_files import raise_open_files
from turnout.run.run_gang import SCRATCH
from turnout.run.signals import on_stop
from turnout.run.state_dir import alone_on, make_private, write_private
from turnout.tasks.task_rules import GangId
from turnout.worker.advertised_url import reachable_host
from turnout.worker.direct_access import DirectAccess
from turnout.worker.engine_control import HttpEngine
from turnout.worker.engine_findings import machine_findings, missing_engines
from turnout.worker.engine_ports import EnginePorts
from turnout.worker.gang_fork_server import GangForkServer
from turnout.worker.gang_holdings import GangHoldings
from turnout.worker.gpus import GpuReader, ReadGpus, open_gpus
from turnout.worker.hardware import GpuGate, cached_weights, count_cpus, hub_cache, read_machine, read_memory
from turnout.worker.joiner import Joiner, JoinSettings
from turnout.worker.order_rules import OrderRules
from turnout.worker.orphans import Ledger
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import control_app
from turnout.worker.relay_tokens import relay_token
from turnout.worker.replica_set import ReplicaSet, ReplicaSetContext
from turnout.worker.tunnel.worker_end import Dial, Dialer
from turnout.worker.vllm_programs import keep_fork_server, python_of, vllm_program


async def run_engine_worker(config: Config, joining: Joining, listening: socket.socket) -> None:
    """Joins, and serves what it is ordered to, until SIGTERM. Raises Misconfigured when it cannot join like this."""
    check_joining(joining)
    warn_of_root(joining)
    raise_open_files()
    home = config.state_dir / (f"worker-{joining.name}" if joining.name else "worker")
    make_private(home)
    sweep(config.state_dir / SCRATCH)
    with alone_on(home):
        try:
            await _open_and_run(config, joining, listening, home)
        except BaseExceptionGroup as group:  # not except*: what is raised there may be wrapped again
            found = group.subgroup(Misconfigured)
            if found is None:
                raise
            raise first_in(found) from None


async def _open_and_run(config: Config, joining: Joining, listening: socket.socket, home: Path) -> None:
    rules, read_gpus = (
        order_rules(config, joining, found_engines(config)),
        open_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")),
    )
    found = rules.engines
    ledger, commands = (
        Ledger(home / "engines.json"),
        LocalCommands(home / "logs", config.worker.worker_environ),
    )
    forks = GangForkServer(commands, home / "gang-forks", lambda: read_memory()[1])
    joiner = Joiner(
        _join_settings(config, joining, listening, home), _machine_reader(config, found, read_gpus, forks)
    )
    forks_at = home / "forks"
    programs = Programs(
        vllm=vllm_program(config.worker, config.telemetry.traces_endpoint, forks_at, bool(read_gpus())),
        cpus=count_cpus(),
    )
    gang_runner = _GangRunner(config, joining, home, joiner.token_of, forks)
    logs = (home / "logs", config.state_dir / "logs")
    beside: dict[str, Work] = {"logs": partial(keep_bounded, logs, config.telemetry.log_quota_bytes)}
    if config.worker.vllm_fork_server:
        beside["fork server"] = partial(keep_fork_server, python_of(config.worker.vllm), commands, forks_at)
    if config.worker.gang_fork_server and EngineKind.VIDEO in found:
        beside["gang fork server"] = forks.run
    if joining.tunnel:
        beside["tunnels"] = _dialer(joining, joiner, listening).run

    def changed() -> None:
        joiner.changed()
        direct.announce()
        gangs.changed()

    async with aclosing(HttpEngine()) as engine, aclosing(gang_runner.holdings(ledger, joiner)) as gangs:
        context = ReplicaSetContext(
            commands,
            engine,
            ledger,
            _planner(rules, read_gpus, programs, gang_runner),
            GpuGate(read_gpus),
            wait_acknowledged=lambda: direct.wait_acknowledged(),
        )
        async with ReplicaSet(context, changed) as replicas:
            direct = DirectAccess(replicas)
            # Behind a public URL something was put before this worker, which gateways must not bypass.
            if not joining.public_url and not joining.tunnel:
                beside["direct access"] = partial(direct.listen, joiner.settings.url)
            await _run(joiner, replicas, gangs, beside, listening)


async def _run(
    joiner: Joiner,
    replicas: ReplicaSet,
    gangs: GangHoldings,
    beside: Mapping[str, Work],
    listening: socket.socket,
) -> None:
    """Serves until the joiner has left, and then ends everything else."""
    admission = ProxyAdmission(
        replicas, lambda: relay_token(joiner.identity.secret) if joiner.identity else None
    )
    relay = Relay(admission, worker_relay_settings())
    loops = BackgroundLoops({**beside, "gangs": partial(gangs.run, replicas)}, fatal=(Misconfigured,))
    app = control_app(replicas, admission, joiner.prove, loops.states)
    server = _Server(_server_settings(app, relay))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listening]), name="proxy")
        serving.add_done_callback(lambda _: joiner.leave())  # nobody could reach the replicas
        on_stop(joiner.leave)
        await joiner.run(replicas, loops)
        await gangs.tend(replicas)  # puts back the tasks of gangs that did not leave in peace
        relay.close()
        server.should_exit = True
        await serving


def _server_settings(app: Starlette, relay: Relay) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=relay.protocol,
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )


def _join_settings(config: Config, joining: Joining, listening: socket.socket, home: Path) -> JoinSettings:
    host, port = listening.getsockname()[:2]
    if joining.tunnel:
        url = TUNNEL
    else:
        url = joining.public_url or f"http://{reachable_host(str(host), joining.url)}:{port}"
    name = joining.name or socket.gethostname()
    tls = gateway_tls(config, joining)
    return JoinSettings(joining.url, joining.key, name, url, home / "identity.json", tls)


def _machine_reader(
    config: Config, found: frozenset[EngineKind], read_gpus: GpuReader, forks: GangForkServer
) -> Callable[[], Machine]:
    hub, missing = hub_cache(os.environ), missing_engines(config.worker.vllm)

    def read() -> Machine:
        weights = [*builtin_weights(), *cached_weights(hub)]
        return read_machine(
            read_gpus,
            weights,
            engines=found,
            max_memory_bytes=config.worker.worker_memory_bytes,
            taken_bytes=forks.memory_bytes,
            disk=config.state_dir,
            findings=machine_findings(missing, found, read_gpus.reason),
        )

    return read


def _dialer(joining: Joining, joiner: Joiner, listening: socket.socket) -> Dialer:
    host, port = listening.getsockname()[:2]

    def dial() -> Dial | None:
        identity = joiner.identity
        if identity is None:
            return None
        base = joining.url.rstrip("/").replace("http", "ws", 1)
        return Dial(f"{base}/workers/{identity.id}/tunnel", identity.secret)

    return Dialer(
        dial, lambda: joiner.gateways, lambda: asyncio.open_connection(host, port), joiner.settings.tls
    )


class _Server(uvicorn.Server):
    """Leaves the signals to the joiner, which drains the engines first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def found_engines(config: Config) -> frozenset[EngineKind]:
    """What this machine can run."""
    return frozenset(EngineKind) - missing_engines(config.worker.vllm).keys()


class _GangRunner:
    """How this worker starts gangs and speaks for them. Each gang has a private file that says how it reaches the service, with
    its own token; the files of an earlier worker say which tasks to put back."""

    def __init__(
        self,
        config: Config,
        joining: Joining,
        home: Path,
        token_of: Callable[[ReplicaId], str | None],
        forks: GangForkServer,
    ) -> None:
        self._config = config
        self._joining = joining
        self._forks = forks
        self._home = home
        self._token_of = token_of
        self._run_dir = home / "gangs"

    def holdings(self, ledger: Ledger, joiner: Joiner) -> GangHoldings:
        """Makes the folder anew, so that what is in it is of this worker."""
        left: dict[GangId, GangApi] = {}
        for entry in ledger.entries:
            with contextlib.suppress(Misconfigured):  # no gang, or one that had not begun
                left[GangId(entry.replica)] = new_api(read_access(service_file(self._run_dir, entry.replica)))
        shutil.rmtree(self._run_dir, ignore_errors=True)
        make_private(self._run_dir)
        write_private(self._home / "config.json", json.dumps(dump(self._config.of_computing()), indent=1))
        return GangHoldings(self._api_of, left, lambda: joiner.joined)

    def plan(self, model: Model, gpus: Sequence[Gpu], gang: ReplicaId) -> Launch:
        access = self._access(gang)
        if access is None:
            raise Unavailable("the gateway gave no token for this gang: it is of an older version")
        write_access(service_file(self._run_dir, gang), access)
        program = GangProgram(
            self._home / "config.json", self._run_dir, self._config.gangs.drain_s, self._forks.at
        )
        return gang_launches.plan(model, gpus, gang, program)

    def _api_of(self, gang: GangId) -> GangApi | None:
        access = self._access(ReplicaId(gang))
        return new_api(access) if access is not None else None

    def _access(self, gang: ReplicaId) -> ServiceAccess | None:
        token, ca_file = self._token_of(gang), self._config.outbound.ca_file
        if token is None:
            return None
        fingerprints = self._joining.fingerprints
        return ServiceAccess(self._joining.url, token, str(ca_file) if ca_file else None, fingerprints)


def _planner(
    rules: OrderRules, read_gpus: ReadGpus, programs: Programs, gangs: _GangRunner
) -> Callable[[ReplicaId, Model, tuple[int, ...]], Launch]:
    ports = EnginePorts(random.Random())

    def plan(replica: ReplicaId, model: Model, gpus: tuple[int, ...]) -> Launch:
        all_gpus = read_gpus()
        rules.check(replica, model, gpus, [gpu.index for gpu in all_gpus])
        mine = [gpu for gpu in all_gpus if gpu.index in gpus]
        if model.engine is EngineKind.VIDEO:
            return gangs.plan(model, mine, replica)
        # Other users and programs of this machine can reach the port.
        key = secrets.token_urlsafe(32) if model.engine in KEYED else None
        return plan_launch(model, mine, ports.take(), programs, key)

    return plan
