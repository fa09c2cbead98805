"""A plan's figures as a table for people and as JSON for programs."""

from dataclasses import asdict
from typing import Any

from turnout.plan.gpu_meter import GpuUse
from turnout.plan.modes import TITLES, Setup
from turnout.plan.outcome import Outcome
from turnout.plan.scenario import Scenario

HEADINGS = (
    *("MODE", "MACHINES", "COST/DAY", "PER VIDEO", "PER 1M TOKENS", "BUSY", "WAIT P50", "P95", "P99"),
    *("COLD STARTS", "WAKES", "EVICTED", "REFUSED"),
)
UNSERVED = (
    "! not all requests are served, so its other figures say little; who is not served waits to the end"
)


def row(scenario: Scenario, setup: Setup, outcome: Outcome) -> tuple[str, ...]:
    on, most = sum(pool.on for pool in setup.pools), max(outcome.machines, default=0.0)
    return (
        f"! {title(setup)}" if outcome.unserved else title(setup),
        str(on) if on >= most else f"{on} to {most:.0f}",
        money(outcome.cost_a_day, scenario.currency),
        money(outcome.cost_a_video, scenario.currency),
        money(outcome.cost_a_million_tokens, scenario.currency),
        f"{100 * outcome.busy_share:.0f} %",
        span(outcome.waits.p50_s),
        span(outcome.waits.p95_s),
        span(outcome.waits.p99_s),
        str(outcome.counts.cold_starts),
        str(outcome.counts.wakes),
        str(outcome.counts.evictions),
        f"{outcome.counts.lost} of {outcome.counts.requests}" if outcome.counts.lost else "0",
    )


def title(setup: Setup) -> str:
    return TITLES[setup.mode] + (f", {setup.variant}" if setup.variant else "")


def money(amount: float | None, currency: str) -> str:
    if amount is None:
        return "–"
    digits = 0 if amount >= 100 else 2 if amount >= 0.1 else 4
    return f"{currency}{amount:,.{digits}f}"


def span(seconds: float) -> str:
    """A wait in two or three digits."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def as_json(scenario: Scenario, setup: Setup, outcome: Outcome) -> dict[str, Any]:
    gpu = outcome.gpu
    return {
        "mode": setup.mode.value,
        "variant": setup.variant,
        "machines": {pool.name: {"on": pool.on, "most": pool.most} for pool in setup.pools},
        "replicas": {
            name: {
                "min": m.spec.scaling.min_replicas,
                "max": m.spec.scaling.max_replicas,
                "idle_s": m.spec.scaling.idle_s,
            }
            for name, m in setup.models.items()
        },
        "cost_a_day": outcome.cost_a_day,
        "cost_a_video": outcome.cost_a_video,
        "cost_a_million_tokens": outcome.cost_a_million_tokens,
        "kwh_a_day": outcome.kwh_a_day,
        "gpu_seconds": {
            "paid": gpu.paid,
            **{use.name.lower(): gpu.by_use[use] for use in GpuUse},
        },
        "busy_share": outcome.busy_share,
        "all_served": not outcome.unserved,
        "wait": asdict(outcome.waits),
        "wait_by_model": {name: asdict(waits) for name, waits in outcome.by_model.items()},
        "ready_share": dict(outcome.ready_share),
        **asdict(outcome.counts),
    }
