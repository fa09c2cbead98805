"""The registry's contract, on a real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.conftest import Stores, wait_until

from turnout.adapters.redis.registry import RedisRegistry
from turnout.domain.errors import NotFound, TurnoutError
from turnout.domain.fleet import Failures, GivenUp, ModelPressure, Notes
from turnout.domain.model_status import ModelState, ModelStatus, StatusCause
from turnout.domain.serving import (
    Beat,
    Closing,
    DemandReport,
    EngineKind,
    Enrolment,
    Gpu,
    Machine,
    ModelRoutes,
    Needs,
    OrderSheet,
    Phase,
    Replica,
    ReplicaId,
    ReplicaOrder,
    ReplicaReport,
    Route,
    ServedModel,
    Want,
    WorkerId,
)
from turnout.ports import Publication, Registry

MODEL = ServedModel("chat", EngineKind.LLAMACPP, "builtin:smollm2", Needs(memory_bytes=10**9))
W = WorkerId("w1")
MACHINE = Machine((Gpu(0, 80, 70, "H"),), 64, 60, 8, frozenset({"chat"}))
BEAT = Beat(MACHINE, (ReplicaReport(ReplicaId("r1"), Phase.READY, "127.0.0.1:9", 2, ""),), seen=3)
REPLICA = Replica(
    ReplicaId("r1"),
    "chat",
    W,
    (0,),
    MODEL.needs,
    Want.READY,
    Phase.READY,
    1.0,
    2.0,
    3.0,
    MODEL,
    busy=1,
    ready_at=2.0,
    heard=True,
    closing=Closing(4.0, Want.GONE, "idle"),
)
SHEET = OrderSheet(4, (ReplicaOrder(ReplicaId("r1"), MODEL, (0,), Want.READY),))
ROUTES = ModelRoutes((Route(ReplicaId("r1"), W, "http://w1", "127.0.0.1:9"),), 8)


@pytest.fixture
async def registry(stores: Stores) -> AsyncIterator[Registry]:
    await stores.mutex.hold("fleet", "m1", 60)
    yield RedisRegistry(stores.link)


async def enrol(registry: Registry, worker: WorkerId = W) -> None:
    await registry.enrol(Enrolment(worker, "one", "http://w1", "digest"))


async def test_models_are_kept_changed_and_removed(registry: Registry) -> None:
    await registry.put_model(MODEL)
    await registry.put_model(replace(MODEL, idle_s=5.0, arguments=("--x", "1")))
    assert (await registry.model("chat")).idle_s == 5.0
    assert list(await registry.models()) == ["chat"]
    assert await registry.remove_model("chat") and not await registry.remove_model("chat")
    with pytest.raises(NotFound):
        await registry.model("chat")


async def test_a_heartbeat_has_a_number_that_grows(registry: Registry) -> None:
    with pytest.raises(NotFound):
        await registry.heard(W, BEAT)
    await enrol(registry)
    first, second = await registry.heard(W, BEAT), await registry.heard(W, BEAT)
    assert 0 < first < second
    assert await registry.beats([W, WorkerId("w2")]) == {W: replace(BEAT, seq=second)}


async def test_a_worker_that_registers_again_still_drains(registry: Registry) -> None:
    await enrol(registry)
    await registry.set_draining(W, True)
    await registry.enrol(Enrolment(W, "one", "http://other", "digest2"))
    assert list(await registry.enrolments([W, WorkerId("w9")])) == list(await registry.enrolments()) == [W]
    assert await registry.enrolled(W) == Enrolment(W, "one", "http://other", "digest2", draining=True)
    with pytest.raises(NotFound):
        await registry.set_draining(WorkerId("nobody"), True)


async def test_what_belongs_to_a_worker_or_gateway_lapses(registry: Registry, stores: Stores) -> None:
    await enrol(registry)
    await registry.heard(W, BEAT)
    await registry.publish("fleet", "m1", Publication(orders={W: SHEET}))
    await registry.report_demand("g1", {"chat": DemandReport(1)})
    client, key = stores.link.client, stores.link.key
    for name in ("worker:w1", "beat:w1", "orders:w1", "demand:g1"):
        assert await client.pttl(key("fleet", name)) > 0, name
    await client.delete(key("fleet", "worker:w1"), key("fleet", "demand:g1"))
    assert await registry.enrolments() == {} and await registry.demand() == {}
    assert not await client.exists(key("fleet", "workers")) and not await client.exists(
        key("fleet", "gateways")
    )


async def test_orders_that_were_never_given_are_not_empty_orders(registry: Registry) -> None:
    assert await registry.orders(W) is None
    assert await registry.wait_orders(W, 0, 0.05) is None


async def test_one_who_waits_gets_new_orders_at_once(registry: Registry) -> None:
    await registry.publish("fleet", "m1", Publication(orders={W: SHEET}))
    assert await registry.wait_orders(W, 3, 5) == SHEET
    began = time.monotonic()
    waiting = asyncio.create_task(registry.wait_orders(W, SHEET.version, 20))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await registry.publish("fleet", "m1", Publication(orders={W: OrderSheet(5)}))
    assert await waiting == OrderSheet(5)
    assert time.monotonic() - began < 1.5


async def test_many_wait_on_one_connection_and_each_is_woken(registry: Registry) -> None:
    """Far more waiters than the pool has connections; the one that reads is cancelled on the way."""
    workers = [WorkerId(f"w{n}") for n in range(200)]
    sheets = {w: OrderSheet(1) for w in workers}
    await registry.publish("fleet", "m1", Publication(orders=sheets))
    waiting = {w: asyncio.create_task(registry.wait_orders(w, 1, 30)) for w in workers}
    await asyncio.sleep(0.3)
    waiting.pop(workers[0]).cancel()
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await registry.publish("fleet", "m1", Publication(orders={w: OrderSheet(2) for w in waiting}))
    assert set(await asyncio.gather(*waiting.values())) == {OrderSheet(2)}
    assert time.monotonic() - began < 1.9  # woken, not found out by looking again


async def test_routes_come_whole_and_then_as_they_change(registry: Registry) -> None:
    await registry.publish("fleet", "m1", Publication(routes={"chat": ROUTES}))
    tail = registry.tail_routes()
    assert await anext(tail) == {"chat": ROUTES}
    closed = replace(ROUTES, routes=(replace(ROUTES.routes[0], closing=True),), refusal="no")
    await registry.publish("fleet", "m1", Publication(routes={"chat": closed}, orders={W: SHEET}))
    assert await asyncio.wait_for(anext(tail), 5) == {"chat": closed}
    await registry.publish("fleet", "m1", Publication(routes={"chat": None}))
    assert await asyncio.wait_for(anext(tail), 5) == {"chat": None}


async def test_a_manager_without_its_right_writes_nothing(registry: Registry) -> None:
    statuses = {"chat": ModelStatus(ModelState.WAITING, StatusCause.ROOM_BEING_MADE, for_s=3.5, by=("b",))}
    publication = Publication({REPLICA.id: REPLICA}, {W: SHEET}, {"chat": ROUTES}, statuses=statuses)
    assert not await registry.publish("fleet", "m2", publication)
    assert not (await registry.saved()).replicas and await registry.orders(W) is None
    assert await registry.publish("fleet", "m1", publication)
    assert await registry.statuses() == statuses


async def test_what_a_manager_saved_is_what_the_next_one_finds(registry: Registry) -> None:
    notes = Notes(7.0, {"chat": ModelPressure(1.0)}, {"chat": Failures(2, "x", 9.0)}, {"chat": GivenUp("y")})
    await registry.publish("fleet", "m1", Publication({REPLICA.id: REPLICA}, {W: SHEET}, notes=notes))
    saved = await registry.saved()
    assert saved.replicas == {REPLICA.id: REPLICA} and saved.versions == {W: 4} and saved.notes == notes
    await registry.publish("fleet", "m1", Publication({REPLICA.id: None}, {W: None}))
    saved = await registry.saved()
    assert not saved.replicas and not saved.versions and await registry.orders(W) is None


async def test_news_names_what_changed(registry: Registry) -> None:
    await enrol(registry)
    news = await registry.wait_news("", 1)
    assert news.models
    assert await registry.wait_news(news.cursor, 0.05) == replace(news, models=False)
    await registry.heard(W, BEAT)
    await registry.report_demand("g1", {"chat": DemandReport(1, 2, 0.5)})
    news = await registry.wait_news(news.cursor, 1)
    assert (news.workers, news.gateways, news.models) == ({W}, {"g1"}, False)
    await registry.put_model(MODEL)
    assert (await registry.wait_news(news.cursor, 1)).models


async def test_demand_is_per_gateway_and_numbered(registry: Registry) -> None:
    await registry.report_demand("g1", {"chat": DemandReport(1, 2, 0.5)})
    await registry.report_demand("g1", {"chat": DemandReport(0, 1, 0.1)})
    await registry.report_demand("g2", {})
    assert await registry.demand() == {"g1": (2, {"chat": DemandReport(0, 1, 0.1)}), "g2": (1, {})}


async def test_waiting_survives_a_lost_connection(registry: Registry, stores: Stores) -> None:
    await registry.publish("fleet", "m1", Publication(orders={W: SHEET}))
    waiting = asyncio.create_task(registry.wait_orders(W, SHEET.version, 20))
    await asyncio.sleep(0.2)
    await stores.link.client.connection_pool.disconnect()
    try:
        await asyncio.wait_for(asyncio.shield(waiting), 0.5)
    except (TurnoutError, TimeoutError):  # the one that read may be told; the next call works
        waiting.cancel()
    await registry.publish("fleet", "m1", Publication(orders={W: OrderSheet(9)}))
    assert await registry.wait_orders(W, SHEET.version, 5) == OrderSheet(9)
    await wait_until(waiting.done, "the first to end")


async def test_what_the_configuration_no_longer_names_leaves_and_what_was_registered_stays(
    registry: Registry,
) -> None:
    kept, dropped, taken_over = (replace(MODEL, name=name) for name in ("kept", "dropped", "taken over"))
    assert await registry.declare_models([kept, dropped, taken_over]) == []
    await registry.put_model(replace(MODEL, name="registered"))
    await registry.put_model(replace(taken_over, concurrency=3))
    assert await registry.declare_models([replace(kept, concurrency=2)]) == ["dropped"]
    found = await registry.models()
    assert sorted(found) == ["kept", "registered", "taken over"]
    assert (found["kept"].concurrency, found["taken over"].concurrency) == (2, 3)
    assert await registry.remove_model("kept")
    assert await registry.declare_models([]) == [], "it was removed by hand already"
