"""Replicas that fail, in every way they can, and what the client then sees."""

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import cast

import pytest
from tests.conftest import wait_until
from tests.relay.kit import (
    PATIENCE_S,
    Answer,
    Broken,
    Call,
    Counted,
    Replica,
    Stand,
    echo,
    free_target,
    last_event,
    standing,
)

from turnout.relay import RelayFailure, RelayRequest, RelaySettings, Target, UpstreamCall
from turnout.relay.client_connection import ClientConnection

EVENT = b'data: {"n":1}\n\n'


async def die(call: Call) -> None:
    call.die()


def code(answer: Answer) -> str:
    return json.loads(answer.body)["error"]["code"]


async def test_a_replica_that_nobody_runs_is_passed_over(stand: Stand) -> None:
    stand.admission.targets.append(free_target())
    await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask()).status == 200
    assert stand.admission.failures == [RelayFailure.UNREACHABLE, None]


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_replica_that_dies_before_it_answers_is_replaced(stand: Stand, before: bytes) -> None:
    async def stumble(call: Call) -> None:
        await call.send(before)
        call.writer.close()

    await stand.replica(stumble)
    await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask(b'{"x":1}')).body == b'{"x":1}'
    assert stand.admission.failures == [RelayFailure.LOST, None]


async def test_a_replica_that_cannot_serve_now_is_replaced(stand: Stand) -> None:
    async def busy(call: Call) -> None:
        await call.json(b'{"error":{}}', b"503 Service Unavailable")

    await stand.replica(busy)
    await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask()).status == 200
    assert stand.admission.failures == [RelayFailure.REFUSED, None]
    assert stand.admission.outcomes[0].status == 503


async def test_the_last_replicas_own_refusal_is_shown(make_stand) -> None:
    stand: Stand = await make_stand(max_attempts=2)

    async def busy(call: Call) -> None:
        await call.json(b'{"mine":1}', b"503 Service Unavailable")

    await stand.replica(busy)
    answer = await (await stand.client()).ask()
    assert (answer.status, b"mine" in answer.body) == (503, True)
    assert stand.admission.failures == [RelayFailure.REFUSED, None]


async def test_attempts_are_bounded(stand: Stand) -> None:
    stand.admission.targets = [free_target() for _ in range(9)]
    client = await stand.client()
    answer = await client.ask()
    assert (answer.status, code(answer)) == (503, "replica_unreachable")
    assert answer.headers[b"retry-after"]
    assert len(stand.admission.calls) == 3 and stand.admission.settled
    assert (await client.ask()).status == 503  # and the connection is still good


async def test_no_other_replica_is_told_as_the_desk_tells_it(stand: Stand) -> None:
    def once(ask: RelayRequest) -> UpstreamCall:
        stand.admission.admit_with = None
        call = stand.admission.next_call(ask)
        stand.admission.targets.clear()
        return call

    stand.admission.targets.append(free_target())
    stand.admission.admit_with = once
    assert code(await (await stand.client()).ask()) == "no_replica"
    assert stand.admission.failures == [RelayFailure.UNREACHABLE]


async def test_a_link_that_was_closed_while_idle_is_replaced_silently(stand: Stand) -> None:
    first_done = asyncio.Event()

    async def once(call: Call) -> None:
        if replica.connections == 1 and first_done.is_set():
            return call.die()  # what a client sees whose request crosses the server's close
        await echo(call)

    replica = await stand.replica(once)
    client = await stand.client()
    assert (await client.ask()).status == 200
    first_done.set()
    assert (await client.ask()).status == 200
    assert replica.connections == 2
    assert stand.admission.failures == [None, None]


async def test_a_replica_that_restarted_is_found_again(stand: Stand) -> None:
    replica = await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask()).status == 200
    replica.stop()
    again = Replica(echo)
    stand.replicas.append(again)
    await again.start(replica.target.port)
    assert (await client.ask()).status == 200
    assert stand.admission.failures == [None, None]


