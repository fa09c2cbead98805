"""`turnout plan`: which mode, how many GPUs, what wait, what bill; by simulation with the service's own decisions."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import table
from turnout.cli.options import JsonOption
from turnout.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Generator

    from turnout.plan.modes import PlanMode, Setup
    from turnout.plan.outcome import Outcome
    from turnout.plan.scenario import Scenario

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).")]
ModesOption = Annotated[
    str | None,
    typer.Option("--modes", metavar="LIST", help="Only these: job,resident,autoscale,zero,warm,shared."),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Other random requests (default: the file's).")
]
DaysOption = Annotated[
    float | None, typer.Option("--days", min=0.001, max=3660, help="How many days (default: the file's).")
]


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    scenario: ScenarioFile,
    modes: ModesOption = None,
    days: DaysOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a scenario in every mode: cost, waits, cold starts, how busy the GPUs are."""
    from turnout.plan.modes import loads
    from turnout.plan.plan_table import HEADINGS, row
    from turnout.plan.plan_table import as_json as figures

    world = _read(scenario, days, seed)
    chosen = _modes(modes)
    folder = scenario.parent
    load = loads(world, folder)
    began = time.monotonic()
    results = [_run(world, mode, load, folder) for mode in chosen]
    if as_json:
        print(
            json.dumps(
                {
                    "name": world.name,
                    "days": world.days,
                    "seed": world.seed,
                    "modes": [figures(world, *r) for r in results],
                }
            )
        )
        return
    print(table(HEADINGS, [row(world, *result) for result in results]))
    events = sum(outcome.events for _, outcome in results)
    took_s = max(1e-3, time.monotonic() - began)
    hours = world.days * 24 * len(results)
    print(
        f"{results[0][1].requests:,} requests in {world.days:g} days, {len(results)} times: {events / took_s:,.0f} events"
        f" and {hours / took_s:,.0f} simulated hours a second",
        file=sys.stderr,
    )


def _read(file: Path, days: float | None, seed: int | None) -> "Scenario":
    from dataclasses import replace

    from turnout.plan.scenario_file import ScenarioMistakes, read_scenario

    try:
        world = read_scenario(file)
    except ScenarioMistakes as err:
        for line in err.lines:
            print(line, file=sys.stderr)
        raise typer.Exit(2) from err
    changes: dict[str, Any] = {n: v for n, v in (("days", days), ("seed", seed)) if v is not None}
    return replace(world, **changes)


def _modes(given: str | None) -> "list[PlanMode]":
    from turnout.plan.modes import PlanMode

    if given is None:
        return list(PlanMode)
    try:
        return [PlanMode(name.strip()) for name in given.split(",")]
    except ValueError as err:
        raise InvalidRequest(f"--modes: {err}; there are {', '.join(PlanMode)}") from err


def _run(world: "Scenario", mode: "PlanMode", load: Any, folder: Path) -> "tuple[Setup, Outcome]":
    from turnout.plan.modes import TITLES, setup_of
    from turnout.plan.simulation import simulate

    setup = setup_of(world, mode, load)
    with _progress(TITLES[mode]) as advance:
        return setup, simulate(world, setup, folder, advance)


@contextmanager
def _progress(title: str) -> "Generator[Callable[[float], None]]":
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)
