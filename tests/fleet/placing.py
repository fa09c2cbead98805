"""Machines, replicas and claims, for scenes of what `place` decides about them at once."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from turnout.fleet.events_and_commands import Close, Command, SetWant, StartReplica
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling
from turnout.fleet.place_rules import place
from turnout.fleet.placement_rules import gpu_share
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, Want
from turnout.fleet.scale_rules import Claim, Urgency
from turnout.fleet.worker_rules import DrainedBy, Standing, Worker

NOW = 1000.0
GB = 10**9
WAITED_FOR, KEPT_WARM, LOADED = Urgency.WAITED_FOR, Urgency.KEPT_WARM, Urgency.LOADED
SUSPECT = {"standing": Standing.SUSPECT}
DRAINING = {"drained_by": frozenset({DrainedBy.ADMIN})}


def model(
    name: str, gb: int = 80, gpus: int = 1, memory_gb: int = 1, keeps_gb: int = 0, **scaling: Any
) -> Model:
    needs = Needs(gpus, gb * GB if gpus else 0, memory_gb * GB, keeps_gb * GB)
    return Model(name, EngineKind.VLLM, f"org/{name}", needs, Scaling(**{"max_replicas": 4, **scaling}))


def worker(at: str, *gpus_gb: int, memory_gb: int = 64, weights: Sequence[str] = (), **fields: Any) -> Worker:
    gpus = tuple(Gpu(i, gb * GB, gb * GB) for i, gb in enumerate(gpus_gb))
    machine = Machine(gpus, memory_gb * GB, memory_gb * GB, weights=frozenset(weights))
    return replace(Worker(WorkerId(at), machine, f"http://{at}", NOW), **fields)


def replica(of: Model, at: str, *gpus: int, **fields: Any) -> Replica:
    """Ready for long, and not used since."""
    name = ReplicaId(fields.pop("id", f"{of.name}@{at}"))
    made = Replica(
        name, of.name, WorkerId(at), gpus, of.needs, Want.READY, Phase.READY, 0.0, 0.0, 0.0, of, ready_at=0.0
    )
    return replace(made, **fields)


def fleet(workers: Sequence[Worker], *replicas: Replica, models: Sequence[Model] = (), **more: Any) -> Fleet:
    """What replicas hold is in use on their machines."""
    known = {m.name: m for m in (*models, *(r.spec for r in replicas))}
    return Fleet(known, {w.id: _used(w, replicas) for w in workers}, {r.id: r for r in replicas}, **more)


def _used(one: Worker, replicas: Sequence[Replica]) -> Worker:
    own = [r for r in replicas if r.worker == one.id]
    held = {g.index: sum(gpu_share(r) for r in own if g.index in r.gpus) for g in one.machine.gpus}
    gpus = tuple(replace(g, free_bytes=g.total_bytes - held[g.index]) for g in one.machine.gpus)
    free = one.machine.memory_bytes - sum(r.needs.memory_bytes for r in own)
    return replace(one, machine=replace(one.machine, gpus=gpus, free_memory_bytes=free))


def claim(name: str, urgency: Urgency = WAITED_FOR) -> Claim:
    return Claim(urgency, NOW, name)


def placed(world: Fleet, *claims: str | Claim) -> list[Command]:
    ids = (ReplicaId(f"new-{n}") for n in count(1))
    return place(world, [claim(one) if isinstance(one, str) else one for one in claims], NOW, ids)


def starts(commands: Sequence[Command]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(c.model, c.worker, c.gpus) for c in commands if isinstance(c, StartReplica)]


def room(one: Replica, for_model: str, then: Want = Want.GONE) -> Close:
    return Close(one.id, then, f"room for {for_model}", for_model)


A, B, HALF = model("a"), model("b"), model("half", 40)


def asleep(of: Model, at: str, *gpus: int, **fields: Any) -> Replica:
    return replica(of, at, *gpus, want=Want.ASLEEP, phase=Phase.SLEEPING, **fields)


NAPS = model("naps", 60, keeps_gb=5, max_replicas=2, sleep=True)


def wakes(one: Replica) -> SetWant:
    return SetWant(one.id, Want.READY, "asked for")
