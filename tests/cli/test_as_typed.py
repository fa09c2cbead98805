"""What a user types, word for word, against a running service: every command of docs/cli.md that needs one."""

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli, wait_until
from tests.service import Service

QUICK = ("--size", "64x64", "--frames", "9", "--steps", "4", "--seed", "7")


def told(turnout: Cli, *args: str) -> Any:
    done = turnout(*args, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize(
    ("role", "use"),
    [
        ("user", "TURNOUT_API_KEY"),
        ("admin", "TURNOUT_API_KEY"),
        ("worker", "TURNOUT_JOIN_TOKEN"),
        ("metrics", "curl URL/metrics"),
    ],
)
def test_a_key_of_each_role_is_made_without_naming_a_tenant(turnout: Cli, role: str, use: str) -> None:
    made = turnout("keys", "create", "--role", role)
    assert made.code == 0, made.err
    token, key_id = made.out.strip(), made.out.partition(".")[0].removeprefix("tk-")
    assert token.startswith("tk-") and "\n" not in token, "the token alone, so that a script can keep it"
    assert "only time" in made.err and use in made.err
    (shown,) = [key for key in told(turnout, "keys", "list")["data"] if key["id"] == key_id]
    assert (shown["role"], shown["tenant"]) == (role, f"t-{key_id}" if role == "user" else "default")


def test_a_key_is_made_for_a_time_rotated_with_an_overlap_and_revoked(turnout: Cli) -> None:
    made = told(turnout, "keys", "create", "--tenant", "acme", "--name", "ci", "--expires", "30d")
    assert made["expires_at"] - made["created_at"] == 30 * 86_400
    listed = turnout("keys", "list").out.splitlines()
    assert listed[0].split() == ["ID", "TENANT", "ROLE", "CREATED", "EXPIRES", "NAME"]
    assert any(line.split()[:3] == [made["id"], "acme", "user"] for line in listed)
    rotated = turnout("keys", "rotate", made["id"], "--overlap", "36h")
    assert f"replaces {made['id']}." in rotated.err.splitlines()[0]
    assert turnout("keys", "revoke", made["id"]).out == f"{made['id']} revoked\n"
    assert turnout("keys", "revoke", made["id"]).code == 1
    (own,) = [k["id"] for k in told(turnout, "keys", "list")["data"] if k["name"] == "made by turnout up"]
    kept = turnout("keys", "revoke", own)
    assert kept.code == 1 and "--yes" in kept.err and kept.err.count("\n") == 1
    odd = turnout("keys", "create", "--expires", "soon")
    assert (odd.code, odd.err) == (2, "error: --expires is a time like 30d, 12h or 45m; not soon\n")


def test_a_users_key_makes_no_keys_and_sees_no_workers(turnout: Cli, service: Service) -> None:
    own = {"TURNOUT_API_KEY": service.key_of()}
    refused = turnout("keys", "create", **own)
    assert refused.code == 1 and refused.err.count("\n") == 1
    status = turnout("status", **own)
    assert status.code == 0 and "wan-tiny-t2v" in status.out and "WORKER" not in status.out


def test_a_worker_joins_with_the_key_that_was_made(turnout: Cli, tmp_path: Path) -> None:
    token = turnout("keys", "create", "--role", "worker").out.strip()
    url = turnout.env["TURNOUT_URL"]
    worker = turnout.start(*("worker", "--join", url, "--id", "typed", "--tunnel"), TURNOUT_JOIN_TOKEN=token)

    def found() -> dict[str, Any]:
        workers = told(turnout, "workers", "list")["data"]
        return next((one for one in workers if one["name"] == "typed"), {})

    wait_until(lambda: found().get("standing") == "alive", "the worker to join")
    joined = found()["id"]
    assert turnout("workers", "drain", joined).out == f"{joined} is draining\n"
    assert found()["draining"]
    assert turnout("workers", "drain", joined, "--undo").out == f"{joined} takes work again\n"
    assert told(turnout, "workers", "drain", joined) == {"id": joined, "draining": True}
    assert "typed" in turnout("workers", "list").out
    assert turnout("workers", "evict", joined, "--revoke-key").code == 0
    worker.finish()
    assert turnout("workers", "drain", joined).code == 1


def test_the_command_that_is_printed_joins_a_machine_and_its_gpu_time_is_taken_back(turnout: Cli) -> None:
    printed = turnout("workers", "add", "--expires", "5m")
    assert "is this machine's own" in printed.err
    variable, _, command = printed.out.strip().partition(" ")
    words, code = shlex.split(command)[1:], variable.removeprefix("TURNOUT_JOIN_TOKEN=")
    worker = turnout.start(*words, "--id", "added", "--tunnel", TURNOUT_JOIN_TOKEN=code)

    def found() -> dict[str, Any]:
        workers = told(turnout, "workers", "list")["data"]
        return next((one for one in workers if one["name"] == "added"), {})

    wait_until(lambda: found().get("standing") == "alive", "the worker to join")
    joined = found()["id"]
    gone = told(turnout, "workers", "evict", joined, "--take-back")
    assert gone["key_revoked"] and gone["gpu_seconds_taken_back"].keys() <= {""}
    worker.finish()
    assert turnout("workers", "take-back", joined).out == "GPU time taken back: none was booked\n"


def test_a_video_is_rendered_listed_shown_downloaded_remixed_and_deleted(
    turnout: Cli, tmp_path: Path
) -> None:
    nothing = turnout("tasks", "list")
    assert (nothing.code, nothing.out) == (0, "") and "turnout generate" in nothing.err
    done = turnout(
        *("generate", "a red square", "-o", "out.mp4", *QUICK, "--negative", "rain", "--priority", "high"),
        *("--steps", "60"),  # the remix is still rendered when it is cancelled
    )
    assert done.code == 0, done.err
    assert done.out.startswith("out.mp4\nseed 7, took ") and "completed" in done.err
    assert (tmp_path / "out.mp4").read_bytes()[4:8] == b"ftyp"
    (video,) = told(turnout, "tasks", "list", "--limit", "5")["data"]
    task = video["id"]
    assert (video["prompt"], video["negative_prompt"], video["priority"]) == ("a red square", "rain", "high")
    heading, row = turnout("tasks", "list").out.splitlines()
    assert heading.split() == ["TASK", "MODEL", "STATUS", "CREATED", "PROMPT"]
    assert row.startswith(f"{task}  wan-tiny-t2v  completed") and row.endswith("a red square")
    assert "seed" in turnout("tasks", "show", task).out and told(turnout, "tasks", "show", task)["seed"] == 7
    watched = turnout("tasks", "watch", task)
    assert (watched.code, watched.out) == (0, f"{task} completed\n")
    saved = turnout("tasks", "download", task, "--variant", "thumbnail")
    assert saved.out == f"{task}-thumbnail.webp\n" and (tmp_path / f"{task}-thumbnail.webp").stat().st_size
    assert turnout("tasks", "download", task, "--variant", "poster").code == 2
    late = turnout("tasks", "cancel", task)
    assert (late.code, late.err) == (1, "error: The video is completed already. (param video_id)\n")
    remix = told(turnout, "tasks", "remix", task, "a\x1b[31m boat", "--seed", "9")
    assert (remix["prompt"], remix["seed"], remix["remixed_from_video_id"]) == ("a\x1b[31m boat", 9, task)
    assert turnout("tasks", "cancel", remix["id"]).out == f"{remix['id']} cancelled\n"
    assert turnout("tasks", "list").out.splitlines()[1].endswith("a [31m boat")
    assert turnout("tasks", "delete", task, "--yes").out == f"{task} deleted\n"
    assert turnout("tasks", "show", task).code == 1
    assert turnout("tasks", "show", "video_9/../x").code == 1
    assert turnout("tasks", "dead", "list").code == 0


def test_ctrl_c_cancels_the_task_at_the_service(turnout: Cli) -> None:
    running = turnout.start("generate", "a red square", "-o", "out.mp4", "--steps", "100")
    running.wait_for("denoising")
    running.process.send_signal(signal.SIGINT)
    done = running.finish()
    assert (done.code, "Traceback" in done.err) == (130, False)
    (video,) = told(turnout, "tasks", "list")["data"]
    assert video["status"] == "cancelled" and done.err.splitlines()[-1] == f"{video['id']} cancelled"


def test_what_the_service_refuses_is_one_line(turnout: Cli) -> None:
    for args, code, said in (
        (("generate", "a boat", "--seconds", "99"), 2, "(param seconds)"),
        (("generate", "a boat", "--model", "wam"), 2, "There are: wan-tiny-t2v"),
        (("chat", "wam", "why?"), 2, "There is no model wam"),
        (("models", "show", "nope"), 2, "There is no model nope"),
        (("models", "rm", "nope"), 2, "There is no model nope"),
    ):
        done = turnout(*args)
        assert (done.code, done.err.count("\n")) == (code, 1) and said in done.err, done


def test_a_wrong_key_is_an_error_that_never_shows_it(turnout: Cli) -> None:
    done = turnout("tasks", "list", TURNOUT_API_KEY="tk-wrong.hidden")
    url = turnout.env["TURNOUT_URL"]
    assert done.code == 1 and "hidden" not in done.err + done.out
    assert f"The key that was sent, tk-wrong.…, is not one of {url}, or no longer valid." in done.err
    assert "no-dots" not in turnout("tasks", "list", TURNOUT_API_KEY="no-dots").err
    assert "Give a key with --key" in turnout("tasks", "list", TURNOUT_API_KEY="").err
    https = turnout("tasks", "list", TURNOUT_URL=url.replace("http:", "https:"))
    assert https.code == 1 and f"does not speak TLS; try {url}" in https.err


def test_models_are_registered_and_shown_as_they_were_declared(turnout: Cli) -> None:
    line = "models register typed-b --engine vllm --model-name m --gpu-memory 1.5GiB --max-model-len 4096 "
    line += "--gpu-memory-utilization 0.8 --arg=--enforce-eager --max-replicas 3 --idle-s 60 --concurrency 8"
    done = turnout(*line.split())
    assert (done.code, done.out) == (0, "typed-b registered\n") and "it cannot run now" in done.err
    shown = told(turnout, "models", "show", "typed-b")
    given = {"engine": "vllm", "model_name": "m", "max_model_len": 4096, "gpu_memory_utilization": 0.8}
    given |= {"max_replicas": 3, "idle_s": 60, "concurrency": 8}
    assert {name: shown.get(name) for name in given} == given
    wan = "models register typed-c --engine wan --model-name /w --family wan2.2-ti2v-5b --ulysses 4 --device cuda"
    assert told(turnout, *wan.split())["id"] == "typed-c"
    words = ("--engine", "command", "--model-name", "m", "--command", "my-server --port {port} {weights}")
    refused = turnout("models", "register", "typed-d", *words)
    assert refused.code == 1 and "allow_registered_commands" in refused.err
    assert told(turnout, "models", "rm", "typed-b") == {"id": "typed-b", "deleted": True}
    assert turnout("models", "rm", "typed-c").out == "typed-c removed\n"


def test_a_chat_model_is_registered_woken_asked_and_stopped(turnout: Cli) -> None:
    line = "models register typed --engine llamacpp --model-name builtin:smollm2 --memory 1GiB"
    assert turnout(*line.split()).out == "typed registered\n"
    heading, *rows = turnout("models", "list").out.splitlines()
    assert heading.split() == ["NAME", "KIND", "ENGINE", "STATUS"]
    assert {"typed", "wan-tiny-t2v", "smollm2"} <= {row.split()[0] for row in rows}
    assert turnout("models", "wake", "typed").out == "typed is waking; see: turnout models show typed\n"
    answer = turnout(
        "chat", "typed", "hello", "--max-tokens", "5", "--temperature", "0", "--system", "Be brief."
    )
    assert (answer.code, answer.err) == (0, "") and answer.out.strip()
    whole = told(turnout, "chat", "typed", "hello", "--max-tokens", "5")
    assert 1 <= whole["usage"]["completion_tokens"] <= 5
    assert "engine " in turnout("models", "show", "typed").out
    assert turnout("models", "stop", "typed").out == "typed leaves once it is idle\n"

    def is_booked() -> bool:  # gateways book chats now and then
        return "typed" in {row["model"] for row in told(turnout, "usage", "--days", "2")["data"]}

    wait_until(is_booked, "the chats to be booked")

    def is_divided() -> bool:  # GPU time is, every ten seconds
        heading, *rows = turnout("usage", "--by", "model").out.splitlines()
        return heading.split()[0] == "MODEL" and any(row.startswith("typed ") for row in rows)

    wait_until(is_divided, "the model to be listed by what it used")
    assert (
        turnout("usage", "--by", "worker").code == turnout("usage", "--by", "tenant", "--days", "3").code == 0
    )
    assert turnout("models", "rm", "typed").code == 0


def test_budgets_are_set_listed_and_removed(turnout: Cli) -> None:
    assert (
        turnout("budgets", "set", "typed", "--month", "100", "--no-hard").out
        == "typed may spend 100 a month\n"
    )
    (row,) = [row for row in turnout("budgets", "list").out.splitlines() if row.startswith("typed ")]
    assert row.split() == ["typed", "100.00", "USD", "-", "-", "no", "admin"]
    (shown,) = [b for b in told(turnout, "budgets", "list")["data"] if b["tenant"] == "typed"]
    assert (shown["month"], shown["soft"], shown["hard"]) == (100.0, 0.8, False)
    assert turnout("budgets", "remove", "typed").out == "typed: budget removed\n"
    assert turnout("budgets", "remove", "*").code == 1
    assert turnout("budgets", "list").err == "there are no budgets\n"


def test_a_webhook_secret_is_replaced_and_the_audit_log_tells_of_it(turnout: Cli) -> None:
    assert turnout("webhooks", "secret", "rotate").out.startswith("whsec_")
    made = told(turnout, "webhooks", "secret", "rotate", "--tenant", "beta", "--overlap", "0")
    assert (made["tenant"], made["old_until"]) == ("beta", made["created_at"])
    heading, *_, last = turnout("audit", "--limit", "5").out.splitlines()
    assert heading.split() == ["TIME", "BY", "FROM", "ACTION", "WHAT", "DETAIL"]
    assert last.split()[3:] == ["127.0.0.1", "webhook_secret.rotated", "beta", "overlap_s=0"]
    first, second = (json.loads(line) for line in turnout("audit", "--limit", "2", "--json").out.splitlines())
    assert (first["action"], second["target"]) == ("webhook_secret.rotated", "beta")
    before = turnout("audit", "--json", "--limit", "1", "--before", second["id"]).out
    assert json.loads(before)["id"] == first["id"], "newest last"


def test_status_is_one_screen_and_open_prints_a_link(turnout: Cli) -> None:
    wait_until(lambda: "takes work" in turnout("status").out, "the service's worker to join")
    done = turnout("status")
    assert done.code == 0, done.err
    assert f"at {turnout.env['TURNOUT_URL']}" in done.out and "well       redis, blobs" in done.out
    assert "smollm2" in done.out
    assert {"models", "workers", "queues"} <= told(turnout, "status").keys()
    printed = turnout("open", "--print")
    assert "/#code=" in printed.out and "is this machine's own" in printed.err


def test_the_link_for_other_machines_begins_with_the_public_url(turnout: Cli, service: Service) -> None:
    found_here = {"TURNOUT_URL": "", "TURNOUT_STATE_DIR": str(service.state_dir)}
    printed = turnout("open", "--print", TURNOUT_PUBLIC_URL="https://video.example", **found_here)
    assert printed.out.startswith("https://video.example/#code="), printed.err
    assert "this machine's own" not in printed.err


def test_the_service_of_this_machine_is_found_backed_up_and_diagnosed(
    bare_cli: Cli, service: Service
) -> None:
    """Beside a running `turnout up` neither URL nor key need be said."""
    bare_cli.env["TURNOUT_STATE_DIR"] = str(service.state_dir)
    assert bare_cli("status").code == 0
    assert "task submitted" in bare_cli("logs", "gateway", "-n", "2000").out or bare_cli("logs").code == 0
    assert " keys are in copy." in bare_cli("backup", "copy").out
    kept = bare_cli("restore", "copy")
    assert kept.code == 1 and "--force deletes it first" in kept.err
    assert bare_cli("diagnose", "-o", "report.tgz").code == 0 and os.path.getsize(bare_cli.cwd / "report.tgz")
    made = bare_cli("keys", "create", "--direct", "--role", "worker")
    assert made.code == 0 and "TURNOUT_JOIN_TOKEN" in made.err
