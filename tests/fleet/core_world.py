"""Workers that live in a simulated world and obey, and the promises that every decision must keep."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnout.fleet.core_rules import step
from turnout.fleet.events_and_commands import (
    Command,
    DemandSeen,
    Event,
    ForgetReplica,
    SetWant,
    StartReplica,
    Tick,
    WorkerHeard,
)
from turnout.fleet.fleet_rules import Fleet, Rules
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import ENGINE_SERVERS, EngineKind, Model, Needs, Scaling
from turnout.fleet.placement_rules import gpu_share
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import Demand, ModelRoutes
from turnout.fleet.status_rules import describe
from turnout.fleet.view_rules import orders_of, routes_of, statuses
from turnout.fleet.worker_rules import Standing

GB = 10**9


def explain(fleet: Fleet, name: str) -> str:
    return describe(statuses(fleet)[name])


def routes(fleet: Fleet) -> Mapping[str, ModelRoutes]:
    return routes_of(fleet, fleet.models)


RULES = Rules(min_resident_s=10.0)
CAUSES = {"request", "min_replicas", "load", "failure", "move"}


def model(name: str, gpus: int = 1, gb: int = 40, concurrency: int = 64, **scaling: Any) -> Model:
    needs = Needs(gpus, gb * GB if gpus else 0, GB, GB if gpus else 0)
    return Model(name, EngineKind.VLLM, f"org/{name}", needs, Scaling(**scaling), concurrency=concurrency)


@dataclass
class Engine:
    """One process on a simulated machine."""

    gpus: tuple[int, ...]
    needs: Needs
    phase: Phase
    since: float
    busy: int = 0
    detail: str = ""


@dataclass
class Box:
    """A machine and its worker; `load_s` is how long engines take to start, `broken` models fail to; `endless`
    requests go on however long their replica is closed; one that is `ending` stops what it has and starts nothing; engines take `usage` of what they were promised; `hog_gb`
    of each GPU is somebody else's."""

    id: WorkerId
    gpus: int = 1
    gpu_gb: int = 80
    memory_gb: int = 64
    load_s: float = 3.0
    up: bool = True
    ending: bool = False
    seen: int = 0
    endless: bool = False
    usage: float = 1.0
    hog_gb: int = 0
    broken: frozenset[str] = frozenset()
    engine_kinds: frozenset[EngineKind] = ENGINE_SERVERS
    engines: dict[ReplicaId, Engine] = field(default_factory=dict)

    def machine(self) -> Machine:
        used = Counter[int]()
        memory = 0
        for engine in self.engines.values():
            share = {
                Phase.SLEEPING: engine.needs.asleep_gpu_memory_bytes,
                Phase.FAILED: 0,
                Phase.GONE: 0,
            }.get(engine.phase, engine.needs.gpu_memory_bytes)
            for index in engine.gpus:
                used[index] += int(share * self.usage)
            memory += engine.needs.memory_bytes if share or not engine.gpus else 0
        total = self.gpu_gb * GB
        gpus = tuple(Gpu(i, total, max(0, total - used[i] - self.hog_gb * GB)) for i in range(self.gpus))
        free = max(0, self.memory_gb * GB - memory)
        return Machine(gpus, self.memory_gb * GB, free, engines=self.engine_kinds)

    def reports(self) -> tuple[ReplicaReport, ...]:
        return tuple(ReplicaReport(i, e.phase, "h:1", e.busy, e.detail) for i, e in self.engines.items())


