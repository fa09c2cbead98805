"""`turnout diagnose`: what is in the archive, and that nothing private is, wherever it was planted."""

import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.scripted import TOKEN, Answer, ScriptedGateway

from turnout.cli.redaction import HIDDEN, log_lines, without_secrets

ENGINE = "prompt in an engine's log"
PROMPT = "my secret garden with a red balloon"
PLANTED = {
    "redis password": "hunter2-redis-pw",
    "webhook secret": "whsec_c2VjcmV0LXNlY3JldA==",
    "embedded password": "0123456789abcdef-embedded",
    "service key": "tk-abcdef.0123456789abcdef",
    "worker secret": "worker-secret-77aa",
    "environment": "hf_AbCdEfGhIjKlMnOp",
    "bearer": "opaque-bearer-value",
    "link": "one-time-code-12345",
    "the caller's own key": TOKEN,
    "prompt": PROMPT,
    ENGINE: "tell me about purple elephants",
    "answer": "an answer nobody else may read",
}


@pytest.fixture
def state(cli: Cli) -> Path:
    state = cli.cwd / "state"
    (state / "logs").mkdir(parents=True)
    (state / "worker" / "logs").mkdir(parents=True)
    (state / "redis").mkdir()
    (state / "redis" / "password").write_text(PLANTED["embedded password"])
    (state / "service.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "api_key": PLANTED["service key"]})
    )
    (state / "worker" / "identity.json").write_text(
        json.dumps({"id": "w-1", "secret": PLANTED["worker secret"]})
    )
    known = [name for name in PLANTED if name not in ("bearer", "link", "answer", ENGINE)]
    ours = [
        {"event": "task submitted", "level": "info", "task": "video_1", "tenant": "acme", "model": "m"},
        {"event": "odd", "prompt": PROMPT, "answer": PLANTED["answer"]},
        {"event": f"Bearer {PLANTED['bearer']}", "request": f"/page?code={PLANTED['link']}"},
        *({"event": "failed", "error": f"it said: {PLANTED[name]}"} for name in known),
    ]
    (state / "logs" / "gateway.log").write_text("".join(f"{json.dumps(line)}\n" for line in ours))
    (state / "worker" / "logs" / "r1.log").write_text(f"prompt: {PLANTED[ENGINE]}\n")
    (cli.cwd / "turnout.yaml").write_text(
        json.dumps(
            {
                "state_dir": str(state),
                "redis_url": f"redis://user:{PLANTED['redis password']}@127.0.0.1:1/0",
                "webhook_secret": PLANTED["webhook secret"],
            }
        )
    )
    return state


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.removeprefix("turnout-diagnose/"): f.read().decode() for name, f in found.items() if f}


def test_it_tells_much_and_nothing_private(cli: Cli, gateway: ScriptedGateway, state: Path) -> None:
    gateway.add(
        "video_1", prompt=PROMPT, error={"code": "unrenderable", "message": f"cannot render {PROMPT}"}
    )
    gateway.hooks["GET /metrics"] = lambda _: Answer(200, "turnout_redis_up 1.0")
    done = cli("diagnose", "-o", "out.tar.gz", HF_TOKEN=PLANTED["environment"])
    assert done.code == 0, done.err
    path = cli.cwd / "out.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    found = contents(path)
    assert {
        "versions.json",
        "config.json",
        "doctor.json",
        "models.json",
        "tasks.json",
        "workers.json",
    } <= set(found)
    assert "turnout_redis_up" in found["metrics.txt"]
    assert json.loads(found["tasks.json"])[0]["id"] == "video_1"
    assert '"task": "video_1"' in found["logs/logs_gateway.log"]
    assert "1 lines of other programs were left out" in found["logs/worker_logs_r1.log"]
    everything = "\n".join(found.values())
    for name, planted in PLANTED.items():
        assert planted not in everything, name
    assert HIDDEN in found["config.json"]
    assert cli("diagnose", "-o", "out.tar.gz").code != 0, "it overwrites nothing"


def test_what_looks_like_a_secret_is_hidden_though_nobody_knows_it() -> None:
    text = 'tk-abc123.def456789 whsec_aaaabbbbcccc https://u:pw12345@host/x "authorization": "Bearer abc.def" /#code=zzzz'
    hidden = without_secrets(text, ())
    for secret in ("def456789", "whsec_aaaa", "pw12345", "abc.def", "zzzz"):
        assert secret not in hidden


def test_lines_of_others_are_counted_or_kept() -> None:
    assert log_lines(["Traceback", '{"event": "a", "secret_field": 1}']) == [
        '{"event": "a"}',
        "(1 lines of other programs were left out)",
    ]
    assert log_lines(["Traceback"], foreign=True) == ["Traceback"]
