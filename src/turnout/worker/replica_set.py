"""The replicas of one worker: makes them match the orders. Orders are the whole of what should run, not a change."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from turnout.engines.servers.engine_servers import Launch
from turnout.errors import NotFound
from turnout.fleet.machine_rules import Machine
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport, Want
from turnout.processes.process import Commands
from turnout.telemetry.log import get_log
from turnout.tenants.gpu_time_rules import GpuReport, GpuState
from turnout.worker.engine_process import Engine
from turnout.worker.gpu_timer_rules import GpuTimer
from turnout.worker.hardware import GpuGate
from turnout.worker.lifecycle_rules import ENDED_PHASES, Exited
from turnout.worker.orphans import Ledger
from turnout.worker.replica_owner import EngineDeadlines, ReplicaContext, ReplicaOwner, no_direct_gateways

log = get_log()


@dataclass(frozen=True, slots=True)
class Held:
    """A replica as `reconcile` sees it."""

    phase: Phase
    want: Want


@dataclass(frozen=True, slots=True)
class Start:
    order: ReplicaOrder


@dataclass(frozen=True, slots=True)
class ChangeWant:
    replica: ReplicaId
    want: Want


@dataclass(frozen=True, slots=True)
class Forget:
    replica: ReplicaId


Action = Start | ChangeWant | Forget


def reconcile(have: Mapping[ReplicaId, Held], orders: Sequence[ReplicaOrder]) -> list[Action]:
    """What makes the replicas match the orders. One that has ended is kept, so that it is reported, until it is no longer
    ordered. It is never started again under its old id."""
    actions: list[Action] = []
    ordered = {order.replica: order for order in orders}
    for replica, held in have.items():
        want = ordered[replica].want if replica in ordered else Want.GONE
        if held.phase in ENDED_PHASES:
            if replica not in ordered:
                actions.append(Forget(replica))
        elif held.want is not want:
            actions.append(ChangeWant(replica, want))
    for replica, order in ordered.items():
        if replica not in have and order.want is not Want.GONE:
            actions.append(Start(order))
    return actions


@dataclass(frozen=True, slots=True)
class ReplicaSetContext:
    """`plan` says how a replica is launched on its GPUs."""

    commands: Commands
    engine: Engine
    ledger: Ledger
    plan: Callable[[ReplicaId, Model, tuple[int, ...]], Launch]
    gate: GpuGate
    deadlines: EngineDeadlines = field(default_factory=EngineDeadlines)
    wait_acknowledged: Callable[[], Awaitable[None]] = no_direct_gateways


class ReplicaSet:
    """Use it as a context. On exit, engines that still run are killed; `drain` stops them first."""

    def __init__(self, context: ReplicaSetContext, changed: Callable[[], None]) -> None:
        self._context = context
        self._changed = changed
        self._replicas: dict[ReplicaId, ReplicaOwner] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: dict[ReplicaId, asyncio.Task[None]] = {}
        self.draining = False  # it stops all and starts none any more: its worker is about to end
        self._timer = GpuTimer(secrets.token_hex(8))

    async def __aenter__(self) -> Self:
        """Kills what an earlier worker left behind."""
        for entry in self._context.ledger.sweep():
            log.warning("orphan engine killed", replica=entry.replica, pid=entry.pid)
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def follow(self, orders: Sequence[ReplicaOrder]) -> None:
        """Makes the replicas match the orders; returns at once. Nothing is started once we drain."""
        have = {id_: Held(replica.phase, replica.wanted) for id_, replica in self._replicas.items()}
        for action in reconcile(have, () if self.draining else orders):
            match action:
                case Start(order):
                    self._start(order)
                case ChangeWant(replica, want):
                    self._replicas[replica].want(want)
                case Forget(replica):
                    del self._replicas[replica]
        for order in orders:
            replica = self._replicas.get(order.replica)
            if replica is not None and replica.closing is not order.closing:
                replica.closing = order.closing
                self._changed()

    def all(self) -> Collection[ReplicaOwner]:
        return self._replicas.values()

    def gangs(self) -> list[ReplicaOwner]:
        """The replicas that take their work from a queue."""
        return [r for r in self._replicas.values() if r.model.engine is EngineKind.VIDEO]

    def reports(self) -> tuple[ReplicaReport, ...]:
        return tuple(replica.report() for replica in self._replicas.values())

    def gpu_report(self, machine: Machine) -> GpuReport:
        """What the GPUs did since this worker began."""
        now = time.monotonic()
        self._timer.see(machine, now)
        return self._timer.report(now)

    def find(self, replica: str) -> ReplicaOwner:
        """Raises NotFound."""
        try:
            return self._replicas[ReplicaId(replica)]
        except KeyError as err:
            raise NotFound(f"there is no replica {replica[:80]!r} here", code="replica_not_found") from err

    async def drain(self) -> None:
        """Stops all replicas as orders would, and starts no more. Returns when all are gone."""
        self.draining = True
        self._changed()  # whoever places replicas must hear it before it orders another
        for replica in self._replicas.values():
            replica.want(Want.GONE)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _start(self, order: ReplicaOrder) -> None:
        context = self._context

        def holds(state: GpuState | None) -> None:
            self._timer.hold(order.replica, order.model, order.gpus, state, time.monotonic())

        replica_context = ReplicaContext(
            context.commands,
            context.engine,
            context.ledger,
            launch=lambda: context.plan(order.replica, order.model, order.gpus),
            loading=lambda: context.gate.loading(order.gpus, order.model.needs.gpu_memory_bytes),
            changed=self._changed,
            deadlines=context.deadlines,
            wait_acknowledged=context.wait_acknowledged,
            holds=holds,
        )
        replica = ReplicaOwner(order.replica, order.model, order.want, replica_context, order.gpus)
        self._replicas[replica.id] = replica
        holds(GpuState.LOADING)
        self._tasks[replica.id] = self._group.create_task(self._run(replica), name=f"replica {replica.id}")
        self._changed()

    async def _run(self, replica: ReplicaOwner) -> None:
        try:
            await replica.run()
        except Exception as err:  # our own mistake must not end the other replicas
            log.exception("replica broke", replica=replica.id)
            replica.apply(Exited(f"the worker failed: {type(err).__name__}"))
        finally:
            self._tasks.pop(replica.id, None)