async def test_unused_links_are_closed(make_stand) -> None:
    stand: Stand = await make_stand(idle_s=0.05)
    replica = await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask()).status == 200
    await wait_until(lambda: not replica.writers, "the idle connection to be closed")
    assert (await client.ask()).status == 200


async def test_a_broken_event_that_was_too_long_to_hold_is_set_apart(stand: Stand) -> None:
    async def break_off(call: Call) -> None:
        await call.begin_events()
        for _ in range(8):
            await call.chunk(b"x" * 100_000)
        call.writer.close()

    await stand.replica(break_off)
    answer = await (await stand.client()).ask()
    assert answer.body.count(b"x") > 256 * 1024
    assert last_event(answer.body)["error"]["code"] == "replica_lost"


async def test_what_nobody_asked_for_ends_the_connection(stand: Stand) -> None:
    async def twice(call: Call) -> None:
        await call.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )

    replica = await stand.replica(twice)
    client = await stand.client()
    for _ in range(3):
        assert (await client.ask()).body == b"{}"
    assert replica.connections == 3


async def test_a_stream_that_breaks_ends_with_an_error_event(stand: Stand) -> None:
    async def break_off(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT)
        await call.chunk(b'data: {"half')
        call.writer.close()

    await stand.replica(break_off)
    client = await stand.client()
    answer = await client.ask(b'{"stream":true}')
    assert answer.body.startswith(EVENT) and b"half" not in answer.body and b"[DONE]" not in answer.body
    assert last_event(answer.body)["error"]["code"] == "replica_lost"
    assert stand.admission.failures == [RelayFailure.LOST]
    assert stand.admission.outcomes[0].status == 200


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_stream_without_an_end_of_its_own_must_say_done(stand: Stand, version: bytes) -> None:
    done = False

    async def until_close(call: Call) -> None:
        await call.send(
            b"HTTP/%b 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" % version
        )
        await call.send(EVENT + (b"data: [DONE]\n\n" if done else b""))
        call.writer.close()

    await stand.replica(until_close)
    client = await stand.client()
    assert last_event((await client.ask()).body)["error"]["code"] == "replica_lost"
    done = True
    assert (await client.ask()).body == EVENT + b"data: [DONE]\n\n"
    assert stand.admission.failures == [RelayFailure.LOST, None]


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKS = (b"%x\r\n%b\r\n" % (len(EVENT), EVENT)) * 3


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions"])
@pytest.mark.parametrize(
    "reads",
    [
        (STREAM + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"0\r\n\r\n",),
        (STREAM + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS, CHUNKS, CHUNKS, b"0\r\n\r\n"),
        (
            STREAM + b"Transfer-Encoding: chunked\r\n\r\n",
            b'5\r\ndata:\r\n8\r\n {"n":1}\r\n2\r\n\n\n\r\n0\r\n\r\n',
        ),
        (STREAM + b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT,),
        (STREAM + b"Transfer-Encoding: chunked\r\n\r\n" + b"0\r\n\r\n",),
        (STREAM + b'Content-Length: 30\r\n\r\ndata: {"says":"data: [DONE]"}\n\n',),
    ],
)
async def test_a_stream_that_ends_cleanly_without_done_is_no_whole_answer(
    stand: Stand, path: bytes, reads: tuple[bytes, ...]
) -> None:
    async def stop_short(call: Call) -> None:
        for read in reads:
            await call.send(read)
            await asyncio.sleep(0.01)

    await stand.replica(stop_short)
    client = await stand.client()
    answer = await client.ask(b'{"stream":true}', path)
    assert last_event(answer.body)["error"]["code"] == "replica_lost"
    assert stand.admission.failures == [RelayFailure.LOST]
    assert (await client.ask(b'{"stream":true}', path)).status == 200  # the connection is as good as before


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions"])
@pytest.mark.parametrize("pause_s", [0.0, 0.01])
@pytest.mark.parametrize(
    "last", [b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\n", b'data: {"error":{"code":"mine"}}\n\n']
)
async def test_a_stream_that_says_how_it_ended_is_passed_on_as_it_is(
    stand: Stand, path: bytes, pause_s: float, last: bytes
) -> None:
    async def stream(call: Call) -> None:
        await call.begin_events()
        for piece in (EVENT, EVENT, last):
            await call.chunk(piece)
            await asyncio.sleep(pause_s)
        await call.end()

    await stand.replica(stream)
    assert (await (await stand.client()).ask(b"{}", path)).body == EVENT * 2 + last
    assert stand.admission.failures == [None]


async def test_other_dialects_end_their_streams_in_other_ways(make_stand) -> None:
    stand: Stand = await make_stand(paths=frozenset({"/v1/responses"}))
    last = b"event: response.completed\ndata: {}\n\n"

    async def stream(call: Call) -> None:
        await call.begin_events()
        await call.chunk(last)
        await call.end()

    await stand.replica(stream)
    assert (await (await stand.client()).ask(b"{}", b"/v1/responses")).body == last


async def test_a_short_stream_is_told_once_over_two_hops(stand: Stand, make_stand) -> None:
    async def stop_short(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT)
        await call.end()

    worker: Stand = await make_stand(max_attempts=1, response_headers=())
    await worker.replica(stop_short)
    stand.admission.targets.append(Target("127.0.0.1", worker.port))
    answer = await (await stand.client()).ask(b'{"stream":true}')
    assert answer.body.count(b"data: ") == 2
    assert last_event(answer.body)["error"]["code"] == "replica_lost"
    assert worker.admission.failures == [RelayFailure.LOST]


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 100\r\n\r\n12345", b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"]
)
@pytest.mark.parametrize("http10", [False, True])
async def test_a_body_that_breaks_never_looks_whole(stand: Stand, framing: bytes, http10: bool) -> None:
    async def break_off(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing)
        await asyncio.sleep(0.02)
        call.writer.close()

    await stand.replica(break_off)
    client = await stand.client()
    if http10:
        client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
    else:
        client.post()
    with pytest.raises(Broken):
        await client.answer()
    assert stand.admission.failures == [RelayFailure.LOST]


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /workers/w-1/drain\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_what_no_engine_would_say_is_not_passed_on(stand: Stand, said: bytes) -> None:
    async def babble(call: Call) -> None:
        await call.send(said)

    await stand.replica(babble)
    answer = await (await stand.client()).ask()
    assert (answer.status, code(answer)) == (503, "replica_broken")
    assert stand.admission.failures == [RelayFailure.BROKEN] * 3


