"""Decisions whose details matter: who leaves first, what is timed from when, what a failure costs."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

import pytest
from tests.fleet.core_world import RULES, Box, Engine, World, model, routes

from turnout.fleet.change_rules import demand_event
from turnout.fleet.events_and_commands import ModelRemoved, ModelSet, SetWant, Tick
from turnout.fleet.fleet_rules import Failures, GivenUp, ModelPressure, Rules, rebased
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import Closing, Phase, Replica, Want
from turnout.fleet.route_rules import AdminWish, Demand
from turnout.fleet.worker_rules import Standing

W1, W2 = WorkerId("w1"), WorkerId("w2")


def engine_of(world: World, replica: Replica) -> Engine:
    return world.boxes[replica.worker].engines[replica.id]


def asleep(world: World, name: str) -> Replica:
    world.ask(name, waiting=1)
    world.ticks(6)
    world.ask(name)
    for _ in range(60):
        world.tick()
        if world.of(name)[0].asleep:
            return world.of(name)[0]
    raise AssertionError(f"{name} does not sleep")


def test_a_sleeper_leaves_before_an_idle_replica_and_an_idle_one_before_a_used_one() -> None:
    sleeper = model("sleeper", gb=5, sleep=True, idle_s=20.0)  # it keeps 1 GB asleep
    rest = [model("used", gb=30), model("idle", gb=30), model("small", gb=6), model("large", gb=30)]
    world = World(Box(W1, gpu_gb=66), models=[sleeper, *rest])
    asleep(world, "sleeper")
    for name in ("used", "idle"):
        world.ask(name, waiting=1)
        world.ticks(12)
    world.ask("used", running=1)
    world.ask("idle")
    assert world.ready("used") and world.ready("idle") and world.of("sleeper")
    world.ask("small", waiting=1)
    world.ticks(8)
    assert world.ready("small") and world.ready("idle") and not world.of("sleeper")
    world.ask("large", waiting=1)
    world.ticks(8)
    assert world.ready("large") and world.ready("used") and not world.of("idle")


def test_of_two_idle_replicas_on_two_machines_the_one_nobody_uses_makes_room() -> None:
    world = World(Box(W1), Box(W2), models=[model("a", gb=60), model("b", gb=60), model("c", gb=60)])
    world.ask("a", waiting=1)
    world.ask("b", waiting=1)
    world.ticks(20)
    world.ask("a", running=1)
    world.ask("b")
    world.ask("c", waiting=1)
    world.ticks(8)
    assert world.ready("a") and world.ready("c") and not world.of("b")


def test_a_further_replica_ends_nobody_s_turn() -> None:
    """Only a model that has users and nothing to serve them does."""
    busy = model("busy", gb=60, max_replicas=2, concurrency=1)
    world = World(Box(W1), Box(W2), models=[busy, model("b", gb=60)])
    world.ask("busy", waiting=1)
    world.ask("b", waiting=1)
    world.ticks(20)
    for _ in range(30):
        world.ask("busy", waiting=5, running=1)
        world.ask("b", running=1)
        world.tick()
    assert len(world.ready("busy")) == 1 and world.ready("b")
    world.ask("b")
    world.ask("busy", waiting=5, running=1)
    world.ticks(10)
    assert len(world.ready("busy")) == 2, "what nobody uses makes room for it"


def test_a_sleeper_wakes_on_its_own_gpus() -> None:
    """Who makes room for it is who holds those, not who was used least recently."""
    names = ("other", "there")
    world = World(
        Box(W1, gpus=2),
        models=[model("a", gb=60, sleep=True, idle_s=20.0), *(model(n, gb=60, idle_s=900.0) for n in names)],
    )
    gpus = asleep(world, "a").gpus
    for name in names:
        world.ask(name, waiting=1)
        world.ticks(14)
        world.ask(name)
    holder = next(n for n in names if world.ready(n)[0].gpus == gpus)
    engine_of(world, world.ready(holder)[0]).busy = 1
    world.ticks(2)
    engine_of(world, world.ready(holder)[0]).busy = 0
    world.tick()
    world.ask("a", waiting=1)
    world.ticks(10)
    assert world.ready("a")[0].gpus == gpus and world.starts["a"] == 1
    assert not world.of(holder)


def test_waking_is_timed_from_the_order_to_wake() -> None:
    world = World(Box(W1), models=[model("a", sleep=True, idle_s=20.0, load_timeout_s=30.0)])
    sleeper = asleep(world, "a")
    world.ticks(60)
    world.ask("a", waiting=1)
    [waking] = world.of("a")
    assert waking.id == sleeper.id and waking.coming and waking.ready_at is None
    assert waking.phase_since == waking.ordered_at == world.now
    assert waking.ordered == world.fleet.workers[W1].version
    world.feed(Tick())
    assert "a" not in world.fleet.failures, "it slept longer than a start may take"


def test_the_idle_replica_is_closed_when_its_time_is_up_and_the_busy_one_stays() -> None:
    world = World(Box(W1, gpus=2), models=[model("a", gb=60, max_replicas=2, concurrency=1, idle_s=30.0)])
    world.ask("a", waiting=2)
    world.ticks(20)
    first, second = world.ready("a")
    engine_of(world, first).busy = engine_of(world, second).busy = 1
    world.tick()
    used_at = world.now
    engine_of(world, first).busy = 0
    while not any(r.closing for r in world.of("a")):
        world.ask("a", running=1)
        world.tick()
    closed = world.fleet.replicas[first.id]
    assert closed.closing and closed.closing.reason == "idle for 30 s" and closed.closing.then is Want.GONE
    assert 30.0 <= world.now - used_at <= 31.0
    assert world.fleet.replicas[second.id].closing is None


def test_a_replica_that_was_started_without_sleep_mode_is_stopped_when_idle() -> None:
    world = World(Box(W1), models=[model("a", idle_s=20.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.feed(ModelSet(model("a", idle_s=20.0, sleep=True)))
    world.ask("a")
    world.ticks(40)
    assert not world.of("a")


def test_a_replica_that_still_starts_is_stopped_at_once_when_its_model_is_removed() -> None:
    world = World(Box(W1, load_s=100.0), models=[model("a")])
    world.ask("a", waiting=1)
    world.ticks(3)
    [starting] = world.of("a")
    assert world.feed(ModelRemoved("a")) == (SetWant(starting.id, Want.GONE, "the model was removed"),)


def test_a_replica_that_served_and_died_is_replaced_at_once_and_the_next_time_later() -> None:
    world = World(Box(W1), models=[model("a", min_replicas=1)])
    world.ticks(8)

    def kill() -> None:
        engine = engine_of(world, world.ready("a")[0])
        engine.phase, engine.detail = Phase.FAILED, "killed"
        world.feed(world.beat(world.boxes[W1]))

    kill()
    assert world.fleet.failures["a"] == Failures(1, "killed", world.now)
    world.ticks(8)
    kill()
    assert world.fleet.failures["a"] == Failures(2, "killed", world.now + RULES.backoff(2))
    while not world.ready("a"):
        world.tick()
    world.ticks(int(RULES.healthy_s))
    kill()
    assert world.fleet.failures["a"] == Failures(1, "killed", world.now), "it has been well for long"


def test_failures_with_an_orderly_end_between_them_are_not_in_a_row() -> None:
    """However short its stays are: a model that is asked for now and then would be given up by its third kill in a month."""
    world = World(Box(W1), models=[model("a", idle_s=10.0)])
    for _ in range(RULES.max_failures + 1):
        world.ask("a", waiting=1)
        while not world.ready("a"):
            world.tick()
        engine = engine_of(world, world.ready("a")[0])
        engine.phase, engine.detail = Phase.FAILED, "killed"
        world.feed(world.beat(world.boxes[W1]))
        assert world.fleet.failures["a"].count == 1
        while not world.ready("a"):
            world.tick()
        world.ask("a")
        while world.of("a"):
            world.tick()
    assert routes(world.fleet)["a"].refusal is None


def test_pauses_between_tries_double_up_to_a_limit() -> None:
    assert [RULES.backoff(n) for n in (1, 2, 3, 4)] == [5.0, 10.0, 20.0, 40.0]
    assert RULES.backoff(50) == RULES.max_backoff_s


@pytest.mark.parametrize(("gone_s", "suspect_s"), [(3.0, 3.0), (6.0, 6.0), (60.0, 6.0)])
def test_a_worker_is_suspected_no_later_than_it_is_gone(gone_s: float, suspect_s: float) -> None:
    rules = Rules().with_gone_s(gone_s)
    assert rules == replace(Rules(), gone_s=gone_s, suspect_s=suspect_s)
    assert [rules.standing(silent_s) for silent_s in (suspect_s - 0.1, gone_s)] == [
        Standing.ALIVE,
        Standing.GONE,
    ]


def times(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every time in it: a float whose name says so."""
    if isinstance(value, Mapping):
        for key, one in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from times(one, f"{path}[{key}]")
    elif is_dataclass(value):
        for field in fields(value):
            one = getattr(value, field.name)
            if isinstance(one, float) and (
                field.name in ("at", "since", "until") or field.name.endswith(("_at", "_since"))
            ):
                yield f"{path}.{field.name}", one
            elif field.name not in ("models", "spec", "rules"):
                yield from times(one, f"{path}.{field.name}")


