"""Who gets a place, who waits, and that no place is ever lost."""

import asyncio
import random
import time

import pytest

from turnout.domain.errors import InvalidRequest, Limited, NotFound, Unavailable
from turnout.domain.serving import Demand, ModelRoutes, ReplicaId, Route, WorkerId
from turnout.gateway.chat.switchboard import Seat, Switchboard


def route(name: str) -> Route:
    return Route(ReplicaId(name), WorkerId("w"), "http://w", None)


def board(
    *replicas: str, concurrency: int = 2, patience_s: float = 5.0, max_waiting: int = 10
) -> Switchboard:
    made = Switchboard(time.monotonic, max_waiting, patience_s)
    made.update({"m": ModelRoutes(tuple(map(route, replicas)), concurrency)})
    return made


async def waiters(switchboard: Switchboard, count: int) -> list[asyncio.Task[Seat]]:
    tasks = [asyncio.create_task(switchboard.wait("m", None)) for _ in range(count)]
    while switchboard.demand()["m"].waiting < count if "m" in switchboard.demand() else True:
        await asyncio.sleep(0)
    return tasks


async def test_a_model_that_is_awake_gives_a_place_at_once() -> None:
    switchboard = board("a")
    place = switchboard.take("m", None)
    assert place
    assert (switchboard.demand()["m"].waiting, switchboard.demand()["m"].running) == (0, 1)
    place.release()
    place.release()
    assert switchboard.demand()["m"].running == 0


async def test_a_cold_model_seats_all_who_waited_once_it_is_awake() -> None:
    switchboard = board(concurrency=200)
    tasks = [asyncio.create_task(switchboard.wait("m", None)) for _ in range(10)]
    while switchboard.demand().get("m", Demand()).waiting < 10:
        await asyncio.sleep(0)
    assert switchboard.changed.is_set()
    switchboard.update({"m": ModelRoutes((route("a"),), 200)})
    places = await asyncio.gather(*tasks)
    assert {p.route.replica for p in places} == {"a"}


async def test_the_line_is_served_in_order_and_nobody_jumps_it() -> None:
    switchboard = board("a", concurrency=1)
    held = switchboard.take("m", None)
    assert held
    first, second = await waiters(switchboard, 2)
    held.release()
    assert switchboard.take("m", None) is None, "others wait already"
    place = await first
    assert not second.done()
    place.release()
    (await second).release()


async def test_a_full_line_refuses() -> None:
    switchboard = board(max_waiting=1)
    (task,) = await waiters(switchboard, 1)
    with pytest.raises(Limited):
        await switchboard.wait("m", None)
    task.cancel()


async def test_past_the_deadline_a_wait_ends_with_when_to_come_back() -> None:
    switchboard = board(patience_s=0.02)
    with pytest.raises(Unavailable) as refused:
        await switchboard.wait("m", None)
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
    place = switchboard.take("m", b"key")
    assert place
    failed = place.route.replica
    place.release(failed=True)
    others = [switchboard.take("m", b"key") for _ in range(5)]
    assert all(p and p.route.replica != failed for p in others)


async def test_who_is_cancelled_at_the_moment_of_waking_takes_no_place() -> None:
    switchboard = board()
    [leaving, staying] = await waiters(switchboard, 2)
    leaving.cancel()
    switchboard.update({"m": ModelRoutes((route("a"),), 2)})
    place = await staying
    assert switchboard.demand()["m"].running == 1
    place.release()
    assert switchboard.demand()["m"].running == 0


async def test_no_place_is_lost_whatever_clients_do() -> None:
    chance = random.Random(1)
    switchboard = board("a", "b", concurrency=2, patience_s=0.05, max_waiting=30)

    async def client() -> None:
        try:
            place = await switchboard.wait("m", chance.choice([None, b"x"]))
        except (Unavailable, Limited):
            return
        try:
            await asyncio.sleep(chance.uniform(0, 0.01))
        finally:
            place.release(failed=chance.random() < 0.2)

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
    retried = asyncio.create_task(switchboard.wait("m", None, frozenset({ReplicaId("a")})))
    while switchboard.demand()["m"].waiting < 1:
        await asyncio.sleep(0)
    other = asyncio.create_task(switchboard.wait("m", None))
    while switchboard.demand()["m"].waiting < 2:
        await asyncio.sleep(0)
    held.release()
    assert (await other).route.replica == "a"
    assert not retried.done()
    switchboard.update({"m": ModelRoutes((route("a"), route("b")), 1)})
    assert (await retried).route.replica == "b"


async def test_a_gateway_that_just_began_keeps_requests_waiting_until_it_knows_the_models() -> None:
    switchboard = Switchboard(time.monotonic)
    known, unknown = (asyncio.create_task(switchboard.wait(model, None)) for model in ("m", "nope"))
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
