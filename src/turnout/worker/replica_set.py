"""The replicas of one worker: makes them match the orders. Orders are the whole truth, not a change."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from turnout.domain.errors import NotFound
from turnout.domain.serving import (
    EngineKind,
    Phase,
    ReplicaId,
    ReplicaOrder,
    ReplicaReport,
    ServedModel,
    Want,
)
from turnout.engines.engine_servers import Launch
from turnout.observe import get_log
from turnout.ports import Commands
from turnout.worker.engine_lifecycle import OVER, Exited
from turnout.worker.hardware import GpuGate
from turnout.worker.orphans import Ledger
from turnout.worker.replica_owner import (
    Engine,
    EngineDeadlines,
    ReplicaContext,
    ReplicaOwner,
    nobody_goes_straight,
)

log = get_log()


@dataclass(frozen=True, slots=True)
class Have:
    """A replica as it is, for deciding."""

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


def reconcile(have: Mapping[ReplicaId, Have], orders: Sequence[ReplicaOrder]) -> list[Action]:
    """What makes the replicas match the orders. One that has ended stays on the books, so that it is reported,
    until it is no longer ordered; it is never started again under its old name."""
    actions: list[Action] = []
    ordered = {order.replica: order for order in orders}
    for replica, held in have.items():
        want = ordered[replica].want if replica in ordered else Want.GONE
        if held.phase in OVER:
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
    """What replicas are made with; `plan` says how one is launched on which GPUs."""

    commands: Commands
    engine: Engine
    ledger: Ledger
    plan: Callable[[ReplicaId, ServedModel, tuple[int, ...]], Launch]
    gate: GpuGate
    patience: EngineDeadlines = field(default_factory=EngineDeadlines)
    recalled: Callable[[], Awaitable[None]] = nobody_goes_straight


class ReplicaSet:
    """Use it as a context; on leaving, engines that are still there are killed (`drain` stops them first)."""

    def __init__(self, kit: ReplicaSetContext, changed: Callable[[], None]) -> None:
        self._kit = kit
        self._changed = changed
        self._replicas: dict[ReplicaId, ReplicaOwner] = {}
        self._group = asyncio.TaskGroup()
        self._lives: dict[ReplicaId, asyncio.Task[None]] = {}
        self._leaving = False

    async def __aenter__(self) -> Self:
        """Ends what a worker before us left behind."""
        for entry in self._kit.ledger.sweep():
            log.warning("orphan engine killed", replica=entry.replica, pid=entry.pid)
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for life in self._lives.values():
            life.cancel()
        await self._group.__aexit__(kind, error, trace)

    def follow(self, orders: Sequence[ReplicaOrder]) -> None:
        """Makes the replicas match the orders; returns at once. Nothing is started once we drain."""
        have = {id_: Have(replica.phase, replica.wanted) for id_, replica in self._replicas.items()}
        for action in reconcile(have, () if self._leaving else orders):
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
        return [r for r in self._replicas.values() if r.model.engine is EngineKind.WAN]

    def reports(self) -> tuple[ReplicaReport, ...]:
        return tuple(replica.report() for replica in self._replicas.values())

    def find(self, replica: str) -> ReplicaOwner:
        """Raises NotFound."""
        try:
            return self._replicas[ReplicaId(replica)]
        except KeyError as err:
            raise NotFound(f"there is no replica {replica[:80]!r} here", code="replica_not_found") from err

    async def drain(self) -> None:
        """Stops all replicas as orders would, and starts no more; returns when all are gone."""
        self._leaving = True
        for replica in self._replicas.values():
            replica.want(Want.GONE)
        if self._lives:
            await asyncio.wait(list(self._lives.values()))

    def _start(self, order: ReplicaOrder) -> None:
        kit = self._kit
        means = ReplicaContext(
            kit.commands,
            kit.engine,
            kit.ledger,
            launch=lambda: kit.plan(order.replica, order.model, order.gpus),
            loading=lambda: kit.gate.loading(order.gpus, order.model.needs.gpu_memory_bytes),
            changed=self._changed,
            patience=kit.patience,
            recalled=kit.recalled,
        )
        replica = ReplicaOwner(order.replica, order.model, order.want, means)
        self._replicas[replica.id] = replica
        self._lives[replica.id] = self._group.create_task(self._live(replica), name=f"replica {replica.id}")
        self._changed()

    async def _live(self, replica: ReplicaOwner) -> None:
        try:
            await replica.run()
        except Exception as err:  # ours, not the engine's: it must not take the other replicas along
            log.exception("replica broke", replica=replica.id)
            replica.tell(Exited(f"the worker failed: {type(err).__name__}"))
        finally:
            self._lives.pop(replica.id, None)
