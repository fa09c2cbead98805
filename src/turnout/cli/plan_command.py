"""`turnout plan`: which mode, how many GPUs, what wait, what bill; by simulation with the service's own decisions."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, JsonOption, seconds, with_common
from turnout.errors import InvalidRequest, Misconfigured

if TYPE_CHECKING:
    from turnout.plan.modes import PlanMode, Setup
    from turnout.plan.outcome import Outcome
    from turnout.plan.scenario import Scenario
    from turnout.plan.search import Found

ScenarioFile = Annotated[Path | None, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).")]
ExampleOption = Annotated[
    bool, typer.Option("--example", help="Write a scenario to begin with: to SCENARIO, or to the terminal.")
]
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
OptimiseOption = Annotated[
    str | None,
    typer.Option("--optimise", metavar="cost", help="Find the cheapest setting that meets the targets."),
]
WaitOption = Annotated[
    str | None,
    typer.Option("--p95-wait", metavar="TIME", help="Target: 95 of 100 wait at most so long, as 60s."),
]
CsvOption = Annotated[
    Path | None,
    typer.Option("--from-csv", metavar="FILE", help="Take the requests from a trace, not from the scenario."),
]
ServiceOption = Annotated[
    str | None,
    typer.Option(
        "--from-service",
        metavar="URL",
        help="Take the requests of the last days, and how long models load, from a service's records.",
    ),
]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report with plots.")]
Results = list["tuple[Setup, Outcome]"]
_MAX_PAGES = 100


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


@with_common
def plan(
    common: Common,
    scenario: ScenarioFile = None,
    modes: ModesOption = None,
    days: DaysOption = None,
    seed: SeedOption = None,
    from_csv: CsvOption = None,
    from_service: ServiceOption = None,
    optimise: OptimiseOption = None,
    p95_wait: WaitOption = None,
    html: HtmlOption = None,
    example: ExampleOption = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate a scenario in every mode: cost, waits, cold starts, how busy the GPUs are."""
    from turnout.plan.search import with_target

    if example:
        return _write_example(scenario)
    if scenario is None:
        raise InvalidRequest("name a scenario file; `turnout plan --example scenario.yaml` writes one")
    if optimise not in (None, "cost"):
        raise InvalidRequest("--optimise knows cost alone")
    planned = with_target(_read(scenario, days, seed), seconds(p95_wait, "--p95-wait") if p95_wait else None)
    chosen, folder, began, found = _modes(modes), scenario.parent, time.monotonic(), None
    with tempfile.TemporaryDirectory(prefix="turnout-plan-") as scratch:
        if from_service is not None:
            common = replace(common, url=from_service)
            planned = _with_measured_loads(common, planned)
            from_csv = _recorded(common, planned, Path(scratch) / "trace.csv")
        if from_csv is not None:
            planned = _traced(planned, from_csv)
        results, found = _results(planned, chosen, folder, optimise)
    if html is not None:
        from turnout.plan.html_report import write_report

        write_report(html, planned, results, found)
    if as_json:
        _print_json(planned, results, found)
        return
    _print_table(planned, results)
    if found is not None:
        _print_found(planned, found)
    _print_speed(planned, results, time.monotonic() - began)


def _results(
    planned: "Scenario", chosen: "Sequence[PlanMode]", folder: Path, optimise: str | None
) -> "tuple[Results, Found | None]":
    if optimise is None:
        return _compare(planned, chosen, folder), None
    found = _search(planned, chosen, folder)
    return [(one.setup, one.outcome) for one in found.tried], found


def _traced(planned: "Scenario", trace: Path) -> "Scenario":
    from turnout.plan.scenario import TrafficPart

    return replace(planned, traffic=(TrafficPart(trace=str(trace.absolute())),), untraced=planned.traffic)


def _write_example(file: Path | None) -> None:
    from importlib.resources import files

    text = (files("turnout.plan") / "example.yaml").read_text()
    if file is None:
        print(text, end="")
        return
    try:
        with file.open("x") as target:
            target.write(text)
    except OSError as err:
        raise Misconfigured(f"{file}: {err.strerror}") from err
    print(f"{file} is written: put your own figures in, then `turnout plan {file}`")


def _with_measured_loads(common: Common, planned: "Scenario") -> "Scenario":
    """With the time that each model's last replica took to become ready, where the service knows it."""
    from turnout.plan.recorded_traffic import with_measured_loads

    with common.client() as client:
        answer = client.call("GET", "v1", "models").get("data", [])
    measured = {str(model["id"]): float(model["wake_s"]) for model in answer if model.get("wake_s")}
    measured = {name: wake_s for name, wake_s in measured.items() if 0 < wake_s < float("inf")}
    for name, copies in planned.copies.items():
        if name in measured:
            declared = planned.models[copies[0]].timing.load_s
            print(
                f"{one_line(name)}: load_s {measured[name]:.3g}, as measured (the file says {declared:g})",
                file=sys.stderr,
            )
    return with_measured_loads(planned, measured)


