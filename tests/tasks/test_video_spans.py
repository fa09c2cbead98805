import hashlib
from dataclasses import replace
from typing import Any

from tests.conftest import make_task

from turnout.tasks.span_rules import attempt_spans, delivery_span, video_context
from turnout.tasks.task_rules import (
    Cancelled,
    Claimed,
    Event,
    Failed,
    Finished,
    GangId,
    Interrupted,
    Progressed,
    Result,
    Stage,
    Submitted,
    Task,
    TaskFailure,
    evolve,
)
from turnout.telemetry.trace_rules import AttributeValue, SpanKind, TraceContext, TraceSpan

TRACE, SUBMITTED = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TASK = replace(make_task(), traceparent=f"00-{TRACE}-{SUBMITTED}-01", created_at=1.0)
FIRST: list[Event] = [
    Submitted(1.0),
    Claimed(3.0, 1, GangId("g")),
    Progressed(3.1, 1, Stage.LOADING, 0, 4),
    Progressed(7.0, 1, Stage.DENOISING, 0, 4),
    Progressed(8.0, 1, Stage.DENOISING, 1, 4),
    Interrupted(9.0, 1, "rank 1 was killed by SIGKILL: a red ball"),
]
SECOND: list[Event] = [
    Claimed(10.0, 2, GangId("g")),
    Progressed(10.2, 2, Stage.DECODING, 4, 4),
    Finished(12.0, 2, Result("v", "t", "s", 1)),
]


def after(events: list[Event], task: Task = TASK) -> Task:
    for event in events:
        task = evolve(task, event)
    return task


def told(events: list[Event], task: Task = TASK) -> dict[str, TraceSpan]:
    spans = attempt_spans(after(events, task), events)
    by_name = {f"{span.name} {span.attributes.get('turnout.step', '')}".strip(): span for span in spans}
    assert len(by_name) == len(spans)
    assert len({span.context.span for span in spans}) == len(spans)
    assert {span.context.trace for span in spans} <= {TRACE}
    return by_name


def test_a_killed_attempt_is_told_with_what_it_was_at() -> None:
    spans = told(FIRST)
    assert set(spans) == {"queued", "claim", "loading", "step 1", "step 2", "attempt"}
    attempt = spans["attempt"]
    assert (attempt.began, attempt.ended, attempt.links) == (3.0, 9.0, ())
    assert attempt.attributes["turnout.gang"] == "g"
    assert {name: span.part for name, span in spans.items() if name in ("queued", "loading")} == {
        "queued": "gateway",
        "loading": "gang",
    }
    assert attempt.error == "rank 1 was killed by SIGKILL", "without the rank's own words"
    assert spans["step 2"].error == "cut"
    assert {spans[name].parent for name in ("claim", "loading", "step 1")} == {attempt.context.span}
    video = video_context(TASK)
    assert video is not None
    assert {attempt.parent, spans["queued"].parent} == {video.span}
    assert (spans["claim"].began, spans["claim"].ended) == (3.0, 3.1)


def test_the_next_attempt_is_linked_to_it_and_the_end_tells_the_whole_video() -> None:
    first, second = told(FIRST), told(FIRST + SECOND)
    assert set(second) == {"queued", "claim", "loading", "decoding", "attempt", "video"}
    assert second["attempt"].links == (first["attempt"].context,)
    assert (second["queued"].began, second["queued"].ended) == (9.0, 10.0)
    video = second["video"]
    assert (video.parent, video.began, video.ended, video.error) == (SUBMITTED, 1.0, 12.0, None)
    both = {span.context.span for span in (*first.values(), *second.values())}
    assert len(both) == len(first) + len(second), "no span is told twice"


def test_a_task_that_is_cancelled_while_it_waits_has_no_attempt() -> None:
    assert set(told([Submitted(1.0), Cancelled(2.0)])) == {"queued", "video"}
    waiting_again = told([*FIRST, Cancelled(11.0)])
    assert set(waiting_again) == {"queued", "video"}
    assert waiting_again["queued"].context != told(FIRST)["queued"].context


def test_a_failure_is_told_by_its_code() -> None:
    failed = Failed(5.0, 1, TaskFailure("unrenderable", "a red ball"))
    spans = told([*FIRST[:2], failed])
    assert (spans["attempt"].error, spans["video"].error) == ("unrenderable", "unrenderable")