def test_a_new_clock_moves_each_time_by_the_same() -> None:
    world = World(Box(W1), Box(W2), models=[model("a"), model("b")])
    world.ask("a", waiting=1)
    world.ticks(8)
    [replica] = world.of("a")
    fleet = replace(
        world.fleet,
        replicas={replica.id: replace(replica, closing=Closing(world.now, Want.GONE, "idle"))},
        workers={k: replace(w, freed_at=world.now - 3) for k, w in world.fleet.workers.items()},
        pace={"a": ModelPressure(1.0, 2.0, 3.0), "b": ModelPressure()},
        failures={"a": Failures(1, "x", 7.0)},
        given_up={"a": GivenUp("x", 9.0), "b": GivenUp("y")},
    )
    before, after = dict(times(fleet)), dict(times(rebased(fleet, 500.0)))
    assert len(before) > 15 and after == {path: at + 500.0 for path, at in before.items()}
    assert rebased(rebased(fleet, 500.0), -500.0) == fleet


def test_an_admins_wish_to_wake_asks_for_one_replica_and_never_for_a_second() -> None:
    world = World(Box(W1), models=[model("a", gb=10)])
    wish = AdminWish("a", stop=False, ago_s=2.0)

    def wanted(queues: Mapping[str, Demand]) -> Demand:
        return demand_event(world.fleet, [], queues, [wish], world.now).demand["a"]

    assert wanted({}) == Demand(1, 0, world.now - 2.0)
    assert wanted({"a": Demand(1, 0, world.now)}) == Demand(1, 0, world.now), (
        "who waits already counts for both"
    )
    assert wanted({"a": Demand(0, 1, world.now)}).waiting == 0
    world.ask("a", waiting=1)
    world.tick()
    assert wanted({}) == Demand(0, 0, world.now - 2.0), "it is on its way, and was asked for"
    stop = AdminWish("a", stop=True, ago_s=0.0)
    asked = demand_event(world.fleet, [], {"a": Demand(0, 1, 5.0)}, [stop], world.now).demand["a"]
    assert asked == Demand(0, 1, 5.0, stop=True)
