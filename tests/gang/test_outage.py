"""Redis is away for longer than a lease, again and again: the gang renders on, and its video is done by attempt 1."""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Stores, make_task, wait_until
from tests.gang.conftest import LIMITS, MODEL, NumberEngine, leading

from turnout.background import BackgroundLoops
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.processes.child import Child
from turnout.store.connection import RedisConnection
from turnout.store.object_store import open_blobs
from turnout.store.valkey import redis_url, start_valkey
from turnout.stores import stores_on
from turnout.tasks.housekeeping import Housekeeper
from turnout.tasks.task_rules import State, Task

LEASE_S = 0.9
OUTAGES = 3


class Server:
    """A Redis of one's own that can be stopped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = redis_url(directory, "test")
        self._child: Child | None = None

    async def start(self) -> None:
        self._child = await start_valkey(self._directory, "test", self._directory.with_suffix(".log"))

    async def stop(self) -> None:
        assert self._child
        await self._child.stop(5)

    def signal(self, number: signal.Signals) -> None:
        assert self._child
        os.kill(self._child.pid, number)

    async def hang(self, meanwhile: Awaitable[None]) -> None:
        self.signal(signal.SIGSTOP)
        try:
            await meanwhile
        finally:
            self.signal(signal.SIGCONT)

    async def restart(self, meanwhile: Awaitable[None]) -> None:
        await self.stop()
        await meanwhile
        await self.start()


@asynccontextmanager
async def housekeeping(stores: Stores) -> AsyncIterator[None]:
    async def deliver() -> None: ...

    keeper = Housekeeper(
        "m",
        stores.fleet.models,
        stores.fleet.status,
        stores.tasks,
        stores.queue,
        stores.backlog,
        stores.blobs,
        stores.mutex,
        deliver,
        LEASE_S,
        3600,
    )
    await stores.fleet.models.put(Model(MODEL, EngineKind.VIDEO, "w", video=VideoPart(FAMILIES[MODEL])))
    async with BackgroundLoops(keeper.loops()).running():
        yield
    await keeper.leave()


async def ended(stores: Stores, task: Task) -> Task:
    async def over() -> bool:
        return (await stores.tasks.get(task.id)).ended

    await wait_until(over, "the task to end")
    return await stores.tasks.get(task.id)


@pytest.mark.parametrize("fault", [Server.hang, Server.restart])
async def test_outages_longer_than_the_lease_cost_a_task_no_attempt(
    fault: Callable[[Server, Awaitable[None]], Awaitable[None]], tmp_path: Path
) -> None:
    server = Server(tmp_path / "redis")
    await server.start()
    link = RedisConnection(server.url, f"t{secrets.token_hex(4)}")
    stores = stores_on(link, open_blobs(str(tmp_path / "objects")), retention_s=3600)
    faults_done = False
    # So slow that its steps last for three outages, however long a server takes to start.
    engine = NumberEngine(lambda step: None if faults_done else time.sleep(0.06))

    async def rendering_goes_on() -> None:
        """For longer than a lease."""
        before = engine.steps
        await asyncio.sleep(2 * LEASE_S)
        await wait_until(lambda: engine.steps > before + 10, "rendering to go on")

    try:
        async with housekeeping(stores):
            task = await stores.tasks.submit(make_task(steps=400), LIMITS)
            async with leading(stores, "g1", engine, lease_s=LEASE_S):
                for _ in range(OUTAGES):
                    before = engine.steps
                    await wait_until(lambda before=before: engine.steps > before + 3, "steps")
                    await fault(server, rendering_goes_on())
                    renewed = (await stores.queue.leases(MODEL))[0].renewals

                    async def heard(renewed: int = renewed) -> bool:
                        return (await stores.queue.leases(MODEL))[0].renewals > renewed

                    await wait_until(heard, "the gang to renew")
                faults_done = True
            done = await ended(stores, task)
            assert (done.state, done.attempt, done.failures) == (State.COMPLETED, 1, 0)
            twin = make_task(steps=2)
            spec = replace(twin.spec, seed=task.spec.seed)
            undisturbed = await stores.tasks.submit(replace(twin, spec=spec), LIMITS)
            async with leading(stores, "g2", NumberEngine()):
                pass
            again = await ended(stores, undisturbed)
            assert done.result and again.result
            assert await stores.blobs.get(done.result.video) == await stores.blobs.get(again.result.video)
    finally:
        await link.close()
        await server.stop()
