"""`turnout generate` as a user runs it, against a server that misbehaves in every way we know."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, wait_until
from tests.cli.scripted import HELD_S, MP4, STORY, Answer, Hangup, Request, ScriptedGateway, error
from tests.pace import patient


def leftovers(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


def test_saves_the_video_and_tells_its_story(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    done = cli(
        *("generate", "a boat", "-o", "out.mp4", "--size", "64x64", "--seconds", "0.5", "--steps", "6"),
        *("--guidance", "3,4", "--seed", "7", "--negative", "rain", "--priority", "high", "--model", "m"),
    )
    assert done.code == 0, done.err
    assert (tmp_path / "out.mp4").read_bytes() == MP4
    assert leftovers(tmp_path) == ["out.mp4"]
    assert done.out.startswith("out.mp4\nseed 7, took ")
    lines = done.err.splitlines()
    assert lines[0] == "queued, 2 tasks ahead"
    assert "queued, next in line" in lines and "loading" in lines and "completed" in lines
    assert any(line.startswith("denoising, step 1 of 6, about 5 s left") for line in lines)
    assert "\x1b" not in done.err + done.out
    (submission,) = gateway.seen("POST", "/videos")
    assert json.loads(submission.body) == {
        "prompt": "a boat",
        "size": "64x64",
        "seconds": "0.5",
        "steps": 6,
        "guidance": [3.0, 4.0],
        "seed": 7,
        "negative_prompt": "rain",
        "model": "m",
    }
    assert submission.headers["x-turnout-priority"] == "high"


def test_says_what_became_of_the_prompt(cli: Cli, gateway: ScriptedGateway) -> None:
    def submit(request: Request) -> Answer:
        asked = json.loads(request.body)
        assert asked["enhance"] is True
        if asked["prompt"] == "a boat":
            gateway.add(prompt="A small boat at dawn.", original_prompt="a boat")
        else:
            gateway.add(
                prompt="a whale", notice="The prompt was not rewritten, and is used as it is: too late."
            )
        return Answer(200, gateway.tasks["video_1"])

    gateway.hooks["POST /v1/videos"] = submit
    done = cli("generate", "a boat", "--enhance", "-o", "out.mp4")
    assert done.code == 0, done.err
    assert "it may have to wake first" in done.err and "prompt: A small boat at dawn." in done.err
    done = cli("generate", "a whale", "--enhance", "--no-wait")
    assert done.code == 0 and "The prompt was not rewritten, and is used as it is: too late." in done.err
    gateway.add(notice="m knows shapes; 'whale' is not among them.")
    assert "'whale' is not among them." in cli("tasks", "watch", "video_1").err


def test_resumes_a_broken_stream_after_the_last_event(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    gateway.drops = [3, 2]
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0, done.err
    streams = gateway.seen("GET", "/events")
    assert [s.headers.get("last-event-id") for s in streams] == [None, "3", "5"]
    assert gateway.told == list(range(1, len(STORY) + 1)), "an event was asked for twice"
    assert "trying again for up to" in done.err and "connected again" in done.err
    assert (tmp_path / "out.mp4").read_bytes() == MP4


def test_waits_for_a_gateway_that_is_away(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.drops = [4]
    gone = threading.Event()

    def vanish_once(_: Request) -> Answer | None:
        if len(gateway.seen("GET", "/events")) == 1:
            gateway.vanish()
            gone.set()
        return None

    gateway.hooks["GET events"] = vanish_once
    running = cli.start("generate", "a boat", "-o", "out.mp4")
    assert gone.wait(patient(40))
    running.wait_for("trying again")
    gateway.listen()
    done = running.finish()
    assert done.code == 0, done.err
    assert "connected again" in done.err
    assert len(gateway.tasks) == 1


def test_a_lost_submission_is_sent_again_and_makes_one_task(cli: Cli, gateway: ScriptedGateway) -> None:
    def accept_then_hang_up(request: Request) -> Answer | None:
        if len(gateway.seen("POST", "/videos")) == 1:
            gateway.answer(request)
            raise Hangup
        return None

    gateway.hooks["POST /v1/videos"] = accept_then_hang_up
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0, done.err
    first, second = gateway.seen("POST", "/videos")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    assert len(gateway.tasks) == 1


def test_an_unready_server_is_tried_again(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.hooks["POST /v1/videos"] = lambda _: (
        error(503, "Redis is loading.") if len(gateway.seen("POST", "/videos")) == 1 else None
    )
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0
    assert "Redis is loading." in done.err


def test_a_requeued_task_goes_on(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.story[4:4] = [
        {"type": "video.requeued", "reason": "rank 1 died"},
        {"type": "video.in_progress", "stage": "loading"},
    ]
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0, done.err
    assert "back in the queue: rank 1 died" in done.err
    assert gateway.told == list(range(1, len(gateway.story) + 1))


def test_without_event_streams_it_polls(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    looks = iter((1, 2))

    def look(_: Request) -> None:
        gateway.positions = []
        step = next(looks, None)
        status = "completed" if step is None else "in_progress"
        gateway.tasks["video_1"].update(status=status, stage="denoising", step=step or 2, steps=2)

    gateway.hooks["GET events"] = lambda _: error(404, "No such thing.")
    gateway.hooks["GET video_1"] = look
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0, done.err
    assert len(gateway.seen("GET", "/events")) == 1
    assert "denoising, step 2 of 2" in done.err


def test_a_failed_task_says_why_and_leaves_no_file(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    gateway.story = [*STORY[:3], {"type": "video.failed"}]
    gateway.failure = {"code": "attempts_exhausted", "message": "All 3 attempts died.\x1b[2J"}
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "error: the task failed: All 3 attempts died. [2J"
    assert done.out == "" and leftovers(tmp_path) == []


def test_a_broken_download_starts_again_and_never_shows_half(
    cli: Cli, gateway: ScriptedGateway, tmp_path: Path
) -> None:
    (tmp_path / "out.mp4").write_bytes(b"old")
    gateway.breaks_downloads = 2
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert done.code == 0, done.err
    assert (tmp_path / "out.mp4").read_bytes() == MP4
    assert leftovers(tmp_path) == ["out.mp4"]


def test_a_refused_download_keeps_the_old_file(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    (tmp_path / "out.mp4").write_bytes(b"old")
    gateway.hooks["GET content"] = lambda _: error(404, "It has expired.")
    done = cli("generate", "a boat", "-o", "out.mp4")
    assert (done.code, done.err.splitlines()[-1]) == (1, "error: It has expired.")
    assert (tmp_path / "out.mp4").read_bytes() == b"old" and leftovers(tmp_path) == ["out.mp4"]


def test_ctrl_c_cancels_the_task(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.hold_at = 5
    running = cli.start("generate", "a boat", "-o", "out.mp4")
    assert gateway.streams_held.wait(patient(40))
    running.process.send_signal(signal.SIGINT)
    done = running.finish()
    assert done.code == 130
    assert gateway.tasks["video_1"]["status"] == "cancelled"
    assert done.err.splitlines()[-1] == "video_1 cancelled"
    assert "Traceback" not in done.err and leftovers(tmp_path) == []


def test_ctrl_c_while_submitting_cancels_what_may_have_arrived(cli: Cli, gateway: ScriptedGateway) -> None:
    arrived = threading.Event()

    def accept_and_stay_silent(request: Request) -> Answer | None:
        if len(gateway.seen("POST", "/videos")) == 1:
            gateway.answer(request)
            arrived.set()
            gateway.cancelled.wait(HELD_S)
        return None

    gateway.hooks["POST /v1/videos"] = accept_and_stay_silent
    running = cli.start("generate", "a boat", "-o", "out.mp4")
    assert arrived.wait(patient(40))
    running.process.send_signal(signal.SIGINT)
    done = running.finish()
    assert done.code == 130
    assert [t["status"] for t in gateway.tasks.values()] == ["cancelled"]


def test_a_second_ctrl_c_leaves_at_once(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.hold_at = 5
    asked = threading.Event()

    def never_answer(_: Request) -> None:
        asked.set()
        gateway.cancelled.wait(HELD_S)

    gateway.hooks["POST cancel"] = never_answer
    running = cli.start("generate", "a boat", "-o", "out.mp4")
    assert gateway.streams_held.wait(patient(40))
    running.process.send_signal(signal.SIGINT)
    assert asked.wait(patient(40))
    running.process.send_signal(signal.SIGINT)
    done = running.finish()
    assert done.code == 130
    assert "Traceback" not in done.err


def test_time_up_leaves_the_task_running(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.hold_at, gateway.positions = 5, []
    done = cli("generate", "a boat", "-o", "out.mp4", "--timeout", "1.5")
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("turnout tasks watch video_1")
    assert gateway.tasks["video_1"]["status"] == "in_progress"


def test_an_image_file_goes_as_an_upload(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    (tmp_path / "first.png").write_bytes(b"\x89PNG picture")
    done = cli("generate", "a boat", "--image", "first.png", "--steps", "6", "--no-wait")
    assert done.code == 0, done.err
    (submission,) = gateway.seen("POST", "/videos")
    assert submission.headers["content-type"].startswith("multipart/form-data")
    assert b'name="input_reference"; filename="first.png"' in submission.body
    assert b"\x89PNG picture" in submission.body
    assert b'name="steps"\r\n\r\n6\r\n' in submission.body


def test_an_image_url_is_left_to_the_server(cli: Cli, gateway: ScriptedGateway) -> None:
    done = cli("generate", "a boat", "--image", "https://example.org/a.png", "--no-wait")
    assert done.code == 0, done.err
    (submission,) = gateway.seen("POST", "/videos")
    assert json.loads(submission.body)["input_reference"] == {"image_url": "https://example.org/a.png"}


@pytest.mark.parametrize(("wait_s", "said"), [("7", "7 s"), ("8340", "2 h 19 min")])
def test_over_a_limit_says_when_to_come_back(
    cli: Cli, gateway: ScriptedGateway, wait_s: str, said: str
) -> None:
    gateway.hooks["POST /v1/videos"] = lambda _: error(429, "Too many tasks waiting.", retry_after=wait_s)
    done = cli("generate", "a boat")
    assert (done.code, done.err) == (1, f"error: Too many tasks waiting. Try again in {said}.\n")


def test_no_server_says_what_was_tried_and_what_to_do(bare_cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.vanish()
    try:
        done = bare_cli("generate", "a boat", TURNOUT_URL=gateway.url)
    finally:
        gateway.listen()
    assert done.code == 1
    assert done.err == (
        f"error: nothing answers at {gateway.url} (from TURNOUT_URL); start one with: turnout up\n"
    )


def test_an_answer_that_is_not_ours_is_one_line(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.hooks["POST /v1/videos"] = lambda _: Answer(500, "boom")
    done = cli("generate", "a boat")
    assert (done.code, done.err) == (1, "error: the server answered 500 Internal Server Error\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-o", "missing/out.mp4"], "is not there: make it first (param output)"),
        (["-o", "."], "is a directory: give a file name (param output)"),
        (["--image", "missing.png"], "there is no image missing.png (param image)"),
        (["--priority", "urgent"], "priority is low, normal or high, not urgent (param priority)"),
        (["--guidance", "much"], "guidance is one number or two, as in 3.0,4.0; not much (param guidance)"),
        (["--no-wait", "-o", "out.mp4"], "--no-wait saves nothing"),
    ],
)
def test_bad_usage_is_refused_before_anything_is_sent(
    cli: Cli, gateway: ScriptedGateway, args: list[str], said: str
) -> None:
    done = cli("generate", "a boat", *args)
    assert done.code == 2
    assert said in done.err and done.err.count("\n") == 1
    assert gateway.requests == []


def test_a_terminal_gets_a_live_bar(cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    gateway.positions = [2, 2, 2, 1]  # long enough for a frame or two
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "turnout", "generate", "a boat", "-o", "out.mp4"],
        cwd=cli.cwd,
        env={**cli.env, "TERM": "xterm-256color", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    cli.started.append(process)
    os.close(theirs)
    seen = bytearray()

    def drain() -> None:
        try:
            while piece := os.read(ours, 4096):
                seen.extend(piece)
        except OSError:
            pass  # the other end is closed
        finally:
            os.close(ours)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    out, _ = process.communicate(timeout=patient(40))
    wait_until(lambda: not reader.is_alive(), "the terminal to be read")
    assert process.returncode == 0
    assert out.startswith("out.mp4\nseed 7")
    assert b"\x1b[" in seen and "tasks ahead" in seen.decode()
