"""The service of this machine: its status, its logs, starting it in the background and ending it."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, wait_until
from tests.cli.scripted import Answer, ScriptedGateway

from turnout.cli.formatting import table
from turnout.run.state_dir import find_holder


def test_status_of_a_service_that_is_not_ready_says_why(cli: Cli, gateway: ScriptedGateway) -> None:
    parts = {"redis": "no space", "blobs": "ok"}
    gateway.hooks |= {
        "GET /health": lambda _: Answer(200, {"status": "ok", "version": "0.2.0"}),
        "GET /ready": lambda _: Answer(503, {"status": "not_ready", "parts": parts}),
        "GET /v1/queues": lambda _: Answer(200, {"data": []}),
    }
    done = cli("status")
    assert done.code == 1 and "NOT READY  redis: no space" in done.out


def line(at: str, event: str, **fields: object) -> str:
    return (
        json.dumps({"event": event, "timestamp": f"2026-11-16T04:00:{at}Z", "level": "info", **fields}) + "\n"
    )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder, engines = tmp_path / "state" / "logs", tmp_path / "state" / "worker" / "logs"
    folder.mkdir(parents=True)
    engines.mkdir(parents=True)
    (folder / "gateway.log").write_text(
        line("01.5", "task submitted", task="video_1") + line("09.0", "other")
    )
    (folder / "manager.log").write_text(line("02.5", "gang ordered") + "no JSON\n")
    (engines / "m-1.log").write_text(line("03.5", "task claimed", task="video_1", attempt=1))
    return folder


def test_logs_of_all_parts_come_in_order(bare_cli: Cli, logs: Path) -> None:
    lines = bare_cli("logs").out.splitlines()
    assert [one.split("  ")[2].strip() for one in lines] == [
        "task submitted",
        "gang ordered",
        "no JSON",
        "task claimed",
        "other",
    ]
    assert bare_cli("logs", "-n", "1").out.startswith("04:00:09.0Z  gateway  other")


def test_logs_of_one_part_and_of_one_task(bare_cli: Cli, logs: Path) -> None:
    assert "gang ordered" in bare_cli("logs", "manager").out
    assert "task submitted" not in bare_cli("logs", "manager").out
    of_task = bare_cli("logs", "video_1").out.splitlines()
    assert len(of_task) == 2 and "submitted" in of_task[0] and "claimed" in of_task[1]
    assert bare_cli("logs", "video_2").code == 1
    wrong = bare_cli("logs", "gatway")
    assert wrong.code == 2 and "there are: gateway, m-1, manager" in wrong.err
    raw = bare_cli("logs", "video_1", "--json").out.splitlines()
    assert [json.loads(one)["event"] for one in raw] == ["task submitted", "task claimed"]


def test_logs_follow_what_comes_and_bear_a_cut_file(bare_cli: Cli, logs: Path) -> None:
    running = bare_cli.start("logs", "gateway", "-f", PYTHONUNBUFFERED="1")
    running.wait_for("task submitted")
    with (logs / "gateway.log").open("a") as file:
        file.write(line("10.0", "came later"))
    running.wait_for("came later")
    (logs / "gateway.log").write_text(line("11.0", "cut"))
    running.wait_for("cut")
    running.process.send_signal(2)
    assert running.finish().code == 130


def test_logs_where_nothing_ran(bare_cli: Cli) -> None:
    done = bare_cli("logs")
    assert done.code == 2 and "has `turnout up` run there? --state-dir names another place" in done.err


def test_down_where_nothing_runs(bare_cli: Cli) -> None:
    done = bare_cli("down")
    assert done.code == 0 and done.err.startswith("no Turnout runs on ")


def test_up_in_the_background_and_down(bare_cli: Cli, tmp_path: Path) -> None:
    state = tmp_path / "state"
    started = bare_cli.start("up", "--detach", "--port", "0", "--state-dir", str(state)).finish()
    try:
        assert started.code == 0, started.err
        assert "export TURNOUT_URL=http://127.0.0.1:" in started.out
        assert f"`turnout down --state-dir {state}` drains" in started.out
        assert bare_cli("status").code == 0
        again = bare_cli.start("up", "-d", "--port", "0").finish()
        assert again.code == 2 and "already running" in again.err
    finally:
        pid = find_holder(state)
        stopped = bare_cli.start("down").finish()
    assert pid is not None and stopped.code == 0 and "has stopped" in stopped.out
    wait_until(lambda: not _is_running(pid), "the service to be gone")
    assert find_holder(state) is None


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_columns_of_chinese_words_stand_below_each_other() -> None:
    lines = table(("NAME", "ROLE"), [("爱达", "user"), ("Ada", "admin")]).splitlines()
    assert lines == ["NAME  ROLE", "爱达  user", "Ada   admin"]


def test_a_table_too_wide_for_the_terminal_becomes_blocks() -> None:
    rows = [("video_1", "wan-tiny-t2v", "a boat"), ("video_2", "wan-tiny-t2v", "a ship")]
    narrow = table(("TASK", "MODEL", "PROMPT"), rows, width=20)
    assert narrow.splitlines()[:3] == ["TASK    video_1", "MODEL   wan-tiny-t2v", "PROMPT  a boat"]
    assert max(map(len, narrow.splitlines())) <= 40
    assert (
        table(("TASK", "MODEL", "PROMPT"), rows, width=80).splitlines()[0] == "TASK     MODEL         PROMPT"
    )