class World:
    def __init__(self, *boxes: Box, models: Sequence[Model] = (), rules: Rules = RULES) -> None:
        self.now = 1000.0
        self.boxes = {box.id: box for box in boxes}
        self.fleet = Fleet(models={m.name: m for m in models}, rules=rules)
        self.ids: Iterator[ReplicaId] = (ReplicaId(f"r{n}") for n in itertools.count(1))
        self.sequence = itertools.count(1)
        self.log: list[tuple[float, Command]] = []
        self.ever_ready: set[str] = set()
        self.starts = Counter[str]()
        self.honest = True  # whether all heartbeats said what was so

    def feed(self, *events: Event) -> tuple[Command, ...]:
        """One step, with every promise checked."""
        before = self.fleet
        self.fleet, commands = step(before, events, self.now, self.ids)
        self.log += [(self.now, c) for c in commands]
        self._check(before, commands)
        for replica in self.fleet.replicas.values():
            if replica.phase is Phase.READY and replica.open:
                self.ever_ready.add(replica.model)
        return commands

    def _check(self, before: Fleet, commands: Sequence[Command]) -> None:
        fleet = self.fleet
        known = {**before.replicas, **fleet.replicas}
        # All coming ones: the new, those that became ready in this very step are not among them.
        for command in commands:
            assert not isinstance(command, SetWant) or command.reason, "the log says why"
            match command:
                case StartReplica(replica, name, worker_id, gpus, needs):
                    self.starts[name] += 1
                    assert command.cause in CAUSES
                    worker = fleet.workers[worker_id]
                    assert worker.standing is Standing.ALIVE and not worker.draining and worker.settled
                    self._alone(fleet.replicas[replica])
                    free = {g.index: g.free_bytes for g in worker.machine.gpus}
                    assert all(free[i] >= needs.gpu_memory_bytes for i in gpus), (
                        "started before memory was free"
                    )
                    drained = {w.id for w in fleet.workers.values() if w.draining}
                    count = sum(
                        r.model == name and not (r.leaving and r.worker in drained)
                        for r in fleet.replicas.values()
                    )
                    surge = command.cause == "move"  # one more, until another has left
                    assert count <= fleet.models[name].scaling.max_replicas + surge
                case SetWant(replica, Want.GONE, _):
                    assert known[replica].busy == 0, "a busy replica was stopped"
                case SetWant(replica, Want.READY, _) if before.replicas[replica].asleep:
                    self._alone(fleet.replicas[replica])
                case ForgetReplica(replica, _):
                    gone = fleet.workers.get(known[replica].worker)
                    failed = known[replica].phase is Phase.FAILED
                    assert failed or gone is None or gone.standing is Standing.GONE
                case _:
                    pass
        for worker in fleet.workers.values():
            own = [r for r in fleet.replicas.values() if r.worker == worker.id]
            for gpu in worker.machine.gpus:
                assert sum(gpu_share(r) for r in own if gpu.index in r.gpus) <= gpu.total_bytes
            assert sum(r.needs.memory_bytes for r in own) <= worker.machine.memory_bytes

    def _alone(self, replica: Replica) -> None:
        others = [
            r
            for r in self.fleet.replicas.values()
            if r.id != replica.id and r.worker == replica.worker and r.coming and {*r.gpus} & {*replica.gpus}
        ]
        assert not others, "two starts on one GPU"

    def beat(self, box: Box) -> WorkerHeard:
        heard = WorkerHeard(
            box.id, f"http://{box.id}", box.machine(), box.reports(), next(self.sequence), box.seen
        )
        return replace(heard, leaving=box.ending)

    def obey(self, box: Box) -> None:
        """The machine does what it was last told, as far as time allows."""
        known = self.fleet.workers.get(box.id)
        if known is None:
            return
        box.seen = known.version
        ordered = () if box.ending else orders_of(self.fleet, [box.id])[box.id]
        orders = {a.replica: a for a in ordered}
        for replica_id in list(box.engines):
            engine, order = box.engines[replica_id], orders.get(replica_id)
            if engine.phase in (Phase.GONE, Phase.STOPPING):
                if order is None or engine.phase is Phase.GONE:
                    del box.engines[replica_id]
                else:
                    engine.phase, engine.busy = Phase.GONE, 0
            elif order is None or order.want is Want.GONE:
                assert order is None or engine.busy == 0 or not self.honest, "told to stop while busy"
                engine.phase, engine.busy = Phase.STOPPING, 0
            elif engine.phase is Phase.STARTING and self.now - engine.since >= box.load_s:
                broken = order.model.name in box.broken
                engine.phase, engine.since = (Phase.FAILED if broken else Phase.READY), self.now
                engine.detail = "CUDA out of memory" if broken else ""
            elif engine.phase is Phase.READY and order.want is Want.ASLEEP:
                engine.phase, engine.busy = Phase.SLEEPING, 0
            elif engine.phase is Phase.SLEEPING and order.want is Want.READY:
                engine.phase, engine.since = Phase.READY, self.now
            elif order.closing and not box.endless:
                engine.busy = 0
        for replica_id, order in orders.items():
            if replica_id not in box.engines and order.want is not Want.GONE:
                needs = self.fleet.replicas[replica_id].needs
                box.engines[replica_id] = Engine(order.gpus, needs, Phase.STARTING, self.now)

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes, every machine obeys and reports, one step."""
        self.now += seconds
        for box in self.boxes.values():
            if box.up:
                self.obey(box)
        self.feed(*(self.beat(box) for box in self.boxes.values() if box.up), Tick())

    def ticks(self, count: int, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.tick(seconds)

    def ask(self, name: str, waiting: int = 0, running: int = 0) -> None:
        self.feed(DemandSeen({name: Demand(waiting, running, self.now)}))

    def of(self, name: str) -> list[Replica]:
        return [r for r in self.fleet.replicas.values() if r.model == name]

    def ready(self, name: str) -> list[Replica]:
        return [r for r in self.of(name) if r.open and r.phase is Phase.READY]
