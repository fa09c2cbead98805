"""One run of one mode: the requests of a scenario through a world, and what it showed."""

from collections.abc import Callable, Iterator
from pathlib import Path

from turnout.plan.modes import PlanMode, Setup
from turnout.plan.outcome import Outcome, Waits, percentile
from turnout.plan.scenario import Scenario
from turnout.plan.traffic import PlannedRequest, requests
from turnout.plan.world import World


def simulate(
    scenario: Scenario, setup: Setup, folder: Path, progress: Callable[[float], None] = lambda _: None
) -> Outcome:
    return run(scenario, setup, requests(scenario, folder), progress)


def run(
    scenario: Scenario,
    setup: Setup,
    traffic: Iterator[PlannedRequest],
    progress: Callable[[float], None] = lambda _: None,
) -> Outcome:
    jobs = setup.mode is PlanMode.JOB
    world = World(scenario, setup.models.values(), setup.pools, jobs=jobs, progress=progress)
    world.run(traffic)
    state, until = world.state, world.state.clock.now
    waits = {name: Waits.of(()) for name in setup.models}
    waits_of = state.measured.waits_until(until)
    all_waits = sorted(wait for own in waits_of.values() for wait in own)
    held = state.held.means(until)
    total = sum(map(sum, held.values()))
    by_videos = sum(sum(own) for name, own in held.items() if setup.models[name].video)
    queue, machines = state.waiting.means(until), state.machines_on.means(until)
    return Outcome(
        mode=setup.mode,
        days=scenario.days,
        counts=state.measured.counts,
        waits=Waits.of(all_waits),
        by_model=dict(sorted({**waits, **{name: Waits.of(own) for name, own in waits_of.items()}}.items())),
        gpu=state.meter.spent,
        video_share=by_videos / total if total else 0.0,
        ready_share={n: sum(own) / len(own) for n, own in state.ready.means(until).items()},
        waits_of=waits_of,
        distribution=[percentile(all_waits, n / 100) for n in range(1, 101)],
        queue=queue.get("", []),
        held=held,
        machines=machines.get("", []),
    )
