"""Who gets a seat, who waits, and that no seat is ever lost."""

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.chat.routing_rules import choose
from turnout.chat.switchboard import Seat, Switchboard
from turnout.errors import InvalidRequest, Limited, NotFound, Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Demand, ModelRoutes, Route
from turnout.tasks.task_rules import TenantId

ACME, BOLT = TenantId("acme"), TenantId("bolt")
A, B = ReplicaId("a"), ReplicaId("b")


def route(name: str) -> Route:
    return Route(ReplicaId(name), WorkerId("w"), "http://w", None)


def board(
    *replicas: str,
    concurrency: int = 2,
    patience_s: float = 5.0,
    max_waiting: int = 10,
    retry_s: float = 60.0,
) -> Switchboard:
    made = Switchboard(time.monotonic, max_waiting, patience_s, retry_s)
    made.update({"m": ModelRoutes(tuple(map(route, replicas)), concurrency)})
    return made


async def waiters(
    switchboard: Switchboard, count: int, tenant: TenantId = ACME, tried: frozenset[ReplicaId] = frozenset()
) -> list[asyncio.Task[Seat]]:
    before = switchboard.demand().get("m", Demand()).waiting
    tasks = [asyncio.create_task(switchboard.wait("m", tenant, None, tried)) for _ in range(count)]
    while switchboard.demand().get("m", Demand()).waiting < before + count:
        await asyncio.sleep(0)
    return tasks


async def test_a_model_that_is_awake_gives_a_seat_at_once() -> None:
    switchboard = board("a")
    seat = switchboard.take("m", None)
    assert seat
    assert (switchboard.demand()["m"].waiting, switchboard.demand()["m"].running) == (0, 1)
    seat.release()
    seat.release()
    assert switchboard.demand()["m"].running == 0


async def test_a_cold_model_seats_all_who_waited_once_it_is_awake() -> None:
    switchboard = board(concurrency=200)
    tasks = await waiters(switchboard, 10)
    assert switchboard.changed.is_set()
    switchboard.update({"m": ModelRoutes((route("a"),), 200)})
    seats = await asyncio.gather(*tasks)
    assert {p.route.replica for p in seats} == {"a"}


async def test_the_line_is_served_in_order_and_nobody_jumps_it() -> None:
    switchboard = board("a", concurrency=1)
    held = switchboard.take("m", None)
    assert held
    first, second = await waiters(switchboard, 2)
    held.release()
    assert switchboard.take("m", None) is None, "others wait already"
    seat = await first
    assert not second.done()
    seat.release()
    (await second).release()


async def test_a_full_line_refuses() -> None:
    switchboard = board(max_waiting=1)
    (task,) = await waiters(switchboard, 1)
    with pytest.raises(Limited):
        await switchboard.wait("m", ACME, None)
    task.cancel()


async def test_past_the_deadline_a_wait_ends_with_when_to_come_back() -> None:
    switchboard = board(patience_s=0.02)
    with pytest.raises(Unavailable) as refused:
        await switchboard.wait("m", ACME, None)
    assert refused.value.retry_after_s == 30
    assert switchboard.demand()["m"].waiting == 0


async def test_a_model_that_was_given_up_refuses_those_who_wait_and_those_who_come() -> None:
    switchboard = board()
    (task,) = await waiters(switchboard, 1)
    switchboard.update({"m": ModelRoutes((), 2, "no worker has 4 GPUs")})
    with pytest.raises(Unavailable, match="m cannot be served: no worker has 4 GPUs"):
        await task
    with pytest.raises(Unavailable):
        switchboard.take("m", None)


async def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(NotFound):
        board("a").take("nope", None)


async def test_a_replica_that_failed_is_put_aside() -> None:
    switchboard = board("a", "b", concurrency=50)
    seat = switchboard.take("m", b"key")
    assert seat
    failed = seat.route.replica
    seat.release(failed=True)
    others = [switchboard.take("m", b"key") for _ in range(5)]
    assert all(p and p.route.replica != failed for p in others)


