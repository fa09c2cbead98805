"""What a stranger can make us hold: connections, handshakes, half of a request, answers that nobody reads."""

import asyncio
import json
import socket
from contextlib import suppress

import psutil
import pytest
from tests.conftest import wait_until
from tests.relay.kit import Answer, Broken, Call, Client, Stand, echo
from tests.relay.test_refusals import SMUGGLING
from websockets.asyncio.client import connect

from turnout.relay.piece_queue import PieceQueue

COLD = b"POST /cold HTTP/1.1\r\nHost: x\r\n"
UPGRADE = (
    b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n"
)


def code(answer: Answer) -> str:
    return json.loads(answer.body)["error"]["code"]


async def upgraded(client: Client, path: bytes = b"", extra: bytes = b"") -> int:
    client.send(UPGRADE % (path, extra))
    return (await client.head())[0]


@pytest.mark.parametrize(
    "path, extra, rest, status",
    [
        (b"", b"Content-Length: 5\r\n", b"12345", 400),
        (b"", b"Content-Length: 5\r\n", b"", 400),
        (b"", b"Transfer-Encoding: chunked\r\n", b"", 400),
        (b"", b"X: %b\r\n" % (b"y" * 9000), b"", 431),
        (b"", b"X: y\r\n" * 99, b"", 431),
        (b"y" * 9000, b"", b"", 414),
        (b"", b"Host: y\r\n", b"", 400),
    ],
)
async def test_a_handshake_that_cannot_succeed_is_refused_at_once(
    stand: Stand, path: bytes, extra: bytes, rest: bytes, status: int
) -> None:
    client = await stand.client()
    client.send(UPGRADE % (path, extra) + rest)
    answer = await client.answer()
    assert answer.status == status
    assert await client.closed()


async def test_a_handshake_has_a_deadline(make_stand) -> None:
    stand: Stand = await make_stand(head_s=0.1)
    client = await stand.client()
    client.send(UPGRADE % (b"never", b""))
    assert await client.closed()
    assert not stand.relay.connections


async def test_a_connection_without_a_request_is_closed(make_stand) -> None:
    stand: Stand = await make_stand(head_s=0.1)
    assert await (await stand.client()).closed()


async def test_messages_are_never_compressed(stand: Stand) -> None:
    async with connect(f"ws://127.0.0.1:{stand.port}/", compression="deflate") as client:
        assert client.protocol.extensions == []
        assert await client.recv() == "127.0.0.1"
        await client.send("x" * 10_000)
        assert await client.recv() == "x" * 10_000


async def test_a_socket_that_never_reads_is_dropped_and_fills_no_memory(make_stand) -> None:
    stand: Stand = await make_stand(write_stall_s=0.3)
    client = await stand.client()
    assert await upgraded(client) == 101
    before = psutil.Process().memory_info().rss
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    ping = b"\x89\xfd\0\0\0\0" + b"p" * 125
    with suppress(ConnectionError):
        for _ in range(4000):
            client.send(ping * 100)
            if client.writer.transport.get_write_buffer_size() > 1 << 20:
                await asyncio.sleep(0.01)
            if client.writer.transport.is_closing() or not stand.relay.connections:
                break
    await wait_until(lambda: not stand.relay.connections, "the connection is dropped")
    assert psutil.Process().memory_info().rss - before < 40 * 2**20


async def test_a_closed_connection_that_nobody_reads_does_not_stay(make_stand) -> None:
    stand: Stand = await make_stand(write_stall_s=0.3, keep_alive_s=0.2)
    sock = socket.create_connection(("127.0.0.1", stand.port))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    body = b"x" * 60_000
    sock.setblocking(False)
    request = COLD + b"Content-Length: 60000\r\n\r\n" + body
    with suppress(BlockingIOError, ConnectionResetError):  # or it is dropped already
        for _ in range(100):
            sock.send(request)
            await asyncio.sleep(0.002)
    await wait_until(lambda: not stand.relay.connections, "the connection is dropped")
    sock.close()


