"""Who makes room for a claim: what leaves, what sleeps, and what is kept warm elsewhere."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fleet.placing import (
    GB,
    HALF,
    KEPT_WARM,
    LOADED,
    NAPS,
    NOW,
    WAITED_FOR,
    A,
    B,
    asleep,
    claim,
    fleet,
    model,
    placed,
    replica,
    room,
    starts,
    worker,
)

from turnout.fleet.capacity_rules import larger_models
from turnout.fleet.events_and_commands import SetWant, StartReplica
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model, Needs
from turnout.fleet.replica_rules import Closing, Phase, ReplicaId, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.scale_rules import Urgency
from turnout.fleet.worker_rules import OrderRefusal


def busy(*names: str) -> dict[str, Any]:
    return {"demand": {name: Demand(0, 1, NOW) for name in names}}


@pytest.mark.parametrize(
    ("urgency", "fields", "more", "leaves"),
    [
        (WAITED_FOR, {}, {}, True),
        (KEPT_WARM, {}, {}, True),
        (LOADED, {}, {}, True),
        (WAITED_FOR, {"busy": 1}, {}, True),
        (KEPT_WARM, {"busy": 1}, {}, False),
        (LOADED, {}, busy("a"), False),
        (WAITED_FOR, {}, busy("a"), True),
        (WAITED_FOR, {"ready_at": NOW - 29.9}, {}, False),
        (WAITED_FOR, {"ready_at": NOW - 30.0}, {}, True),
        (WAITED_FOR, {"ready_at": NOW - 30.0}, {**busy("a"), "wake_s": {"a": 9.0}}, False),
        (WAITED_FOR, {"ready_at": NOW - 54.0}, {**busy("a"), "wake_s": {"a": 9.0}}, True),
        (KEPT_WARM, {"ready_at": NOW - 29.9}, {}, False),
        (WAITED_FOR, {"ready_at": NOW - 100.0}, {**busy("a"), "wake_s": {"a": 30.0}}, True),
        (
            WAITED_FOR,
            {"ready_at": NOW - 100.0},
            {"demand": {"a": Demand(1, 1, NOW)}, "wake_s": {"a": 30.0}},
            False,
        ),
        (WAITED_FOR, {"phase": Phase.STARTING, "ready_at": None}, {}, False),
        (WAITED_FOR, {"closing": Closing(NOW, Want.GONE, "x")}, {}, False),
    ],
)
def test_who_makes_room_had_its_stay_and_no_users_or_the_other_has_nothing(
    urgency: Urgency, fields: dict[str, Any], more: dict[str, Any], leaves: bool
) -> None:
    one = replica(A, "w", 0, **fields)
    commands = placed(fleet([worker("w", 80)], one, models=[B], **more), claim("b", urgency))
    assert commands == ([room(one, "b")] if leaves else [])


def test_what_is_kept_warm_makes_no_room_but_what_is_more_than_that_does() -> None:
    warm = model("warm", min_replicas=1)
    one, other = replica(warm, "u", 0, used_at=2.0), replica(warm, "v", 0, used_at=1.0, ready_at=1.0)
    assert placed(fleet([worker("u", 80)], one, models=[B]), "b") == []
    assert placed(fleet([worker("u", 80), worker("v", 80)], one, other, models=[B]), "b") == [
        room(other, "b")
    ]
    loads = replace(other, phase=Phase.STARTING, ready_at=None)
    assert placed(fleet([worker("u", 80), worker("v", 80)], one, loads, models=[B]), "b") == [], (
        "it keeps nobody warm"
    )
    assert placed(fleet([worker("u", 80), worker("v", 80)], one, other, models=[A, B]), "b", "a") == [
        room(other, "b")
    ]


def test_of_several_the_one_whose_absence_costs_least_makes_room() -> None:
    machines = [worker("u", 80), worker("v", 80)]
    old, new = replica(A, "u", 0, used_at=5.0), replica(model("c"), "v", 0, used_at=4.0)
    assert placed(fleet(machines, old, new, models=[B]), "b") == [room(new, "b")]
    assert placed(fleet(machines, old, new, models=[B], **busy("c")), "b") == [room(old, "b")]
    fresh = replace(new, ready_at=NOW - 1)
    assert placed(fleet(machines, old, fresh, models=[B]), "b") == [room(old, "b")]
    halves = [replica(HALF, "v", 0, id="h1"), replica(HALF, "v", 0, id="h2")]
    assert placed(fleet(machines, old, *halves, models=[B]), "b") == [room(old, "b")], "one rather than two"
    assert placed(fleet(machines[1:], *halves, models=[B]), "b") == [room(one, "b") for one in halves]
    sleeper = asleep(NAPS, "v", 0)
    leaves = SetWant(sleeper.id, Want.GONE, "room for b")
    assert placed(fleet(machines, old, sleeper, models=[B]), "b") == [leaves], "it was used longer ago"


def test_on_one_machine_sleepers_leave_first_then_idle_ones_then_those_with_users() -> None:
    small = [model(name, 20) for name in "xyz"]
    idle, used = replica(small[0], "w", 0), replica(small[1], "w", 0)
    sleeper = asleep(model("s", 60, keeps_gb=20), "w", 0)
    there = fleet([worker("w", 80)], used, idle, sleeper, models=[HALF, model("c", 60)], **busy("y"))
    assert placed(there, "half") == [SetWant(sleeper.id, Want.GONE, "room for half")]
    assert placed(there, "c") == [SetWant(sleeper.id, Want.GONE, "room for c"), room(idle, "c")]


def test_one_that_can_sleep_does_where_that_leaves_enough_room() -> None:
    naps = model("n", 60, keeps_gb=5, sleep=True)
    one = replica(naps, "w", 0)
    assert placed(fleet([worker("w", 80)], one, models=[model("c", 70)]), "c") == [
        room(one, "c", Want.ASLEEP)
    ]
    assert placed(fleet([worker("w", 80)], one, models=[model("c", 76)]), "c") == [room(one, "c")]
    awake = replace(one, spec=model("n", 60, keeps_gb=5))
    world = replace(fleet([worker("w", 80)], awake), models={"n": naps, "c": model("c", 70)})
    assert placed(world, "c") == [room(one, "c")], "it was started without"
    memory = fleet([worker("w", 80, memory_gb=2)], one, models=[model("c", 70, memory_gb=2)])
    assert placed(memory, "c") == [room(one, "c")], "asleep it keeps its main memory"


def test_room_is_made_once_for_all_who_wait() -> None:
    one = replica(A, "w", 0)
    world = fleet([worker("w", 80)], one, models=[B, model("c")])
    assert placed(world, "b", "c") == [room(one, "b")]
    shared = fleet([worker("w", 80)], one, models=[HALF, model("c", 40)])
    assert placed(shared, "half", "c") == [room(one, "half")], "both have room then"
    fresh = replace(one, ready_at=NOW - 1)
    rival = replica(model("r"), "v", 0, ready_at=NOW - 1)
    assert (
        placed(fleet([worker("w", 80), worker("v", 80)], fresh, rival, models=[B, model("c")]), "b", "c")
        == []
    )


def test_what_is_kept_warm_and_in_the_way_starts_elsewhere_first() -> None:
    warm = model("warm", 40, min_replicas=1, max_replicas=2)
    one = replica(warm, "u", 0)
    big = model("big", 80, gpus=2)
    machines = [worker("u", 80, 80), worker("v", 48)]
    world = fleet(machines, one, models=[big])
    assert placed(world, "big") == [
        StartReplica(ReplicaId("new-1"), "warm", WorkerId("v"), (0,), warm.needs, "move")
    ]
    for urgency in (KEPT_WARM, LOADED):
        assert placed(world, claim("big", urgency)) == [], "only for who has users and nothing"
    assert placed(fleet(machines[:1], one, models=[big]), "big") == [], "it has no other place"
    assert placed(fleet(machines, replace(one, ready_at=NOW - 1), models=[big]), "big") == [], (
        "it had not its stay"
    )
    there = replica(warm, "v", 0)
    assert placed(fleet(machines, one, there, models=[big]), "big") == [room(one, "big")], "it has moved"
    coming = replace(there, phase=Phase.STARTING, ready_at=None)
    assert placed(fleet(machines, one, coming, models=[big]), "big") == [], "it moves"
    refuses = [machines[0], replace(machines[1], refusals={"warm": OrderRefusal("x", NOW + 9)})]
    assert placed(fleet(refuses, one, models=[big]), "big") == []


def test_as_many_as_are_kept_warm_stay_wherever_the_others_leave() -> None:
    warm = model("warm", 20, min_replicas=1)
    there = [replica(warm, "w", 0, id=f"r{n}", used_at=float(n)) for n in range(4)]
    world = fleet([worker("w", 80)], *there, models=[HALF, model("c", 60), B])
    assert placed(world, "half") == [room(one, "half") for one in there[:2]], "those used longest ago"
    assert placed(world, "c") == [room(one, "c") for one in there[:3]]
    assert placed(world, "b") == [], "one must stay"


def test_the_move_with_fewest_is_made_and_whole_gpus_move_too() -> None:
    warm, other = model("warm", 40, min_replicas=1), model("other", 40, min_replicas=1)
    big = model("big", 80, gpus=2)
    crowded = [replica(warm, "a", 0, id="w1"), replica(other, "a", 1, id="o1")]
    third = model("third", 40, min_replicas=1)
    alone = replica(third, "b", 0)
    machines = [worker("a", 80, 80), worker("b", 80, 80), worker("c", 48, 48)]
    assert starts(placed(fleet(machines, *crowded, alone, models=[big]), "big")) == [("third", "a", (0,))]
    assert {
        m for m, _, _ in starts(placed(fleet([machines[0], machines[2]], *crowded, models=[big]), "big"))
    } == {
        "warm",
        "other",
    }
    whole = replace(model("whole", min_replicas=1), needs=Needs(1, 0, GB))
    held = replica(whole, "a", 0, needs=Needs(1, 80 * GB, GB))
    moved = placed(fleet([worker("a", 80, 80), worker("c", 48)], held, models=[big]), "big")
    assert starts(moved) == [("whole", "c", (0,))]


def test_who_takes_a_share_of_each_gpu_moves_others_as_well() -> None:
    warm = model("warm", 40, min_replicas=1)
    share = replace(model("share", gpus=2), needs=Needs(2, 0, GB))
    world = fleet([worker("u", 80, 80), worker("v", 48)], replica(warm, "u", 0), models=[share])
    assert starts(placed(world, "share")) == [("warm", "v", (0,))]


def test_of_larger_models_one_of_each_size_counts_the_largest_first() -> None:
    one, whole, two, plain = (
        model("one", 40),
        model("whole"),
        model("two", 20, gpus=2),
        model("plain", gpus=0),
    )
    share = replace(model("share"), needs=Needs(1, 0))
    odd = replace(model("odd"), needs=Needs(0, 5 * GB))
    known = [one, whole, two, plain, share, odd]

    def larger(than: Model) -> list[str]:
        return [m.name for m in larger_models(than, known)]

    assert larger(one) == ["two", "share", "whole"] and larger(whole) == ["two", "share"]
    assert larger(share) == ["two"] and larger(two) == []
    assert larger(plain) == ["two", "share", "whole", "one"] == larger(odd), (
        "what has no GPU is not among them"
    )
    assert len(larger_models(plain, [one, replace(one, name="same size")])) == 1


def test_what_moves_waits_for_its_new_place_and_makes_room_there_if_it_must() -> None:
    warm, big = model("warm", 40, min_replicas=1), model("big", 80, gpus=2)
    one, other = replica(warm, "u", 0), replica(model("other", 40), "v", 0)
    machines = [worker("u", 80, 80), worker("v", 48)]
    assert placed(fleet(machines, one, other, models=[big]), "big") == [room(other, "warm")]
    leaves = replace(other, closing=Closing(NOW, Want.GONE, "idle"))
    assert placed(fleet(machines, one, leaves, models=[big]), "big") == [], "room comes"
    assert placed(fleet(machines, one, leaves, models=[big, model("s", 40)]), "big", "s") == [], "and is kept"
    starts_there = replica(model("tiny", 8), "v", 0, phase=Phase.STARTING, ready_at=None)
    assert placed(fleet(machines, one, starts_there, models=[big]), "big") == [], "one at a time on a GPU"


def test_room_that_was_just_given_away_is_not_waited_for() -> None:
    old = replica(model("old"), "v", 0)
    world = fleet([worker("u", 80), worker("v", 80)], old, models=[A, B])
    assert placed(world, "a", "b")[1:] == [room(old, "b")] and starts(placed(world, "a", "b")) == [
        ("a", "u", (0,))
    ]


def test_of_a_model_that_must_move_what_is_more_than_kept_warm_leaves_at_once() -> None:
    warm, big = model("warm", 40, min_replicas=1), model("big", 80, gpus=2)
    spare, kept = replica(warm, "u", 0, id="r1", used_at=1.0), replica(warm, "u", 1, id="r2", used_at=2.0)
    world = fleet([worker("u", 80, 80), worker("v", 48)], spare, kept, models=[big])
    assert placed(world, "big") == [room(spare, "big")]
