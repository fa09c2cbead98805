"""A plan as one HTML file for the person who pays: what was asked, what it costs, how long people wait. It loads nothing."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from turnout.errors import Misconfigured
from turnout.plan.modes import ABOUT, TITLES, Setup
from turnout.plan.outcome import Outcome
from turnout.plan.plan_table import HEADINGS, UNSERVED, money, row, span, title
from turnout.plan.scenario import Scenario
from turnout.plan.search import Found, misses
from turnout.plan.svg_plots import areas, curves, legend, lines, scatter

_MOST_MODELS = 7  # in a plot; the others are one
_LEAST_WAIT_S = 0.1

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1f2937;background:#fff;max-width:66rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;margin-bottom:0}h2{margin-top:2.2rem}h3{margin:1.4rem 0 .2rem}
.lead{font-size:1.15rem}.note{color:#4b5563;font-size:.9rem}
table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{padding:.35rem .4rem;text-align:right;border-bottom:1px solid #e5e7eb}td{white-space:nowrap}
th{text-transform:lowercase;font-weight:600;color:#374151;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;white-space:normal}tr.best{background:#ecfdf5;font-weight:600}
tr.unserved{color:#b91c1c}
.wide{overflow-x:auto}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(19rem,1fr));gap:1rem}
figure{margin:0;max-width:40rem}figcaption{font-size:.9rem;font-weight:600}svg{width:100%;height:auto}
.grid{stroke:#e5e7eb}.tick{font-size:11px;fill:#4b5563}.label{font-size:11px;fill:#374151}
.limit{stroke:#b91c1c;stroke-dasharray:5 4}.frontier{fill:none;stroke:#6b7280;stroke-dasharray:2 3}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.3rem 0;font-size:.85rem}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
"""

Result = tuple[Setup, Outcome]


def write_report(path: Path, scenario: Scenario, results: Sequence[Result], found: Found | None) -> None:
    try:
        path.write_text(report(scenario, results, found), encoding="utf-8")
    except OSError as err:
        raise Misconfigured(f"--html {path}: {err.strerror}") from err


def report(scenario: Scenario, results: Sequence[Result], found: Found | None = None) -> str:
    name = scenario.name or "A plan"
    shown = _one_each(results, found)
    body = (
        f"<h1>{escape(name)}</h1>{_question(scenario, results)}{_answer(scenario, results, found)}"
        f"<h2>All figures</h2>{_table(scenario, results, found)}"
        f"<h2>Cost against wait</h2>{_frontier(scenario, results)}"
        f"<h2>How long people wait</h2>{_waits(shown)}"
        f"<h2>Over time</h2>{''.join(_over_time(scenario, *result) for result in shown)}"
        f"{_about(scenario)}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def _one_each(results: Sequence[Result], found: Found | None) -> list[Result]:
    """The cheapest of each mode that meets the targets, or the fastest: plots of twenty settings say nothing."""
    chosen: dict[str, Result] = {}
    meets = {id(one.setup) for one in found.tried if not one.misses} if found else set[int]()
    for setup, outcome in results:
        if setup.mode not in chosen or (id(setup) in meets and id(chosen[setup.mode][0]) not in meets):
            chosen[setup.mode] = (setup, outcome)
    return list(chosen.values())


def _question(scenario: Scenario, results: Sequence[Result]) -> str:
    count = results[0][1].counts.requests
    machines = ", ".join(
        f"{escape(name)} ({kind.gpus} GPUs, {money(kind.price_an_hour, scenario.currency)} an hour)"
        for name, kind in scenario.machines.items()
    )
    return (
        f'<p class="note">{count:,} requests in {scenario.days:g} days for {len(scenario.models)}'
        f" model{'s' if len(scenario.models) > 1 else ''}, on machines of {machines}. Simulated.</p>"
    )


def _answer(scenario: Scenario, results: Sequence[Result], found: Found | None) -> str:
    meeting = [r for r in results if not list(misses(scenario, r[1]))]
    if found is not None and found.best is not None:
        setup, outcome = found.best.setup, found.best.outcome
    elif meeting:
        setup, outcome = min(meeting, key=lambda r: r[1].cost_a_day)
    else:
        return '<p class="lead">None of these settings meets the targets.</p>'
    text = (
        f"<b>{escape(title(setup))}</b> is the cheapest that meets the targets:"
        if scenario.targets.p95_wait_s or scenario.targets.budget_a_day
        else f"<b>{escape(title(setup))}</b> is the cheapest:"
    )
    text += (
        f" {money(outcome.cost_a_day, scenario.currency)} a day. Half of all requests wait less than"
        f" {span(outcome.waits.p50_s)}, 95 of 100 less than {span(outcome.waits.p95_s)}."
    )
    if found is not None and found.cheaper is not None:
        cheaper = found.cheaper
        text += (
            f" {escape(title(cheaper.setup))} would cost {money(cheaper.outcome.cost_a_day, scenario.currency)} a day,"
            f" but {escape('; '.join(cheaper.misses))}."
        )
    return f'<p class="lead">{text}</p>'


def _table(scenario: Scenario, results: Sequence[Result], found: Found | None) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    rows = ""
    for setup, outcome in results:
        best = found is not None and found.best is not None and setup is found.best.setup
        missed = "; ".join(misses(scenario, outcome))
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row(scenario, setup, outcome))
        kind = "best" if best else "unserved" if outcome.unserved else ""
        rows += f'<tr class="{kind}" title="{escape(missed)}">{cells}</tr>'
    note = f'<p class="note">{escape(UNSERVED)}.</p>' if any(o.unserved for _, o in results) else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


