"""Gateways that call engines directly: what a worker tells them, how it counts their requests, and that it never stops an
engine with one in flight."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
import uvicorn
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.worker.conftest import MODEL, Bench
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from turnout.engines.servers.engine_servers import relay_paths
from turnout.fleet.serving import Phase, ReplicaId, ReplicaOrder, Want
from turnout.worker.direct_access import DirectAccess
from turnout.worker.direct_messages import Announcement, InFlightCounts
from turnout.worker.proxy_admission import ProxyAdmission
from turnout.worker.proxy_app import control_app
from turnout.worker.replica_set import ReplicaSet

R1 = ReplicaId("r1")


def order(want: Want = Want.READY) -> ReplicaOrder:
    return ReplicaOrder(replica=R1, model=MODEL, gpus=(), want=want)


class ScriptedGateway:
    """A gateway's end of a direct session, message by message."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def hear(self) -> Announcement:
        async with asyncio.timeout(20):
            return Announcement.model_validate_json(await self._socket.recv())

    async def say(self, seen: int, **counts: int) -> None:
        said = InFlightCounts(
            seen=seen, counts={ReplicaId(replica): count for replica, count in counts.items()}
        )
        await self._socket.send(said.model_dump_json().encode())

    async def hung_up(self) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    await self._socket.recv()
                except ConnectionClosed:
                    return

    async def die(self) -> None:
        self._socket.transport.abort()


@dataclass
class Worker:
    hands: ReplicaSet
    url: str

    @property
    def busy(self) -> int:
        return self.hands.reports()[0].busy

    @property
    def phase(self) -> Phase:
        return self.hands.reports()[0].phase

    async def ready(self) -> None:
        self.hands.follow([order()])
        await wait_until(lambda: self.phase is Phase.READY, "the replica to be ready")

    @asynccontextmanager
    async def gateway(
        self, name: str = "gw", token: str = "t0ken", path: str = "/tally"
    ) -> AsyncIterator[ScriptedGateway]:
        headers = {"authorization": f"Bearer {token}", "x-turnout-gateway": name}
        async with connect(
            self.url + path, additional_headers=headers, proxy=None, close_timeout=1
        ) as socket:
            yield ScriptedGateway(socket)


@pytest.fixture
async def worker(bench: Bench) -> AsyncIterator[Worker]:
    """A worker's proxy in front of engines that can sleep."""
    kit = replace(
        bench.context(),
        plan=lambda replica, model, gpus: bench.launch(sleeps=True),
        wait_acknowledged=lambda: access.wait_acknowledged(),
    )
    async with ReplicaSet(kit, lambda: access.announce()) as hands:
        access = DirectAccess(hands, "here")
        app = control_app(hands, ProxyAdmission(hands, lambda: "t0ken"), access, str)
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, ws="websockets-sansio", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await wait_until(lambda: server.started, "the server to start")
        yield Worker(hands, f"ws://127.0.0.1:{listening.getsockname()[1]}")
        server.should_exit = True
        await asyncio.wait_for(serving, 10)


async def test_an_engine_is_announced_while_it_takes_requests(worker: Worker) -> None:
    async with worker.gateway() as gateway:
        first = await gateway.hear()
        assert (first.network, first.engines) == ("here", ())
        await worker.ready()
        told = await gateway.hear()
        [engine] = told.engines
        assert told.version > first.version
        assert (engine.replica, engine.model, engine.key) == (R1, MODEL.name, None)
        assert f"{engine.host}:{engine.port}" == worker.hands.reports()[0].address
        assert set(engine.paths) == relay_paths(MODEL.engine)
        async with worker.gateway("another") as other:
            assert (await other.hear()).engines == told.engines
            worker.hands.follow([order(Want.GONE)])
            for one in (gateway, other):
                withdrawn = await one.hear()
                assert withdrawn.engines == ()
                await one.say(withdrawn.version)


async def test_counts_are_the_last_that_each_gateway_said_and_end_with_it(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway("one") as one, worker.gateway("two") as two:
        version = (await one.hear()).version
        await one.say(version, r1=3)
        await two.say(version, r1=2, unheard_of=7)
        await wait_until(lambda: worker.busy == 5, "both to be counted")
        await one.say(version, r1=1)
        await wait_until(lambda: worker.busy == 3, "the lower count")
        await two.die()
        await wait_until(lambda: worker.busy == 1, "the dead gateway's requests to be over")
        await one.say(version)
        await wait_until(lambda: worker.busy == 0, "all to be over")


async def test_a_stop_waits_for_a_gateway_to_hear_of_it_and_for_what_it_still_has_there(
    worker: Worker,
) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        version = (await gateway.hear()).version
        await gateway.say(version)
        worker.hands.follow([order(Want.GONE)])
        withdrawn = await gateway.hear()
        assert withdrawn.engines == ()
        assert worker.busy == 0, "the worker knows of no request"
        assert marked(R1), "and still leaves the engine alone until the gateway has said what it has"
        await gateway.say(withdrawn.version, r1=1)
        await wait_until(lambda: worker.busy == 1, "the request that nobody had told of")
        assert worker.phase is Phase.STOPPING
        assert marked(R1)
        await gateway.say(withdrawn.version)
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")


async def test_an_engine_falls_asleep_only_when_no_gateway_has_a_request_there(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        version = (await gateway.hear()).version
        await gateway.say(version)
        worker.hands.follow([order(Want.ASLEEP)])
        withdrawn = await gateway.hear()
        assert withdrawn.engines == ()
        await gateway.say(withdrawn.version, r1=1)
        await wait_until(lambda: worker.busy == 1, "the request in flight")
        assert worker.phase is Phase.READY
        await gateway.say(withdrawn.version)
        await wait_until(lambda: worker.phase is Phase.SLEEPING, "the engine to sleep")
        worker.hands.follow([order()])
        assert [engine.replica for engine in (await gateway.hear()).engines] == [R1]


async def test_a_gateway_that_is_gone_holds_up_no_stop(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        await gateway.say((await gateway.hear()).version, r1=4)
        await wait_until(lambda: worker.busy == 4, "its requests to be counted")
        worker.hands.follow([order(Want.GONE)])
        await gateway.hear()
        await gateway.die()
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")


async def test_a_gateway_that_comes_again_replaces_its_old_connection(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as old:
        version = (await old.hear()).version
        await old.say(version, r1=2)
        await wait_until(lambda: worker.busy == 2, "the old one's count")
        async with worker.gateway() as new:
            await new.hear()
            await new.say(version, r1=1)
            await old.hung_up()
            await wait_until(lambda: worker.busy == 1, "only the new one's count")
    await wait_until(lambda: worker.busy == 0, "nothing to be left")


@pytest.mark.parametrize("wrong", [{"token": "wrong"}, {"path": "/other"}, {"name": ""}, {"name": "x" * 200}])
async def test_nobody_else_gets_in(worker: Worker, wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus):
        async with worker.gateway(**wrong):
            pass


@pytest.mark.parametrize("nonsense", ["{}", "no json", '{"seen": 1, "counts": {"r1": "many"}}'])
async def test_nonsense_ends_the_connection_and_its_counts(worker: Worker, nonsense: str) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        await gateway.say((await gateway.hear()).version, r1=1)
        await wait_until(lambda: worker.busy == 1, "its request to be counted")
        await gateway._socket.send(nonsense.encode())
        await gateway.hung_up()
        await wait_until(lambda: worker.busy == 0, "its count to end")
