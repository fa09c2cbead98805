"""The requests of a scenario, in the order in which they come. The same seed makes the same requests."""

import csv
import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from math import exp, inf, log, nan, sqrt
from pathlib import Path

from turnout.errors import Misconfigured
from turnout.plan.scenario import DAY_S, HOUR_S, Scenario, Timing, TrafficPart
from turnout.tasks.task_rules import Priority, TenantId

TENANT = TenantId("default")
_WEEK_HOURS = 24 * 7
_DATES_S = 10**8  # numbers above it are dates, in seconds since 1970
_NEVER_S = 10**11
_MOST_S, _MOST_TOKENS = 10.0**6, 10.0**7


class PlannedRequest:
    """One request. `seconds` is how long a replica needs for it, unless its answer's `tokens` decide."""

    __slots__ = ("at", "began_at", "failures", "model", "number", "priority", "seconds", "tenant", "tokens")

    def __init__(
        self,
        at: float,
        number: int,
        model: str,
        tenant: TenantId,
        seconds: float,
        tokens: int,
        priority: Priority,
    ) -> None:
        self.at = at
        self.number = number
        self.model = model
        self.tenant = tenant
        self.seconds = seconds
        self.tokens = tokens
        self.priority = priority
        self.began_at: float | None = None
        self.failures = 0


def requests(scenario: Scenario, folder: Path) -> Iterator[PlannedRequest]:
    """All requests up to the horizon, in order; traces are looked for in `folder`."""
    numbers = itertools.count()
    parts = [
        _part(scenario, part, random.Random(f"{scenario.seed}:{n}"), folder, numbers)
        for n, part in enumerate(scenario.traffic)
    ]
    return heapq.merge(*parts, key=lambda request: (request.at, request.number))


def _part(
    scenario: Scenario, part: TrafficPart, rng: random.Random, folder: Path, numbers: Iterator[int]
) -> Iterator[PlannedRequest]:
    if part.trace is not None:
        yield from read_trace(folder / part.trace, scenario, part, rng, numbers)
        return
    names = scenario.copies[part.model]
    model = _chooser(names, [1 / (n + 1) ** part.popularity for n in range(len(names))], rng)
    tenants = list(part.tenants) or [TENANT]
    tenant = _chooser(tenants, list(part.tenants.values()) or [1.0], rng)
    sizes = list(part.sizes) or [""]
    size = _chooser(sizes, list(part.sizes.values()) or [1.0], rng)
    for at in _times(part, scenario.horizon_s, rng):
        name = model()
        timing = scenario.models[name].timing
        tokens = max(1, round(rng.expovariate(1 / part.tokens))) if part.tokens else 0
        seconds = _seconds(timing, size()) * _factor(timing.spread, rng)
        yield PlannedRequest(at, next(numbers), name, TenantId(tenant()), seconds, tokens, part.priority)


def _chooser(names: Sequence[str], weights: Sequence[float], rng: random.Random) -> Callable[[], str]:
    if len(names) == 1:
        return lambda: names[0]
    cumulative = list(itertools.accumulate(weights))
    return lambda: rng.choices(names, cum_weights=cumulative)[0]


def _seconds(timing: Timing, size: str) -> float:
    return timing.sizes.get(size, timing.seconds or 0.0)


def _factor(spread: float, rng: random.Random) -> float:
    """A random factor around 1 with this relative deviation (log-normal: never negative)."""
    if not spread:
        return 1.0
    variance = log(1 + spread * spread)
    return exp(rng.gauss(-variance / 2, sqrt(variance)))


def _times(part: TrafficPart, horizon_s: float, rng: random.Random) -> Iterator[float]:
    steady = _poisson(hourly_rates(part), horizon_s, rng) if part.a_day or part.an_hour else iter(())
    burst = _bursts(part, horizon_s, rng) if part.bursts else iter(())
    return heapq.merge(steady, burst)


