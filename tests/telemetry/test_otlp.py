"""Spans reach a real receiver; one that is away costs nothing but the spans."""

import threading
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.otlp_receiver import running_receiver

from turnout.errors import Misconfigured
from turnout.telemetry import otlp
from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.trace_rules import SpanKind, TraceContext, TraceSpan

CONTEXT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)


def span(name: str = "step") -> TraceSpan:
    return TraceSpan(
        name,
        "gang",
        CONTEXT,
        "00f067aa0ba902b7",
        100.0,
        101.5,
        {"turnout.step": 3, "turnout.task": "video_1", "share": 0.5, "whole": True},
        SpanKind.CLIENT,
        (TraceContext(CONTEXT.trace, "1111111111111111", True),),
        "cut",
    )


def test_a_span_arrives_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc")
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint)
        spans.record(span())
        spans.close(60)
        assert spans.dropped == 0
        assert receiver.headers["authorization"] == "Basic abc"
    (seen,) = receiver.spans
    assert (seen.trace, seen.id, seen.parent) == (CONTEXT.trace, CONTEXT.span, "00f067aa0ba902b7")
    assert (seen.name, seen.service, seen.kind, seen.error) == ("step", "turnout-gang", 3, "cut")
    assert (seen.began, seen.ended, seen.links) == (100.0, 101.5, ("1111111111111111",))
    assert seen.attributes == {
        "turnout.step": 3,
        "turnout.task": "video_1",
        "share": 0.5,
        "whole": True,
    }


def test_the_service_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "film")
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint)
        spans.record(span())
        spans.close(60)
    assert [seen.service for seen in receiver.spans] == ["film-gang"]


def test_what_a_receiver_refuses_is_counted() -> None:
    with running_receiver() as receiver:
        receiver.status = 400
        spans = OtlpSpans(receiver.endpoint)
        spans.record(span())
        spans.close(60)
        assert spans.dropped == 1


def test_a_receiver_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_MAX_WAITING", 600)
    release = threading.Event()
    with running_receiver() as receiver:
        receiver.take = lambda body: release.wait(30) and None  # type: ignore[method-assign]
        spans = OtlpSpans(receiver.endpoint)
        for _ in range(2000):
            spans.record(span())
        assert spans.dropped >= 1400 - 600, "what does not fit is dropped, and counted"
        spans.close(0.2)  # the receiver still holds the first batch
        release.set()


def test_what_waits_at_the_end_is_sent_in_batches() -> None:
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint)
        for number in range(1300):
            spans.record(span(f"step {number}"))
        spans.close(60)
        assert spans.dropped == 0
        assert [seen.name for seen in receiver.spans] == [f"step {number}" for number in range(1300)]


async def test_a_receiver_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_RETRY_AFTER_S", (0.02,) * 500)
    monkeypatch.setattr(otlp, "_EVERY_S", 0.01)
    with running_receiver() as receiver:
        receiver.status = 503
        spans = OtlpSpans(receiver.endpoint)
        spans.record(span())
        await wait_until(lambda: bool(receiver.headers), "the first try")
        receiver.status = 200
        await wait_until(lambda: bool(receiver.spans), "another try")
        spans.close(60)
        assert (len(receiver.spans), spans.dropped) == (1, 0)


def test_the_standard_variables_say_how(tmp_path: Path) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-of=all",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "X-Of=traces, x-key=a%2Cb",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=film,deployment.environment=test%20bench",
    }
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint, environ)
        spans.record(span())
        spans.close(60)
        assert (receiver.headers["x-of"], receiver.headers["x-key"]) == ("traces", "a,b")
        assert receiver.headers["content-encoding"] == "gzip"
    assert [seen.service for seen in receiver.spans] == ["film-gang"]
    for wrong in ({"CERTIFICATE": str(tmp_path / "none.pem")}, {"TIMEOUT": "soon"}):
        with pytest.raises(Misconfigured, match="OTEL_EXPORTER_OTLP"):
            OtlpSpans(
                receiver.endpoint, {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in wrong.items()}
            )
