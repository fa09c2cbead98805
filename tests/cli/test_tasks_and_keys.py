"""`turnout tasks` and `turnout keys` against a scripted gateway."""

import json
import signal
from pathlib import Path

from tests.cli.conftest import Cli, valkey_server
from tests.cli.scripted import STORY, ScriptedGateway


def test_watch_tells_the_story_from_its_start(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1", status="in_progress", stage="denoising", step=4, steps=6)
    done = cli("tasks", "watch", "video_1")
    assert (done.code, done.out) == (0, "video_1 completed\n")
    assert done.err.splitlines()[0] == "loading", "the story starts at its start, not where the task is now"
    assert gateway.told == list(range(1, len(STORY) + 1))


def test_watching_a_task_that_fails_exits_with_1(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1", status="failed", error={"code": "x", "message": "It broke."})
    done = cli("tasks", "watch", "video_1")
    assert (done.code, done.out) == (1, "video_1 failed\n")
    assert done.err.splitlines()[-1] == "error: It broke."


def test_watch_all_until_ctrl_c_cancels_nothing(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_0", status="completed")
    gateway.add("video_1")
    gateway.positions = [3] * 100
    running = cli.start("tasks", "watch")
    running.wait_for("video_1: queued, 3 tasks ahead")
    gateway.tasks["video_1"].update(status="completed")
    running.wait_for("video_1: completed")
    running.process.send_signal(signal.SIGINT)
    done = running.finish()
    assert done.code == 130 and "Traceback" not in done.err
    assert "video_0" not in done.out, "what ended before is no news"
    assert gateway.seen("POST", "/cancel") == []


def test_direct_keys_need_no_server(bare_cli: Cli, tmp_path: Path) -> None:
    with valkey_server(tmp_path, "no") as url:
        bare_cli.env["TURNOUT_REDIS_URL"] = url
        made = json.loads(bare_cli("keys", "create", "--direct", "--tenant", "acme", "--json").out)
        assert made["token"].startswith(f"tk-{made['id']}.") and "digest" not in made
        (listed,) = json.loads(bare_cli("keys", "list", "--direct", "--json").out)["data"]
        assert (listed["id"], listed["tenant"], listed["role"]) == (made["id"], "acme", "user")
        assert "token" not in listed and "digest" not in listed
        turned = json.loads(
            bare_cli("keys", "rotate", made["id"], "--direct", "--overlap", "1h", "--json").out
        )
        assert (turned["replaces"], turned["tenant"]) == (made["id"], "acme")
        old, new = json.loads(bare_cli("keys", "list", "--direct", "--json").out)["data"]
        assert old["expires_at"] - new["created_at"] == 3600 and "expires_at" not in new
        assert bare_cli("keys", "revoke", "--direct", made["id"]).code == 0
        gone = bare_cli("keys", "revoke", "--direct", made["id"])
        assert (gone.code, gone.err) == (1, f"error: there is no key {made['id']}\n")
    refused = bare_cli("keys", "list", "--direct")
    assert refused.code == 1 and refused.err.count("\n") == 1 and "p%" not in refused.err