async def test_who_is_cancelled_at_the_moment_of_waking_takes_no_seat() -> None:
    switchboard = board()
    [leaving, staying] = await waiters(switchboard, 2)
    leaving.cancel()
    switchboard.update({"m": ModelRoutes((route("a"),), 2)})
    seat = await staying
    assert switchboard.demand()["m"].running == 1
    seat.release()
    assert switchboard.demand()["m"].running == 0


async def test_no_seat_is_lost_whatever_clients_do() -> None:
    chance = random.Random(1)
    switchboard = board("a", "b", concurrency=2, patience_s=0.05, max_waiting=30)

    async def client() -> None:
        try:
            seat = await switchboard.wait("m", ACME, chance.choice([None, b"x"]))
        except (Unavailable, Limited):
            return
        try:
            await asyncio.sleep(chance.uniform(0, 0.01))
        finally:
            seat.release(failed=chance.random() < 0.2)

    tasks = [asyncio.create_task(client()) for _ in range(300)]
    for task in chance.sample(tasks, 120):
        await asyncio.sleep(chance.uniform(0, 0.002))
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    demand = switchboard.demand()["m"]
    assert (demand.waiting, demand.running) == (0, 0)
    assert switchboard.take("m", None)


async def test_a_request_that_a_replica_failed_waits_for_another_and_holds_nobody_up() -> None:
    switchboard = board("a", concurrency=1)
    held = switchboard.take("m", None)
    assert held
    (retried,) = await waiters(switchboard, 1, tried=frozenset({A}))
    (other,) = await waiters(switchboard, 1)
    held.release()
    assert (await other).route.replica == "a"
    assert not retried.done()
    switchboard.update({"m": ModelRoutes((route("a"), route("b")), 1)})
    assert (await retried).route.replica == "b"


async def test_a_gateway_that_just_began_keeps_requests_waiting_until_it_knows_the_models() -> None:
    switchboard = Switchboard(time.monotonic)
    known, unknown = (asyncio.create_task(switchboard.wait(model, ACME, None)) for model in ("m", "nope"))
    await asyncio.sleep(0)
    switchboard.update({"m": ModelRoutes((route("a"),), 1)})
    assert (await known).route.replica == "a"
    with pytest.raises(NotFound):
        await unknown
    assert list(switchboard.demand()) == ["m"], "nothing is kept of a model that is not there"


async def test_a_video_model_takes_no_requests_and_is_not_woken_by_them() -> None:
    switchboard = board()
    switchboard.update({"m": ModelRoutes(video=True)})
    with pytest.raises(InvalidRequest, match="/v1/videos"):
        switchboard.take("m", None)
    assert switchboard.demand() == {}


async def test_a_request_that_the_only_replica_failed_holds_nobody_up() -> None:
    switchboard = board("a", concurrency=1)
    (retried,) = await waiters(switchboard, 1, tried=frozenset({A}))
    for _ in range(3):
        newcomer = switchboard.take("m", None)
        assert newcomer, "the replica is idle"
        newcomer.release()
    assert not retried.done()
    retried.cancel()


async def test_after_a_while_a_request_may_go_back_to_the_replica_that_failed_it() -> None:
    switchboard = board("a", retry_s=0.01)
    seat = await switchboard.wait("m", ACME, None, frozenset({A}))
    assert seat.route.replica == "a"


async def test_a_request_goes_back_to_no_replica_that_is_not_routed_to() -> None:
    switchboard = board(retry_s=0.01, patience_s=0.1)
    switchboard.update({"m": ModelRoutes((Route(A, WorkerId("w"), "http://w", None, suspect=True),), 2)})
    with pytest.raises(Unavailable, match="not ready within"):
        await switchboard.wait("m", ACME, None, frozenset({A}))