async def test_connections_of_one_address_are_bounded(make_stand) -> None:
    stand: Stand = await make_stand(max_connections_per_address=3)
    first = await stand.client()
    assert (await first.ask(path=b"/cold")).status == 200
    second, third = await stand.client(), await stand.client()
    assert await upgraded(second) == 101
    assert (await third.ask(path=b"/cold")).status == 200
    refused = await (await stand.client()).answer()
    assert (refused.status, code(refused)) == (503, "too_many_connections")
    assert b"retry-after" in refused.headers
    second.hang_up()
    await wait_until(lambda: len(stand.relay.connections) == 2, "the socket is gone")
    assert await upgraded(await stand.client()) == 101


async def test_connections_are_bounded_in_all(make_stand) -> None:
    stand: Stand = await make_stand(max_connections=2)
    held = [await stand.client() for _ in range(2)]
    for client in held:
        assert (await client.ask(path=b"/cold")).status == 200
    assert (await (await stand.client()).answer()).status == 503


def forwarded(*hops: str) -> bytes:
    return f"X-Forwarded-For: {', '.join(hops)}\r\n".encode()


async def test_behind_a_trusted_proxy_a_connection_is_its_clients(make_stand) -> None:
    stand: Stand = await make_stand(
        max_connections_per_address=1, trusted_proxies=("127.0.0.0/8", "10.0.0.7/32")
    )
    await stand.replica(echo)
    near = await stand.client()
    assert (await near.ask(extra=forwarded("6.6.6.6", "203.0.113.5", "10.0.0.7"))).status == 200
    again = await stand.client()
    answer = await again.ask(extra=forwarded("203.0.113.5"))
    assert (answer.status, code(answer)) == (429, "too_many_connections")
    other = await stand.client()
    assert (await other.ask(extra=forwarded("203.0.113.5", "198.51.100.1"))).status == 200
    assert (await other.ask(extra=forwarded("2001:db8:1:2:3::4"))).status == 200  # it is someone else's now
    same = await stand.client()
    assert (await same.ask(extra=forwarded("2001:db8:1:2:ffff::1"))).status == 429
    assert (await (await stand.client()).ask()).status == 200  # the proxy itself has no bound
    client = await stand.client()
    client.send(UPGRADE % (b"", forwarded("198.51.100.1")))
    await client.head()
    assert b"198.51.100.1" in await client.reader.read(100)


async def test_who_is_not_trusted_is_counted_as_itself(make_stand) -> None:
    stand: Stand = await make_stand(max_connections_per_address=1, trusted_proxies=("10.0.0.7",))
    await stand.replica(echo)
    assert (await (await stand.client()).ask(extra=forwarded("203.0.113.5"))).status == 200
    assert (await (await stand.client()).answer()).status == 503


@pytest.mark.parametrize(
    "name", ["no Host", "two Hosts", "two keys", "two encodings", "nearly chunked", "another expectation"]
)
async def test_paths_of_the_app_follow_the_same_rules(stand: Stand, name: str) -> None:
    status, raw = SMUGGLING[name]
    client = await stand.client()
    client.send(raw.replace(b"/v1/chat/completions", b"/cold"))
    answer = await client.answer()
    assert (answer.status, code(answer)) == (status, "bad_framing")
    assert await client.closed()


@pytest.mark.parametrize("path", [b"/cold", b"/v1/completions"])
async def test_a_body_that_stalls_is_given_up(make_stand, path: bytes) -> None:
    stand: Stand = await make_stand(body_stall_s=0.1)
    client = await stand.client()
    client.send(COLD.replace(b"/cold", path) + b"Content-Length: 5\r\n\r\n{")
    assert (await client.answer()).status == 408


@pytest.mark.parametrize("path", [b"/cold", b"/v1/completions"])
async def test_a_body_that_drips_is_given_up(make_stand, path: bytes) -> None:
    stand: Stand = await make_stand(body_stall_s=0.5, body_s=0.5)
    client = await stand.client()
    client.send(COLD.replace(b"/cold", path) + b"Content-Length: 5000\r\n\r\n")

    async def drip() -> None:
        while True:
            client.send(b"x")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    with suppress(Broken):
        assert (await client.answer()).status == 408
    dripping.cancel()
    await wait_until(lambda: not stand.relay.connections, "the connection is dropped")


