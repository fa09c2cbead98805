"""One decision of the manager, and how it grows with the fleet, beside a plain pass over its replicas."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from benchmarks.figures import Table, percentile, say
from benchmarks.machine import Pressure
from turnout.fleet.core_rules import step
from turnout.fleet.events_and_commands import DemandSeen, Event, Tick, WorkerHeard
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.worker_rules import Worker

SIZES = ((10, 100, 5), (100, 1_000, 50), (300, 3_000, 150), (1_000, 10_000, 500), (3_000, 30_000, 1_500))
ROUNDS = 7
_GB = 10**9
_GPUS = 8
_NOW = 10_000.0


async def measure() -> Table:
    """One decision step, and how it grows."""
    table = Table(
        "manager: milliseconds of one step",
        (
            "workers",
            "replicas",
            "models",
            "plain pass",
            "tick",
            "of plain",
            "heartbeats",
            "10 wake-ups",
            "all waiting",
            "full fleet, 10 wait",
        ),
    )
    pressure = Pressure()
    for workers, replicas, models in SIZES:
        say(f"{workers} workers, {replicas} replicas, {models} models")
        fleet = make_fleet(workers, replicas, models, gpu_gb=80)
        full = make_fleet(workers, replicas, models, gpu_gb=50)  # nothing more fits anywhere
        beats = [_beat(fleet, w) for w in list(fleet.workers)[: workers // 8]]  # in a quarter of a second
        plain = _ms(lambda fleet=fleet: [r for r in fleet.replicas.values() if r.busy and r.open])
        tick = _step(fleet, [Tick()])
        heard = _step(fleet, beats)
        table.rows.append(
            (
                workers,
                replicas,
                models,
                plain,
                tick,
                tick / plain,
                heard,
                _step(fleet, [_asked(fleet, 10)]),
                _step(fleet, [_asked(fleet, models)]),
                _step(full, [_asked(full, 10)]),
            )
        )
    table.notes = [
        "tick: nothing to do but to look. heartbeats: an eighth of the workers report, as in 0.25 s at one each 2 s.",
        "wake-ups: so many models without a replica are asked for at once, and are placed.",
        "full fleet: they do not fit, so someone must make room.",
        f"Median of {ROUNDS}; the plain pass looks at two attributes of each replica.",
        pressure.note(),
    ]
    return table


def make_fleet(workers: int, replicas: int, models: int, gpu_gb: int) -> Fleet:
    """Every model has replicas that are used; as many models again have none."""
    served = {
        f"m{n}": Model(
            f"m{n}",
            EngineKind.VLLM,
            f"org/m{n}",
            Needs(1, 20 * _GB, _GB),
            scaling=Scaling(max_replicas=replicas),
        )
        for n in range(2 * models)
    }
    resident: dict[ReplicaId, Replica] = {}
    used = {(w, gpu): 0 for w in range(workers) for gpu in range(_GPUS)}
    for n in range(replicas):
        worker, gpu = n % workers, (n // workers) % _GPUS
        used[worker, gpu] += 20 * _GB
        model = served[f"m{n % models}"]
        resident[ReplicaId(f"r{n}")] = Replica(
            ReplicaId(f"r{n}"),
            model.name,
            WorkerId(f"w{worker}"),
            (gpu,),
            model.needs,
            Want.READY,
            Phase.READY,
            created_at=_NOW - 5_000,
            phase_since=_NOW - 5_000,
            used_at=_NOW - n % 100,
            spec=model,
            busy=n % 3,
            address="127.0.0.1:1",
            ready_at=_NOW - 5_000,
            heard=True,
        )
    machines = {
        WorkerId(f"w{w}"): Machine(
            tuple(Gpu(g, gpu_gb * _GB, gpu_gb * _GB - used[w, g]) for g in range(_GPUS)), 500 * _GB, 400 * _GB
        )
        for w in range(workers)
    }
    fleet = Fleet(
        models=served,
        workers={w: Worker(w, machine, f"http://{w}", _NOW, seen=1) for w, machine in machines.items()},
        replicas=resident,
        demand={f"m{n}": Demand(0, 64 * (replicas // models), _NOW) for n in range(models)},
    )
    if gpu_gb < 60:  # the other half of each GPU is spoken for, too
        extra = {
            ReplicaId(f"x{w}-{g}"): replace(
                resident[ReplicaId("r0")],
                id=ReplicaId(f"x{w}-{g}"),
                worker=WorkerId(f"w{w}"),
                gpus=(g,),
                needs=Needs(1, max(0, gpu_gb * _GB - used[w, g] - _GB)),
            )
            for w, g in used
        }
        fleet = replace(fleet, replicas=resident | extra)
    return fleet


def _beat(fleet: Fleet, worker: WorkerId) -> WorkerHeard:
    own = [r for r in fleet.replicas.values() if r.worker == worker]
    reports = tuple(ReplicaReport(r.id, r.phase, r.address, r.busy + 1) for r in own)
    return WorkerHeard(worker, f"http://{worker}", fleet.workers[worker].machine, reports, seq=1, seen=1)


def _asked(fleet: Fleet, models: int) -> DemandSeen:
    cold = list(fleet.models)[len(fleet.models) // 2 :]
    return DemandSeen({name: Demand(1, 0, _NOW) for name in cold[:models]})


def _step(fleet: Fleet, events: Sequence[Event]) -> float:
    return _ms(lambda: step(fleet, events, _NOW, (ReplicaId(f"n{n}") for n in count())))


def _ms(what: Callable[[], object]) -> float:
    what()
    gc.collect()
    gc.disable()
    try:
        times: list[float] = []
        for _ in range(ROUNDS):
            began = time.process_time()
            what()
            times.append(time.process_time() - began)
        return percentile(times, 0.5) * 1e3
    finally:
        gc.enable()
