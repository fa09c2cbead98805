"""What decides how progress is told: pure parts, without a server."""

import io
from typing import Any

import httpx
import pytest
from tests.cli.scripted import video_json

from turnout.cli.display import PlainLines
from turnout.cli.formatting import ahead, duration, one_line, table
from turnout.cli.server_answers import ModelSummary, VideoAnswer, VideoEvent, after, read, read_events
from turnout.errors import TurnoutError


def video(status: str, **fields: Any) -> VideoAnswer:
    return VideoAnswer.model_validate(video_json("v", status=status, **fields))


def denoising(step: int) -> VideoAnswer:
    return video("in_progress", stage="denoising", step=step, steps=20, eta_s=20.0 - step)


def event(name: str, **fields: Any) -> VideoEvent:
    return VideoEvent(type=f"video.{name}", **fields)


def test_plain_lines_come_at_stages_and_every_two_seconds() -> None:
    now, out = 0.0, io.StringIO()
    lines = PlainLines(out, clock=lambda: now)
    lines.show(video("queued", queue_position=1))
    lines.show(video("queued", queue_position=1))
    for step in range(1, 8):
        now += 0.5
        lines.show(denoising(step))
    lines.show(video("in_progress", stage="decoding", steps=20))
    assert out.getvalue().splitlines() == [
        "queued, 1 task ahead",
        "denoising, step 1 of 20, about 19 s left",
        "denoising, step 5 of 20, about 15 s left",
        "decoding",
    ]


def test_a_queued_task_is_shown_with_why_it_waits() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    for words in ("waking: no worker has joined", "waking: loading on gpu1", "waking: loading on gpu1"):
        why = {"state": "waiting", "cause": "no_worker", "words": words, "for_s": 1}
        lines.show(video("queued", queue_position=0, waiting_for=why))
    lines.show(video("queued", queue_position=0, waiting_for={"state": "of a newer server", "words": 1}))
    assert out.getvalue().splitlines() == [
        "queued, next in line (waking: no worker has joined)",
        "queued, next in line (waking: loading on gpu1)",
        "queued, next in line",
    ]


def test_figures_are_of_a_size_that_says_something() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    lines.show(video("in_progress", stage="loading", loaded_bytes=12_000_000, load_bytes=42_000_000))
    lines.show(video("in_progress", stage="decoding", eta_s=0.3))
    lines.show(video("in_progress", stage="loading", loaded_bytes=1_500_000_000, load_bytes=28_600_000_000))
    assert out.getvalue().splitlines() == ["loading, 12 of 42 MB", "decoding", "loading, 1.5 of 28.6 GB"]


def test_silence_is_broken_once_and_only_while_nothing_was_said() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    lines.break_silence()
    lines.break_silence()
    assert out.getvalue() == "waiting for the server to answer\n"


def test_events_are_applied_in_order() -> None:
    seen = video("queued", queue_position=3, steps=20)
    assert after(seen, event("queued")) is seen
    assert after(seen, event("waiting")) is seen
    seen = after(seen, event("in_progress"))
    assert (seen.status, seen.stage, seen.queue_position) == ("in_progress", "loading", None)
    seen = after(seen, event("progress", stage="denoising", step=4, steps=20))
    assert (seen.stage, seen.step) == ("denoising", 4)
    assert after(seen, event("preview", step=4)) is seen
    seen = after(seen, event("requeued", reason="rank 1 died"))
    assert (seen.status, seen.stage) == ("queued", None)
    seen = after(seen, event("in_progress"))
    assert (seen.stage, seen.step, seen.progress) == ("loading", 0, 0)


def test_event_streams_are_read_as_the_standard_says() -> None:
    text = (
        "retry: 1000\n\n: still here\n\nid: 1-0\nevent: video.queued\n"
        'data: {"type":\ndata: "video.queued"}\n\nid:2-0\ndata:not json\n\ndata: {"type":"video.x"}\n\nid: 3-0\ndata: {'
    )
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)
    found = [(e.id, e.type) for e in read_events(response)]
    assert found == [("1-0", "video.queued"), ("2-0", "video.x")], "a half event at the end is not told"


def test_what_a_newer_server_adds_still_shows() -> None:
    newer = video("dreaming", stage="upscaling", mood="calm")
    assert (newer.status, newer.stage, newer.ended) == ("dreaming", "upscaling", False)
    assert newer.as_json()["mood"] == "calm", "unknown fields are kept for --json"
    model = {"id": "m", "kind": "image", "engine": "x", "status": "dreaming", "state": "dreaming"}
    assert read(ModelSummary, model).state == "dreaming"


def test_an_answer_that_makes_no_sense_is_one_line() -> None:
    with pytest.raises(TurnoutError, match=r"not what this version of turnout knows \(step: ") as told:
        read(VideoAnswer, video_json("v", step="x"))
    assert "\n" not in told.value.message


def test_words() -> None:
    assert [duration(s) for s in (0.4, 59.6, 185, 7_800)] == ["0 s", "1 min 00 s", "3 min 05 s", "2 h 10 min"]
    assert [ahead(n) for n in (None, 0, 1, 2)] == ["waiting", "next in line", "1 task ahead", "2 tasks ahead"]
    assert one_line("a\x1b[31m\nb\tc\x07") == "a [31m b c "
    assert table(("A", "B"), [("1", "x y"), ("333", "z")]) == "A    B\n1    x y\n333  z"