async def test_bad_chunks_in_a_stream_end_it_with_an_error(stand: Stand) -> None:
    async def babble(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT)
        await asyncio.sleep(0.02)
        await call.send(b"zz\r\n")

    await stand.replica(babble)
    answer = await (await stand.client()).ask()
    assert last_event(answer.body)["error"]["code"] == "replica_broken"
    assert stand.admission.failures == [RelayFailure.BROKEN]


async def test_silence_has_limits(make_stand) -> None:
    stand: Stand = await make_stand(answer_s=0.5, chunk_s=0.5)

    async def mute(call: Call) -> None:
        await call.wait_hung_up()

    async def mute_after_an_event(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT)
        await call.wait_hung_up()

    replica = await stand.replica(mute)
    client = await stand.client()
    assert code(await client.ask()) == "replica_silent"
    await asyncio.wait_for(replica.hung_up.wait(), PATIENCE_S)
    replica.handler = mute_after_an_event
    assert last_event((await client.ask()).body)["error"]["code"] == "replica_silent"
    assert stand.admission.failures == [RelayFailure.SILENT, RelayFailure.SILENT]


async def test_a_connection_that_does_not_come_has_a_limit(make_stand) -> None:
    stand: Stand = await make_stand(connect_s=0.5, max_attempts=2)
    stand.admission.targets.append(Target("192.0.2.1", 9))  # an address that is nobody's
    await stand.replica(echo)
    stand.admission.turn = 0
    answer = await (await stand.client()).ask()
    assert answer.status == 200 and stand.admission.failures == [RelayFailure.UNREACHABLE, None]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A key and a certificate for 127.0.0.1 that nobody else has signed."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=replica"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


