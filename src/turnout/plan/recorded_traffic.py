"""Traffic as a service has recorded it: from its usage (requests, tokens and videos by day, tenant and model) to a trace.

Usage knows the day of a request, not its hour. The hours follow those at which the videos that can be listed were asked for,
if there are any; otherwise they are spread evenly.
"""

import csv
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from turnout.plan.scenario import DAY_S, HOUR_S, Scenario
from turnout.tenants.usage_json import UsageShown

FIELDS = ("at", "model", "tenant", "seconds", "tokens")


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """`rows` are lines of a trace; `unknown` are models that were asked for and that the scenario does not have."""

    rows: Sequence[tuple[object, ...]]
    unknown: Sequence[str]


def recorded_traffic(
    used: Iterable[UsageShown], asked_at: Sequence[float], first: date, known: Collection[str], seed: int
) -> RecordedTraffic:
    """`asked_at` are times at which videos were asked for; `first` is the day with which the trace begins."""
    rng = random.Random(f"{seed}:recorded")
    hours = [0] * 24
    for at in asked_at:
        hours[datetime.fromtimestamp(at, UTC).hour] += 1
    weights = hours if any(hours) else [1] * 24
    rows: list[tuple[object, ...]] = []
    unknown: dict[str, None] = {}
    for row in used:
        if not (row.videos or row.requests):
            continue  # its GPUs were held, and nobody asked for it
        if row.model not in known:
            unknown[row.model] = None
            continue
        day_s = (date.fromisoformat(row.day) - first).days * DAY_S
        count = row.videos or row.requests
        seconds = (round(row.render_seconds / row.videos, 3) or "") if row.videos else ""
        tokens = "" if row.videos or not row.requests else max(1, round(row.completion_tokens / row.requests))
        for hour in rng.choices(range(24), weights, k=count):
            at = day_s + hour * HOUR_S + rng.uniform(0, HOUR_S)
            rows.append((round(at, 3), row.model, row.tenant, seconds, tokens))
    return RecordedTraffic(sorted(rows, key=lambda line: float(str(line[0]))), list(unknown))


def with_measured_loads(scenario: Scenario, measured: Mapping[str, float]) -> Scenario:
    """The scenario with these times, by the names that its traffic uses, from an order to a replica that serves."""
    models = dict(scenario.models)
    for name, copies in scenario.copies.items():
        if name in measured:
            for copy in copies:
                timing = replace(models[copy].timing, load_s=measured[name], loads=())
                models[copy] = replace(models[copy], timing=timing)
    return replace(scenario, models=models)


def write_trace(path: Path, rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(rows)
