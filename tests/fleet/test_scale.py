"""How many replicas a model should have: who claims room and since when, who leaves, who comes back."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.events_and_commands import Close, Command, Reopen, SetWant
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, ModelPressure
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.scale_rules import Claim, Urgency, rest_of, scale
from turnout.fleet.worker_rules import DrainedBy, Worker

NOW = 1000.0
IDLE_S = 100.0
W1 = Worker(WorkerId("w-1"), Machine((), 0, 0), "http://a", NOW)
NO_NEEDS = Needs()
WAITED_FOR, KEPT_WARM, LOADED = Urgency.WAITED_FOR, Urgency.KEPT_WARM, Urgency.LOADED


def model(name: str = "m", needs: Needs = NO_NEEDS, concurrency: int = 4, **scaling: Any) -> Model:
    given = {"max_replicas": 8, "idle_s": IDLE_S, **scaling}
    return Model(name, EngineKind.VLLM, "w", needs, Scaling(**given), concurrency=concurrency)


M = model()


def replica(number: int, of: Model = M, **fields: Any) -> Replica:
    """Ready for long, and used just now."""
    made = Replica(
        ReplicaId(f"{of.name}-{number}"), of.name, W1.id, (), of.needs, Want.READY, Phase.READY, 0.0, 0.0, NOW, of, ready_at=0.0
    )  # fmt: skip
    return replace(made, **fields)


def fleet(
    *replicas: Replica, models: tuple[Model, ...] = (M,), asked: Demand | None = None, **more: Any
) -> Fleet:
    demand = {"m": asked} if asked else {}
    there = {r.id: r for r in replicas}
    given = {
        "models": {m.name: m for m in models},
        "workers": {W1.id: W1},
        "replicas": there,
        "demand": demand,
    }
    return Fleet(**{**given, **more})


def load(running: int, waiting: int = 0) -> Demand:
    return Demand(waiting, running, NOW)


def pressed(since: float) -> dict[str, ModelPressure]:
    return {"m": ModelPressure(pressed_since=since)}


def test_who_has_users_and_nothing_to_serve_them_waits_from_now_on() -> None:
    scaled = scale(fleet(asked=load(0, 1)), NOW)
    assert scaled.claims == [Claim(WAITED_FOR, NOW, "m")]
    assert scaled.pace == {"m": ModelPressure(waiting_since=NOW, pressed_since=NOW)}
    later = scale(fleet(asked=load(0, 1), pace=scaled.pace), NOW + 7)
    assert later.claims == scaled.claims and later.pace == scaled.pace, "it has waited since then"


def test_what_is_kept_warm_is_claimed_with_and_without_users() -> None:
    warm = model(min_replicas=2)
    claims = scale(fleet(models=(warm,)), NOW).claims
    assert claims == [Claim(KEPT_WARM, NOW, "m")] * 2
    claims = scale(fleet(models=(warm,), asked=load(1)), NOW).claims
    assert claims == [Claim(WAITED_FOR, NOW, "m"), Claim(KEPT_WARM, NOW, "m")]
    claims = scale(fleet(replica(1, warm), models=(warm,), pace=pressed(990.0)), NOW).claims
    assert claims == [Claim(KEPT_WARM, 990.0, "m")]
    assert scale(fleet(replica(1, warm), replica(2, warm), models=(warm,)), NOW).claims == []


@pytest.mark.parametrize(
    ("there", "running", "since", "more"),
    [
        (1, 5, NOW - 2.9, 0),
        (1, 5, NOW - 3.0, 1),
        (1, 50, NOW - 3.0, 1),
        (2, 50, NOW - 3.0, 2),
        (3, 13, NOW - 3.0, 1),
        (3, 12, NOW - 3.0, 0),
        (4, 999, NOW - 3.0, 4),
        (5, 999, NOW - 3.0, 3),
    ],
)
def test_under_load_there_are_at_most_twice_as_many_after_a_while(
    there: int, running: int, since: float, more: int
) -> None:
    scaled = scale(fleet(*(replica(n) for n in range(there)), asked=load(running), pace=pressed(since)), NOW)
    assert scaled.claims == [Claim(LOADED, since, "m")] * more


def test_those_that_come_count_before_more_are_claimed() -> None:
    coming = [replica(n, phase=Phase.STARTING, ready_at=None) for n in (3, 4)]
    there = [replica(1), replica(2)]
    under_load = {"asked": load(999), "pace": pressed(NOW - 60)}
    assert len(scale(fleet(*there, coming[0], **under_load), NOW).claims) == 1
    assert scale(fleet(*there, *coming, **under_load), NOW).claims == []


def test_a_model_that_failed_claims_nothing_until_its_next_try() -> None:
    failed = {"m": Failures(1, "x", NOW + 1)}
    scaled = scale(fleet(asked=load(0, 1), failures=failed), NOW)
    assert scaled.claims == [] and scaled.pace["m"].waiting_since == NOW
    assert len(scale(fleet(asked=load(0, 1), failures=failed), NOW + 1).claims) == 1


def test_turns_are_by_need_then_by_time_then_by_size_and_then_by_name() -> None:
    gb = 10**9
    small, big = model("a", Needs(1, 10 * gb)), model("z", Needs(1, 80 * gb))
    two, cpu, fat = (
        model("y", Needs(2, 10 * gb)),
        model("b", Needs(0, 0, gb)),
        model("c", Needs(0, 0, 8 * gb)),
    )
    warm = model("w", min_replicas=1)
    known = {m.name: m for m in (small, big, two, cpu, fat, warm)}
    asked = {name: load(0, 1) for name in known if name != "w"}
    scaled = scale(Fleet(known, {W1.id: W1}, demand=asked), NOW)
    assert [claim.model for claim in scaled.claims] == ["y", "z", "a", "c", "b", "w"]
    longer = {"b": ModelPressure(waiting_since=NOW - 5)}
    scaled = scale(Fleet(known, {W1.id: W1}, demand=asked, pace=longer), NOW)
    assert [claim.model for claim in scaled.claims] == ["b", "y", "z", "a", "c", "w"]


def closed(*replicas: Replica, **more: Any) -> list[Command]:
    return scale(fleet(*replicas, **more), NOW).commands


def idle_for(seconds: float, number: int = 1, of: Model = M, **fields: Any) -> Replica:
    return replica(number, of, **{"used_at": NOW - seconds, **fields})


@pytest.mark.parametrize(
    ("one", "asked", "leaves"),
    [
        (idle_for(IDLE_S), None, True),
        (idle_for(IDLE_S - 0.1), None, False),
        (idle_for(IDLE_S, busy=1), None, False),
        (idle_for(IDLE_S, ready_at=NOW - IDLE_S + 0.1), None, False),
        (idle_for(IDLE_S, phase=Phase.STARTING), None, False),
        (idle_for(IDLE_S), Demand(asked_at=NOW - IDLE_S), True),
        (idle_for(IDLE_S), Demand(asked_at=NOW - IDLE_S + 0.1), False),
        (idle_for(IDLE_S), Demand(running=1), False),
    ],
)
def test_the_last_one_leaves_when_nobody_has_asked_for_long(
    one: Replica, asked: Demand | None, leaves: bool
) -> None:
    close = Close(one.id, Want.GONE, "idle for 100 s")
    assert closed(one, asked=asked) == ([close] if leaves else [])


def test_of_several_that_idle_those_leave_that_were_used_longest_ago() -> None:
    warm = model(min_replicas=1)
    there = [idle_for(IDLE_S + n, n, warm) for n in (1, 3, 2)]
    assert closed(*there, models=(warm,)) == [
        Close(there[1].id, Want.GONE, "idle for 100 s"),
        Close(there[2].id, Want.GONE, "idle for 100 s"),
    ]
    scaled = scale(fleet(*there, models=(warm,), pace={"m": ModelPressure(slack_since=1.0)}), NOW)
    assert scaled.pace == {}, "what is left is looked at afresh"


def test_where_load_is_thin_one_leaves_after_a_while_though_none_is_idle() -> None:
    there = [replica(n, busy=1, used_at=NOW - n) for n in (1, 3, 2)]
    slack = {"m": ModelPressure(slack_since=NOW - IDLE_S)}
    gone = Close(there[1].id, Want.GONE, "the load went down")
    assert closed(*there, asked=load(1), pace=slack) == [gone], "one at a time"
    assert closed(*there, asked=load(1), pace={"m": ModelPressure(slack_since=NOW - IDLE_S + 0.1)}) == []
    scaled = scale(fleet(*there, asked=load(1)), NOW)
    assert (scaled.commands, scaled.pace) == ([], {"m": ModelPressure(slack_since=NOW)})


def test_one_that_moved_for_a_model_that_waits_is_not_taken_for_surplus() -> None:
    warm = model("warm", min_replicas=1)
    there = [idle_for(IDLE_S, n, warm) for n in (1, 2)]
    waits = {"m": ModelPressure(waiting_since=NOW - 9)}
    known = {"models": (M, warm), "asked": load(0, 1)}
    assert closed(*there, **known, pace=waits) == []
    assert len(closed(*there, **known)) == 1, "nobody waits yet"
    assert len(closed(*there, **known, pace=waits, given_up={"m": GivenUp("x")})) == 1
    assert len(closed(*there, idle_for(IDLE_S, 3, warm), **known, pace=waits)) == 2


def test_what_an_admin_stops_leaves_at_once_whether_it_works_or_not() -> None:
    there = [replica(1, busy=1), replica(2), replica(3, phase=Phase.STARTING)]
    stop = Demand(0, 1, NOW, stop=True)
    assert closed(*there, asked=stop) == [Close(r.id, Want.GONE, "an admin stopped it") for r in there[:2]]
    assert closed(*there, asked=replace(stop, waiting=1)) == [], "somebody asks for it"
    warm = model(min_replicas=1)
    assert len(closed(replica(1, warm), replica(2, warm), models=(warm,), asked=stop)) == 1


def test_who_may_sleep_does_if_it_was_started_so() -> None:
    sleeps = model(sleep=True)
    one, other = idle_for(IDLE_S, 1, sleeps), idle_for(IDLE_S, 2, M)
    assert [rest_of(sleeps, r) for r in (one, other)] == [Want.ASLEEP, Want.GONE]
    assert rest_of(M, one) is Want.GONE
    assert closed(one, models=(sleeps,)) == [Close(one.id, Want.ASLEEP, "idle for 100 s")]


IDLED = Closing(NOW, Want.GONE, "idle")
FOR_ROOM = Closing(NOW, Want.GONE, "room", room_for="big")
BIG = model("big", Needs(8))


@pytest.mark.parametrize(
    ("one", "back"),
    [
        (replica(1, closing=IDLED), [Reopen(ReplicaId("m-1"))]),
        (replica(1, want=Want.ASLEEP), [SetWant(ReplicaId("m-1"), Want.READY, "asked for again")]),
        (replica(1, want=Want.ASLEEP, closing=FOR_ROOM), []),
        (replica(1, want=Want.ASLEEP, phase=Phase.SLEEPING), []),
        (replica(1, want=Want.GONE), []),
        (replica(1, closing=IDLED, phase=Phase.STOPPING), []),
        (replica(1, closing=IDLED, spec=replace(M, weights="other")), []),
        (replica(1, closing=IDLED, spec=model(idle_s=7.0)), [Reopen(ReplicaId("m-1"))]),
    ],
)
def test_one_that_was_about_to_leave_comes_back_when_it_is_asked_for(
    one: Replica, back: list[Command]
) -> None:
    big = {"models": (M, BIG), "demand": {"m": load(0, 1), "big": load(0, 1)}}
    scaled = scale(fleet(one, **big), NOW)
    assert scaled.commands == back
    assert [claim.model for claim in scaled.claims] == ["big"] + ([] if back else ["m"])
    draining = {W1.id: W1.drained(DrainedBy.ADMIN, True)}
    assert scale(fleet(one, **big, workers=draining), NOW).commands == []


def test_only_as_many_come_back_as_are_needed() -> None:
    there = [replica(n, closing=IDLED) for n in (1, 2, 3)]
    scaled = scale(fleet(*there, asked=load(5)), NOW)
    assert scaled.commands == [Reopen(ReplicaId("m-1")), Reopen(ReplicaId("m-2"))]
    assert scaled.claims == [] and scaled.pace == {}
    beside = scale(fleet(replica(9), *there, asked=load(5)), NOW)
    assert beside.commands == [Reopen(ReplicaId("m-1"))] and beside.pace == {}, "one serves already"


def test_who_makes_room_goes_on_when_nobody_needs_the_room_any_more() -> None:
    one = replica(1, closing=FOR_ROOM)
    wanted = {"big": load(0, 1)}
    assert scale(fleet(one, models=(M, BIG), demand=wanted), NOW).commands == []
    scaled = scale(fleet(one, models=(M, BIG), asked=load(0, 1)), NOW)
    assert scaled.commands == [Reopen(one.id)] and scaled.claims == [], "it is what its own model waits for"
    gone = replace(one, phase=Phase.STOPPING)
    scaled = scale(fleet(gone, models=(M, BIG), asked=load(0, 1)), NOW)
    assert scaled.commands == [] and len(scaled.claims) == 1


def test_replicas_of_models_that_are_gone_are_nobodys() -> None:
    scaled = scale(fleet(idle_for(IDLE_S, 1, BIG)), NOW)
    assert (scaled.commands, scaled.claims, scaled.pace) == ([], [], {})