def _frontier(scenario: Scenario, results: Sequence[Result]) -> str:
    modes = list(dict.fromkeys(setup.mode for setup, _ in results))
    points = [(title(s), o.waits.p95_s, o.cost_a_day, modes.index(s.mode)) for s, o in results]
    limit = scenario.targets.p95_wait_s
    plot = scatter(points, "p95 wait in seconds", f"cost a day in {scenario.currency}", limit)
    note = " The red line is the target." if limit else ""
    return (
        f"{legend([TITLES[mode] for mode in modes])}<figure>{plot}</figure>"
        f'<p class="note">Left and low is better; the dotted line joins the settings that nothing else beats.{note}</p>'
    )


def _waits(results: Sequence[Result]) -> str:
    series = {
        TITLES[s.mode]: [(max(w, _LEAST_WAIT_S), float(n)) for n, w in enumerate(o.distribution, 1)]
        for s, o in results
    }
    plot = curves(series, "wait in seconds", "% of requests that wait less", _LEAST_WAIT_S)
    return f"{legend(list(series))}<figure>{plot}</figure>"


def _over_time(scenario: Scenario, setup: Setup, outcome: Outcome) -> str:
    largest = sorted(outcome.held, key=lambda name: -sum(outcome.held[name]))
    shown = {name: outcome.held[name] for name in largest[:_MOST_MODELS]}
    if rest := [outcome.held[name] for name in largest[_MOST_MODELS:]]:
        shown["others"] = [sum(values) for values in zip(*rest, strict=True)]
    return (
        f'<h3>{escape(title(setup))}</h3><p class="note">{escape(ABOUT[setup.mode])}</p><div class="plots">'
        f"<figure><figcaption>Requests that wait</figcaption>"
        f"{lines({'': outcome.queue}, scenario.days, 'days', 'requests')}</figure>"
        f"<figure><figcaption>GPUs in use by model</figcaption>"
        f"{areas(shown, scenario.days, 'days', 'GPUs')}{legend(list(shown))}</figure></div>"
    )


def _about(scenario: Scenario) -> str:
    return (
        "<h2>How this was made</h2><p>By <code>turnout plan</code>: a simulation in which the decisions about replicas, "
        "machines and queues are made by the code that runs the service. Times of models and prices are those of the "
        f"scenario file (seed {scenario.seed}). Waits are from a request to the moment when a model begins with it; cost "
        "is for machines from the moment they are asked for, whether they are busy or not.</p>"
    )
