"""`turnout usage` against a scripted gateway."""

import json

from tests.cli.conftest import Cli
from tests.cli.scripted import ScriptedGateway


def test_usage_is_shown_as_a_table_or_as_json(cli: Cli, gateway: ScriptedGateway) -> None:
    assert cli("usage").err == "nothing was used from 2026-11-01 to 2026-11-07\n"
    gateway.usage = [
        {
            "day": "2026-11-02",
            "tenant": "acme",
            "model": "smollm2",
            "requests": 3,
            "prompt_tokens": 120,
            "completion_tokens": 40,
            "uncounted_requests": 0,
            "videos": 0,
            "video_seconds": 0.0,
            "render_seconds": 1.25,
        }
    ]
    done = cli("usage", "--start", "2026-11-01", "--end", "2026-11-07", "--tenant", "acme")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == [
        "2026-11-02",
        "acme",
        "smollm2",
        "3",
        "120",
        "40",
        "0",
        "0.0",
        "1.2",
    ]
    assert gateway.requests[-1].query == {"start": ["2026-11-01"], "end": ["2026-11-07"], "tenant": ["acme"]}
    assert json.loads(cli("usage", "--json").out)["data"] == gateway.usage
    assert cli("usage", "--start", "yesterday").code == 2
