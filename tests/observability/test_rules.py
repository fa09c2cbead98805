"""The rules for Prometheus: they parse, each alert fires in its scenario and has a line in the runbook, and every metric
that they name exists."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pace import patient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "observability"
METRIC = re.compile(r"\bturnout_\w+")
SUFFIX = re.compile(r"_(bucket|count|sum)$")


def rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def documented() -> set[str]:
    """tests/telemetry/test_metric_table.py compares the table with what a gateway tells."""
    return set(re.findall(r"^\| `(turnout_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))


def alerts() -> set[str]:
    return {rule["alert"] for rule in rules() if "alert" in rule}


def test_every_metric_that_a_rule_names_exists() -> None:
    known, recorded = documented(), {rule["record"] for rule in rules() if "record" in rule}
    assert known
    for rule in rules():
        named = {name if name in known else SUFFIX.sub("", name) for name in METRIC.findall(rule["expr"])}
        assert named <= known, rule["expr"]
        assert set(re.findall(r"turnout:[\w:]+", rule["expr"])) <= recorded


def test_each_alert_has_a_section_in_the_runbook() -> None:
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(alerts())
    for rule in rules():
        if "alert" in rule:
            section = f"/runbook/#{rule['alert'].lower()}"
            assert rule["annotations"]["runbook_url"] == "{{ $externalLabels.turnout_docs }}" + section
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("page", "ticket")


def test_each_alert_has_a_scenario() -> None:
    scenarios = yaml.safe_load((FOLDER / "rules.test.yaml").read_text())["tests"]
    assert {scenario["name"] for scenario in scenarios} == {"all is well", *alerts()}


def test_each_alert_has_a_case_of_once_in_an_hour_that_pages_nobody() -> None:
    text = (FOLDER / "rules.once.test.yaml").read_text()
    assert sorted(re.findall(r"^ +# (Turnout\w+)$", text, re.MULTILINE)) == sorted(alerts())
    for case in yaml.safe_load(text)["tests"]:
        (expected,) = case["promql_expr_test"]
        assert 'severity="page"' in expected["expr"] and expected["exp_samples"] == []


def test_the_shipped_configuration_says_where_the_runbook_is() -> None:
    labels = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["global"]["external_labels"]
    assert labels["turnout_docs"].startswith("https://")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "rules.yaml"),
        ("test", "rules", "rules.test.yaml"),
        ("test", "rules", "rules.once.test.yaml"),
    ],
)
def test_promtool_accepts_them(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *words], check=False, cwd=FOLDER, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stdout + done.stderr