def test_nothing_that_a_user_wrote_is_in_a_span() -> None:
    task = replace(TASK, webhook_url="https://example.com/hook?token=secret")
    spans = [*told(FIRST).values(), *told(FIRST + SECOND).values()]
    spans.append(delivery_span(task, 0, "example.com", 1.0, 2.0, 500, "again") or spans[0])
    assert not [span for span in spans if "ball" in repr(span) or "secret" in repr(span)]


def test_a_task_that_nobody_traces_has_no_spans() -> None:
    for traceparent in (None, f"00-{TRACE}-{SUBMITTED}-00", "nonsense"):
        task = replace(TASK, traceparent=traceparent)
        assert attempt_spans(after(FIRST, task), FIRST) == []
        assert delivery_span(task, 0, "example.com", 1.0, 2.0, 200, None) is None


def span_id(what: str) -> str:
    """Processes which never meet agree on the ids."""
    return hashlib.sha256(f"{TASK.id} {what}".encode()).hexdigest()[:16]


def context(what: str) -> TraceContext:
    return TraceContext(TRACE, span_id(what), sampled=True)


def ids(attempt: int, **more: AttributeValue) -> dict[str, AttributeValue]:
    named = {f"turnout.{name}": value for name, value in more.items()}
    return {"turnout.task": TASK.id, "turnout.model": TASK.model, "turnout.attempt": attempt, **named}


def stage(name: str, what: str, began: float, ended: float, **more: Any) -> TraceSpan:
    """Of the first attempt, in its gang."""
    said = {"part": "gang", "parent": span_id("attempt 1"), "attributes": ids(1), **more}
    return TraceSpan(name, context=context(what), began=began, ended=ended, **said)


def test_all_that_a_trace_tells_of_an_attempt() -> None:
    video, killed = span_id("video"), "rank 1 was killed by SIGKILL"
    assert list(told(FIRST).values()) == [
        stage("queued", "queued 1 0", 1.0, 3.0, part="gateway", parent=video),
        stage("loading", "loading 1 0", 3.0, 7.0),
        stage("step", "step 1 1", 7.0, 8.0, attributes=ids(1, step=1, steps=1)),
        stage("step", "step 1 2", 8.0, 9.0, attributes=ids(1, step=2, steps=1), error="cut"),
        stage("claim", "claim 1 0", 3.0, 3.1),
        stage("attempt", "attempt 1", 3.0, 9.0, parent=video, attributes=ids(1, gang="g"), error=killed),
    ]
    *_, whole = told(FIRST + SECOND).values()
    state: dict[str, AttributeValue] = {"turnout.tenant": TASK.tenant, "turnout.state": "completed"}
    attributes = {"turnout.task": TASK.id, "turnout.model": TASK.model, **state, "turnout.attempts": 2}
    assert whole == TraceSpan("video", "gateway", context("video"), SUBMITTED, 1.0, 12.0, attributes)


def test_a_long_story_and_a_long_reason_are_cut() -> None:
    steps = [Progressed(5.0 + n, 1, Stage.DENOISING, n, 900) for n in range(700)]
    spans = attempt_spans(after([*FIRST[:3], *steps]), [*FIRST[:3], *steps, Interrupted(999.0, 1, "x" * 300)])
    assert [span.name for span in spans[-3:]] == ["step", "claim", "attempt"]
    assert len(spans) == 500 + 2
    assert spans[-1].error == "x" * 200
    assert attempt_spans(TASK, []) == []


def test_tries_to_deliver_are_below_the_video() -> None:
    def tried(tries: int, status: int | None, error: str | None) -> TraceSpan | None:
        return delivery_span(TASK, tries, "example.com", 1.0, 2.0, status, error)

    def expected(number: int, error: str | None, **more: AttributeValue) -> TraceSpan:
        told = {"http.request.method": "POST", "server.address": "example.com", "turnout.task": TASK.id}
        attributes = {**told, "turnout.try": number + 1, **more}
        where = (context(f"webhook {number}"), span_id("video"), 1.0, 2.0)
        return TraceSpan("webhook", "manager", *where, attributes, SpanKind.CLIENT, error=error)

    assert tried(0, 500, "again") == expected(0, "again", **{"http.response.status_code": 500})
    assert tried(1, None, None) == expected(1, None)
