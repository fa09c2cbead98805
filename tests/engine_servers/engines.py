"""A replica on real processes, for tests: what the worker's wiring does, without a gateway."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.conftest import wait_until

from turnout.engines.servers.engine_servers import Programs, plan_launch
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import Phase, ReplicaId, Want
from turnout.processes.commands import LocalCommands
from turnout.worker.engine_control import HttpEngine
from turnout.worker.engine_ports import EnginePorts
from turnout.worker.orphans import Ledger
from turnout.worker.replica_owner import EngineDeadlines, ReplicaContext, ReplicaOwner

PROMPT = [{"role": "user", "content": "Say hello."}]


@asynccontextmanager
async def no_gate() -> AsyncGenerator[None]:
    yield


@dataclass(frozen=True)
class Running:
    replica: ReplicaOwner
    life: asyncio.Task[None]
    ledger: Ledger

    async def wait_phase(self, *phases: Phase, timeout_s: float = 60.0) -> None:
        await wait_until(lambda: self.replica.phase in phases, f"the replica to be {phases}", timeout_s)


@asynccontextmanager
async def running(
    model: Model,
    state_dir: Path,
    programs: Programs = Programs(),  # noqa: B008
    want: Want = Want.READY,
    deadlines: EngineDeadlines = EngineDeadlines(drain_s=20),  # noqa: B008
    key: str | None = None,
) -> AsyncIterator[Running]:
    """A replica whose life has begun; whatever the test does, nothing of it is left."""
    engine, ledger, ports = HttpEngine(), Ledger(state_dir / "engines.json"), EnginePorts(random.Random())
    context = ReplicaContext(
        LocalCommands(state_dir / "logs"),
        engine,
        ledger,
        lambda: plan_launch(model, (), ports.take(), programs, key),
        no_gate,
        lambda: None,
        deadlines,
    )
    replica = ReplicaOwner(ReplicaId("r-test"), model, want, context)
    life = asyncio.create_task(replica.run())
    try:
        yield Running(replica, life, ledger)
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        await engine.aclose()


def marked(replica: str) -> list[psutil.Process]:
    """The processes that carry a replica's mark: the engine and all it started, whatever became of its parents."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TURNOUT_REPLICA") == replica:
                found.append(process)
        except psutil.Error:
            continue
    return found
