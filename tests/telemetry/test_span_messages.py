"""OpenTelemetry's own classes read what we write, whatever is in it."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from turnout.telemetry.span_messages import resource_message, span_message
from turnout.telemetry.trace_rules import AttributeValue, SpanKind, TraceContext, TraceSpan

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
VALUES = WORDS | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans()
IDS = st.integers(1, 2**64 - 1)
CONTEXTS = st.builds(
    lambda trace, span: TraceContext(f"{trace:032x}", f"{span:016x}", True), st.integers(1, 2**128 - 1), IDS
)
TIMES = st.floats(0, 2**33)
SPANS = st.builds(
    TraceSpan,
    name=WORDS,
    part=st.just("gateway"),
    context=CONTEXTS,
    parent=st.none() | IDS.map(lambda span: f"{span:016x}"),
    began=TIMES,
    ended=TIMES,
    attributes=st.dictionaries(WORDS, VALUES, max_size=20),
    kind=st.sampled_from(SpanKind),
    links=st.lists(CONTEXTS, max_size=3).map(tuple),
    error=st.none() | WORDS.filter(bool),
)


@given(st.lists(SPANS, max_size=5), st.dictionaries(WORDS, VALUES, max_size=5))
def test_a_request_is_read_as_it_was_meant(
    spans: list[TraceSpan], resource: dict[str, AttributeValue]
) -> None:
    messages = [span_message(span) for span in spans]
    body = resource_message(resource, "turnout", "1.2", messages) + resource_message({}, "other", "", [])
    request = ExportTraceServiceRequest.FromString(body)
    written = request.SerializeToString()
    request.DiscardUnknownFields()
    assert request.SerializeToString() == written, "nothing is in it that its classes do not know"
    first, second = request.resource_spans
    assert {pair.key: _value(pair) for pair in first.resource.attributes} == resource
    assert (first.scope_spans[0].scope.name, first.scope_spans[0].scope.version) == ("turnout", "1.2")
    assert second.scope_spans[0].scope.name == "other" and not second.scope_spans[0].spans
    assert len(first.scope_spans[0].spans) == len(spans)
    for read, span in zip(first.scope_spans[0].spans, spans, strict=True):
        assert (read.trace_id.hex(), read.span_id.hex()) == (span.context.trace, span.context.span)
        assert (read.name, read.parent_span_id.hex()) == (span.name, span.parent or "")
        assert Span.SpanKind.Name(read.kind) == f"SPAN_KIND_{span.kind.name}"
        assert read.start_time_unix_nano == int(span.began * 1e9)
        assert read.end_time_unix_nano == int(max(span.began, span.ended) * 1e9)
        assert {pair.key: _value(pair) for pair in read.attributes} == span.attributes
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in read.links] == [
            (link.trace, link.span) for link in span.links
        ]
        assert (read.status.message, read.status.code) == (
            (span.error, Status.STATUS_CODE_ERROR) if span.error else ("", Status.STATUS_CODE_UNSET)
        )
        assert read.flags == 0x101 and all(link.flags == 0x101 for link in read.links)


def test_a_text_that_is_none_is_sent_all_the_same() -> None:
    span = TraceSpan("\ud800", "gateway", TraceContext("1" * 32, "1" * 16, True), None, 0, 0)
    body = resource_message({}, "", "", [span_message(span)])
    [read] = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
    assert read.name == "?"


def _value(pair: object) -> object:
    value = pair.value  # type: ignore[attr-defined]
    return getattr(value, value.WhichOneof("value"))
