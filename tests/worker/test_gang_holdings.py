"""A worker's gangs: counted by what they hold, closed by the queue, and what they held is put back when they are gone.

The gang here is a process that does nothing but live; its tasks are claimed for it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Stores, make_task, wait_until
from tests.engine_servers.engines import marked
from tests.gangs import open_door
from tests.worker.conftest import Bench

from turnout.engines.servers.engine_servers import Launch
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport, Want
from turnout.processes.commands import LocalCommands
from turnout.tasks.task_rules import GangId, Limits, State, Task
from turnout.worker.gang_holdings import GangHoldings
from turnout.worker.hardware import GpuGate
from turnout.worker.replica_set import ReplicaSet, ReplicaSetContext

NAME = "wan-tiny-t2v"
MODEL = Model(NAME, EngineKind.VIDEO, "w", video=VideoPart(FAMILIES[NAME]), concurrency=1)
LIMITS = Limits(100, 100, 1000)
LIVE = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"


@dataclass
class Scene:
    stores: Stores
    replicas: ReplicaSet
    gangs: GangHoldings

    def order(self, gang: ReplicaId, want: Want = Want.READY, *, closing: bool = False) -> None:
        self.replicas.follow([ReplicaOrder(replica=gang, model=MODEL, gpus=(), want=want, closing=closing)])

    def report(self) -> ReplicaReport:
        (report,) = self.replicas.reports()
        return report

    async def until(self, phase: Phase, busy: int = 0) -> None:
        def there() -> bool:
            return (self.report().phase, self.report().busy) == (phase, busy)

        await wait_until(there, f"the gang to be {phase} with {busy} tasks")

    async def claim(self, gang: ReplicaId) -> Task:
        await self.stores.tasks.submit(make_task(), LIMITS)
        task = await self.stores.queue.claim(NAME, GangId(gang), LIMITS)
        assert task
        return task


@asynccontextmanager
async def scene(
    stores: Stores, bench: Bench, left: tuple[str, ...] = (), program: str = LIVE
) -> AsyncIterator[Scene]:
    async with open_door(stores) as door:
        gangs = GangHoldings(
            lambda gang: door.api(gang, NAME), {GangId(one): door.api(one, NAME) for one in left}
        )
        kit = ReplicaSetContext(
            LocalCommands(bench.state_dir / "logs"),
            bench.engine,
            bench.ledger,
            planner(bench.state_dir, program),
            GpuGate(tuple),
            bench.deadlines,
        )
        async with ReplicaSet(kit, gangs.changed) as replicas:
            tending = asyncio.create_task(gangs.run(replicas))
            try:
                yield Scene(stores, replicas, gangs)
            finally:
                tending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await tending


def planner(state_dir: Path, program: str) -> Callable[[ReplicaId, Model, tuple[int, ...]], Launch]:
    def plan(replica: ReplicaId, model: Model, gpus: tuple[int, ...]) -> Launch:
        ready = state_dir / f"{replica}.ready"
        argv = (sys.executable, "-c", program, str(ready))
        return Launch(argv, {}, grace_s=5.0, ready_file=ready, drains=True)

    return plan


def new_gang() -> ReplicaId:
    return ReplicaId(f"m-{os.urandom(4).hex()}-1")


async def test_what_a_gang_holds_is_its_load(stores: Stores, bench: Bench) -> None:
    gang = new_gang()
    async with scene(stores, bench) as here:
        here.order(gang)
        await here.until(Phase.READY)
        await here.claim(gang)
        await here.until(Phase.READY, busy=1)
        assert here.report().address is None, "it takes no requests"


async def test_a_closing_gang_keeps_its_task_and_gets_no_other_until_it_is_opened(
    stores: Stores, bench: Bench
) -> None:
    gang = new_gang()
    async with scene(stores, bench) as here:
        here.order(gang)
        await here.until(Phase.READY)
        await here.claim(gang)
        await stores.tasks.submit(make_task(), LIMITS)
        here.order(gang, closing=True)
        closed = stores.link.keys.closed(gang)

        async def is_closed() -> bool:
            return bool(await stores.link.client.exists(closed))

        await wait_until(is_closed, "the queue to be told")
        assert await stores.queue.claim(NAME, GangId(gang), LIMITS) is None
        await here.until(Phase.READY, busy=1)
        here.order(gang)
        await here.until(Phase.READY, busy=1)

        async def claims() -> bool:
            return await stores.queue.claim(NAME, GangId(gang), LIMITS) is not None

        await wait_until(claims, "it to be opened again")


async def test_what_a_killed_gang_held_is_put_back_at_once(stores: Stores, bench: Bench) -> None:
    gang = new_gang()
    async with scene(stores, bench) as here:
        here.order(gang)
        await here.until(Phase.READY)
        task = await here.claim(gang)
        for process in marked(gang):
            os.kill(process.pid, signal.SIGKILL)

        async def queued() -> bool:
            return (await stores.tasks.get(task.id)).state is State.QUEUED

        await wait_until(queued, "its task to be put back")
        await wait_until(lambda: here.report().phase is Phase.FAILED, "the gang to be given up")
        await here.gangs.tend(here.replicas)
        assert await stores.queue.holdings(NAME) == {}
    assert not list(bench.state_dir.glob("*.ready"))


async def test_a_busy_gang_that_is_told_to_go_is_asked_at_once(stores: Stores, bench: Bench) -> None:
    """It puts down by itself what it does: nobody waits for its task to end."""
    gang = new_gang()
    async with scene(stores, bench) as here:
        here.order(gang)
        await here.until(Phase.READY)
        task = await here.claim(gang)
        await here.until(Phase.READY, busy=1)
        async with asyncio.timeout(bench.deadlines.drain_s / 2):
            await here.replicas.drain()
        await here.gangs.tend(here.replicas)
        assert (await stores.tasks.get(task.id)).state is State.QUEUED


async def test_a_closed_gang_that_is_told_to_go_stays_closed(stores: Stores, bench: Bench) -> None:
    """Or it would take one more task on its way out, only to give it back."""
    gang = new_gang()
    async with scene(
        stores, bench, program=f"import signal; signal.signal(15, signal.SIG_IGN); {LIVE}"
    ) as here:
        here.order(gang)
        await here.until(Phase.READY)
        here.order(gang, closing=True)
        await here.gangs.tend(here.replicas)
        await stores.tasks.submit(make_task(), LIMITS)
        here.order(gang, Want.GONE)
        await here.gangs.tend(here.replicas)
        assert here.report().phase is Phase.STOPPING
        assert await stores.queue.claim(NAME, GangId(gang), LIMITS) is None


async def test_what_a_dead_worker_s_gangs_held_is_put_back_by_its_successor(
    stores: Stores, bench: Bench
) -> None:
    await stores.tasks.submit(make_task(), LIMITS)
    task = await stores.queue.claim(NAME, GangId("m-old-1"), LIMITS)
    assert task
    async with scene(stores, bench, ("m-old-1", "m-old-2")):

        async def queued() -> bool:
            return (await stores.tasks.get(task.id)).state is State.QUEUED

        await wait_until(queued, "the task to be put back")
    assert "the worker died" in str(await stores.events.history(task.id))
