"""`turnout tasks` and `turnout keys` against a scripted gateway."""

import json
import signal
from pathlib import Path

from tests.cli.conftest import Cli, valkey_server
from tests.cli.scripted import MP4, STORY, Answer, ScriptedGateway, error


def test_list_is_a_table_newest_first(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1", status="completed", prompt="a boat\x1b[31m\nat sea")
    gateway.add("video_2")
    done = cli("tasks", "list")
    heading, second, first = done.out.splitlines()
    assert heading.split() == ["TASK", "MODEL", "STATUS", "CREATED", "PROMPT"]
    assert second.startswith("video_2  wan-tiny-t2v  queued, 2 tasks ahead")
    assert first.startswith("video_1  wan-tiny-t2v  completed") and first.endswith("a boat [31m at sea")


def test_list_as_json(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1", status="completed")
    answer = json.loads(cli("tasks", "list", "--json", "--limit", "5").out)
    assert [v["id"] for v in answer["data"]] == ["video_1"]
    assert gateway.requests[0].query == {"limit": ["5"], "order": ["desc"]}


def test_an_empty_list_says_how_to_begin(cli: Cli, gateway: ScriptedGateway) -> None:
    done = cli("tasks", "list")
    assert (done.code, done.out) == (0, "")
    assert "turnout generate" in done.err


def test_show_tells_everything(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1", status="failed", error={"code": "x", "message": "It broke."})
    done = cli("tasks", "show", "video_1")
    assert "seed" in done.out and "It broke." in done.out
    assert json.loads(cli("tasks", "show", "video_1", "--json").out)["seed"] == 7


def test_an_unknown_task_is_an_error(cli: Cli, gateway: ScriptedGateway) -> None:
    done = cli("tasks", "show", "video_9/../x")
    assert (done.code, done.err) == (1, "error: No such thing.\n")
    assert gateway.requests[0].path == "/v1/videos/video_9%2F..%2Fx"


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


def test_download_by_variant(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.add("video_1", status="completed")
    done = cli("tasks", "download", "video_1", "--variant", "thumbnail")
    assert (done.code, done.out) == (0, "video_1-thumbnail.webp\n")
    assert (tmp_path / "video_1-thumbnail.webp").read_bytes() == MP4
    assert gateway.requests[-1].query == {"variant": ["thumbnail"]}
    assert cli("tasks", "download", "video_1", "--variant", "poster").code == 2


def test_cancel_says_what_became_of_it(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.add("video_1")
    assert cli("tasks", "cancel", "video_1").out == "video_1 cancelled\n"
    gateway.hooks["POST cancel"] = lambda _: error(409, "The video is completed already.", "video_id")
    done = cli("tasks", "cancel", "video_1")
    assert (done.code, done.err) == (1, "error: The video is completed already. (param video_id)\n")


def test_keys_are_created_listed_and_revoked(cli: Cli, gateway: ScriptedGateway) -> None:
    created = cli("keys", "create", "--tenant", "acme", "--role", "worker", "--name", "ci")
    assert created.out == "tk-k1.fresh\n", "the token alone, so that a script can keep it"
    assert "only time" in created.err and "TURNOUT_API_KEY" in created.err
    assert json.loads(gateway.requests[0].body) == {"tenant": "acme", "role": "worker", "name": "ci"}
    listed = cli("keys", "list").out.splitlines()
    assert listed[0].split() == ["ID", "TENANT", "ROLE", "CREATED", "EXPIRES", "NAME"]
    assert listed[1].split()[:3] == ["k1", "acme", "user"]
    assert cli("keys", "revoke", "k1").out == "k1 revoked\n"
    assert cli("keys", "revoke", "k2").code == 1


def test_a_key_is_made_for_a_time_and_rotated_with_an_overlap(cli: Cli, gateway: ScriptedGateway) -> None:
    cli("keys", "create", "--expires", "30d")
    assert json.loads(gateway.requests[0].body)["expires_in_s"] == 30 * 86_400
    gateway.hooks["POST /v1/keys/k1/rotate"] = lambda _: Answer(
        200,
        {
            "id": "k2",
            "tenant": "acme",
            "role": "user",
            "name": "",
            "created_at": 1,
            "token": "tk-k2.newer",
            "replaces": "k1",
        },
    )
    rotated = cli("keys", "rotate", "k1", "--overlap", "36h")
    assert (rotated.out, rotated.err.splitlines()[0]) == ("tk-k2.newer\n", "k2 replaces k1.")
    assert json.loads(gateway.requests[1].body) == {"overlap_s": 36 * 3600}
    odd = cli("keys", "create", "--expires", "soon")
    assert (odd.code, odd.err) == (2, "error: --expires is a time like 30d, 12h or 45m; not soon\n")


def test_the_audit_log_is_a_table_or_json_lines_newest_last(cli: Cli, gateway: ScriptedGateway) -> None:
    entry = {"at": 1.0, "actor": "k1", "action": "key.created", "target": "k2", "address": "10.0.0.1"}
    page = [{**entry, "id": f"{n}-0", "detail": {"tenant": "a\x1b[31m"}} for n in (2, 1)]
    gateway.hooks["GET /v1/audit"] = lambda _: Answer(200, {"data": page, "has_more": False})
    heading, first, _ = cli("audit").out.splitlines()
    assert heading.split() == ["TIME", "BY", "FROM", "ACTION", "WHAT", "DETAIL"]
    assert first.split()[2:] == ["k1", "10.0.0.1", "key.created", "k2", "tenant=a", "[31m"]
    lines = cli("audit", "--json", "--limit", "7", "--before", "9-0").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["1-0", "2-0"]
    assert gateway.requests[1].query == {"limit": ["7"], "before": ["9-0"]}


def test_a_user_key_cannot_make_keys(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.hooks["POST /v1/keys"] = lambda _: error(403, "Only an admin's key may do this.")
    done = cli("keys", "create")
    assert (done.code, done.err) == (1, "error: Only an admin's key may do this.\n")


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


def test_a_webhook_secret_is_replaced_and_shown_alone(cli: Cli, gateway: ScriptedGateway) -> None:
    made = {"tenant": "acme", "secret": "whsec_bmV3", "created_at": 1, "old_until": 2}
    gateway.hooks["POST /v1/webhooks/secret"] = lambda _: Answer(200, made)
    assert cli("webhooks", "secret", "rotate").out == "whsec_bmV3\n"
    cli("webhooks", "secret", "rotate", "--tenant", "beta", "--overlap", "0")
    bodies = [json.loads(request.body) for request in gateway.requests]
    assert bodies == [{"overlap_s": 86_400}, {"tenant": "beta", "overlap_s": 0}]
