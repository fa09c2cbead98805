"""Every model that fits is served in bounded time, whatever it is called, whoever came first and whatever is kept warm."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleet.core_world import RULES, Box, World, model

from turnout.fleet.events_and_commands import Blame, DemandSeen, GiveUp, ModelSet, StartReplica
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.route_rules import Demand

LOAD_S = 3.0
TURN_S = 3 * (RULES.min_resident_s + LOAD_S) + 20.0
"""A stay, a load, a way out for each who must leave, and what heartbeats take."""


def world_of(*gpus: int, models: list[Model]) -> World:
    boxes = (Box(WorkerId(f"w{n}"), gpus=count, load_s=LOAD_S) for n, count in enumerate(gpus))
    return World(*boxes, models=models)


def serve(world: World, names: list[str], within_s: float, load: int = 1) -> None:
    """All are asked for all the time; each is ready at some time."""
    world.ever_ready.clear()
    began = world.now
    while world.now - began < within_s and not world.ever_ready >= {*names}:
        world.feed(DemandSeen({name: Demand(load, 0, world.now) for name in names}))
        world.tick()
    assert world.ever_ready >= {*names}, (world.ever_ready, world.fleet.replicas)


@pytest.mark.parametrize("big", ["b", "0big"])
def test_two_small_replicas_leave_room_for_a_large_model_whatever_its_name(big: str) -> None:
    small = model("a", gb=80, min_replicas=2, max_replicas=2)
    world = world_of(2, 2, models=[small, model(big, gpus=2, gb=80)])
    world.ticks(10)
    assert len(world.ready("a")) == 2
    serve(world, [big], TURN_S)
    assert len(world.ready("a")) == 2, "and stay warm"


def test_replicas_that_are_kept_warm_move_for_a_large_model_that_comes_later() -> None:
    """They are spread while nobody needs the room, and one of them is ready elsewhere before it leaves."""
    small = model("a", gb=80, min_replicas=2, max_replicas=2, idle_s=1e6)
    world = world_of(2, 2, models=[small])
    world.ticks(10)
    assert len({r.worker for r in world.ready("a")}) == 2
    world.feed(ModelSet(model("b", gpus=2, gb=80)))
    began = world.now
    while not world.ready("b"):
        world.ask("b", waiting=1)
        world.tick()
        assert len(world.ready("a")) >= 2, "what is kept warm is"
        assert world.now - began < TURN_S
    world.ticks(30)
    assert len(world.of("a")) == 2
    moves = [c for _, c in world.log if isinstance(c, StartReplica) and c.cause == "move"]
    assert [m.model for m in moves] == ["a"]


def test_shares_of_gpus_that_are_kept_warm_move_together() -> None:
    small = [model(name, gb=40, min_replicas=1) for name in ("s", "t")]
    world = world_of(1, 1, models=[small[0]])
    world.ticks(8)
    world.boxes[world.of("s")[0].worker].hog_gb = 40  # so that the other one goes elsewhere
    world.tick()
    world.feed(ModelSet(small[1]))
    world.ticks(8)
    for box in world.boxes.values():
        box.hog_gb = 0
    assert world.of("s")[0].worker != world.of("t")[0].worker
    world.feed(ModelSet(model("b", gb=80)))
    serve(world, ["b"], TURN_S)


def test_what_is_kept_warm_and_has_no_other_place_stays() -> None:
    world = world_of(1, 1, models=[model("a", gb=80, min_replicas=2, max_replicas=2), model("b", gb=80)])
    world.ticks(8)
    world.ask("b", waiting=1)
    world.ticks(100)
    assert len(world.ready("a")) == 2 and world.starts["a"] == 2


names = st.permutations(["a", "b", "c", "d", "e", "f"])
sizes = st.tuples(st.integers(1, 3), st.sampled_from([40, 80]))


@settings(max_examples=150)
@given(
    names=names,
    gpus=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    warm=st.lists(st.integers(1, 3), max_size=2),
    asked=st.lists(sizes, min_size=1, max_size=4),
    late=st.booleans(),
    sleep=st.booleans(),
    load=st.sampled_from([1, 200]),
    idle_s=st.sampled_from([2.0, 30.0, 1e6]),
    order=st.randoms(use_true_random=False),
)
def test_every_model_that_fits_beside_what_is_kept_warm_is_served(
    names: list[str],
    gpus: list[int],
    warm: list[int],
    asked: list[tuple[int, int]],
    late: bool,
    sleep: bool,
    load: int,
    idle_s: float,
    order: Random,
) -> None:
    """`warm` models have so many replicas of one GPU each; `asked` ones come and stay asked for, at once or one after
    the other, early or when all else is in its place."""
    kept = [
        model(name, gb=80, min_replicas=count, max_replicas=count, idle_s=idle_s)
        for name, count in zip(names, warm, strict=False)
    ]
    others = [
        model(name, gpus=count, gb=gb, max_replicas=2, idle_s=idle_s, sleep=sleep)
        for name, (count, gb) in zip(names[len(kept) :], asked, strict=False)
    ]
    free = sum(gpus) - sum(warm)
    fitting = [m for m in others if m.needs.gpus <= min(max(gpus), free)]
    registered = [*kept, *([] if late else others)]
    order.shuffle(registered)
    world = world_of(*gpus, models=registered)
    world.ticks(20)
    assert all(len(world.ready(m.name)) == m.scaling.min_replicas for m in kept) or free < 0
    if late:
        world.feed(*(ModelSet(m) for m in others))
    serve(world, [m.name for m in fitting], TURN_S * (len(fitting) + 1), load)
    assert not any(isinstance(c, Blame | GiveUp) for _, c in world.log) or len(fitting) < len(others)


@settings(max_examples=60)
@given(
    drained=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 25)), max_size=6),
    silent=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_no_model_is_blamed_while_engines_are_sound(
    drained: list[tuple[int, int]], silent: list[tuple[int, int]], order: Random
) -> None:
    """Workers end with what they have under way and come back, or are cut off; no engine ever fails."""
    models = [model("a", gpus=2, gb=80), model("b", gb=40, max_replicas=2), model("c", gb=80, min_replicas=1)]
    world = world_of(2, 2, 1, models=models)
    scenes = [("ends", *one) for one in drained] + [("is silent", *one) for one in silent]
    order.shuffle(scenes)
    asked = DemandSeen({m.name: Demand(1, 0, world.now) for m in models})
    for what, number, seconds in scenes:
        box = world.boxes[WorkerId(f"w{number}")]
        box.ending, box.up = what == "ends", what != "is silent"
        for _ in range(seconds):
            world.feed(asked)
            world.tick()
        if box.ending:  # the process has ended, and the next one begins with nothing
            box.engines.clear()
            box.seen = 0
        box.ending, box.up = False, True
    world.ever_ready.clear()
    serve(world, [m.name for m in models], 3 * TURN_S + RULES.refusal_s)
    assert not any(isinstance(c, Blame | GiveUp) for _, c in world.log)
