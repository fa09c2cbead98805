"""The contracts of the stores that gateways, workers and the manager share, on a real server."""

import asyncio
from dataclasses import replace

import pytest
from tests.conftest import Stores, wait_until
from tests.pace import patient

from turnout.errors import NotFound, TurnoutError
from turnout.fleet.fleet_rules import Failures, GivenUp, ModelHistory, ModelPressure
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, ReplicaOrder, ReplicaReport, Want
from turnout.fleet.route_rules import DemandReport, ModelRoutes, Route
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause
from turnout.fleet.worker_rules import Enrolment, OrderSheet, StoredHeartbeat
from turnout.store import shared_read

MODEL = Model("chat", EngineKind.LLAMACPP, "builtin:smollm2", Needs(memory_bytes=10**9))
W = WorkerId("w1")
MACHINE = Machine((Gpu(0, 80, 70, "H"),), 64, 60, 8, frozenset({"chat"}))
HEARTBEAT = StoredHeartbeat(
    MACHINE, (ReplicaReport(ReplicaId("r1"), Phase.READY, "127.0.0.1:9", 2, ""),), seen=3
)
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


@pytest.fixture(autouse=True)
async def manager(stores: Stores) -> None:
    """The manager m1 holds its right."""
    await stores.mutex.hold("fleet", "m1", 60)


async def enrol(stores: Stores, worker: WorkerId = W) -> None:
    await stores.fleet.workers.enrol(Enrolment(worker, "one", "http://w1", "digest"))


async def test_models_are_kept_changed_and_removed(stores: Stores) -> None:
    await stores.fleet.models.put(MODEL)
    await stores.fleet.models.put(
        replace(
            MODEL,
            scaling=replace(MODEL.scaling, idle_s=5.0),
            server=replace(MODEL.server, arguments=("--x", "1")),
        )
    )
    assert (await stores.fleet.models.get("chat")).scaling.idle_s == 5.0
    assert list(await stores.fleet.models.all()) == ["chat"]
    assert await stores.fleet.models.remove("chat") and not await stores.fleet.models.remove("chat")
    with pytest.raises(NotFound):
        await stores.fleet.models.get("chat")


async def test_a_heartbeat_has_a_number_that_grows(stores: Stores) -> None:
    with pytest.raises(NotFound):
        await stores.fleet.workers.heard(W, HEARTBEAT)
    await enrol(stores)
    first, second = (
        await stores.fleet.workers.heard(W, HEARTBEAT),
        await stores.fleet.workers.heard(W, HEARTBEAT),
    )
    assert 0 < first < second
    found = await stores.fleet.workers.heartbeats([W, WorkerId("w2")])
    assert {worker: replace(beat, ago_s=0.0) for worker, beat in found.items()} == {
        W: replace(HEARTBEAT, seq=second)
    }


async def test_a_worker_that_registers_again_still_drains(stores: Stores) -> None:
    await enrol(stores)
    await stores.fleet.workers.set_draining(W, True)
    await stores.fleet.workers.enrol(Enrolment(W, "one", "http://other", "digest2"))
    assert (
        list(await stores.fleet.workers.enrolments([W, WorkerId("w9")]))
        == list(await stores.fleet.workers.enrolments())
        == [W]
    )
    assert await stores.fleet.workers.enrolled(W) == Enrolment(
        W, "one", "http://other", "digest2", draining=True
    )
    with pytest.raises(NotFound):
        await stores.fleet.workers.set_draining(WorkerId("nobody"), True)


async def test_what_belongs_to_a_worker_or_gateway_lapses(stores: Stores) -> None:
    await enrol(stores)
    await stores.fleet.workers.heard(W, HEARTBEAT)
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={W: SHEET}))
    await stores.fleet.demand.report("g1", {"chat": DemandReport(1)})
    client, keys = stores.link.client, stores.link.keys
    for key in (keys.worker(W), keys.heartbeat(W), keys.orders(W), keys.demand("g1")):
        assert await client.pttl(key) > 0, key
    await client.delete(keys.worker(W), keys.demand("g1"))
    assert await stores.fleet.workers.enrolments() == {} and await stores.fleet.demand.all() == {}
    assert not await client.exists(keys.workers(), keys.gateways())


