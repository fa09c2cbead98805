import pytest

from turnout.telemetry.trace_rules import TraceContext, read_traceparent, trace_field, trace_field_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("fe", False)])
def test_a_traceparent_is_read_and_written_back(flags: str, sampled: bool) -> None:
    context = read_traceparent(f"00-{TRACE}-{SPAN}-{flags}")
    assert context is not None and context == TraceContext(TRACE, SPAN, sampled)
    assert read_traceparent(context.traceparent) == context


def test_of_a_later_version_what_this_one_knows_is_read() -> None:
    assert read_traceparent(f"01-{TRACE}-{SPAN}-01-more") == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'x' * 200}",
    ],
)
def test_what_is_no_traceparent_is_ignored(text: str | None) -> None:
    assert read_traceparent(text) is None
    assert trace_field(text) == {}


def test_log_lines_name_the_trace_of_a_request_that_has_one() -> None:
    header = f"00-{TRACE}-{SPAN}-00".encode()
    assert trace_field_of([(b"host", b"x"), (b"traceparent", header)]) == {"trace": TRACE}
    assert trace_field_of([(b"host", b"x")]) == {}
