"""What decides how progress is told: pure parts, without a server."""

import io

import httpx

from turnout.cli.client import read_events
from turnout.cli.display import PlainLines
from turnout.cli.formatting import ahead, duration, one_line, table
from turnout.cli.video_view import VideoEvent, VideoView, after, video_of


def denoising(step: int) -> VideoView:
    return VideoView("v", "in_progress", stage="denoising", step=step, steps=20, eta_s=20.0 - step)


def test_plain_lines_come_at_stages_and_every_two_seconds() -> None:
    now, out = 0.0, io.StringIO()
    lines = PlainLines(out, clock=lambda: now)
    lines.show(VideoView("v", "queued", queue_position=1))
    lines.show(VideoView("v", "queued", queue_position=1))
    for step in range(1, 8):
        now += 0.5
        lines.show(denoising(step))
    lines.show(VideoView("v", "in_progress", stage="decoding", steps=20))
    assert out.getvalue().splitlines() == [
        "queued, 1 task ahead",
        "denoising, step 1 of 20, about 19 s left",
        "denoising, step 5 of 20, about 15 s left",
        "decoding",
    ]


def test_silence_is_broken_once_and_only_while_nothing_was_said() -> None:
    out = io.StringIO()
    lines = PlainLines(out)
    lines.break_silence()
    lines.break_silence()
    assert out.getvalue() == "waiting for the server to answer\n"


def test_a_story_is_folded_in_order() -> None:
    video = VideoView("v", "queued", queue_position=3, steps=20)
    assert after(video, VideoEvent("1", "video.queued", {})) is video
    video = after(video, VideoEvent("2", "video.in_progress", {"attempt": 1}))
    assert (video.status, video.stage, video.queue_position) == ("in_progress", "loading", None)
    video = after(video, VideoEvent("3", "video.progress", {"stage": "denoising", "step": 4, "steps": 20}))
    assert (video.stage, video.step) == ("denoising", 4)
    assert after(video, VideoEvent("4", "video.preview", {"step": 4})) is video
    video = after(video, VideoEvent("5", "video.requeued", {"reason": "rank 1 died"}))
    assert (video.status, video.stage) == ("queued", None)
    video = after(video, VideoEvent("6", "video.in_progress", {"attempt": 2}))
    assert (video.stage, video.step, video.progress) == ("loading", 0, 0.0)


def test_event_streams_are_read_as_the_standard_says() -> None:
    text = (
        "retry: 1000\n\n: still here\n\nid: 1-0\nevent: video.queued\n"
        'data: {"type":\ndata: "video.queued"}\n\nid:2-0\ndata:not json\n\ndata: {"type":"video.x"}\n\nid: 3-0\ndata: {'
    )
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)
    found = [(e.id, e.type) for e in read_events(response)]
    assert found == [("1-0", "video.queued"), ("2-0", "video.x")], "a half event at the end is not told"


def test_an_odd_answer_still_shows() -> None:
    video = video_of({"id": "v", "status": "dreaming", "step": "x", "eta_s": True, "error": "no"})
    assert (video.status, video.step, video.eta_s, video.error, video.ended) == (
        "dreaming",
        0,
        None,
        None,
        False,
    )


def test_words() -> None:
    assert [duration(s) for s in (0.4, 59.6, 185, 7_800)] == ["0 s", "1 min 00 s", "3 min 05 s", "2 h 10 min"]
    assert [ahead(n) for n in (None, 0, 1, 2)] == ["waiting", "next in line", "1 task ahead", "2 tasks ahead"]
    assert one_line("a\x1b[31m\nb\tc\x07") == "a [31m b c "
    assert table(("A", "B"), [("1", "x y"), ("333", "z")]) == "A    B\n1    x y\n333  z"
