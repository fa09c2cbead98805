"""The search finds the cheapest setting that meets the targets, says what it is, and what the next cheaper would break."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import yaml
from tests.plan.planned import scenario, video

from turnout.plan.html_report import report
from turnout.plan.modes import PlanMode
from turnout.plan.scenario import TrafficPart
from turnout.plan.search import search, with_target
from turnout.plan.settings_files import helm_values, turnout_yaml
from turnout.run import config

MADE = scenario([video(max_replicas=2)], [TrafficPart(model="wan", an_hour=3)], name="<b>ten</b>", days=0.3)
MODES = [PlanMode.ZERO, PlanMode.RESIDENT, PlanMode.SHARED]


def found(p95_wait_s: float):
    return search(with_target(MADE, p95_wait_s), Path(), MODES, lambda _title, _share: None)


def test_a_loose_target_is_cheaper_than_a_tight_one() -> None:
    loose, tight = found(600.0), found(30.0)
    assert loose.best and tight.best
    assert loose.best.outcome.cost_a_day < tight.best.outcome.cost_a_day
    assert tight.cheaper and "the p95 wait is" in tight.cheaper.misses[0]
    assert [one.outcome.cost_a_day for one in tight.tried] == sorted(
        one.outcome.cost_a_day for one in tight.tried
    )


def test_a_target_that_nothing_meets_is_said_so() -> None:
    assert found(0.01).best is None


def test_the_settings_are_a_file_that_the_service_reads(tmp_path: Path) -> None:
    best = found(30.0).best
    assert best is not None
    file = tmp_path / "turnout.yaml"
    declared = {"wan": {"family": "wan2.2-ti2v-5b", "device": "cuda", "weights": "/weights/wan"}}
    file.write_text(turnout_yaml(replace(MADE, declared=declared), best.setup))
    [served] = config.load({}, {}, file).config.models
    kept = best.setup.models["wan"].spec
    assert (served.scaling.min_replicas, served.scaling.idle_s) == (
        kept.scaling.min_replicas,
        kept.scaling.idle_s,
    )
    assert yaml.safe_load(helm_values(MADE, best.setup))["workers"] == {"m": {"replicas": 1, "gpus": 2}}


def test_the_report_is_one_whole_file_that_loads_nothing() -> None:
    tight = found(30.0)
    text = report(with_target(MADE, 30.0), [(one.setup, one.outcome) for one in tight.tried], tight)
    tags: list[str] = []

    class Whole(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert not {"src", "href"} & {name for name, _ in attrs}
            if tag not in ("meta", "line", "polyline", "polygon", "circle"):
                tags.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert tags.pop() == tag or tag == "circle"

    Whole().feed(text.replace("</circle>", ""))
    assert tags == []
    assert "<b>ten</b>" not in text and "&lt;b&gt;ten" in text
    assert "is the cheapest that meets the targets" in text
