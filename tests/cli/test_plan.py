"""`turnout plan` on a scenario file."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.scripted import ScriptedGateway

SCENARIO = """\
days: 0.2
models:
  wan:
    family: wan2.2-ti2v-5b
    device: cuda
    timing: {load_s: 60, seconds: 30}
traffic:
  - {model: wan, an_hour: 4}
machines:
  h100: {gpus: 2, price_an_hour: 5, max: 2}
"""


def test_a_plan_is_a_table_of_modes_or_json(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    done = cli("plan", str(file))
    assert done.code == 0
    assert [line.split("  ")[0] for line in done.out.splitlines()] == [
        "MODE",
        "job per request",
        "resident",
        "resident + autoscale",
        "scale to zero",
        "warm pool",
        "shared fleet",
    ]
    assert "simulated hours a second" in done.err
    answer = json.loads(cli("plan", str(file), "--modes", "zero,resident", "--json").out)
    assert [mode["mode"] for mode in answer["modes"]] == ["zero", "resident"]
    assert answer["modes"][0]["cost_a_day"] < answer["modes"][1]["cost_a_day"]
    assert cli("plan", str(file), "--modes", "magic").code == 2


def test_mistakes_are_lines_and_the_exit_code_is_2(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO.replace("gpus: 2", "gpus: two").replace("an_hour: 4", "an_hour: -4"))
    done = cli("plan", str(file))
    assert done.code == 2
    assert [line.rpartition("scenario.yaml:")[2] for line in done.err.splitlines()] == [
        "8: traffic.0.an_hour must be greater than 0.0.",
        "10: machines.h100.gpus must be a whole number.",
    ]


def test_every_example_runs(cli: Cli) -> None:
    examples = sorted((Path(__file__).parents[2] / "examples" / "plan").glob("*.yaml"))
    assert len(examples) >= 5
    for file in examples:
        done = cli("plan", str(file), "--days", "0.2", "--modes", "zero", "--json")
        assert done.code == 0, done.err
        [mode] = json.loads(done.out)["modes"]
        assert mode["unfinished"] == 0


def test_the_requests_come_from_a_trace_or_from_a_services_records(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    file, trace = tmp_path / "scenario.yaml", tmp_path / "trace.csv"
    file.write_text(SCENARIO)
    trace.write_text("at,model,tenant,seconds\n10,wan,a,5\n2026-11-02T00:00:00+00:00,wan,b,\n")
    done = cli("plan", str(file), "--from-csv", str(trace), "--modes", "zero", "--json")
    assert json.loads(done.out)["modes"][0]["requests"] == 1, "the date is far behind the horizon"
    trace.write_text("at,model\n10,won\n")
    assert "trace.csv:2: there is no model 'won'" in cli("plan", str(file), "--from-csv", str(trace)).err

    row = {
        "tenant": "acme",
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "uncounted_requests": 0,
        "video_seconds": 1.0,
    }
    gateway.usage = [
        {**row, "day": today(), "model": "wan", "requests": 0, "videos": 7, "render_seconds": 70.0},
        {**row, "day": today(), "model": "other", "requests": 3, "videos": 0, "render_seconds": 0.0},
    ]
    gateway.models = [{"id": "wan", "wake_s": 12.5}, {"id": "other", "wake_s": None}]
    url = cli.env["TURNOUT_URL"]
    done = cli("plan", str(file), "--from-service", url, "--days", "1", "--modes", "resident", "--json")
    [mode] = json.loads(done.out)["modes"]
    assert (mode["requests"], mode["gpu_seconds"]["busy"]) == (7, pytest.approx(70.0, abs=1.0))
    assert done.err.splitlines() == [
        "wan: load_s 12.5, as measured (the file says 60)",
        "not in the scenario, left out: other",
    ]
    assert mode["gpu_seconds"]["loading"] == pytest.approx(12.5, abs=1.0)


def test_the_example_is_a_scenario_that_runs_and_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert cli("plan", "--example", str(file)).code == 0
    assert cli("plan", "--example").out == file.read_text()
    assert cli("plan", "--example", str(file)).code == 2, "it is there already"
    done = cli("plan", str(file), "--days", "0.2", "--json")
    assert done.code == 0 and all(mode["all_served"] for mode in json.loads(done.out)["modes"])
    assert "turnout plan --example" in cli("plan").err


def today() -> str:
    return datetime.now(UTC).date().isoformat()
