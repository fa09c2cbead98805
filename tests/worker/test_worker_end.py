"""A worker dials one URL until it holds a tunnel to every gateway behind it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.conftest import wait_until
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from turnout.worker.tunnel.worker_end import Dial, Dialer


@dataclass
class Balancer:
    """Leads each caller to the next of its gateways; `open` are the tunnels that were taken."""

    names: list[str]
    url: str = ""
    calls: int = 0
    open: dict[str, ServerConnection] = field(default_factory=dict)

    async def answer(self, socket: ServerConnection) -> None:
        name = self.names[self.calls % len(self.names)]
        self.calls += 1
        await socket.send(name.encode())
        try:
            assert await socket.recv() == b""
            assert name not in self.open, "a second tunnel to the same gateway was taken"
            self.open[name] = socket
            await socket.wait_closed()
        except ConnectionClosed:
            return
        finally:
            if self.open.get(name) is socket:
                del self.open[name]


@pytest.fixture
async def balancer() -> AsyncIterator[Balancer]:
    made = Balancer(["a", "a", "b", "a", "b", "c"])
    async with serve(made.answer, "127.0.0.1", 0) as server:
        made.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"
        yield made


@asynccontextmanager
async def dialling(balancer: Balancer, gateways: set[str]) -> AsyncIterator[Dialer]:
    async def nobody() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise OSError

    dialer = Dialer(
        lambda: Dial(balancer.url, "secret"),
        lambda: frozenset(gateways),
        nobody,
        ssl.create_default_context(),
    )
    running = asyncio.create_task(dialer.run())
    try:
        yield dialer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_every_gateway_is_met_and_a_lost_or_new_one_is_dialled_again(balancer: Balancer) -> None:
    gateways = {"a", "b"}
    async with dialling(balancer, gateways) as dialer:
        await wait_until(lambda: set(dialer.held) == set(balancer.open) == {"a", "b"}, "both tunnels")
        gateways.add("c")
        await wait_until(lambda: set(balancer.open) == {"a", "b", "c"}, "a tunnel to the new one")
        await balancer.open["b"].close()
        await wait_until(lambda: "b" not in dialer.held, "the loss to be seen")
        await wait_until(
            lambda: set(balancer.open) == {"a", "b", "c"}, "the lost one to be dialled again", 60
        )
        calls = balancer.calls
        await asyncio.sleep(1.2)
        assert balancer.calls == calls, "who has them all dials no more"
    await wait_until(lambda: not balancer.open, "all to be hung up with the worker")


async def test_one_tunnel_is_held_before_anything_is_known(balancer: Balancer) -> None:
    async with dialling(balancer, set()) as dialer:
        await wait_until(lambda: len(dialer.held) == 1, "the first tunnel")
        await asyncio.sleep(1.2)
        assert len(dialer.held) == 1
