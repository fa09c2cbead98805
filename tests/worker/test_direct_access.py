"""Gateways that call engines directly: what a worker tells them, how it counts their requests, and that it never stops an
engine with one in flight."""

import asyncio
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from tests.conftest import wait_until
from tests.engine_servers.engines import marked
from tests.pace import patient
from tests.worker.conftest import MODEL, Bench

from turnout.engines.servers.engine_servers import relay_paths
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.worker.direct_access import DirectAccess
from turnout.worker.direct_messages import Announcement, InFlightCounts, connect_to_worker
from turnout.worker.replica_set import ReplicaSet

R1 = ReplicaId("r1")
URL = f"http://127.0.0.1:1/{os.getpid()}"


def order(want: Want = Want.READY) -> ReplicaOrder:
    return ReplicaOrder(replica=R1, model=MODEL, gpus=(), want=want)


@dataclass
class ScriptedGateway:
    """A gateway's end of a direct session, message by message."""

    reader: StreamReader
    writer: StreamWriter

    async def hear(self) -> Announcement:
        async with asyncio.timeout(patient(20)):
            return Announcement.model_validate_json(await self.reader.readline())

    def say(self, seen: int, **counts: int) -> None:
        told = {ReplicaId(replica): count for replica, count in counts.items()}
        self.writer.write(InFlightCounts(seen=seen, counts=told).line())

    async def hung_up(self) -> None:
        async with asyncio.timeout(patient(20)):
            while await self.reader.readline():
                pass

    def die(self) -> None:
        self.writer.transport.abort()


@dataclass
class Worker:
    replicas: ReplicaSet

    @property
    def busy(self) -> int:
        return self.replicas.reports()[0].busy

    @property
    def phase(self) -> Phase:
        return self.replicas.reports()[0].phase

    async def ready(self) -> None:
        self.replicas.follow([order()])
        await wait_until(lambda: self.phase is Phase.READY, "the replica to be ready")

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[ScriptedGateway]:
        connection = connect_to_worker(URL)
        assert connection is not None
        gateway = ScriptedGateway(*await asyncio.open_unix_connection(sock=connection))
        try:
            yield gateway
        finally:
            gateway.writer.close()


@pytest.fixture
async def worker(bench: Bench) -> AsyncIterator[Worker]:
    """A worker with engines that can sleep."""
    context = replace(
        bench.context(),
        plan=lambda replica, model, gpus: bench.launch(sleeps=True),
        wait_acknowledged=lambda: access.wait_acknowledged(),
    )
    async with ReplicaSet(context, lambda: access.announce()) as replicas:
        access = DirectAccess(replicas)
        listening = asyncio.create_task(access.listen(URL))
        await wait_until(_somebody_listens, "the worker to listen")
        yield Worker(replicas)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def _somebody_listens() -> bool:
    connection = connect_to_worker(URL)
    if connection is not None:
        connection.close()
    return connection is not None


async def test_an_engine_is_announced_while_it_takes_requests(worker: Worker) -> None:
    async with worker.gateway() as gateway:
        first = await gateway.hear()
        assert first.engines == ()
        await worker.ready()
        told = await gateway.hear()
        [engine] = told.engines
        assert told.version > first.version
        assert (engine.replica, engine.key) == (R1, None)
        assert f"127.0.0.1:{engine.port}" == worker.replicas.reports()[0].address
        assert set(engine.paths) == relay_paths(MODEL.engine)
        async with worker.gateway() as other:
            assert (await other.hear()).engines == told.engines
            worker.replicas.follow([order(Want.GONE)])
            for one in (gateway, other):
                withdrawn = await one.hear()
                assert withdrawn.engines == ()
                one.say(withdrawn.version)


async def test_counts_are_the_last_that_each_gateway_said_and_end_with_it(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as one, worker.gateway() as two:
        version = (await one.hear()).version
        one.say(version, r1=3)
        two.say(version, r1=2, unheard_of=7)
        await wait_until(lambda: worker.busy == 5, "both to be counted")
        one.say(version, r1=1)
        await wait_until(lambda: worker.busy == 3, "the lower count")
        two.die()
        await wait_until(lambda: worker.busy == 1, "the dead gateway's requests to be over")
        one.say(version)
        await wait_until(lambda: worker.busy == 0, "all to be over")


async def test_a_stop_waits_for_a_gateway_to_hear_of_it_and_for_what_it_still_has_there(
    worker: Worker,
) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        gateway.say((await gateway.hear()).version)
        worker.replicas.follow([order(Want.GONE)])
        withdrawn = await gateway.hear()
        assert withdrawn.engines == ()
        assert worker.busy == 0, "the worker knows of no request"
        assert marked(R1), "and still leaves the engine alone until the gateway has said what it has"
        gateway.say(withdrawn.version, r1=1)
        await wait_until(lambda: worker.busy == 1, "the request that nobody had told of")
        assert worker.phase is Phase.STOPPING
        assert marked(R1)
        gateway.say(withdrawn.version)
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")


async def test_an_engine_falls_asleep_only_when_no_gateway_has_a_request_there(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        gateway.say((await gateway.hear()).version)
        worker.replicas.follow([order(Want.ASLEEP)])
        withdrawn = await gateway.hear()
        assert withdrawn.engines == ()
        gateway.say(withdrawn.version, r1=1)
        await wait_until(lambda: worker.busy == 1, "the request in flight")
        assert worker.phase is Phase.READY
        gateway.say(withdrawn.version)
        await wait_until(lambda: worker.phase is Phase.SLEEPING, "the engine to sleep")
        worker.replicas.follow([order()])
        assert [engine.replica for engine in (await gateway.hear()).engines] == [R1]


async def test_a_gateway_that_is_gone_holds_up_no_stop(worker: Worker) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        gateway.say((await gateway.hear()).version, r1=4)
        await wait_until(lambda: worker.busy == 4, "its requests to be counted")
        worker.replicas.follow([order(Want.GONE)])
        await gateway.hear()
        gateway.die()
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")


async def test_another_user_is_told_nothing(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    await worker.ready()
    connection = connect_to_worker(URL)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert connect_to_worker(URL) is None, "nor is a worker of another user called"
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("nonsense", ["{}", "no json", '{"seen": 1, "counts": {"r1": "many"}}', "x" * 2**21])
async def test_nonsense_ends_the_connection_and_its_counts(worker: Worker, nonsense: str) -> None:
    await worker.ready()
    async with worker.gateway() as gateway:
        gateway.say((await gateway.hear()).version, r1=1)
        await wait_until(lambda: worker.busy == 1, "its request to be counted")
        gateway.writer.write(nonsense.encode() + b"\n")
        await wait_until(lambda: worker.busy == 0, "its count to end")
