"""Where a replica fits. Pure: room is what was not promised, or what is measured free, whichever is less.

A `Room` is a scratch pad that one planning pass fills and takes from; it never outlives the pass.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from turnout.extras import LOCAL, RENDERS
from turnout.fleet.machine_rules import Gpu, Machine
from turnout.fleet.model_rules import EngineKind, Model, Needs, Runner
from turnout.fleet.replica_rules import Replica
from turnout.fleet.worker_rules import Worker

_IDLE_SHARE = 0.95


def needs_on(model: Model, machine: Machine) -> Needs:
    """What a replica would take there, with the share of a GPU in bytes."""
    needs = model.needs
    if not needs.gpus or needs.gpu_memory_bytes:
        return needs
    largest = max((gpu.total_bytes for gpu in machine.gpus), default=0)
    share = model.server.gpu_memory_utilization or 1.0
    return replace(needs, gpu_memory_bytes=max(1, min(largest, ceil(largest * share))))


def could_ever_fit(model: Model, machine: Machine) -> bool:
    """Whether the machine could host a replica if it held nothing else."""
    needs = needs_on(model, machine)
    if model.engine not in machine.engines:
        return False
    able = sum(gpu.total_bytes >= needs.gpu_memory_bytes for gpu in machine.gpus)
    return able >= needs.gpus and machine.memory_bytes >= needs.memory_bytes


def could_run(models: Iterable[Model], machine: Machine) -> list[str]:
    """The models that a worker on this machine could be ordered to hold."""
    ours = (m for m in models if m.video is None or m.video.runner in (None, Runner.WORKER))
    return sorted(model.name for model in ours if could_ever_fit(model, machine))


def why_nowhere(model: Model, machines: Collection[Machine]) -> str:
    """Why none of the machines could ever host it, and what helps."""
    if not machines:
        return "no worker has joined: start one with `turnout worker --join URL --token KEY`"
    needs, able = model.needs, [m for m in machines if model.engine in m.engines]
    if not able:
        return f"no worker can run {model.engine} engines: {_ENGINE_ADVICE[model.engine]}"
    gpus = max(len(m.gpus) for m in able)
    if gpus < needs.gpus:
        return f"it needs {needs.gpus} GPUs and no worker has more than {gpus}{_OVER_MACHINES if model.video else ''}"
    if needs.gpus and not any(
        sum(g.total_bytes >= needs.gpu_memory_bytes for g in m.gpus) >= needs.gpus for m in able
    ):
        return f"no worker has {needs.gpus} GPUs with {_gb(needs.gpu_memory_bytes)} each"
    return f"it needs {_gb(needs.memory_bytes)} of memory, which no worker with its GPUs has"


_ENGINE_ADVICE = {
    EngineKind.VLLM: "install vLLM where a worker runs, or name its program in the setting `vllm`",
    EngineKind.LLAMACPP: f"where a worker runs: {LOCAL}",
    EngineKind.COMMAND: "a worker must allow the command (--allow-command)",
    EngineKind.VIDEO: f"where a worker runs: {RENDERS}",
}


_OVER_MACHINES = "; over several machines a gang needs a network in which they call each other, and torchrun, a LeaderWorkerSet or Ray to start it"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def gpu_share(replica: Replica) -> int:
    """What is promised to it on each of its GPUs."""
    return replica.needs.asleep_gpu_memory_bytes if replica.asleep else replica.needs.gpu_memory_bytes


@dataclass(slots=True)
class Room:
    """`gpus` has the free bytes by GPU index; `blocked` are GPUs on which something is starting."""

    worker: Worker
    gpus: dict[int, int]
    memory: int
    blocked: set[int]
    largest: int = 0

    def settle(self) -> "Room":
        """Call after filling: keeps the figure that rules out most machines at a glance."""
        self.largest = max((free for i, free in self.gpus.items() if i not in self.blocked), default=0)
        return self

    def take(self, gpus: Iterable[int], share: int, memory: int) -> None:
        for index in gpus:
            if index in self.gpus:
                self.gpus[index] -= share
        self.memory -= memory

    def block(self, gpus: Iterable[int]) -> None:
        self.blocked.update(gpus)
        self.settle()

    def fit(self, needs: Needs) -> tuple[int, ...] | None:
        """The GPUs that are filled best by it; None when it does not fit."""
        if self.memory < needs.memory_bytes:
            return None
        if not needs.gpus:
            return ()
        if self.largest < needs.gpu_memory_bytes:
            return None
        able = [
            (free, index)
            for index, free in self.gpus.items()
            if free >= needs.gpu_memory_bytes and index not in self.blocked
        ]
        if len(able) < needs.gpus:
            return None
        able.sort()
        return tuple(sorted(index for _, index in able[: needs.gpus]))

    def holds(self, gpus: Iterable[int], share: int, memory: int) -> bool:
        """Whether so much more fits on exactly these GPUs."""
        return self.memory >= memory and all(
            self.gpus.get(i, -1) >= share and i not in self.blocked for i in gpus
        )


def _free_on(gpu: Gpu, promised: int, measured: int) -> int:
    """Neither promised to another nor in use. A GPU with nothing of ours that is nearly free counts as whole: drivers
    and desktops always keep a little of it, and a model that takes a whole GPU would fit nowhere."""
    idle = promised == gpu.total_bytes and measured >= _IDLE_SHARE * gpu.total_bytes
    return gpu.total_bytes if idle else min(promised, measured)


def room_now(worker: Worker, replicas: Iterable[Replica]) -> Room:
    """What can be started there at once: neither promised to another nor, as measured, in use."""
    machine = worker.machine
    promised = {gpu.index: gpu.total_bytes for gpu in machine.gpus}
    memory = machine.memory_bytes
    measured_memory = machine.free_memory_bytes
    blocked: set[int] = set()
    for replica in replicas:
        share = gpu_share(replica)
        for index in replica.gpus:
            if index in promised:
                promised[index] -= share
        memory -= replica.needs.memory_bytes
        if replica.coming:
            blocked.update(replica.gpus)
            measured_memory -= replica.needs.memory_bytes
    gpus = {gpu.index: _free_on(gpu, promised[gpu.index], gpu.free_bytes) for gpu in machine.gpus}
    return Room(worker, gpus, min(memory, measured_memory), blocked).settle()


def room_later(worker: Worker, replicas: Collection[Replica], *, freeing: bool) -> Room:
    """What will be free when all that is leaving has left and all that is starting has started.

    While memory of earlier replicas is still `freeing`, the measured figures are not yet held against it.
    """
    machine = worker.machine
    promised = {gpu.index: gpu.total_bytes for gpu in machine.gpus}
    measured = {gpu.index: gpu.total_bytes if freeing else gpu.free_bytes for gpu in machine.gpus}
    memory, measured_memory = (
        machine.memory_bytes,
        machine.memory_bytes if freeing else machine.free_memory_bytes,
    )
    for replica in replicas:
        share = gpu_share(replica)
        if replica.leaving:
            kept = replica.needs.asleep_gpu_memory_bytes if replica.to_sleep else 0
            for index in replica.gpus:
                if index in measured:
                    measured[index] += share - kept
            share = kept
            measured_memory += 0 if replica.to_sleep else replica.needs.memory_bytes
        for index in replica.gpus:
            if index in promised:
                promised[index] -= share
        if replica.to_sleep or not replica.leaving:
            memory -= replica.needs.memory_bytes
    gpus = {gpu.index: _free_on(gpu, promised[gpu.index], measured[gpu.index]) for gpu in machine.gpus}
    return Room(worker, gpus, min(memory, measured_memory), set()).settle()


def with_freed(room: Room, victims: Iterable[Replica], asleep: Collection[Replica] = ()) -> Room:
    """The room if these left, too, or slept."""
    freed = Room(room.worker, dict(room.gpus), room.memory, set(room.blocked))
    for victim in victims:
        freed.take(victim.gpus, -gpu_share(victim), -victim.needs.memory_bytes)
    for victim in asleep:
        freed.take(victim.gpus, victim.needs.asleep_gpu_memory_bytes, victim.needs.memory_bytes)
    return freed.settle()


def fewest_victims(
    room: Room, candidates: Sequence[Replica], needs: Needs, gpus: tuple[int, ...] | None = None
) -> list[Replica] | None:
    """Which of the candidates (those to go first come first) must leave so that `needs` fit, on `gpus` if given.

    None when even all of them would not do.
    """

    def enough(victims: Sequence[Replica]) -> bool:
        freed = with_freed(room, victims)
        if gpus is None:
            return freed.fit(needs) is not None
        return freed.holds(gpus, needs.gpu_memory_bytes, needs.memory_bytes)

    low, high = 0, len(candidates)
    if not enough(candidates):
        return None
    while low < high:  # the shortest beginning of the list that is enough
        middle = (low + high) // 2
        if enough(candidates[:middle]):
            high = middle
        else:
            low = middle + 1
    victims = list(candidates[:low])
    for victim in reversed(victims[:-1]):  # the last one is needed; earlier ones may not be
        rest = [v for v in victims if v is not victim]
        if enough(rest):
            victims = rest
    return victims


def fits_beside(room: Room, gpus: Iterable[int], taken: Needs, more: Needs) -> bool:
    """Whether `more` still fits when `taken` has these GPUs."""
    left = with_freed(room, ())
    left.take(gpus, taken.gpu_memory_bytes, taken.memory_bytes)
    return left.settle().fit(more) is not None
