"""`turnout diagnose`: what is in the archive, and that nothing private is, wherever it was planted."""

import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.scripted import TOKEN, Answer, ScriptedGateway

from turnout.cli.redaction import HIDDEN, own_lines, without_secrets

ENGINE = "prompt in an engine's log"
LINES = "prompt in an engine's JSON lines"
HOOK = "path of a budget's webhook"
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
    LINES: "a violet giraffe on roller skates",
    "argument of a command": "engine-password-4711",
    "path of a budget's webhook": "T024BE7LD-B0UNCE",
    "query of traces_endpoint": "collector-api-key-99",
    "S3 key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
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
    known = [name for name in PLANTED if name not in ("bearer", "link", "answer", ENGINE, LINES)]
    ours = [
        {"event": "task submitted", "level": "info", "task": "video_1", "tenant": "acme", "model": "m"},
        {"event": "odd", "prompt": PROMPT, "answer": PLANTED["answer"]},
        {"event": f"Bearer {PLANTED['bearer']}", "request": f"/page?code={PLANTED['link']}"},
        *({"event": "failed", "error": f"it said: {PLANTED[name]}"} for name in known),
    ]
    (state / "logs" / "gateway.log").write_text("".join(f"{json.dumps(line)}\n" for line in ours))
    (state / "worker" / "logs" / "r1.log").write_text(f"prompt: {PLANTED[ENGINE]}\n")
    theirs = {"event": PLANTED[LINES], "level": "info", "error": PLANTED[LINES], "task": PLANTED[LINES]}
    for name in ("worker/logs/gateway.log", "worker/logs/r2.log", "logs/rank-0.log"):
        (state / name).write_text(f"{json.dumps(theirs)}\n")
    (cli.cwd / "turnout.yaml").write_text(
        json.dumps(
            {
                "state_dir": str(state),
                "redis_url": f"redis://user:{PLANTED['redis password']}@127.0.0.1:1/0",
                "webhook_secret": PLANTED["webhook secret"],
                "traces_endpoint": f"http://127.0.0.1:1/v1/traces?api_key={PLANTED['query of traces_endpoint']}",
                "budgets": {
                    "acme": {"month": 10, "webhook": f"https://hooks.example/{PLANTED[HOOK]}/x"},
                },
                "gpu_prices": {"*": 2.5},
                "models": {
                    "own": {
                        "engine": "command",
                        "model_name": "own",
                        "command": ["serve", "{port}", f"--password={PLANTED['argument of a command']}"],
                    },
                },
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
    environ = {"HF_TOKEN": PLANTED["environment"], "AWS_SECRET_ACCESS_KEY": PLANTED["S3 key"]}
    done = cli("diagnose", "-o", "out.tar.gz", **environ)
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
    for name in ("worker_logs_r1.log", "worker_logs_r2.log", "worker_logs_gateway.log", "logs_rank-0.log"):
        assert found[f"logs/{name}"] == "(1 lines of other programs were left out)\n"
    assert len(PLANTED) == 17
    everything = "\n".join(found.values())
    for name, planted in PLANTED.items():
        assert planted not in everything, name
    settings = json.loads(found["config.json"])
    assert settings["lease_s"]["value"] == 15.0 and settings["log_level"]["value"] == "info"
    assert settings["redis_url"]["value"] == f"redis://{HIDDEN}"
    assert settings["traces_endpoint"]["value"] == f"http://{HIDDEN}"
    assert settings["budgets"]["value"]["acme"] == {
        "month": 10.0,
        "soft": 0.8,
        "hard": True,
        "webhook": f"https://{HIDDEN}",
    }
    assert settings["models"]["value"][0]["name"] == "own"
    assert settings["models"]["value"][0]["server"]["command"] == [HIDDEN] * 3
    assert cli("diagnose", "-o", "out.tar.gz").code != 0, "it overwrites nothing"


def test_what_looks_like_a_secret_is_hidden_though_nobody_knows_it() -> None:
    text = 'tk-abc123.def456789 whsec_aaaabbbbcccc https://u:pw12345@host/x "authorization": "Bearer abc.def" /#code=zzzz'
    hidden = without_secrets(text, ())
    for secret in ("def456789", "whsec_aaaa", "pw12345", "abc.def", "zzzz"):
        assert secret not in hidden


def test_lines_of_others_are_counted() -> None:
    assert own_lines(["Traceback", '{"event": "a", "secret_field": 1}']) == [
        '{"event": "a"}',
        "(1 lines of other programs were left out)",
    ]
