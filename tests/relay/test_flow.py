"""Slow readers, many disturbances at once, and the counters that must survive them."""

import asyncio
import random
import socket

import psutil
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import wait_until
from tests.relay.kit import (
    DONE,
    PATIENCE_S,
    Broken,
    Call,
    Client,
    CountingAdmission,
    Replica,
    Stand,
    app,
    free_target,
)

from turnout.errors import Limited
from turnout.relay import Relay, RelayFailure, RelayRequest, RelaySettings, UpstreamCall
from turnout.relay.framing import whole_events
from turnout.relay.head_cache import HeadCache
from turnout.relay.token_usage import read_usage

EVENT = b'data: {"n":1}\n\n'
TOTAL = 200 * 1024 * 1024


@pytest.mark.parametrize("events", [True, False])
async def test_a_client_that_does_not_read_fills_no_memory(stand: Stand, events: bool) -> None:
    piece = b"data: " + b"x" * 65528 + b"\n\n"
    sent = 0

    async def flood(call: Call) -> None:
        nonlocal sent
        if events:
            await call.begin_events()
        else:
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % TOTAL)
        while sent < TOTAL:
            await (call.chunk if events else call.send)(piece[: TOTAL - sent])
            sent += len(piece)
        if events:
            await call.end()

    await stand.replica(flood)
    before = psutil.Process().memory_info().rss
    sock = socket.create_connection(("127.0.0.1", stand.port))
    sock.setblocking(False)
    try:
        sock.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        seen = -1

        async def stuck() -> bool:
            nonlocal seen
            seen, last = sent, seen
            await asyncio.sleep(0.1)
            return sent > 0 and seen == last == sent

        await wait_until(stuck, "the replica to be held")
        assert sent < 32 * 1024 * 1024  # what the kernel's buffers take
        assert psutil.Process().memory_info().rss - before < 48 * 1024 * 1024
        received = 0
        loop = asyncio.get_running_loop()
        while received < TOTAL:
            data = await asyncio.wait_for(loop.sock_recv(sock, 1 << 20), PATIENCE_S)
            assert data
            received += len(data)
        assert psutil.Process().memory_info().rss - before < 48 * 1024 * 1024
    finally:
        sock.close()
    await wait_until(lambda: stand.admission.settled, "the outcome")
    assert stand.admission.outcomes[0].bytes_out == TOTAL


async def test_a_client_that_never_reads_is_given_up(make_stand) -> None:
    stand: Stand = await make_stand(write_stall_s=0.1)

    async def flood(call: Call) -> None:
        await call.begin_events()
        while True:
            await call.chunk(b"data: " + b"x" * 65528 + b"\n\n")

    replica = await stand.replica(flood)
    with socket.create_connection(("127.0.0.1", stand.port)) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.wait_for(replica.hung_up.wait(), PATIENCE_S)
        await wait_until(lambda: stand.admission.settled, "the outcome")
    assert stand.admission.failures == [RelayFailure.CLIENT_GONE]


