"""A machine and its engines in a simulated world: what they are, and what the machine's worker reports of them."""

from math import inf

from turnout.fleet.events_and_commands import StartReplica, WorkerHeard
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaReport
from turnout.plan.gpu_meter import GpuMeter, MachineMeter
from turnout.plan.scenario import MachineKind, Timing
from turnout.plan.traffic import PlannedRequest

_HOLDS_GPU = frozenset({Phase.STARTING, Phase.READY, Phase.STOPPING})


def figures_name(model: str) -> str:
    """The name that figures of the model are kept under: a job's is its request's, too."""
    return model.partition("#")[0]


class SimulatedEngine:
    """One replica. `change` numbers what it is told, so that what an earlier order led to is known to be late."""

    __slots__ = (
        *("change", "closing", "counted", "devices", "ended_at", "gpus", "id", "idle_since", "loading"),
        *("machine", "model", "needs", "phase", "reported_busy", "requests", "stats", "timing"),
    )

    def __init__(self, order: StartReplica, machine: "SimulatedMachine", timing: Timing) -> None:
        self.id = order.replica
        self.model = order.model
        self.stats = figures_name(order.model)
        self.machine = machine
        self.timing = timing
        self.gpus = order.gpus
        self.needs = order.needs
        self.devices = order.gpus or (0,)
        self.phase = Phase.STARTING
        self.change = 0
        self.closing = False
        self.loading = False
        self.requests: dict[PlannedRequest, float] = {}  # under way, and since when
        self.ended_at = -inf  # when a request of it last ended
        self.idle_since: float | None = None  # when it last became idle, until that is reported
        self.reported_busy = False
        self.counted = False  # among those that are ready

    @property
    def serves(self) -> bool:
        return self.phase is Phase.READY and not self.closing

    def set_loading(self, loading: bool, now: float) -> None:
        if loading is not self.loading:
            self.loading = loading
            for device in self.devices:
                self.machine.meter.change(device, now, loading=1 if loading else -1)

    def begin(self, request: PlannedRequest, now: float) -> None:
        if not self.requests:
            for device in self.devices:
                self.machine.meter.change(device, now, busy=1)
        self.requests[request] = now

    def end(self, request: PlannedRequest, now: float) -> float:
        """Since when the request was under way."""
        since = self.requests.pop(request)
        self.ended_at = now
        if not self.requests:
            self.idle_since = now
            for device in self.devices:
                self.machine.meter.change(device, now, busy=-1)
        return since


class SimulatedMachine:
    """`gone` is set when it was given back or has died."""

    def __init__(self, id_: WorkerId, name: str, kind: MachineKind, meter: GpuMeter, now: float) -> None:
        self.id = id_
        self.name = name
        self.kind = kind
        self.meter = MachineMeter(meter, kind, now)
        self.engines: dict[ReplicaId, SimulatedEngine] = {}
        self.up = False
        self.gone = False
        self.empty_since = now
        self._machine = empty_machine(kind)
        self.changed = True  # the memory in use

    def machine(self) -> Machine:
        """As the worker would measure it now."""
        if self.changed:
            self.changed = False
            empty = empty_machine(self.kind)
            free = [gpu.total_bytes for gpu in empty.gpus]
            memory = empty.memory_bytes
            for engine in self.engines.values():
                if engine.phase in _HOLDS_GPU:
                    taken = engine.needs.gpu_memory_bytes
                elif engine.phase is Phase.SLEEPING:
                    taken = engine.needs.asleep_gpu_memory_bytes
                else:
                    continue
                memory -= engine.needs.memory_bytes
                for index in engine.gpus:
                    free[index] -= taken
            gpus = tuple(Gpu(g.index, g.total_bytes, free[g.index]) for g in empty.gpus)
            self._machine = Machine(gpus, empty.memory_bytes, memory, engines=empty.engines)
        return self._machine

    def heartbeat(self, seq: int, seen: int, *, as_busy: bool = False) -> WorkerHeard:
        """`as_busy`: with those that became idle still at work, to say when they did."""
        reports = tuple(
            ReplicaReport(e.id, e.phase, "", 1 if as_busy and e.idle_since is not None else len(e.requests))
            for e in self.engines.values()
        )
        return WorkerHeard(self.id, "", self.machine(), reports, seq, seen)

    def reported(self) -> None:
        """All that was new has been said."""
        for engine in self.engines.values():
            engine.reported_busy, engine.idle_since = bool(engine.requests), None


def empty_machine(kind: MachineKind) -> Machine:
    gpus = tuple(Gpu(n, kind.gpu_memory_bytes, kind.gpu_memory_bytes) for n in range(kind.gpus))
    return Machine(gpus, kind.memory_bytes, kind.memory_bytes, engines=frozenset(EngineKind))
