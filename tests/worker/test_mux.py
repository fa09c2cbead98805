"""Streams through a tunnel: all of them whole, none in another's way, nothing left when an end goes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.conftest import wait_until
from tests.pace import patient

from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.store.address_rules import TUNNELS
from turnout.worker.tunnel.gateway_end import GatewayTunnels
from turnout.worker.tunnel.mux import WINDOW_BYTES, Kind, Mux

W = WorkerId("w-1")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Wire:
    """A channel in memory whose two ends are each other's; it counts what lies in it."""

    inbox: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    other: "Wire | None" = None
    most_bytes: int = 0
    _bytes: int = 0

    async def send(self, message: bytes) -> None:
        assert self.other
        self.other._bytes += len(message)
        self.other.most_bytes = max(self.other.most_bytes, self.other._bytes)
        self.other.inbox.put_nowait(message)
        await asyncio.sleep(0)

    async def receive(self) -> bytes:
        message = await self.inbox.get()
        if message is None:
            raise Unavailable("closed")
        self._bytes -= len(message)
        return message

    def close(self) -> None:
        assert self.other
        self.inbox.put_nowait(None)
        self.other.inbox.put_nowait(None)


@dataclass
class Tunnel:
    bank: GatewayTunnels
    here: Wire
    there: Wire
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(str(TUNNELS), self.port)


@asynccontextmanager
async def tunnel_to(serve: Serve) -> AsyncIterator[Tunnel]:
    """A tunnel whose far end leads to a server of the test's."""
    here, there = Wire(), Wire()
    here.other, there.other = there, here
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        far = Mux(there, Kind.END, lambda: asyncio.open_connection("127.0.0.1", port))
        bank = GatewayTunnels()
        ends = [asyncio.create_task(bank.hold(W, here)), asyncio.create_task(far.run())]
        await wait_until(lambda: bank.url(W) is not None, "the tunnel to open")
        try:
            yield Tunnel(bank, here, there, int(str(bank.url(W)).rpartition(":")[2]))
        finally:
            here.close()
            await asyncio.gather(*ends, return_exceptions=True)
            assert bank.url(W) is None


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(10_000):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_many_streams_at_once_arrive_whole() -> None:
    async with tunnel_to(echo) as tunnel:

        async def one(size: int) -> None:
            reader, writer = await tunnel.connect()
            sent = os.urandom(size)

            async def send() -> None:
                writer.write(sent)
                await writer.drain()

            sending = asyncio.create_task(send())
            assert await reader.readexactly(size) == sent
            await sending
            writer.close()

        await asyncio.gather(*(one(size) for size in (0, 1, 31, 5 * WINDOW_BYTES, *([40_000] * 40))))


async def test_what_was_sent_before_the_end_is_delivered() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"x" * (3 * WINDOW_BYTES))
        writer.close()

    async with tunnel_to(answer) as tunnel:
        reader, writer = await tunnel.connect()
        writer.write(b"go\n")
        assert len(await reader.read()) == 3 * WINDOW_BYTES
        writer.close()


async def test_a_slow_reader_fills_no_memory_and_stops_nobody_else() -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if await reader.readline() == b"hello\n":
            writer.write(b"hello\n")
        else:
            with contextlib.suppress(OSError):
                while True:
                    writer.write(b"x" * 65536)
                    sent += 65536
                    await writer.drain()
        writer.close()

    async with tunnel_to(pour) as tunnel:
        _, slow = await tunnel.connect()
        slow.write(b"pour\n")
        before = -1
        while before != sent:  # until it is held up
            before = sent
            await asyncio.sleep(0.3)
        assert tunnel.here.most_bytes <= 2 * WINDOW_BYTES
        reader, writer = await tunnel.connect()
        writer.write(b"hello\n")
        assert await asyncio.wait_for(reader.readline(), patient(10)) == b"hello\n"
        writer.close()
        slow.close()


async def test_hanging_up_reaches_the_other_side_also_when_it_is_held_up() -> None:
    held, gone = asyncio.Event(), asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        with contextlib.suppress(OSError):
            for _ in range(1000):
                writer.write(b"x" * 65536)
                if writer.transport.get_write_buffer_size() > 10**6:
                    held.set()
                    break
            await reader.read()
        gone.set()
        writer.close()

    async with tunnel_to(pour) as tunnel:
        _, writer = await tunnel.connect()
        writer.write(b"pour\n")
        await asyncio.wait_for(held.wait(), patient(10))
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), patient(10))


async def test_a_lost_tunnel_cuts_every_stream_of_it() -> None:
    async with tunnel_to(echo) as tunnel:
        open_ones = [await tunnel.connect() for _ in range(5)]
        for _, writer in open_ones:
            writer.write(b"x")
        for reader, _ in open_ones:
            assert await reader.readexactly(1) == b"x"
        tunnel.here.close()
        for reader, writer in open_ones:
            with contextlib.suppress(OSError):
                assert await asyncio.wait_for(reader.read(), patient(10)) == b""
            writer.close()


async def test_a_newer_tunnel_of_the_same_worker_takes_over() -> None:
    async with tunnel_to(echo) as tunnel:
        again, far = Wire(), Wire()
        again.other, far.other = far, again
        holding = asyncio.create_task(tunnel.bank.hold(W, again))
        old = f"http://{TUNNELS}:{tunnel.port}"
        await wait_until(lambda: tunnel.bank.url(W) not in (None, old), "the newer one to be used")
        tunnel.here.close()
        await asyncio.sleep(0.05)
        assert tunnel.bank.url(W) not in (None, old), "the end of the old one takes nothing along"
        again.close()
        await holding


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\x01\0\0\0\x07",
        b"\x09\0\0\0\x01",
        b"\x03\0\0\0\x01\xff",
        b"\x02\0\0\0\x01" + b"x" * 70_000,
    ],
)
async def test_a_worker_that_breaks_the_rules_loses_its_tunnel(message: bytes) -> None:
    """Among them: only gateways open streams."""
    bank, here, there = GatewayTunnels(), Wire(), Wire()
    here.other, there.other = there, here
    holding = asyncio.create_task(bank.hold(W, here))
    await wait_until(lambda: bank.url(W) is not None, "the tunnel to open")
    reader, writer = await asyncio.open_connection(str(TUNNELS), int(str(bank.url(W)).rpartition(":")[2]))
    writer.write(b"x")
    assert await there.receive() == b"\x01\0\0\0\x01"
    await there.send(message)
    await asyncio.wait_for(holding, patient(10))
    assert await reader.read() == b""
    writer.close()


async def test_sending_past_the_window_is_breaking_the_rules() -> None:
    bank, here, there = GatewayTunnels(), Wire(), Wire()
    here.other, there.other = there, here
    holding = asyncio.create_task(bank.hold(W, here))
    await wait_until(lambda: bank.url(W) is not None, "the tunnel to open")
    _, writer = await asyncio.open_connection(str(TUNNELS), int(str(bank.url(W)).rpartition(":")[2]))
    writer.write(b"x")
    await there.receive()
    while not holding.done():
        await there.send(b"\x02\0\0\0\x01" + b"x" * 30_000)
    assert here.most_bytes < 20 * WINDOW_BYTES
    writer.close()
