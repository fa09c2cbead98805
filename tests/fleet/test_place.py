"""Where a claim is served: which machine, who wakes, who is told that there is no hope."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fleet.placing import (
    DRAINING,
    GB,
    HALF,
    KEPT_WARM,
    LOADED,
    NAPS,
    NOW,
    SUSPECT,
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
    wakes,
    worker,
)

from turnout.fleet.events_and_commands import GiveUp, SetWant, StartReplica, TakeUp
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp
from turnout.fleet.machine_rules import Gpu, WorkerId
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.scale_rules import Urgency
from turnout.fleet.worker_rules import OrderRefusal, Worker


@pytest.mark.parametrize(
    ("urgency", "cause"), [(WAITED_FOR, "request"), (KEPT_WARM, "min_replicas"), (LOADED, "load")]
)
def test_a_replica_starts_where_there_is_room_and_its_cause_is_told(urgency: Urgency, cause: str) -> None:
    world = fleet([worker("w", 80)], models=[A])
    start = StartReplica(ReplicaId("new-1"), "a", WorkerId("w"), (0,), A.needs, cause)
    assert placed(world, claim("a", urgency)) == [start]
    for retry_at, said in ((NOW - 59.9, "failure"), (NOW - 60, cause)):
        failed = replace(world, failures={"a": Failures(1, "x", retry_at)})
        assert placed(failed, claim("a", urgency)) == [replace(start, cause=said)]


def test_nothing_is_placed_without_a_claim_and_on_no_worker() -> None:
    assert placed(fleet([worker("w", 80)], models=[A])) == []
    assert placed(fleet([], models=[A]), "a") == [], "one may join yet"


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (worker("w", 40), "no worker has 1 GPUs with 80.0 GB each"),
        (worker("w", 80, memory_gb=0), "it needs 1.0 GB of memory, which no worker with its GPUs has"),
        (
            worker("w", 80, refusals={"a": OrderRefusal("not here", NOW + 1)}),
            "no worker takes it; w says: not here",
        ),
        (
            worker("w", 80, name="gpu1", refusals={"a": OrderRefusal("not here", NOW + 1)}),
            "no worker takes it; gpu1 says: not here",
        ),
    ],
)
def test_who_can_be_served_nowhere_is_given_up_once_with_the_reason(unusable: Worker, reason: str) -> None:
    world = fleet([unusable], models=[A, model("free", gpus=0, memory_gb=0)])
    assert placed(world, "a", "a", "free")[0] == GiveUp("a", reason, None)
    assert len(placed(world, "a", "a", "free")) == 2, "said once, and others are served"
    assert placed(replace(world, given_up={"a": GivenUp(reason)}), "a") == [], "it is known"


def test_who_was_given_up_is_taken_up_when_a_machine_could_have_it() -> None:
    world = fleet([worker("w", 80)], models=[A, model("big", gpus=2), B])
    hopeless = replace(world, given_up={"a": GivenUp("x"), "big": GivenUp("x"), "b": GivenUp("x", NOW + 9)})
    assert placed(hopeless) == [TakeUp("a")]
    assert starts(placed(hopeless, "a")) == [("a", "w", (0,))]


@pytest.mark.parametrize(
    "refusal", [OrderRefusal("x", NOW), OrderRefusal("it was not started", NOW + 9, told=False)]
)
def test_a_refusal_that_is_over_or_was_not_said_gives_nobody_up(refusal: OrderRefusal) -> None:
    refuses = worker("w", 80, refusals={"a": refusal})
    assert placed(fleet([refuses], models=[A]), "a") == [], "but nothing is placed there as long as it stands"
    assert starts(placed(fleet([refuses], models=[B]), "b")) == [("b", "w", (0,))]


@pytest.mark.parametrize(
    "fields", [SUSPECT, DRAINING, {"hold": 9}, {"strangers": frozenset({ReplicaId("x")})}]
)
def test_a_worker_that_is_not_sound_gets_nothing(fields: dict[str, Any]) -> None:
    world = fleet([worker("w", 80, **fields), worker("x", 80)], models=[A])
    assert starts(placed(world, "a")) == [("a", "x", (0,))]
    assert placed(fleet([worker("w", 80, **fields)], models=[A]), "a") == []


BIG = model("big")


@pytest.mark.parametrize(
    ("workers", "there", "best"),
    [
        ([worker("u", 80), worker("v", 80)], [], "u"),
        ([worker("u", 80, 80), worker("v", 80)], [replica(HALF, "u", 0)], "v"),
        ([worker("u", 80), worker("v", 80, weights=["half"])], [], "v"),
        ([worker("u", 80), worker("v", 80, weights=["org/half"])], [], "v"),
        ([worker("u", 80, 80), worker("v", 80, weights=["half"])], [replica(HALF, "v", 0)], "u"),
        ([worker("u", 80), worker("v", 48)], [], "v"),
        ([worker("u", 80, weights=["half"]), worker("v", 48)], [], "u"),
        ([worker("u", 80, 48), worker("v", 80)], [], "u"),
    ],
)
def test_the_best_machine_has_few_of_the_model_its_weights_and_little_room(
    workers: list[Worker], there: list[Replica], best: str
) -> None:
    (start,) = starts(placed(fleet(workers, *there, models=[HALF]), "half"))
    assert start[1] == best


def test_the_last_room_for_a_larger_model_is_taken_last() -> None:
    tight = worker("u", 80)  # a smaller model would fit it best, but it is the only place for the big one
    loose = [worker("v", 64, 64)]
    small = model("small", 60)
    assert starts(placed(fleet([tight, *loose], models=[small, BIG]), "small")) == [("small", "v", (0,))]
    wide = worker("x", 90)
    assert starts(placed(fleet([worker("u", 62), wide], models=[small]), "small"))[0][1] == "u"
    assert starts(placed(fleet([tight, worker("v", 99)], models=[small, BIG]), "small"))[0][1] == "u", (
        "two have room"
    )
    assert starts(placed(fleet([tight], models=[small, BIG]), "small"))[0][1] == "u", "there is no other"


def test_what_needs_no_gpu_leaves_machines_with_gpus_to_others() -> None:
    plain = model("cpu", gpus=0)
    assert starts(placed(fleet([worker("u", 80), worker("v")], models=[plain]), "cpu")) == [("cpu", "v", ())]
    assert (
        starts(placed(fleet([worker("u", memory_gb=64), worker("v", memory_gb=8)], models=[plain]), "cpu"))[
            0
        ][1]
        == "v"
    )


def test_replicas_are_spread_and_one_starts_at_a_time_on_a_gpu() -> None:
    world = fleet([worker("u", 80, 80), worker("v", 80)], models=[HALF])
    assert starts(placed(world, *["half"] * 6)) == [
        ("half", "u", (0,)),
        ("half", "v", (0,)),
        ("half", "u", (1,)),
    ]
    starting = replica(HALF, "u", 0, phase=Phase.STARTING, ready_at=None)
    assert starts(placed(fleet([worker("u", 80)], starting), "half")) == [], "it waits for the other"
    assert len(starts(placed(fleet([worker("u", 80, 80)], models=[A]), "a", "a", "a"))) == 2
    assert len(starts(placed(fleet([worker("u", *[80] * 8)], models=[A]), *["a"] * 8))) == 4, (
        "no more than it may have"
    )


def test_room_that_comes_is_kept_for_the_first_in_line() -> None:
    leaves = replica(A, "w", 0, closing=Closing(NOW, Want.GONE, "idle"))
    world = fleet([worker("w", 80, 80)], leaves, replica(HALF, "w", 1), models=[BIG, model("small", 20)])
    assert starts(placed(world, "big", "small")) == [("small", "w", (1,))]
    assert starts(placed(world, "small")) == [("small", "w", (1,))]
    alone = fleet([worker("w", 80)], leaves, models=[BIG, model("small", 20)])
    assert placed(alone, "big", "small") == [], "both wait: the room is the big one's"


def test_memory_that_is_being_freed_is_waited_for_and_what_others_hold_is_not() -> None:
    hogged = worker("w", 80, freed_at=NOW - 29.9)
    machine = replace(hogged.machine, gpus=(Gpu(0, 80 * GB, 10 * GB),))
    freeing = Fleet({"a": A}, {hogged.id: replace(hogged, machine=machine)})
    other = replica(model("other", 10), "v", 0)
    two = replace(
        freeing,
        models={"a": A, "other": other.spec},
        workers={**freeing.workers, WorkerId("v"): worker("v", 80)},
        replicas={other.id: other},
    )
    assert placed(two, "a") == [], "its own memory comes back soon"
    late = {hogged.id: replace(hogged, machine=machine, freed_at=NOW - 30), WorkerId("v"): worker("v", 80)}
    assert placed(replace(two, workers=late), "a") == [room(other, "a")], "somebody else holds it"


def test_who_sleeps_is_woken_before_another_is_started_the_one_used_last_first() -> None:
    old, new = asleep(NAPS, "u", 0, used_at=1.0), asleep(NAPS, "v", 0, used_at=2.0)
    world = fleet([worker("u", 80), worker("v", 80), worker("w", 80)], old, new)
    assert placed(world, "naps") == [wakes(new)]
    assert placed(world, "naps", "naps") == [wakes(new), wakes(old)]
    assert placed(replace(world, workers={k: w for k, w in world.workers.items() if k != "v"}), "naps") == [
        wakes(old)
    ]
    draining = {**world.workers, WorkerId("v"): replace(world.workers[WorkerId("v")], **DRAINING)}
    assert placed(replace(world, workers=draining), "naps") == [wakes(old)]


def test_who_sleeps_waits_for_room_on_its_own_gpus_or_makes_it() -> None:
    sleeper, beside = asleep(NAPS, "w", 0), replica(HALF, "w", 0)
    assert placed(fleet([worker("w", 80)], sleeper, beside), "naps") == [room(beside, "naps")]
    leaving = replace(beside, closing=Closing(NOW, Want.GONE, "idle"))
    assert placed(fleet([worker("w", 80)], sleeper, leaving), "naps") == [], "it will have room"
    coming = replica(model("tiny", 10), "w", 0, phase=Phase.STARTING, ready_at=None)
    assert placed(fleet([worker("w", 80)], sleeper, coming), "naps") == [], "one at a time on a GPU"
    small = replica(model("tiny", 20), "w", 0)
    assert placed(fleet([worker("w", 80)], sleeper, small), "naps") == [wakes(sleeper)]


def test_who_cannot_wake_where_it_sleeps_starts_elsewhere_and_gives_its_place_up_for_that() -> None:
    warm = model("warm", 40, min_replicas=1)
    one, other = asleep(NAPS, "u", 0), asleep(NAPS, "v", 0)
    kept = [replica(warm, "u", 0), replica(model("warm2", 40, min_replicas=1), "v", 0)]
    machines = [worker("u", 80), worker("v", 80), worker("w", 80)]
    assert starts(placed(fleet(machines, one, kept[0]), "naps")) == [("naps", "v", (0,))]
    stuck = fleet(machines, one, other, *kept)
    (gone,) = placed(stuck, "naps")
    assert isinstance(gone, SetWant) and (gone.want, gone.reason) == (
        Want.GONE,
        "it cannot wake where it sleeps",
    )
    full = replica(NAPS, "w", 0)
    assert placed(fleet(machines, one, full, kept[0]), "naps") == [], "it has one that serves"


def test_who_sleeps_on_a_gpu_that_is_gone_does_not_wake() -> None:
    lost = asleep(NAPS, "w", 5)
    assert starts(placed(fleet([worker("w", 80)], lost), "naps")) == [("naps", "w", (0,))]