async def test_a_replica_behind_tls_must_be_trusted(certificate: tuple[Path, Path]) -> None:
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate[1], certificate[0])
    replica = Replica(echo)
    await replica.start(tls=server_side)
    body = b"x" * 1_000_000
    try:
        for tls in (None, ssl.create_default_context(cafile=str(certificate[1]))):
            async with standing(RelaySettings(), tls) as stand:
                stand.admission.targets.append(replica.target)
                client = await stand.client()
                for _ in range(2):
                    answer = await client.ask(body)
                    if tls is None:
                        assert code(answer) == "replica_unreachable"
                        assert replica.requests == []
                    else:
                        assert answer.body == body
    finally:
        replica.stop()


@pytest.mark.parametrize("streaming", [False, True])
async def test_hanging_up_cuts_the_replica_off(stand: Stand, streaming: bool) -> None:
    async def work(call: Call) -> None:
        if streaming:
            await call.begin_events()
            await call.chunk(EVENT)
        await call.wait_hung_up()

    replica = await stand.replica(work)
    client = await stand.client()
    client.post()
    if streaming:
        await client.head()
    await wait_until(lambda: len(replica.requests) == 1, "the request")
    client.hang_up()
    await asyncio.wait_for(replica.hung_up.wait(), PATIENCE_S)
    await wait_until(lambda: stand.admission.settled, "the outcome")
    assert stand.admission.outcomes[0].client_gone


async def test_hanging_up_cancels_a_pending_admission(stand: Stand) -> None:
    cancelled = asyncio.Event()
    waiting = asyncio.Event()

    async def wait(ask: RelayRequest) -> UpstreamCall:
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    stand.admission.admit_with = wait
    client = await stand.client()
    client.post()
    await asyncio.wait_for(waiting.wait(), PATIENCE_S)
    client.hang_up()
    await asyncio.wait_for(cancelled.wait(), PATIENCE_S)


async def test_a_ticket_that_comes_after_the_hang_up_is_settled(stand: Stand) -> None:
    """The admission's future is done, the relay is not told yet, and the client goes."""
    future: asyncio.Future[UpstreamCall] = asyncio.get_running_loop().create_future()
    asks: list[RelayRequest] = []

    def later(ask: RelayRequest) -> asyncio.Future[UpstreamCall]:
        asks.append(ask)
        return future

    stand.admission.admit_with = later
    stand.admission.targets.append(free_target())
    client = await stand.client()
    client.post()
    await wait_until(lambda: len(asks) == 1, "the admission")
    connection = cast(ClientConnection, next(iter(stand.relay.connections)))
    future.set_result(stand.admission.next_call(asks[0]))
    connection.connection_lost(None)
    await wait_until(lambda: stand.admission.settled, "the outcome")
    assert stand.admission.failures == [RelayFailure.CLIENT_GONE]


async def test_shutting_down_is_told_to_everyone(stand: Stand) -> None:
    async def work(call: Call) -> None:
        if b"stream" in call.request.body:
            await call.begin_events()
            await call.chunk(EVENT)
        await call.wait_hung_up()

    await stand.replica(work)
    streaming, plain = await stand.client(), await stand.client()
    streaming.post(b'{"stream":true}')
    plain.post()
    await streaming.head()
    assert await streaming.chunk() == EVENT
    await wait_until(lambda: len(stand.admission.calls) == 2, "both requests")
    stand.relay.close()
    assert b"shutting_down" in await streaming.chunk()
    assert code(await plain.answer()) == "shutting_down"
    assert await plain.closed()
    assert stand.admission.failures == [RelayFailure.CLOSED, RelayFailure.CLOSED]


async def test_a_desk_whose_callback_fails_harms_nobody(stand: Stand) -> None:
    class Careless(Counted):
        def first_byte(self) -> None:
            raise RuntimeError("careless")

        def finished(self, outcome: object) -> None:
            raise RuntimeError("careless")

    replica = await stand.replica(echo)
    stand.admission.admit_with = lambda ask: Careless(stand.admission, replica.target, ask)
    client = await stand.client()
    for _ in range(2):
        assert (await client.ask()).status == 200