def hourly_rates(part: TrafficPart) -> list[float]:
    """Requests a second in each hour of a week, from Monday on; bursts are counted apart."""
    mean = (part.a_day or 0.0) / DAY_S + (part.an_hour or 0.0) / HOUR_S
    hours, days = part.by_hour or (1.0,) * 24, part.by_weekday or (1.0,) * 7
    scale = mean * 24 * 7 / ((sum(hours) or 1.0) * (sum(days) or 1.0))
    return [scale * hours[n % 24] * days[n // 24] for n in range(_WEEK_HOURS)]


def _poisson(rates: Sequence[float], horizon_s: float, rng: random.Random) -> Iterator[float]:
    at, hour = 0.0, 0
    while at < horizon_s:
        rate, end = rates[hour % _WEEK_HOURS], (hour + 1) * HOUR_S
        gap = rng.expovariate(rate) if rate else inf
        if at + gap >= end:  # the gaps have no memory, so the next hour may begin anew
            at, hour = end, hour + 1
            continue
        at += gap
        if at < horizon_s:
            yield at


def _bursts(part: TrafficPart, horizon_s: float, rng: random.Random) -> Iterator[float]:
    assert part.bursts is not None
    begin = part.bursts.first_s
    while begin < horizon_s:
        times = sorted(begin + rng.uniform(0, part.bursts.within_s) for _ in range(part.bursts.requests))
        yield from (at for at in times if at < horizon_s)
        begin += part.bursts.every_s


def read_trace(
    path: Path, scenario: Scenario, part: TrafficPart, rng: random.Random, numbers: Iterator[int]
) -> Iterator[PlannedRequest]:
    """A CSV file with a heading: `at` (seconds, or a date and time) and, where they are known, `model`, `tenant`,
    `seconds`, `tokens`, `size`, `priority`. What a row does not say is drawn as the trace's own part of the traffic says, or
    as the scenario's traffic does. Where the times are dates, the plan begins with the first one."""
    rows = sorted(_rows(path), key=lambda row: row[0])
    began = rows[0][0] if rows and rows[0][0] >= _DATES_S else 0.0
    parts = [part] if part.model else _named(scenario)
    for at, line, row in rows:
        try:
            request = _traced(at - began, row, parts, scenario, rng)
        except ValueError as err:
            raise Misconfigured(f"{path}:{line}: {err}") from err
        if request.at < scenario.horizon_s:
            request.number = next(numbers)
            yield request


def _named(scenario: Scenario) -> list[TrafficPart]:
    """The parts of the traffic that rows without a model may be of."""
    return [part for part in scenario.untraced or scenario.traffic if part.model]


def _traced(
    at: float,
    row: Mapping[str, str | None],
    parts: Sequence[TrafficPart],
    scenario: Scenario,
    rng: random.Random,
) -> PlannedRequest:
    """Raises ValueError."""
    name = row.get("model")
    alike = [part for part in parts if part.model == name] if name else parts
    if not name and not parts:
        raise ValueError("it names no model, and neither does the scenario's traffic")
    part = rng.choices(alike, [_a_day(one) for one in alike])[0] if alike else TrafficPart(model=name or "")
    names = scenario.copies.get(name or part.model)
    if names is None:
        raise ValueError(f"there is no model {name or part.model!r}")
    timing = scenario.models[names[0]].timing
    size = row.get("size") or _drawn(part.sizes, "", rng)
    if size and size not in timing.sizes:
        raise ValueError(f"{name or part.model} has no size {size!r}")
    seconds = _number(row, "seconds", _MOST_S)
    if seconds is None:
        seconds = _seconds(timing, size) * _factor(timing.spread, rng)
    tokens = _number(row, "tokens", _MOST_TOKENS)
    if tokens is None:
        tokens = max(1.0, rng.expovariate(1 / part.tokens)) if part.tokens else 0.0
    if not seconds and not (tokens and timing.tokens_per_s):
        raise ValueError(
            f"it needs seconds, size or tokens: {name or part.model} says no other time of a request"
        )
    tenant = TenantId(row.get("tenant") or _drawn(part.tenants, TENANT, rng))
    priority = Priority(row.get("priority") or part.priority)
    return PlannedRequest(at, 0, rng.choice(names), tenant, seconds, round(tokens), priority)


def _a_day(part: TrafficPart) -> float:
    """Requests a day, for a choice between parts."""
    bursts = part.bursts.requests * DAY_S / part.bursts.every_s if part.bursts else 0.0
    return (part.a_day or 0.0) + 24 * (part.an_hour or 0.0) + bursts or 1.0


def _drawn(shares: Mapping[str, float], otherwise: str, rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0] if shares else otherwise


def _number(row: Mapping[str, str | None], name: str, most: float) -> float | None:
    """None where the row does not say."""
    text = row.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value <= most:  # of nan neither is true
        raise ValueError(f"{name} must be a number from 0 to {most:g}, not {text[:40]!r}")
    return value


def _rows(path: Path) -> Iterator[tuple[float, int, dict[str, str | None]]]:
    """When, the line of the file, and the row. Spreadsheets begin a file with a byte order mark."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames is None or "at" not in reader.fieldnames:
                raise Misconfigured(f"{path}:1: the heading has no column `at`")
            for row in reader:
                try:
                    yield _time(row["at"] or ""), reader.line_num, row
                except ValueError as err:
                    raise Misconfigured(f"{path}:{reader.line_num}: {err}") from err
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise Misconfigured(f"{path}: {err}") from err


def _time(text: str) -> float:
    try:
        at = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError) as err:
            raise ValueError(f"at must be seconds or a date and time, not {text[:40]!r}") from err
    if not 0 <= at < _NEVER_S:
        raise ValueError(f"at must be a time from 0 on, not {text[:40]!r}")
    return at
