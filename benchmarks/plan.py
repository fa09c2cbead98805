"""A week of requests through the simulated world: how fast it runs, and how that grows with the requests."""

import resource
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling
from turnout.plan.modes import PlanMode, Setup, elastic
from turnout.plan.scenario import MachineKind, PlannedModel, Scenario, Timing, TrafficPart
from turnout.plan.simulation import simulate

# Requests in a week, workers, models. The last one is the largest world that is asked for, for an hour.
SIZES = (
    (100_000, 200, 20, 7.0),
    (300_000, 200, 20, 7.0),
    (1_000_000, 200, 20, 7.0),
    (6_000, 1_000, 500, 1 / 24),
)
_GB = 10**9
_DAY = (*(1.0,) * 8, *(3.0,) * 12, *(2.0,) * 4)


async def measure() -> Table:
    """A week of requests in the simulated world of `turnout plan`."""
    table = Table(
        "plan: a simulated week, scale to zero with machines that are always on",
        (
            *(
                "requests",
                "workers",
                "models",
                "days",
                "CPU s",
                "events/s",
                "sim h/s",
                "decisions",
                "us/request",
                "MB",
            ),
            *("p95 wait s", "busy %"),
        ),
    )
    pressure = Pressure()
    for requests, workers, models, days in SIZES:
        say(f"{requests:,} requests, {workers} workers, {models} models, {days:g} days")
        scenario = make_scenario(requests, workers, models, days)
        began = time.process_time()
        outcome = simulate(scenario, Setup(PlanMode.ZERO, scenario.models, elastic(scenario, {})), Path())
        spent_s = time.process_time() - began
        table.rows.append(
            (
                *(
                    outcome.counts.requests,
                    workers,
                    models,
                    round(days, 2),
                    spent_s,
                    outcome.counts.events / spent_s,
                ),
                *(days * 24 / spent_s, outcome.counts.decisions, spent_s / outcome.counts.requests * 1e6),
                *(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000, outcome.waits.p95_s),
                100 * outcome.busy_share,
            )
        )
    table.notes = [
        "Half of the models take requests of a minute and a half one at a time, half chat; the day has a shape.",
        "CPU seconds of one core; MB is the most that this process has held so far.",
        pressure.note(),
    ]
    return table


def make_scenario(requests: int, workers: int, models: int, days: float) -> Scenario:
    slow = Model(
        "", EngineKind.VLLM, "w", Needs(1, 0, _GB), scaling=Scaling(max_replicas=workers), concurrency=1
    )
    chat = Model(
        "",
        EngineKind.VLLM,
        "w",
        Needs(1, 60 * _GB, _GB),
        scaling=Scaling(max_replicas=workers),
        concurrency=16,
    )
    planned: dict[str, PlannedModel] = {}
    for n in range(models):
        served = replace(chat if n % 2 else slow, name=f"m{n}")
        timing = Timing(load_s=40, prompt_s=0.3, tokens_per_s=50) if n % 2 else Timing(load_s=60, seconds=90)
        planned[served.name] = PlannedModel(served, timing)
    traffic = tuple(
        TrafficPart(
            model=name,
            a_day=requests / days / models * (1.2 if "tokens" in _kind(model) else 0.8),
            by_hour=_DAY,
            tokens=300.0 if "tokens" in _kind(model) else 0.0,
            tenants={"a": 1.0, "b": 2.0, "c": 1.0},
        )
        for name, model in planned.items()
    )
    machines = {"gpu": MachineKind(gpus=1, price_an_hour=2.0, min=workers, max=workers)}
    return Scenario(planned, traffic, machines, {name: (name,) for name in planned}, days=days)


def _kind(model: PlannedModel) -> str:
    return "seconds" if model.timing.tokens_per_s is None else "tokens"
