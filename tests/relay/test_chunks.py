"""Streams that pass in the chunks they came in: nothing else may come of it than of taking them apart."""

import asyncio
import itertools
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.relay.kit import Call, Stand

from turnout.relay import RelayFailure, Target, UpstreamLimits
from turnout.relay.framing import size_of_event_chunks
from turnout.relay.upstream import ConnectionPool, UpstreamConnection

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECES = st.lists(
    st.sampled_from([b"data: a\n\n", b"data: b\n\ndata: c\n\n", b"data: torn", b" event\n\n", b"\r\n", b"\n\n", b"5\r\nx"]),
    max_size=8,
)  # fmt: skip


class Wire:
    """Stands for a transport."""

    closed = False

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None: ...


class Listener:
    """Hears an answer; `whole` says whether it takes chunks as they come."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.heard = b""
        self.taken_whole = 0
        self.ends: list[str] = []

    def on_response(self, upstream: UpstreamConnection, payload: bytes, complete: bool) -> None:
        self.heard += payload
        if complete:
            self.ends.append("complete")

    def on_event_chunks(self, chunks: bytes, size: int) -> bool:
        if not self.whole:
            return False
        body = taken_apart(chunks)
        assert len(body) == size
        self.heard += body
        self.taken_whole += 1
        return True

    def on_lost(self, upstream: UpstreamConnection, failure: RelayFailure) -> None:
        self.ends.append(failure)


def taken_apart(chunks: bytes) -> bytes:
    body = b""
    while chunks:
        digits, _, rest = chunks.partition(b"\r\n")
        size = int(digits, 16)
        assert rest[size : size + 2] == b"\r\n"
        body, chunks = body + rest[:size], rest[size + 2 :]
    return body


def hear(reads: list[bytes], whole: bool) -> Listener:
    connection = UpstreamConnection(ConnectionPool(UpstreamLimits(), None).of(Target("127.0.0.1", 1)))
    wire, listener = Wire(), Listener(whole)
    connection.connection_made(cast(Any, wire))
    connection.send(listener, b"", b"")
    for read in reads:
        if wire.closed or listener.ends:
            break
        connection.data_received(read)
    return listener


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """An answer in any number of reads, often cut between its chunks, sometimes with a byte that is wrong."""
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in draw(PIECES)]
    parts = [HEAD, *chunks, b"0\r\n\r\n"]
    raw = b"".join(parts)
    bounds = [len(b"".join(parts[:n])) for n in range(1, len(parts))]
    cuts = draw(st.sets(st.sampled_from(bounds) | st.integers(1, len(raw) - 1)))
    if draw(st.booleans()):
        at = draw(st.integers(len(HEAD), len(raw) - 1))
        raw = (
            raw[:at]
            + draw(st.sampled_from([b"\r", b"\n", b"0", b"g", b";", b"+", b"_", b" "]))
            + raw[at + 1 :]
        )
    edges = [0, *sorted(cuts), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=500)
@given(reads=answers())
def test_chunks_that_pass_whole_say_what_they_would_taken_apart(reads: list[bytes]) -> None:
    apart, whole = hear(reads, whole=False), hear(reads, whole=True)
    assert (whole.heard, whole.ends) == (apart.heard, apart.ends)


def test_whole_chunks_of_whole_events_are_not_taken_apart() -> None:
    event = b"9\r\ndata: a\n\n\r\n"
    heard = hear(
        [HEAD + event, event, event + event, b"9\r\ndata", b": a\n\n\r\n", event, b"0\r\n\r\n"], whole=True
    )
    assert heard.heard == b"data: a\n\n" * 6
    assert heard.taken_whole == 3
    assert heard.ends == ["complete"]


def test_only_whole_chunks_of_whole_events_have_a_size() -> None:
    assert size_of_event_chunks(b"9\r\ndata: a\n\n\r\n") == 9
    assert size_of_event_chunks(b"09\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n") == 18
    for wrong in (
        b"",
        b"0\r\n\r\n",
        b"9\r\ndata: a\n\n",
        b"9\r\ndata: a\n\n\r\n0\r\n\r\n",
        b"8\r\ndata: a\n\n\r\n",
        b"9;x=y\r\ndata: a\n\n\r\n",
        b"+9\r\ndata: a\n\n\r\n",
        b"0x9\r\ndata: a\n\n\r\n",
        b" 9\r\ndata: a\n\n\r\n",
        b"000000009\r\ndata: a\n\n\r\n",
        b"7\r\ndata: a\r\n",
    ):
        assert size_of_event_chunks(wrong) == 0, wrong


async def test_a_stream_that_rests_loses_nothing(stand: Stand) -> None:
    """Events come much faster than every few milliseconds, for much longer than that."""
    events = [b'data: {"n":%d,"usage":null}\n\n' % n for n in range(300)]
    told = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":300}}\n\n'

    async def quick(call: Call) -> None:
        await call.begin_events()
        for event in events:
            await call.chunk(event)
            await asyncio.sleep(0.0002)
        await call.chunk(told)
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()

    await stand.replica(quick)
    answer = await (await stand.client()).ask()
    assert answer.body == b"".join(events) + told + b"data: [DONE]\n\n"
    (outcome,) = stand.admission.outcomes
    assert (outcome.bytes_out, outcome.events, outcome.usage) == (len(answer.body), 302, (3, 300))
