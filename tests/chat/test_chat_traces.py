"""Chat requests in traces: whose they are, what engines are told, what the spans say."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.chat.test_chat_limits import ASK, PATH, answer
from tests.conftest import Stores
from tests.gateways import Chat, chatting
from tests.otlp_receiver import Receiver, running_receiver
from tests.relay.kit import Call
from tests.tenants.test_usage_routes import streamed

from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.request_tracer import RequestTracer
from turnout.telemetry.trace_rules import TraceContext, read_traceparent

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)


@asynccontextmanager
async def traced(
    stores: Stores, tmp_path: Path, sample: float = 0.0
) -> AsyncIterator[tuple[Chat, httpx.AsyncClient, Receiver]]:
    """A gateway that sends spans to a real receiver; they have come when the context ends."""
    with running_receiver() as receiver:
        spans = OtlpSpans(receiver.endpoint)
        stores = dataclasses.replace(stores, spans=spans)
        async with (
            chatting(stores, tmp_path, traces_sample=sample) as chat,
            chat.client() as http,
        ):
            yield chat, http, receiver
        spans.close(60)


def told_to_engine(call: Call) -> str | None:
    told = call.request.headers.get(b"traceparent")
    return None if told is None else told.decode()


async def test_a_traced_chat_has_one_span_that_the_engine_is_given(stores: Stores, tmp_path: Path) -> None:
    engines: list[str | None] = []

    async def reply(call: Call) -> None:
        engines.append(told_to_engine(call))
        await streamed(call)

    async with traced(stores, tmp_path) as (chat, http, receiver):
        await chat.replica(reply)
        headers = {"traceparent": CALLER.traceparent, "tracestate": "a=1"}
        said = await http.post(PATH, json={**ASK, "stream": True}, headers=headers)
    (span,) = receiver.spans
    assert (span.trace, span.parent, span.name, span.kind) == (CALLER.trace, CALLER.span, "chat m", 3)
    assert engines == [f"00-{span.trace}-{span.id}-01"]
    assert b"traceparent" not in chat.gateway.inside.chat.relay._context.forwarded, (
        "the engine gets one, not two"
    )
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "turnout",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "http.response.status_code": 200,
        "turnout.replica": "r0",
        "turnout.request": said.headers["x-request-id"],
        "turnout.tenant": "acme",
    }
    assert {name: span.attributes[name] for name in expected} == expected
    first_s = span.attributes["gen_ai.response.time_to_first_chunk"]
    assert 0 < first_s <= span.ended - span.began
    assert str(ASK["messages"][0]["content"]) not in repr(span)


async def test_a_request_that_is_not_traced_goes_on_as_it_came(stores: Stores, tmp_path: Path) -> None:
    engines: list[str | None] = []

    async def reply(call: Call) -> None:
        engines.append(told_to_engine(call))
        await call.json(answer(10, 5))

    unsampled = dataclasses.replace(CALLER, sampled=False).traceparent
    async with traced(stores, tmp_path) as (chat, http, receiver):
        await chat.replica(reply)
        await http.post(PATH, json=ASK, headers={"traceparent": unsampled})
        await http.post(PATH, json=ASK)
        await http.post(PATH, json=ASK, headers={"traceparent": "00-nonsense"})
    assert engines == [unsampled, None, None]
    assert receiver.spans == []


async def test_with_traces_off_the_callers_trace_goes_to_the_engine(stores: Stores, tmp_path: Path) -> None:
    engines: list[str | None] = []

    async def reply(call: Call) -> None:
        engines.append(told_to_engine(call))
        await call.json(answer(10, 5))

    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        await chat.replica(reply)
        await http.post(PATH, json=ASK, headers={"traceparent": CALLER.traceparent})
    assert engines == [CALLER.traceparent]


async def test_a_replica_that_fails_has_a_span_of_its_own_and_the_next_is_linked_to_it(
    stores: Stores, tmp_path: Path
) -> None:
    async def broken(call: Call) -> None:
        await call.json(b"{}", b"503 Service Unavailable")

    async def good(call: Call) -> None:
        await call.json(answer(10, 5))

    async with traced(stores, tmp_path, sample=1.0) as (chat, http, receiver):
        await chat.replica(broken)
        await chat.replica(good)
        for n in range(12):  # until one of them goes to the broken one first
            said = {**ASK, "messages": [{"role": "user", "content": f"{n} times hello"}]}
            assert (await http.post(PATH, json=said)).status_code == 200
    failed = [span for span in receiver.spans if span.error]
    assert failed and {span.error for span in failed} == {"refused"}
    for span in failed:
        (again,) = [other for other in receiver.spans if other.links == (span.id,)]
        assert (again.trace, again.parent, again.error) == (span.trace, span.id, None)


async def test_a_name_that_is_no_model_is_in_no_span(stores: Stores, tmp_path: Path) -> None:
    async with traced(stores, tmp_path, sample=1.0) as (_, http, receiver):
        assert (await http.post(PATH, json={**ASK, "model": "secret words"})).status_code == 404
        dropped = (await http.get("/metrics")).text
    assert receiver.spans == []
    assert "turnout_trace_spans_dropped_total 0.0\n" in dropped


class Nowhere(OtlpSpans):
    """Sends nothing."""

    def __init__(self) -> None:
        pass

    def record(self, span: object) -> None:
        pass


@pytest.mark.parametrize(("chance", "taken"), [(0.0, True), (0.0099, True), (0.01, False), (0.9, False)])
def test_a_share_of_the_requests_without_a_trace_is_traced(chance: float, taken: bool) -> None:
    begun = RequestTracer(Nowhere(), 0.01, lambda: chance).begin(None)
    assert (begun is not None) is taken
    assert begun is None or read_traceparent(begun.context.traceparent) == begun.context


def test_the_caller_decides_on_its_own_trace() -> None:
    always, never = RequestTracer(Nowhere(), 1.0), RequestTracer(Nowhere(), 0.0)
    for tracer in (always, never):
        begun = tracer.begin(CALLER.traceparent.encode())
        assert begun and (begun.context.trace, begun.parent) == (CALLER.trace, CALLER.span)
        assert begun.context.sampled and begun.context.span != CALLER.span
        quiet = dataclasses.replace(CALLER, sampled=False)
        left = tracer.begin(quiet.traceparent.encode())
        assert left and (left.context, left.parent) == (quiet, None)
