"""Replicas whose engine is a small server that does as a test says."""

import asyncio
import random
import secrets
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conftest import wait_until

from turnout.engines.servers.engine_servers import Launch
from turnout.fleet.model_rules import EngineKind, Model, Scaling, ServerPart
from turnout.fleet.replica_rules import Phase, ReplicaId, Want
from turnout.processes.commands import LocalCommands
from turnout.worker.engine_control import HttpEngine
from turnout.worker.engine_ports import EnginePorts
from turnout.worker.hardware import GpuGate
from turnout.worker.orphans import Ledger
from turnout.worker.replica_owner import EngineDeadlines, ReplicaContext, ReplicaOwner
from turnout.worker.replica_set import ReplicaSetContext

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
MODEL = Model(
    "fake",
    EngineKind.COMMAND,
    "",
    scaling=Scaling(load_timeout_s=30),
    server=ServerPart(command=("fake", "{port}")),
)


@dataclass
class Bench:
    """Makes replicas on real processes, and ends them all."""

    state_dir: Path
    engine: HttpEngine
    ports: EnginePorts = field(default_factory=lambda: EnginePorts(random.Random()))
    lives: list[asyncio.Task[None]] = field(default_factory=list)
    deadlines: EngineDeadlines = field(default_factory=lambda: EngineDeadlines(drain_s=20))

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.state_dir / "engines.json")

    def launch(self, *options: str, sleeps: bool = False, grace_s: float = 5.0) -> Launch:
        port = self.ports.take()
        argv = (sys.executable, str(FAKE_ENGINE), str(port), *options)
        return Launch(argv, {}, port, sleeps=sleeps, grace_s=grace_s)

    def replica(
        self,
        *options: str,
        model: Model = MODEL,
        want: Want = Want.READY,
        launch: Launch | None = None,
        deadlines: EngineDeadlines | None = None,
    ) -> ReplicaOwner:
        planned = launch or self.launch(*options)
        context = ReplicaContext(
            LocalCommands(self.state_dir / "logs"),
            self.engine,
            self.ledger,
            lambda: planned,
            no_gate,
            lambda: None,
            deadlines or self.deadlines,
        )
        replica = ReplicaOwner(ReplicaId(f"r-{secrets.token_hex(4)}"), model, want, context)
        self.lives.append(asyncio.create_task(replica.run()))
        return replica

    def context(self, **changes: Launch) -> ReplicaSetContext:
        return ReplicaSetContext(
            LocalCommands(self.state_dir / "logs"),
            self.engine,
            self.ledger,
            lambda replica, model, gpus: self.launch(*model.server.arguments),
            GpuGate(tuple),
            self.deadlines,
        )


@asynccontextmanager
async def no_gate() -> AsyncGenerator[None]:
    yield


@pytest.fixture
async def bench(state_dir: Path) -> AsyncIterator[Bench]:
    engine = HttpEngine()
    bench = Bench(state_dir, engine)
    yield bench
    for life in bench.lives:
        life.cancel()
    await asyncio.gather(*bench.lives, return_exceptions=True)
    await engine.aclose()


async def wait_phase(replica: ReplicaOwner, *phases: Phase) -> None:
    await wait_until(lambda: replica.phase in phases, f"the replica to be {' or '.join(phases)}")
