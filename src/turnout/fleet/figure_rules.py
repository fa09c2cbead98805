"""Counts the manager's decisions, and what came of them, for the metrics. Pure.

Everything is a number that only grows, named `what:details:model`; gateways make metrics of them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from turnout.fleet.events_and_commands import Blame, Close, Command, SetWant, StartReplica
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.replica_rules import Phase, Replica, Want
from turnout.telemetry.metric_table import REPLICA_START_SECONDS
from turnout.tenants.gpu_time_rules import GpuCell


def count_decisions(before: Fleet, after: Fleet, commands: Iterable[Command]) -> Counter[str]:
    """How many replicas were started (and why), woken, evicted for another model, and how often a model failed; and how
    long those took that have become ready."""
    counted: Counter[str] = Counter()
    for command in commands:
        match command:
            case StartReplica(model=model, cause=cause):
                counted[f"start:{cause}:{model}"] += 1
            case SetWant(replica, Want.READY, _) if replica in before.replicas:
                if before.replicas[replica].phase is Phase.SLEEPING:
                    counted[f"wake:request:{before.replicas[replica].model}"] += 1
            case Close(replica=replica, room_for=str()) if replica in before.replicas:
                counted[f"evict::{before.replicas[replica].model}"] += 1
            case Blame(model=model):
                counted[f"fail::{model}"] += 1
            case _:
                pass
    for replica in after.replicas.values():
        old = before.replicas.get(replica.id)
        if old is not None and old is not replica and old.coming and replica.phase is Phase.READY:
            counted.update(_start_up(old, replica))
    return counted


def _start_up(old: Replica, replica: Replica) -> Counter[str]:
    seconds = max(0.0, replica.phase_since - old.phase_since)
    kind = "wake" if old.phase is Phase.SLEEPING else "start"
    bound = bisect_left(REPLICA_START_SECONDS.bounds, seconds)
    return Counter(
        {
            f"ready_{kind}:{bound}:{replica.model}": 1,
            f"ready_{kind}:ms:{replica.model}": round(seconds * 1000),
        }
    )


def count_gpu_time(by_model: Mapping[GpuCell, int]) -> dict[str, int]:
    """GPU time in ms, by `gpu_` and the name of what it is of."""
    return {f"gpu_{cell.name}": ms for cell, ms in by_model.items()}


def count_replicas(fleet: Fleet) -> Counter[str]:
    """How many replicas are in each state, by `state:model`; one that takes no new requests is closing."""
    return Counter(
        f"{'closing' if r.closing is not None else r.phase.value}:{r.model}" for r in fleet.replicas.values()
    )
