"""Counts the manager's decisions, and what came of them, for the metrics. Pure.

Everything is a number that only grows, named `what:details:model`; gateways make metrics of them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from turnout.fleet.events_and_commands import Blame, Close, Command, SetWant, StartReplica
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.replica_rules import Phase, Replica, Want
from turnout.telemetry.exposition import HistogramMetric
from turnout.telemetry.metric_table import REPLICA_START_RATIO, REPLICA_START_SECONDS
from turnout.tenants.gpu_time_rules import GpuCell

_LEAST_S = 1.0  # what starts sooner is not late by being a second later


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
            counted.update(_start_up(old, replica, before.wake_s.get(replica.model)))
    return counted


def _start_up(old: Replica, replica: Replica, learnt_s: float | None) -> Counter[str]:
    """`learnt_s` is how long it took the last time."""
    seconds = max(0.0, replica.phase_since - old.phase_since)
    kind = "wake" if old.phase is Phase.SLEEPING else "start"
    counted = Counter(_in_histogram(f"ready_{kind}", replica.model, seconds, REPLICA_START_SECONDS))
    scaling = replica.spec.scaling
    # A model that sleeps has two times, and the last one may be the other.
    expected_s = scaling.start_s or (None if scaling.sleep else learnt_s)
    if expected_s and (kind == "start" or scaling.start_s is None):
        ratio = seconds / max(_LEAST_S, expected_s)
        counted.update(_in_histogram(f"ratio_{kind}", replica.model, ratio, REPLICA_START_RATIO))
    return counted


def _in_histogram(name: str, model: str, value: float, metric: HistogramMetric) -> dict[str, int]:
    return {
        f"{name}:{bisect_left(metric.bounds, value)}:{model}": 1,
        f"{name}:ms:{model}": round(value * 1000),
    }


def count_gpu_time(by_model: Mapping[GpuCell, int]) -> dict[str, int]:
    """GPU time in ms, by `gpu_` and the name of what it is of."""
    return {f"gpu_{cell.name}": ms for cell, ms in by_model.items()}


def count_replicas(fleet: Fleet) -> Counter[str]:
    """How many replicas are in each state, by `state:model`; one that takes no new requests is closing."""
    return Counter(
        f"{'closing' if r.closing is not None else r.phase.value}:{r.model}" for r in fleet.replicas.values()
    )
