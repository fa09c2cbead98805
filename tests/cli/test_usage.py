"""`turnout usage` against a scripted gateway."""

from tests.cli.conftest import Cli
from tests.cli.scripted import ScriptedGateway

from turnout.cli.formatting import table
from turnout.cli.usage_command import COST_HEADINGS


def states(**seconds: float) -> dict[str, float]:
    parts = {"busy": 0.0, "loading": 0.0, "idle": 0.0, "asleep": 0.0} | seconds
    held = sum(parts[name] for name in ("busy", "loading", "idle", "asleep"))
    return {"held": held, "free": 0.0, **parts}


def test_gpu_time_is_added_up_by_what_is_asked_for(cli: Cli, gateway: ScriptedGateway) -> None:
    seconds = states(busy=1800, loading=360, idle=1440, free=3600)
    line = {"name": "w-1", "known_as": "gpu1", "gpu_seconds": seconds, "cost": states(busy=1, idle=1, free=2)}
    model = {**line, "name": "wan", "known_as": "", "cost_per_video": 0.25}
    gateway.usage_more = {
        "currency": "EUR",
        "priced": True,
        "total": {**line, "name": "total"},
        "unused_cost": 3.0,
        "models": [model],
        "workers": [line],
        "tenants": [{**model, "name": ""}],
    }
    told = cli("usage", "--by", "model", "--days", "3", "--end", "2026-11-07").out.splitlines()
    assert gateway.requests[-1].query == {"start": ["2026-11-05"], "end": ["2026-11-07"]}
    assert told[1].split() == [
        "wan",
        "3600.0",
        "1800.0",
        "360.0",
        "1440.0",
        "0.0",
        "3600.0",
        "4.00",
        "0.2500",
        "-",
    ]
    assert told[3:] == [
        "devices (GPUs, or machines without one) held for 1.00 h: 50 % busy, 10 % loading, 40 % idle, 0 % asleep",
        "devices held by no model: 1.00 h",
        "4.00 EUR from 2026-11-01 to 2026-11-07",
        "of it for idle devices: 3.00 EUR",
    ]
    assert cli("usage", "--by", "worker").out.splitlines()[1].startswith("gpu1 ")
    assert cli("usage", "--by", "tenant").out.splitlines()[1].startswith("- ")
    table = cli("usage", "--by", "worker", "--csv").out.splitlines()
    assert table[0].startswith("worker,known_as,") and table[1].startswith("w-1,gpu1,")
    gateway.usage_more |= {"priced": False, "models": []}
    done = cli("usage", "--by", "model")
    assert "no prices" in done.out and "nothing was used" in done.err
    assert cli("usage", "--days", "3", "--start", "2026-11-05").code == 2


def test_costs_fit_a_narrow_terminal() -> None:
    row = ("wan-2.2-t2v-a14b", *["360000.0"] * 6, "1000.00", "0.2500", "-")
    lines = table(("MODEL", *COST_HEADINGS), [row], 40).splitlines()
    assert max(map(len, lines)) <= 40 and "COST" in lines[7]