async def test_tenants_take_turns() -> None:
    switchboard = board("a", concurrency=1)
    held = switchboard.take("m", None)
    assert held
    backlog = await waiters(switchboard, 5, ACME)
    (late,) = await waiters(switchboard, 1, BOLT)
    held.release()
    (await backlog[0]).release()
    await late
    assert [task.done() for task in backlog] == [True] + [False] * 4
    for task in backlog:
        task.cancel()


async def test_a_full_queue_makes_room_for_a_tenant_that_has_less_there() -> None:
    switchboard = board(max_waiting=2)
    first, second = await waiters(switchboard, 2, ACME)
    other = asyncio.create_task(switchboard.wait("m", BOLT, None))
    with pytest.raises(Limited):
        await second
    assert not first.done()
    assert switchboard.demand()["m"].waiting == 2
    first.cancel()
    other.cancel()


async def test_requests_wait_for_a_replica_that_is_full_though_no_other_can_be_started() -> None:
    switchboard = board()
    switchboard.update({"m": ModelRoutes((route("a"),), 1, "it failed 3 times")})
    held = switchboard.take("m", None)
    assert held
    assert switchboard.take("m", None) is None
    (waiting,) = await waiters(switchboard, 1)
    switchboard.update({"m": ModelRoutes((route("a"),), 1, "it failed 4 times")})
    assert not waiting.done()
    held.release()
    (await waiting).release()
    gone = Route(A, WorkerId("w"), "http://w", None, suspect=True)
    switchboard.update({"m": ModelRoutes((gone,), 1, "it failed 4 times")})
    with pytest.raises(Unavailable, match="it failed 4 times"):
        switchboard.take("m", None)


TRIED = st.frozensets(st.sampled_from([A, B]))
OPS = st.lists(
    st.tuples(st.just("come"), st.sampled_from([ACME, BOLT]), TRIED)
    | st.tuples(st.just("take"), TRIED, st.none())
    | st.tuples(st.just("release"), st.integers(0, 9), st.booleans())
    | st.tuples(st.just("cancel"), st.integers(0, 9), st.none())
    | st.tuples(st.just("routes"), TRIED, st.integers(1, 2))
    | st.tuples(st.just("turn"), st.none(), st.none()),
    max_size=40,
)


@settings(max_examples=200)
@given(OPS)
def test_any_order_of_events_keeps_seats_and_leaves_nobody_waiting_beside_a_free_one(ops: list[Any]) -> None:
    asyncio.run(play(ops))


async def play(ops: list[Any]) -> None:
    switchboard = board("a", "b", max_waiting=5, patience_s=60)
    waiting: dict[asyncio.Task[Seat], frozenset[ReplicaId]] = {}
    seats: list[Seat] = []

    async def settle() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            del waiting[task]
            if not task.cancelled() and task.exception() is None:
                seats.append(task.result())
        demand = switchboard.demand().get("m", Demand())
        assert (demand.waiting, demand.running) == (len(waiting), len(seats))
        assert switchboard._loads == Counter(seat.route.replica for seat in seats)
        assert len(switchboard._futures) == len(waiting)
        for tried in waiting.values():
            routes = (switchboard._routes or {})["m"]
            assert choose(routes.routes, switchboard._loads, routes.concurrency, None, tried=tried) is None

    for kind, what, more in ops:
        if kind == "come":
            waiting[asyncio.create_task(switchboard.wait("m", what, None, more))] = more
        elif kind == "take" and (seat := switchboard.take("m", None, what)) is not None:
            seats.append(seat)
        elif kind == "release" and seats:
            seats.pop(what % len(seats)).release(failed=more)
        elif kind == "cancel" and waiting:
            list(waiting)[what % len(waiting)].cancel()
        elif kind == "routes":
            switchboard.update({"m": ModelRoutes(tuple(map(route, sorted(what))), more)})
        elif kind == "turn":
            await settle()
    await settle()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for seat in seats:
        seat.release()
    demand = switchboard.demand().get("m", Demand())
    assert (demand.waiting, demand.running) == (0, 0)
