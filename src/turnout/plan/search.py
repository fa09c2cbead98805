"""Finds the cheapest setting that meets the targets, and says what the next cheaper one would break."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turnout.plan.modes import Load, PlanMode, Setup, keep, loads, setup_of
from turnout.plan.outcome import Outcome
from turnout.plan.plan_table import money, span
from turnout.plan.scenario import Scenario, Targets
from turnout.plan.simulation import simulate

_IDLE_S = (60.0, 300.0, 900.0, 3_600.0)
_BUSY = (0.95, 0.8, 0.6, 0.4)
_MORE = (-1, 0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that was tried; `misses` says which targets it misses."""

    setup: Setup
    outcome: Outcome
    misses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """`tried` has the cheapest first, and those last that do not serve all requests. `best` is the cheapest that meets all
    targets; `cheaper` the dearest of those that cost less than it."""

    tried: Sequence[Candidate]
    best: Candidate | None
    cheaper: Candidate | None


def search(
    scenario: Scenario, folder: Path, modes: Sequence[PlanMode], progress: Callable[[str, float], None]
) -> Found:
    load = loads(scenario, folder)
    setups = [setup for mode in modes for setup in _variants(scenario, mode, load)]
    tried: list[Candidate] = []
    for n, setup in enumerate(setups):
        title = f"{setup.mode} {setup.variant}".strip()

        def advance(share: float, n: int = n, title: str = title) -> None:
            progress(title, (n + share) / len(setups))

        outcome = simulate(scenario, setup, folder, advance)
        tried.append(Candidate(setup, outcome, tuple(misses(scenario, outcome))))
    tried.sort(key=lambda one: (one.outcome.unserved, one.outcome.cost_a_day, one.outcome.waits.p95_s))
    best = next((one for one in tried if not one.misses), None)
    below = [one for one in tried if best and one.outcome.cost_a_day < best.outcome.cost_a_day]
    cheaper = max(below, key=lambda one: one.outcome.cost_a_day, default=None)
    return Found(tried, best, cheaper)


def misses(scenario: Scenario, outcome: Outcome) -> Iterator[str]:
    """The targets that were not met, as a reader would say it."""
    targets = scenario.targets
    if targets.p95_wait_s is not None and outcome.waits.p95_s > targets.p95_wait_s:
        yield f"the p95 wait is {span(outcome.waits.p95_s)}, over {span(targets.p95_wait_s)}"
    if targets.budget_a_day is not None and outcome.cost_a_day > targets.budget_a_day:
        spent, budget = (money(x, scenario.currency) for x in (outcome.cost_a_day, targets.budget_a_day))
        yield f"it costs {spent} a day, over {budget}"
    if outcome.unserved:
        yield f"{outcome.counts.lost} of {outcome.counts.requests} requests are not served"


def with_target(scenario: Scenario, p95_wait_s: float | None) -> Scenario:
    if p95_wait_s is None:
        return scenario
    targets = Targets(p95_wait_s=p95_wait_s, budget_a_day=scenario.targets.budget_a_day)
    return replace(scenario, targets=targets)


def _variants(scenario: Scenario, mode: PlanMode, load: Mapping[str, Load]) -> Iterator[Setup]:
    match mode:
        case PlanMode.RESIDENT:
            named = [(f"busy at most {100 * b:.0f} %", setup_of(scenario, mode, load, busy=b)) for b in _BUSY]
            named.append(("one replica more", setup_of(scenario, mode, load, more=1)))
        case PlanMode.SHARED:
            made = [setup_of(scenario, mode, load, more=more) for more in _MORE]
            named = [(f"{sum(pool.on for pool in setup.pools)} machines", setup) for setup in made]
        case PlanMode.JOB:
            named = [("", setup_of(scenario, mode, load))]
        case _:
            usual = setup_of(scenario, mode, load)
            named = [(f"idle_s {idle:g}", _with_idle(usual, idle)) for idle in _IDLE_S]
    seen: list[Setup] = []
    for variant, setup in named:
        if setup not in seen:
            seen.append(setup)
            yield replace(setup, variant=variant)


def _with_idle(setup: Setup, idle_s: float) -> Setup:
    return replace(setup, models={n: keep(m, idle_s=idle_s) for n, m in setup.models.items()})
