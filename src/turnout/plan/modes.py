"""The ways to keep models on GPUs that a plan compares, as settings of models and machines."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Any

from turnout.fleet.model_rules import Model
from turnout.plan.cloud import Pool, machines_for
from turnout.plan.scenario import PlannedModel, Scenario
from turnout.plan.traffic import PlannedRequest, requests

BUSY = 0.8  # how busy fixed replicas may be in the busiest hour, and fixed machines on average
ALWAYS_S = 10.0**7
_WINDOW_S = 3_600.0


class PlanMode(StrEnum):
    JOB = "job"
    RESIDENT = "resident"
    AUTOSCALE = "autoscale"
    ZERO = "zero"
    WARM = "warm"
    SHARED = "shared"


TITLES = {
    PlanMode.JOB: "job per request",
    PlanMode.RESIDENT: "resident",
    PlanMode.AUTOSCALE: "resident + autoscale",
    PlanMode.ZERO: "scale to zero",
    PlanMode.WARM: "warm pool",
    PlanMode.SHARED: "shared fleet",
}

ABOUT = {
    PlanMode.JOB: "a new pod for each request, gone afterwards (PyTorchJob, RayJob)",
    PlanMode.RESIDENT: "a fixed number of replicas, always on",
    PlanMode.AUTOSCALE: "one replica of each model always on, more with the load",
    PlanMode.ZERO: "no replica without requests, no machine without replicas",
    PlanMode.WARM: "as scale to zero, but chat models sleep in the main memory of machines that stay on",
    PlanMode.SHARED: "a fixed number of machines on which all models take turns",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What one mode means for a scenario: how models are kept, and which machines there are."""

    mode: PlanMode
    models: Mapping[str, PlannedModel]
    pools: tuple[Pool, ...]
    variant: str = ""
    """How it differs from what the mode usually means."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many replicas a model's requests keep busy: on average, and in the busiest hour."""

    mean: float = 0.0
    peak: float = 0.0


def loads(scenario: Scenario, folder: Path) -> dict[str, Load]:
    """From the requests themselves, whatever made them."""
    by_hour: dict[str, dict[int, float]] = {name: {} for name in scenario.models}
    for request in requests(scenario, folder):
        own, hour = by_hour[request.model], int(request.at // _WINDOW_S)
        own[hour] = own.get(hour, 0.0) + _work_s(scenario.models[request.model], request) / _WINDOW_S
    hours = max(1.0, scenario.horizon_s / _WINDOW_S)
    return {
        name: Load(sum(own.values()) / hours, max(own.values(), default=0.0)) for name, own in by_hour.items()
    }


def _work_s(model: PlannedModel, request: PlannedRequest) -> float:
    """The part of a replica's time that the request takes."""
    timing, spec = model.timing, model.spec
    if timing.tokens_per_s is None or not request.tokens:
        return request.seconds / spec.concurrency
    if timing.total_tokens_per_s is not None:
        return request.tokens / timing.total_tokens_per_s
    return (timing.prompt_s + request.tokens / timing.tokens_per_s) / spec.concurrency


def setup_of(
    scenario: Scenario, mode: PlanMode, load: Mapping[str, Load], busy: float = BUSY, more: int = 0
) -> Setup:
    """`busy` is how busy fixed replicas may be; `more` replicas of each model, or machines, than usual are on."""
    models = scenario.models
    match mode:
        case PlanMode.RESIDENT:
            count = {
                n: min(
                    max(1, m.spec.scaling.min_replicas, ceil(load[n].peak / busy)) + more,
                    m.spec.scaling.max_replicas,
                )
                for n, m in models.items()
            }
            kept = {n: keep(m, min_replicas=count[n], max_replicas=count[n]) for n, m in models.items()}
            return Setup(mode, kept, fixed(scenario, _needed(scenario, kept.values())))
        case PlanMode.AUTOSCALE:
            kept = {n: keep(m, min_replicas=max(1, m.spec.scaling.min_replicas)) for n, m in models.items()}
            return Setup(mode, kept, elastic(scenario, _needed(scenario, kept.values())))
        case PlanMode.WARM:
            kept = {n: keep(m, sleep=not m.video, asleep_s=ALWAYS_S) for n, m in models.items()}
            return Setup(mode, kept, elastic(scenario, _asleep(scenario, kept)))
        case PlanMode.SHARED:
            # The machines are paid for anyway: who is idle stays until somebody needs the room.
            kept = {n: keep(m, idle_s=ALWAYS_S) for n, m in models.items()}
            return Setup(mode, kept, fixed(scenario, _shared(scenario, load, more)))
        case PlanMode.JOB | PlanMode.ZERO:
            return Setup(mode, models, elastic(scenario, {}))


def keep(model: PlannedModel, **settings: Any) -> PlannedModel:
    scaling = replace(model.spec.scaling, **settings)
    return replace(model, spec=replace(model.spec, scaling=scaling))


def elastic(scenario: Scenario, on: Mapping[str, int]) -> tuple[Pool, ...]:
    """Machines come and go with the need; those that are `on` stay."""
    return tuple(
        Pool(name, kind, max(kind.min, on.get(name, 0)), kind.max) for name, kind in scenario.machines.items()
    )


def fixed(scenario: Scenario, on: Mapping[str, int]) -> tuple[Pool, ...]:
    return tuple(replace(pool, most=pool.on) for pool in elastic(scenario, on))


def _holding(scenario: Scenario, replicas: Iterable[Model]) -> Counter[str]:
    """The machines that hold all these replicas at once."""
    largest_first = sorted(replicas, key=lambda m: (-m.needs.gpus, -m.needs.gpu_memory_bytes, m.name))
    left = {name: kind.max for name, kind in scenario.machines.items()}
    return Counter(pool.name for pool in machines_for(largest_first, elastic(scenario, {}), left))


def _needed(scenario: Scenario, models: Iterable[PlannedModel]) -> Counter[str]:
    return _holding(scenario, (m.spec for m in models for _ in range(m.spec.scaling.min_replicas)))


def _asleep(scenario: Scenario, models: Mapping[str, PlannedModel]) -> Counter[str]:
    """One machine of each kind that is needed at all, and so many that all chat models can sleep there."""
    asleep = [
        replace(
            m.spec,
            needs=replace(m.spec.needs, gpu_memory_bytes=max(1, m.spec.needs.asleep_gpu_memory_bytes)),
        )
        for m in models.values()
        if m.spec.scaling.sleep
    ]
    awake = _holding(scenario, [max((m.spec for m in models.values()), key=lambda m: m.needs.gpus)])
    return _holding(scenario, asleep) | awake


def _shared(scenario: Scenario, load: Mapping[str, Load], more: int) -> Counter[str]:
    """As many as the mean load keeps busy, and one of each kind that some model needs; `more` of the cheapest."""
    replicas = [m.spec for name, m in scenario.models.items() for _ in range(int(load[name].mean / BUSY))]
    rest = sum(m.spec.needs.gpus * (load[name].mean / BUSY % 1) for name, m in scenario.models.items())
    held = _holding(scenario, replicas)
    for model in scenario.models.values():
        held |= _holding(scenario, [model.spec])
    gpus = sum(scenario.machines[name].gpus * count for name, count in held.items())
    wanted = sum(m.needs.gpus for m in replicas) + rest
    if held:
        name = min(held, key=lambda n: scenario.machines[n].price_an_hour)
        kind = scenario.machines[name]
        missing = max(0, ceil((wanted - gpus) / max(1, kind.gpus)))
        held[name] = max(1, min(kind.max, held[name] + missing + more))
    return held