async def test_orders_that_were_never_given_are_not_empty_orders(stores: Stores) -> None:
    assert await stores.fleet.orders.get(W) is None
    assert await stores.fleet.orders.wait(W, 0, 0.05) is None


@pytest.fixture
def woken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is woken, or waits until the test is given up: it does not look again by itself."""
    monkeypatch.setattr(shared_read, "_MAX_WAIT_S", 3600.0)


@pytest.mark.usefixtures("woken_alone")
async def test_one_who_waits_gets_new_orders_at_once(stores: Stores) -> None:
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={W: SHEET}))
    assert await stores.fleet.orders.wait(W, 3, 5) == SHEET
    waiting = asyncio.create_task(stores.fleet.orders.wait(W, SHEET.version, 3600))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={W: OrderSheet(5)}))
    assert await asyncio.wait_for(waiting, patient(20)) == OrderSheet(5)


@pytest.mark.usefixtures("woken_alone")
async def test_many_wait_on_one_connection_and_each_is_woken(stores: Stores) -> None:
    """Far more waiters than the pool has connections; the one that reads is cancelled on the way."""
    workers = [WorkerId(f"w{n}") for n in range(200)]
    sheets = {w: OrderSheet(1) for w in workers}
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders=sheets))
    waiting = {w: asyncio.create_task(stores.fleet.orders.wait(w, 1, 3600)) for w in workers}
    await asyncio.sleep(0.3)
    waiting.pop(workers[0]).cancel()
    await asyncio.sleep(0.05)
    await stores.fleet.manager_state.publish(
        "fleet", "m1", Publication(orders={w: OrderSheet(2) for w in waiting})
    )
    woken = await asyncio.wait_for(asyncio.gather(*waiting.values()), patient(20))
    assert set(woken) == {OrderSheet(2)}


async def test_routes_come_whole_and_then_as_they_change(stores: Stores) -> None:
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(routes={"chat": ROUTES}))
    tail = stores.fleet.routes.tail()
    assert await anext(tail) == {"chat": ROUTES}
    closed = replace(ROUTES, routes=(replace(ROUTES.routes[0], closing=True),), refusal="no")
    await stores.fleet.manager_state.publish(
        "fleet", "m1", Publication(routes={"chat": closed}, orders={W: SHEET})
    )
    assert await asyncio.wait_for(anext(tail), patient(5)) == {"chat": closed}
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(routes={"chat": None}))
    assert await asyncio.wait_for(anext(tail), patient(5)) == {"chat": None}


async def test_a_manager_without_its_right_writes_nothing(stores: Stores) -> None:
    statuses = {"chat": ModelStatus(ModelState.WAITING, StatusCause.ROOM_BEING_MADE, for_s=3.5, by=("b",))}
    publication = Publication({REPLICA.id: REPLICA}, {W: SHEET}, {"chat": ROUTES}, statuses=statuses)
    assert not await stores.fleet.manager_state.publish("fleet", "m2", publication)
    assert (
        not (await stores.fleet.manager_state.saved()).replicas and await stores.fleet.orders.get(W) is None
    )
    assert await stores.fleet.manager_state.publish("fleet", "m1", publication)
    assert await stores.fleet.status.statuses() == statuses


async def test_what_a_manager_saved_is_what_the_next_one_finds(stores: Stores) -> None:
    notes = ModelHistory(
        7.0, {"chat": ModelPressure(1.0)}, {"chat": Failures(2, "x", 9.0)}, {"chat": GivenUp("y")}
    )
    await stores.fleet.manager_state.publish(
        "fleet", "m1", Publication({REPLICA.id: REPLICA}, {W: SHEET}, history=notes)
    )
    saved = await stores.fleet.manager_state.saved()
    assert saved.replicas == {REPLICA.id: REPLICA} and saved.versions == {W: 4} and saved.history == notes
    await stores.fleet.manager_state.publish("fleet", "m1", Publication({REPLICA.id: None}, {W: None}))
    saved = await stores.fleet.manager_state.saved()
    assert not saved.replicas and not saved.versions and await stores.fleet.orders.get(W) is None


async def test_news_names_what_changed(stores: Stores) -> None:
    await enrol(stores)
    news = await stores.fleet.manager_state.wait_changes("", 1)
    assert news.models
    assert await stores.fleet.manager_state.wait_changes(news.cursor, 0.05) == replace(news, models=False)
    await stores.fleet.workers.heard(W, HEARTBEAT)
    await stores.fleet.demand.report("g1", {"chat": DemandReport(1, 2, 0.5)})
    news = await stores.fleet.manager_state.wait_changes(news.cursor, 1)
    assert (news.workers, news.gateways, news.models) == ({W}, {"g1"}, False)
    await stores.fleet.models.put(MODEL)
    assert (await stores.fleet.manager_state.wait_changes(news.cursor, 1)).models


async def test_demand_is_per_gateway_and_numbered(stores: Stores) -> None:
    await stores.fleet.demand.report("g1", {"chat": DemandReport(1, 2, 0.5)})
    await stores.fleet.demand.report("g1", {"chat": DemandReport(0, 1, 0.1)})
    await stores.fleet.demand.report("g2", {})
    assert await stores.fleet.demand.all() == {"g1": (2, {"chat": DemandReport(0, 1, 0.1)}), "g2": (1, {})}


async def test_an_admins_wish_to_stop_ends_with_the_next_request_that_waits(stores: Stores) -> None:
    news = await stores.fleet.manager_state.wait_changes("", 1)
    await stores.fleet.demand.wish("chat", stop=True)
    await stores.fleet.demand.wish("video", stop=False)
    assert (await stores.fleet.manager_state.wait_changes(news.cursor, 1)).gateways, "the manager is woken"
    await stores.fleet.demand.report("g1", {"chat": DemandReport(running=1), "video": DemandReport(1)})
    assert {(w.model, w.stop) for w in await stores.fleet.demand.wishes()} == {
        ("chat", True),
        ("video", False),
    }
    await stores.fleet.demand.report("g1", {"chat": DemandReport(waiting=1)})
    (left,) = await stores.fleet.demand.wishes()
    assert (left.model, left.stop) == ("video", False) and 0 <= left.ago_s < 5
    assert await stores.fleet.demand.gateways() == ["g1"], "a wish is no gateway"
    await stores.link.client.zadd(stores.link.keys.wishes(), {"wake:video": 1.0})
    assert await stores.fleet.demand.wishes() == [], "it lapses"


async def test_waiting_survives_a_lost_connection(stores: Stores) -> None:
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={W: SHEET}))
    waiting = asyncio.create_task(stores.fleet.orders.wait(W, SHEET.version, 20))
    await asyncio.sleep(0.2)
    await stores.link.client.connection_pool.disconnect()
    try:
        await asyncio.wait_for(asyncio.shield(waiting), 0.5)
    except (TurnoutError, TimeoutError):  # the one that read may be told; the next call works
        waiting.cancel()
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={W: OrderSheet(9)}))
    assert await stores.fleet.orders.wait(W, SHEET.version, 5) == OrderSheet(9)
    await wait_until(waiting.done, "the first to end")


async def test_what_the_configuration_no_longer_names_leaves_and_what_was_registered_stays(
    stores: Stores,
) -> None:
    kept, dropped, taken_over = (replace(MODEL, name=name) for name in ("kept", "dropped", "taken over"))
    assert await stores.fleet.models.declare([kept, dropped, taken_over]) == []
    await stores.fleet.models.put(replace(MODEL, name="registered"))
    await stores.fleet.models.put(replace(taken_over, concurrency=3))
    assert await stores.fleet.models.declare([replace(kept, concurrency=2)]) == ["dropped"]
    found = await stores.fleet.models.all()
    assert sorted(found) == ["kept", "registered", "taken over"]
    assert (found["kept"].concurrency, found["taken over"].concurrency) == (2, 3)
    assert await stores.fleet.models.remove("kept")
    assert await stores.fleet.models.declare([]) == [], "it was removed by hand already"
