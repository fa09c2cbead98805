"""A plan hides nobody: who is never served waits to the end, and such a setting is marked and never the best."""

from pathlib import Path

from tests.plan.planned import scenario, video

from turnout.plan.html_report import report
from turnout.plan.modes import PlanMode, loads, setup_of
from turnout.plan.plan_table import UNSERVED, as_json, row
from turnout.plan.scenario import MachineKind, TrafficPart
from turnout.plan.search import search, with_target
from turnout.plan.simulation import simulate

HERE = Path()
CROWDED = scenario(
    # All of them always on need four GPUs, and there are three: the largest is placed first, and one of the small is not.
    [video("big", gpus=2, seconds=5.0), video("small", seconds=5.0), video("tiny", seconds=5.0)],
    [TrafficPart(model=name, an_hour=20) for name in ("big", "small", "tiny")],
    MachineKind(gpus=3, price_an_hour=1.0, max=1),
    days=0.25,
)


def test_requests_that_are_never_served_wait_to_the_end() -> None:
    setup = setup_of(CROWDED, PlanMode.RESIDENT, loads(CROWDED, HERE))
    outcome = simulate(CROWDED, setup, HERE)
    [missing] = [name for name in setup.models if not outcome.ready_share.get(name)]
    assert outcome.waits.count == outcome.counts.requests
    waits = outcome.by_model[missing]
    assert waits.count == outcome.counts.unfinished > 50
    assert waits.max_s > 0.9 * CROWDED.horizon_s and waits.p50_s > 0.2 * CROWDED.horizon_s
    assert outcome.waits.p95_s > 3600, "also in the figure for all"
    assert outcome.unserved and not as_json(CROWDED, setup, outcome)["all_served"]
    assert as_json(CROWDED, setup, outcome)["wait_by_model"][missing]["count"] == waits.count
    shown = row(CROWDED, setup, outcome)
    assert shown[0] == "! resident" and shown[-1] == f"{waits.count} of {outcome.counts.requests}"


def test_a_model_that_nobody_asks_for_is_in_the_figures_too() -> None:
    made = scenario([video("a"), video("b")], [TrafficPart(model="a", an_hour=2)], days=0.1)
    outcome = simulate(made, setup_of(made, PlanMode.ZERO, loads(made, HERE)), HERE)
    assert set(outcome.by_model) == {"a", "b"} and outcome.by_model["b"].count == 0


def test_a_setting_that_leaves_requests_out_is_last_and_never_the_best() -> None:
    target = with_target(CROWDED, 10**6)
    found = search(target, HERE, [PlanMode.RESIDENT, PlanMode.SHARED], lambda _title, _share: None)
    assert found.best is not None and found.best.setup.mode is PlanMode.SHARED
    unserved = [one.outcome.unserved for one in found.tried]
    assert unserved == sorted(unserved) and unserved[-1]
    assert any("requests are not served" in miss for miss in found.tried[-1].misses)
    text = report(target, [(one.setup, one.outcome) for one in found.tried], found)
    assert 'tr class="unserved"' in text and UNSERVED in text
