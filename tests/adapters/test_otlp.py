"""Spans reach a real receiver; one that is away costs nothing but the spans."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.otlp_receiver import running_receiver

from turnout.adapters import otlp
from turnout.adapters.otlp import OtlpSpans
from turnout.domain.trace_context import SpanKind, TraceContext, TraceSpan

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
        spans.close()
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
        spans.close()
    assert [seen.service for seen in receiver.spans] == ["film-gang"]


def test_what_a_receiver_refuses_is_counted() -> None:
    with running_receiver() as receiver:
        receiver.status = 400
        spans = OtlpSpans(receiver.endpoint)
        spans.record(span())
        spans.close()
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


OPENED = """
import sys
from turnout.config import load

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("opentelemetry.sdk", "opentelemetry.exporter") and sys.argv[3]:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
from turnout.wiring import run_gang, run_gateway, run_manager, run_worker
from turnout.wiring.stores import new_stores

settings = {"state_dir": sys.argv[1], "redis_url": "redis://127.0.0.1:1", "traces_endpoint": sys.argv[2] or None}
new_stores(load(settings, {}).config)
ours = ("opentelemetry.exporter", "opentelemetry.proto", "opentelemetry.sdk.trace")
print(any(name.startswith(ours) for name in sys.modules))
"""
ENDPOINT = "http://127.0.0.1:1/v1/traces"


def opened(tmp_path: Path, endpoint: str, hidden: str = "") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", OPENED, str(tmp_path), endpoint, hidden]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)


def test_nothing_of_opentelemetry_is_imported_when_traces_are_off(tmp_path: Path) -> None:
    # FastAPI imports OpenTelemetry's API by itself, and redis-py the SDK's metrics: all else would be ours.
    assert opened(tmp_path, "").stdout == "False\n"
    assert opened(tmp_path, ENDPOINT).stdout == "True\n"


def test_without_the_extra_all_but_traces_works(tmp_path: Path) -> None:
    assert opened(tmp_path, "", "hidden").stdout == "False\n"
    assert "turnout[otel]" in opened(tmp_path, ENDPOINT, "hidden").stderr