async def test_bodies_are_bounded_in_all_and_given_back(make_stand) -> None:
    stand: Stand = await make_stand(max_bodies_bytes=300_000)
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        await release.wait()
        await echo(call)

    replica = await stand.replica(slow)
    first, second, small = await stand.client(), await stand.client(), await stand.client()
    first.post(b"x" * 200_000)
    await wait_until(lambda: len(replica.requests) == 1, "the first request")
    answer = await second.ask(b"x" * 200_000)
    assert (answer.status, code(answer)) == (503, "bodies_full")
    assert b"retry-after" in answer.headers
    small.post(b"{}")
    await wait_until(lambda: len(replica.requests) == 2, "a small request")
    half = await stand.client()
    half.send(COLD.replace(b"/cold", b"/v1/completions") + b"Content-Length: 90000\r\n\r\n" + b"x" * 80_000)
    half.hang_up()
    release.set()
    assert (await first.answer()).status == (await small.answer()).status == 200
    await wait_until(lambda: stand.relay.body_bytes == 0, "all is given back")
    assert (await (await stand.client()).ask(b"x" * 200_000)).status == 200


async def test_no_account_takes_the_memory_of_all_bodies(make_stand) -> None:
    stand: Stand = await make_stand(max_bodies_bytes=600_000)
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        await release.wait()
        await echo(call)

    replica = await stand.replica(slow)
    first, second, other = await stand.client(), await stand.client(), await stand.client()
    first.post(b"x" * 200_000, extra=b"Authorization: Bearer one\r\n")
    await wait_until(lambda: len(replica.requests) == 1, "the first request")
    answer = await second.ask(b"x" * 200_000, extra=b"Authorization: Bearer one\r\n")
    assert (answer.status, code(answer)) == (503, "bodies_full")
    other.post(b"x" * 200_000, extra=b"Authorization: Bearer two\r\n")
    await wait_until(lambda: len(replica.requests) == 2, "the other one's request")
    release.set()
    assert (await first.answer()).status == (await other.answer()).status == 200
    await wait_until(lambda: stand.relay.body_bytes == 0, "all is given back")


PING, PONG, TEXT = 0x89, 0x8A, 0x81


def frames(opcode: int, count: int) -> bytes:
    """Empty ones, masked as a client's must be."""
    return bytes((opcode, 0x80, 0, 0, 0, 0)) * count


@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_who_pings_without_end_is_dropped(stand: Stand, opcode: int) -> None:
    client = await stand.client()
    assert await upgraded(client) == 101
    client.send(frames(opcode, 60_000))
    with suppress(ConnectionResetError):
        said = await client.reader.read()
        assert (1008).to_bytes(2, "big") + b"too many pings" in said
        assert said.count(b"\x8a\x00") <= 64
    await wait_until(lambda: not stand.relay.connections, "the socket is gone")


async def test_a_few_pings_are_answered(stand: Stand) -> None:
    client = await stand.client()
    assert await upgraded(client) == 101
    client.send(frames(PING, 20))
    said = b""
    while said.count(b"\x8a\x00") < 20:
        said += await client.reader.read(1000)


async def test_a_large_message_comes_whole_though_it_is_read_in_pieces(stand: Stand) -> None:
    client = await stand.client()
    assert await upgraded(client) == 101
    words = b"".join(b"%07d " % n for n in range(4000))
    client.send(bytes((TEXT, 0xFE)) + len(words).to_bytes(2, "big") + b"\0\0\0\0" + words)
    said = await client.reader.readuntil(words[-8:])
    assert words in said


async def test_sockets_that_sent_much_take_turns_and_let_others_in_between() -> None:
    done: list[str] = []
    loop, queue = asyncio.get_running_loop(), PieceQueue()

    class Flood:
        def __init__(self, name: str, pieces: int) -> None:
            self.name, self.left = name, pieces

        def handle_piece(self) -> bool:
            done.append(self.name)
            self.left -= 1
            loop.call_soon(done.append, "other")
            return self.left > 0

    queue.add(loop, Flood("a", 3))
    queue.add(loop, Flood("b", 2))
    await wait_until(lambda: len(done) == 10, "all pieces are handled")
    assert done == ["a", "other", "b", "other", "a", "other", "b", "other", "a", "other"]