async def test_counters_never_leak(make_stand) -> None:
    """Requests, replicas and clients that fail at random: every call gets exactly one outcome."""
    chance = random.Random(7)
    stand: Stand = await make_stand(
        comment_after_s=0.01,
        comment_every_s=0.01,
        answer_s=0.05,
        chunk_s=0.05,
        connect_s=0.05,
        write_stall_s=0.1,
        idle_s=0.05,
    )

    async def pause() -> None:
        await asyncio.sleep(chance.random() * 0.02)

    async def misbehave(call: Call) -> None:
        whim = chance.random()
        if whim < 0.1:
            return call.die()
        await pause()
        if whim < 0.2:
            return await call.send(b"nonsense\r\n\r\n")
        if whim < 0.3:
            return await call.json(b"{}", b"503 Busy")
        if whim < 0.4:
            await call.wait_hung_up()
        elif whim < 0.6:
            await call.json(call.request.body)
        else:
            await call.begin_events()
            for _ in range(4):
                await pause()
                await call.chunk(EVENT)
            if whim < 0.7:
                return call.die()
            if whim < 0.8:
                return await call.wait_hung_up()
            if whim < 0.9:
                await call.chunk(DONE)
            await call.end()

    def admit(ask: RelayRequest) -> object:
        whim = chance.random()
        if whim < 0.1:
            raise Limited("Later.")
        if whim < 0.6:
            return stand.admission.next_call(ask)

        async def later() -> UpstreamCall:
            await pause()
            if whim < 0.7:
                raise RuntimeError("a bug in the admission")
            return stand.admission.next_call(ask)

        return later()

    for _ in range(3):
        await stand.replica(misbehave)
    stand.admission.targets.append(free_target())
    stand.admission.admit_with = admit  # type: ignore[assignment]

    async def client_life() -> None:
        client = await stand.client()
        for _ in range(chance.randint(1, 5)):
            body = b'{"stream":true}' if chance.random() < 0.5 else b"{}"
            client.post(body)
            if chance.random() < 0.3:
                await pause()
                break
            try:
                await client.answer()
            except Broken:
                break
        client.hang_up()

    for _ in range(12):
        await asyncio.gather(*[client_life() for _ in range(15)])
    await wait_until(lambda: not stand.relay.connections, "all connections to end")
    await wait_until(lambda: stand.admission.settled, "all calls to be settled")
    assert len(stand.admission.calls) > 200
    assert {failure for failure in stand.admission.failures} >= {
        None,
        RelayFailure.LOST,
        RelayFailure.UNREACHABLE,
        RelayFailure.SILENT,
        RelayFailure.CLIENT_GONE,
    }


async def test_it_serves_inside_of_uvicorn_and_drains() -> None:
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT)
        await release.wait()
        await call.chunk(DONE)
        await call.end()

    replica = Replica(slow)
    await replica.start()
    admission = CountingAdmission(replica.target)
    relay = Relay(admission, RelaySettings())
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=relay.protocol, ws="websockets-sansio", log_config=None, access_log=False, lifespan="off"
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listening]))
        client = Client(*await asyncio.open_connection(*listening.getsockname()))
        idle = Client(*await asyncio.open_connection(*listening.getsockname()))
        assert (await idle.ask(path=b"/cold")).body == b"app /cold {}"
        client.post()
        await client.head()
        assert await client.chunk() == EVENT
        server.should_exit = True
        assert await idle.closed()
        assert not serving.done()
        release.set()
        assert await client.chunk() == DONE
        assert await client.chunk() == b""
        assert await client.closed()
    relay.close()
    replica.stop()
    assert admission.failures == [None]


@given(
    st.lists(st.binary(max_size=20)), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]), st.binary(max_size=10)
)
def test_whole_events_end_where_an_event_ends(parts: list[bytes], mark: bytes, rest: bytes) -> None:
    data = mark.join([*parts, rest])
    end = whole_events(data)
    assert end == 0 or data[:end].endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    assert all(one not in data[end:] for one in (b"\n\n", b"\r\n\r\n", b"\r\r"))


@given(st.binary(max_size=40), st.binary(max_size=4), st.binary(max_size=40))
@settings(max_examples=300)
def test_a_cache_knows_only_heads_that_differ_in_their_length(
    body: bytes, digits: bytes, junk: bytes
) -> None:
    def message(length: bytes, body: bytes) -> bytes:
        return b"POST / HTTP/1.1\r\nContent-Length: %b\r\nX: y\r\n\r\n%b" % (length, body)

    cache = HeadCache[str]()
    cache.remember(message(b"2", b"{}"), "known")
    assert cache.parsed == "known"
    assert cache.body(message(b"%d" % len(body), body)) == body
    found = cache.body(message(digits, body))
    assert found is None or (digits.isdigit() and int(digits) == len(body) and found == body)
    assert cache.body(junk) is None
    assert cache.body(message(b"%d" % len(body), body) + b"x" + junk) is None


def test_usage_is_found_only_where_the_engine_wrote_it() -> None:
    assert read_usage(b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}') == (3, 4)
    assert read_usage(b'{"usage":{"prompt_tokens":3,"total_tokens":3}}') == (3, 0)
    assert read_usage(b'"content":"\\"prompt_tokens\\": 9, \\"completion_tokens\\": 9"}') is None
    assert read_usage(b'"usage":null}') is None
    assert read_usage(b'"prompt_tokens":null') is None
