"""The fleet's loop on a real registry, with workers that call it as a gateway would on their behalf."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.conftest import Stores, make_task, wait_until

from turnout.background import BackgroundLoops
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.fleet_rules import Rules
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.manager_loop import MUTEX, FleetManager
from turnout.fleet.model_rules import EngineKind, Model, Needs, Runner, Scaling, VideoPart
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import DemandReport, ModelRoutes
from turnout.fleet.status_rules import RUN_BY, ModelState, ModelStatus, StatusCause
from turnout.fleet.worker_rules import Enrolment, StoredHeartbeat
from turnout.run.run_manager import fleet_manager
from turnout.tasks.task_rules import GangId, Limits

RULES = Rules(
    suspect_s=1.0, gone_s=2.0, min_resident_s=1.0, settle_s=0.2, backoff_s=0.2, absent_s=1.0, freeing_s=2.0
)
GB = 10**9
CHAT = Model(
    "chat", EngineKind.LLAMACPP, "builtin:x", Needs(memory_bytes=6 * GB), scaling=Scaling(idle_s=60.0)
)
VIDEO = Model(
    "wan-tiny-t2v",
    EngineKind.VIDEO,
    "w",
    video=VideoPart(FAMILIES["wan-tiny-t2v"]),
    concurrency=1,
)
_numbers = itertools.count(1)


@dataclass
class SimulatedWorker:
    """Obeys as fast as it can. `killed` stops it without a word."""

    id: WorkerId
    stores: Stores
    replicas: dict[ReplicaId, Phase] = field(default_factory=dict)
    seen: int = 0
    fails: bool = False
    engines: frozenset[EngineKind] = frozenset(EngineKind)

    async def run(self) -> None:
        await self.stores.fleet.workers.enrol(Enrolment(self.id, self.id, f"http://{self.id}", "digest"))
        while True:
            free = 8 * GB - 6 * GB * sum(p is not Phase.FAILED for p in self.replicas.values())
            machine = Machine((), 8 * GB, free, engines=self.engines)
            reports = tuple(
                ReplicaReport(r, phase, "127.0.0.1:1", detail="no luck" if phase is Phase.FAILED else "")
                for r, phase in self.replicas.items()
            )
            await self.stores.fleet.workers.heard(self.id, StoredHeartbeat(machine, reports, self.seen))
            sheet = await self.stores.fleet.orders.wait(self.id, self.seen, 0.2)
            if sheet is not None:
                self.seen = sheet.version
                wanted = {a.replica for a in sheet.orders if a.want is not Want.GONE}
                self.replicas = {r: self.replicas.get(r, Phase.STARTING) for r in wanted}
            else:
                arrived = Phase.FAILED if self.fails else Phase.READY
                self.replicas = {r: arrived if p is Phase.STARTING else p for r, p in self.replicas.items()}


class Scene:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.workers: dict[str, tuple[SimulatedWorker, asyncio.Task[None]]] = {}
        self.routes: dict[str, ModelRoutes] = {}
        self.asks: dict[str, DemandReport] = {}

    def join(self, name: str, **more: Any) -> SimulatedWorker:
        worker = SimulatedWorker(WorkerId(name), self.stores, **more)
        self.workers[name] = (worker, asyncio.create_task(worker.run()))
        return worker

    def kill(self, name: str) -> SimulatedWorker:
        worker, task = self.workers.pop(name)
        task.cancel()
        return worker

    async def gateway(self) -> None:
        async for changed in self.stores.fleet.routes.tail():
            self.routes = {n: r for n, r in {**self.routes, **changed}.items() if r is not None}

    async def demand(self) -> None:
        while True:
            await self.stores.fleet.demand.report("g1", self.asks)
            await asyncio.sleep(0.2)

    def usable(self, model: str) -> list[str]:
        known = self.routes.get(model, ModelRoutes())
        return [route.worker for route in known.routes if route.usable]

    @asynccontextmanager
    async def managed(self, gangs_by: Runner = Runner.WORKER) -> AsyncIterator[FleetManager]:
        name, stores = f"m{next(_numbers)}", self.stores
        made = fleet_manager(stores, name, RULES, gangs_by)
        try:
            async with BackgroundLoops({"fleet": made.run}).running():
                yield made
        finally:
            await made.leave()


@pytest.fixture
async def scene(stores: Stores) -> AsyncIterator[Scene]:
    made = Scene(stores)
    helpers = [asyncio.create_task(made.gateway()), asyncio.create_task(made.demand())]
    yield made
    everyone = [*helpers, *(task for _, task in made.workers.values())]
    for task in everyone:
        task.cancel()
    ended = await asyncio.gather(*everyone, return_exceptions=True)
    assert all(isinstance(e, asyncio.CancelledError) for e in ended), ended


async def test_a_model_wakes_on_demand_and_its_route_is_published(scene: Scene) -> None:
    await scene.stores.fleet.models.put(CHAT)
    scene.join("w1")
    async with scene.managed():
        await wait_until(lambda: "chat" in scene.routes, "the model to be known")
        assert not scene.usable("chat")
        scene.asks = {"chat": DemandReport(waiting=3)}
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
        await scene.stores.fleet.models.remove("chat")
        await wait_until(lambda: "chat" not in scene.routes, "the route to go")
        await wait_until(lambda: not scene.workers["w1"][0].replicas, "the replica to go")


async def test_a_new_manager_goes_on_where_the_last_one_stopped(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    worker = scene.join("w1")
    async with scene.managed():
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
    before = dict(worker.replicas)
    async with scene.managed() as second:
        await wait_until(lambda: _held_by(scene, second.id), "the second manager to work")
        await asyncio.sleep(1.0)

        async def served() -> bool:
            status = (await scene.stores.fleet.status.statuses())["chat"]
            return scene.usable("chat") == ["w1"] and status == ModelStatus(ModelState.READY, replicas=1)

        await wait_until(served, "the model to be ready still")
        assert worker.replicas == before


async def _held_by(scene: Scene, owner: str) -> bool:
    return await scene.stores.mutex.holder(MUTEX) == owner


async def test_of_two_managers_one_writes_and_the_other_follows_when_it_dies(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    scene.join("w1")
    async with scene.managed() as second:
        await wait_until(lambda: _held_by(scene, second.id), "the first of them to work")
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
        # Another one that believes to hold the right cannot write.
        rival = fleet_manager(scene.stores, "rival", RULES)
        job = asyncio.create_task(rival.run())
        await asyncio.sleep(0.7)
        [replica] = (await scene.stores.fleet.manager_state.saved()).replicas
        assert replica.startswith(second.id)
    await wait_until(lambda: _held_by(scene, "rival"), "the rival to take over")
    await scene.stores.fleet.models.put(
        replace(
            CHAT, name="other", needs=Needs(memory_bytes=GB), scaling=replace(CHAT.scaling, min_replicas=1)
        )
    )
    await wait_until(lambda: scene.usable("other") == ["w1"], "the rival's own decision")
    assert scene.usable("chat") == ["w1"]
    job.cancel()


async def test_a_dead_worker_s_replica_moves_and_does_not_come_back(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    scene.join("w1")
    async with scene.managed():
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
        scene.join("w2")
        dead = scene.kill("w1")
        await wait_until(lambda: scene.usable("chat") == ["w2"], "the replica to move")
        assert dead.replicas
        scene.workers["w1"] = (dead, asyncio.create_task(dead.run()))
        await wait_until(lambda: not dead.replicas, "the old replica to be put away")
        assert scene.usable("chat") == ["w2"]


async def test_a_failing_model_is_given_up_with_its_reason(scene: Scene) -> None:
    await scene.stores.fleet.models.put(CHAT)
    scene.join("w1", fails=True)
    scene.asks = {"chat": DemandReport(waiting=1)}
    async with scene.managed():
        await wait_until(
            lambda: "no luck" in (scene.routes.get("chat", ModelRoutes()).refusal or ""), "a refusal"
        )


async def test_a_gateway_that_died_asks_for_nothing(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, idle_s=0.5)))
    worker = scene.join("w1")
    await scene.stores.fleet.demand.report("dead", {"chat": DemandReport(running=5)})
    async with scene.managed():
        await wait_until(lambda: bool(worker.replicas), "a start")
        await wait_until(lambda: not worker.replicas, "the demand to lapse and the replica to go")


async def test_video_tasks_wake_their_model(scene: Scene) -> None:
    video = Model("wan-tiny-t2v", EngineKind.VIDEO, "builtin:x", Needs(memory_bytes=GB), concurrency=1)
    await scene.stores.fleet.models.put(video)
    worker = scene.join("w1")
    async with scene.managed():
        await scene.stores.tasks.submit(make_task(), Limits())
        await wait_until(lambda: Phase.READY in worker.replicas.values(), "the gang")


async def test_a_video_model_is_woken_by_an_admin_and_stopped_without_a_gateway(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(VIDEO, needs=Needs(memory_bytes=GB), video=None))
    worker = scene.join("w1")
    async with scene.managed():
        await scene.stores.fleet.demand.wish("wan-tiny-t2v", stop=False)
        await wait_until(lambda: list(worker.replicas.values()) == [Phase.READY], "the gang")
        await scene.stores.fleet.demand.wish("wan-tiny-t2v", stop=True)
        await wait_until(lambda: not worker.replicas, "its end")


@pytest.mark.parametrize(
    ("runner", "gangs_by"),
    [(None, Runner.RAY), (Runner.RAY, Runner.WORKER), (Runner.EXTERNAL, Runner.WORKER), (Runner.JOB, Runner.WORKER)],
)  # fmt: skip
async def test_models_that_others_look_after_get_no_replica_and_are_not_given_up(
    scene: Scene, runner: Runner | None, gangs_by: Runner
) -> None:
    part = VideoPart(FAMILIES["wan-tiny-t2v"], runner=runner)
    await scene.stores.fleet.models.put(
        replace(VIDEO, video=part, scaling=replace(VIDEO.scaling, min_replicas=1))
    )
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    await scene.stores.tasks.submit(make_task(), Limits())
    scene.join("w1", engines=frozenset({EngineKind.LLAMACPP}))
    async with scene.managed(gangs_by):
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
        assert scene.usable("wan-tiny-t2v") == []
        assert await scene.stores.fleet.status.given_up() == {}
        status = (await scene.stores.fleet.status.statuses())["wan-tiny-t2v"]
        assert status == ModelStatus(ModelState.STOPPED, RUN_BY[part.run_by(gangs_by)])


async def test_a_model_that_others_run_is_ready_when_one_of_its_gangs_says_so(scene: Scene) -> None:
    await scene.stores.fleet.models.put(
        replace(VIDEO, video=VideoPart(FAMILIES["wan-tiny-t2v"], runner=Runner.EXTERNAL))
    )
    report = GangReport(GangId("pod-0"), "wan-tiny-t2v", 0, since=0, at=0, ready_at=1.0)

    async def ready() -> bool:
        await scene.stores.fleet.gangs.put(report)
        found = (await scene.stores.fleet.status.statuses()).get("wan-tiny-t2v")
        return found == ModelStatus(ModelState.READY, StatusCause.RUN_BY_OTHERS, replicas=1)

    async with scene.managed():
        await wait_until(ready, "the model to be ready")


async def test_gateways_know_the_models_that_others_look_after(scene: Scene) -> None:
    await scene.stores.fleet.models.put(VIDEO)
    for _ in range(2):  # a manager that takes over does not take them back
        async with scene.managed(Runner.RAY):
            await wait_until(lambda: "wan-tiny-t2v" in scene.routes, "gateways to know it")
            assert scene.routes["wan-tiny-t2v"] == ModelRoutes(video=True)
    async with scene.managed(Runner.RAY):
        await scene.stores.fleet.models.remove("wan-tiny-t2v")
        await wait_until(lambda: not scene.routes, "gateways to forget it")


async def test_a_draining_worker_empties(scene: Scene) -> None:
    await scene.stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    worker = scene.join("w1")
    async with scene.managed():
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route")
        await scene.stores.fleet.workers.set_draining(worker.id, True)
        await wait_until(lambda: not worker.replicas, "the worker to be empty")
        await scene.stores.fleet.workers.set_draining(worker.id, False)
        await wait_until(lambda: scene.usable("chat") == ["w1"], "a route again")