def _recorded(common: Common, planned: "Scenario", target: Path) -> Path:
    """Writes the requests that the service has recorded into a trace."""
    from datetime import UTC, datetime, timedelta
    from math import ceil

    from turnout.cli.server_answers import read
    from turnout.plan.recorded_traffic import recorded_traffic, write_trace
    from turnout.tenants.usage_json import UsageList

    last = datetime.now(UTC).date()
    first = last - timedelta(days=max(0, ceil(planned.days) - 1))
    asked_at: list[float] = []
    with common.client() as client:
        params = {"start": first.isoformat(), "end": last.isoformat()}
        used = read(UsageList, client.call("GET", "v1", "usage", params=params))
        after = None
        for _ in range(_MAX_PAGES):
            page = client.videos(limit=100, after=after)
            asked_at += [video.created_at for video in page.data]
            if not page.has_more or not page.data:
                break
            after = page.data[-1].id
    found = recorded_traffic(used.data, asked_at, first, planned.copies.keys(), planned.seed)
    if found.unknown:
        print(f"not in the scenario, left out: {', '.join(map(one_line, found.unknown))}", file=sys.stderr)
    if not found.rows:
        raise InvalidRequest(f"the service has no usage of the scenario's models from {first} to {last}")
    write_trace(target, found.rows)
    return target


def _compare(planned: "Scenario", modes: "Sequence[PlanMode]", folder: Path) -> Results:
    from turnout.plan.modes import TITLES, loads, setup_of
    from turnout.plan.simulation import simulate

    load, results = loads(planned, folder), Results()
    with _progress() as advance:
        for n, mode in enumerate(modes):
            setup = setup_of(planned, mode, load)

            def show(share: float, n: int = n, mode: "PlanMode" = mode) -> None:
                advance(TITLES[mode], (n + share) / len(modes))

            results.append((setup, simulate(planned, setup, folder, show)))
    return results


def _search(planned: "Scenario", modes: "Sequence[PlanMode]", folder: Path) -> "Found":
    from turnout.plan.search import search

    if planned.targets.p95_wait_s is None and planned.targets.budget_a_day is None:
        raise InvalidRequest("--optimise needs a target: --p95-wait, or `targets` in the file")
    with _progress() as advance:
        return search(planned, folder, modes, advance)


def _print_table(planned: "Scenario", results: Results) -> None:
    from turnout.plan.plan_table import HEADINGS, UNSERVED, row

    print(table(HEADINGS, [row(planned, *result) for result in results]))
    for setup, outcome in results:
        waiting = [
            name
            for name in setup.models
            if not outcome.ready_share.get(name) and outcome.by_model[name].count
        ]
        if waiting:
            print(f"{setup.mode}: never started: {', '.join(waiting)}")
    if any(outcome.unserved for _, outcome in results):
        print(UNSERVED)


def _print_found(planned: "Scenario", found: "Found") -> None:
    from turnout.plan.plan_table import title
    from turnout.plan.settings_files import helm_values, turnout_yaml

    print()
    if found.best is None:
        nearest = min(found.tried, key=lambda one: (len(one.misses), one.outcome.waits.p95_s))
        print(
            f"No setting meets the targets. Nearest is {title(nearest.setup)}: {'; '.join(nearest.misses)}."
        )
        return
    print(f"Cheapest that meets the targets: {title(found.best.setup)}.")
    if found.cheaper is not None:
        print(f"Next cheaper: {title(found.cheaper.setup)}, but {'; '.join(found.cheaper.misses)}.")
    print(f"\n# turnout.yaml\n{turnout_yaml(planned, found.best.setup)}")
    print(f"# values for the Helm chart\n{helm_values(planned, found.best.setup)}", end="")


def _print_json(planned: "Scenario", results: Results, found: "Found | None") -> None:
    from turnout.plan.plan_table import as_json
    from turnout.plan.settings_files import turnout_yaml

    answer: dict[str, Any] = {"name": planned.name, "days": planned.days, "seed": planned.seed}
    answer["modes"] = [as_json(planned, *result) for result in results]
    if found is not None:
        answer["misses"] = [list(one.misses) for one in found.tried]
        answer["best"] = found.tried.index(found.best) if found.best else None
        answer["cheaper"] = found.tried.index(found.cheaper) if found.cheaper else None
        answer["turnout_yaml"] = turnout_yaml(planned, found.best.setup) if found.best else None
    print(json.dumps(answer))


def _print_speed(planned: "Scenario", results: Results, took_s: float) -> None:
    events = sum(outcome.counts.events for _, outcome in results)
    hours = planned.days * 24 * len(results)
    print(
        f"{results[0][1].counts.requests:,} requests in {planned.days:g} days, {len(results)} times:"
        f" {events / took_s:,.0f} events and {hours / took_s:,.0f} simulated hours a second",
        file=sys.stderr,
    )


def _read(file: Path, days: float | None, seed: int | None) -> "Scenario":
    from turnout.plan.scenario_file import ScenarioMistakes, read_scenario

    try:
        planned = read_scenario(file)
    except ScenarioMistakes as err:
        for line in err.lines:
            print(line, file=sys.stderr)
        raise typer.Exit(2) from err
    changes: dict[str, Any] = {n: v for n, v in (("days", days), ("seed", seed)) if v is not None}
    return replace(planned, **changes)


def _modes(given: str | None) -> "list[PlanMode]":
    from turnout.plan.modes import PlanMode

    if given is None:
        return list(PlanMode)
    try:
        return [PlanMode(name.strip()) for name in given.split(",")]
    except ValueError as err:
        raise InvalidRequest(f"--modes: {err}; there are {', '.join(PlanMode)}") from err


@contextmanager
def _progress() -> Generator[Callable[[str, float], None]]:
    """A bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _title, _share: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda title, share: bar.update(task, description=title, completed=share)
