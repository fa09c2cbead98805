"""Which gangs are awake, decided slot by slot; and who sits where."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.gang_rules import GangReport, RankReport, gang_statuses
from turnout.fleet.hosts.ray.bundle_rules import (
    Strategy,
    could_hold,
    gang_bundles,
    misfit_reason,
    rank_bundle,
    seating,
    wait_reason,
)
from turnout.fleet.model_rules import EngineKind, Model, Scaling, VideoPart
from turnout.fleet.ray_rules import (
    GangWaits,
    QueueState,
    Resident,
    gang_prefix,
    plan_waits,
    queue_state,
    slot_of,
    slots_to_fill,
    wants_gang,
    who_leaves,
)
from turnout.fleet.scaling_rules import leave_order
from turnout.fleet.status_rules import ModelState, why_tasks_wait
from turnout.tasks.task_rules import GangId

VIDEO = VideoPart(FAMILIES["wan-tiny-t2v"], ulysses=2)
MODEL = Model("m", EngineKind.VIDEO, "w", scaling=Scaling(max_replicas=4), video=VIDEO)
slots = st.frozensets(st.integers(0, 3))


def split(**changes: Any) -> Model:
    return replace(MODEL, video=replace(VIDEO, **changes))


def awake(queue: QueueState, model: Model = MODEL) -> set[int]:
    return {slot for slot in range(model.scaling.max_replicas) if wants_gang(model, slot, queue)}


def test_nothing_waits_nothing_wakes() -> None:
    assert awake(QueueState()) == set()


def test_each_waiting_task_wakes_one_gang_up_to_the_limit() -> None:
    assert awake(QueueState(waiting=2)) == {0, 1}
    assert awake(QueueState(waiting=9)) == {0, 1, 2, 3}


def test_scaling_down_keeps_the_busy_one_and_lets_the_idle_one_go() -> None:
    assert awake(QueueState(busy=frozenset({1}), idle=frozenset({0}))) == {1}
    assert awake(QueueState(busy=frozenset({0}), idle=frozenset({1}))) == {0}


def test_an_idle_gang_takes_what_waits_before_another_is_woken() -> None:
    assert awake(QueueState(waiting=1, idle=frozenset({2}))) == {2}
    assert awake(QueueState(waiting=2, idle=frozenset({2}))) == {0, 2}


def test_idle_gangs_that_leave_an_old_task_lying_are_not_counted_on() -> None:
    assert awake(QueueState(waiting=1, oldest_s=60, idle=frozenset({2}))) == {0, 2}


def test_gangs_that_must_be_kept_are_kept() -> None:
    kept = replace(MODEL, scaling=replace(MODEL.scaling, min_replicas=2))
    assert awake(QueueState(), kept) == {0, 1}
    assert awake(QueueState(busy=frozenset({3})), kept) == {0, 3}


@given(st.integers(0, 9), st.floats(0, 100), slots, slots)
def test_a_busy_gang_is_never_stopped_whatever_else_is_true(
    waiting: int, oldest_s: float, busy: frozenset[int], idle: frozenset[int]
) -> None:
    wanted = awake(QueueState(waiting, oldest_s, busy, idle - busy))
    assert busy <= wanted
    assert len(wanted) >= min(MODEL.scaling.max_replicas, len(busy) + waiting)


def test_a_model_whose_turn_is_over_leaves_even_when_it_is_busy() -> None:
    assert awake(QueueState(waiting=3, busy=frozenset({1}), yields=True)) == set()


def test_a_gang_that_is_not_needed_stays_for_idle_s_and_no_longer() -> None:
    model, queue, awake_gangs = (
        replace(MODEL, scaling=replace(MODEL.scaling, idle_s=10.0)),
        QueueState(idle=frozenset({2})),
        {"g": 2},
    )
    wanted, since = slots_to_fill(model, queue, awake_gangs, {}, 100.0)
    assert (wanted, since) == ({2}, {"g": 100.0})
    assert slots_to_fill(model, queue, awake_gangs, since, 109.0)[0] == {2}
    assert slots_to_fill(model, queue, awake_gangs, since, 110.0)[0] == set()
    busy = QueueState(busy=frozenset({2}))
    assert slots_to_fill(model, busy, awake_gangs, since, 110.0) == ({2}, {}), "its time begins anew"
    assert slots_to_fill(model, replace(queue, yields=True), awake_gangs, since, 101.0)[0] == set()


def test_who_leaves_on_ray_has_had_its_turn_and_no_tasks_if_there_is_such_a_one() -> None:
    idle, busy = Resident(30.0), Resident(10.0, used=True)
    assert who_leaves({"busy": busy, "older": replace(busy, ready_at=5.0)}, 60.0, 100.0) == "older"
    assert who_leaves({"busy": busy, "idle": idle}, 60.0, 100.0) == "idle", "one without users leaves first"
    assert who_leaves({"busy": busy}, 60.0, 69.0) is None, "it has not had its stay"
    assert who_leaves({"busy": busy}, 60.0, 70.0) == "busy"
    assert who_leaves({"busy": replace(busy, kept_warm=True)}, 60.0, 100.0) is None


def turns(
    before: GangWaits, now: float, waiting: str = "", resident: dict[str, float] | None = None
) -> GangWaits:
    """Models are single letters; all but `x` fit, `w` is kept warm, and a turn lasts 60 s."""
    residents = {m: Resident(now - s, used=True, kept_warm=m == "w") for m, s in (resident or {}).items()}
    return plan_waits(before, list(waiting), set("abcw"), residents, 60.0, now)


def test_a_model_that_does_not_fit_is_refused_after_a_time_without_a_break() -> None:
    state = turns(GangWaits(), 0.0, "ax")
    assert state.misfits(29.0, 30.0) == [] and state.misfits(30.0, 30.0) == ["x"]
    state = turns(turns(state, 10.0), 20.0, "x")
    assert state.misfits(49.0, 30.0) == [] and state.misfits(50.0, 30.0) == ["x"]


def test_a_turn_ends_for_a_model_that_waits_and_lasts_until_it_has_its_place() -> None:
    state = turns(GangWaits(), 0.0, "ab", {"a": 100.0})
    assert state.yielding is None
    state = turns(state, 60.0, "abx", {"a": 160.0})
    assert state.yielding == "a" and state.misfit_since == {"x": 60.0}
    state = turns(state, 70.0, "ab")
    assert state.yielding == "a", "it has left, and the other has no gang yet"
    assert "a" not in state.waiting_since, "its own wait begins when the other has its place"
    state = turns(state, 71.0, "ab", {"b": 0.0})
    assert state.yielding is None and state.waiting_since == {}
    assert turns(state, 72.0, "ab", {"b": 1.0}).waiting_since == {"a": 72.0}


def test_a_stay_begins_when_the_model_is_loaded() -> None:
    gang = GangReport(GangId("g"), "m", 0, since=100.0, at=100.0)
    assert gang.stays_since == 700.0, (
        "a slow start does not use up its stay, but does not keep its place for ever"
    )
    assert replace(gang, ready_at=300.0).stays_since == 300.0


def test_a_model_that_is_kept_warm_does_not_yield() -> None:
    state = turns(GangWaits(), 0.0, "b", {"w": 100.0})
    assert turns(state, 60.0, "b", {"w": 160.0}).yielding is None


def test_those_without_users_leave_first_then_those_with_and_last_who_had_no_stay() -> None:
    order = [
        leave_order(*who, 7.0, 5.0) for who in ((True, False), (True, True), (False, False), (False, True))
    ]
    assert [rank for rank, _ in order] == [1, 2, 3, 3]
    assert [at for _, at in order] == [5.0, 7.0, 5.0, 7.0], "who was used, or became ready, longest ago"


def test_room_that_is_made_is_for_the_one_that_has_waited_longest() -> None:
    waits = GangWaits(waiting_since={"b": 20.0, "a": 10.0, "c": 30.0}, making_room=("d", "e"))
    assert {m: waits.yields(m) for m in "abcdef"} == {
        "a": False,
        "b": True,
        "c": True,
        "d": True,
        "e": True,
        "f": False,
    }
    assert not replace(waits, making_room=()).yields("b"), "nobody makes room: all may have what there is"
    assert replace(waits, waiting_since={}).yields("d") and not replace(waits, waiting_since={}).yields("a")


def test_a_model_that_never_fits_ends_nobody_s_turn() -> None:
    state = turns(GangWaits(), 0.0, "x", {"a": 100.0})
    assert turns(state, 60.0, "x", {"a": 160.0}).yielding is None


def test_a_rank_takes_a_device_and_the_leader_sits_with_the_first() -> None:
    assert rank_bundle(split(device="cuda")) == {"GPU": 1.0, "CPU": 0.9}
    assert rank_bundle(MODEL) == {"CPU": 0.9}
    assert gang_bundles(split(ulysses=3, device="cuda")) == [
        {"GPU": 1.0, "CPU": 1.0},
        {"GPU": 1.0, "CPU": 0.9},
        {"GPU": 1.0, "CPU": 0.9},
    ]


@pytest.mark.parametrize(
    ("nodes", "strategy", "why"),
    [
        ([{"CPU": 8.0}], "STRICT_SPREAD", "8 CPU on 1 node, and each rank must be on a node of its own"),
        ([{"CPU": 1.0}] * 2, "STRICT_PACK", "2 CPU on 2 nodes, but not where the ranks could be together"),
        ([{"CPU": 0.5}] * 8, "PACK", "4 CPU on 8 nodes, but in parts too small"),
        ([{"CPU": 0.5}] * 8, "STRICT_SPREAD", "4 CPU on 8 nodes, but in parts too small"),
        ([{"CPU": 1.5}, {"CPU": 0.5}], "STRICT_SPREAD", "2 CPU on 2 nodes, but in parts too small"),
        ([], "PACK", "nothing on 0 nodes, not enough CPU"),
        ([{"CPU": 1.9}], "PACK", "1.9 CPU on 1 node, but in parts too small"),
        ([{"CPU": 1.8}], "PACK", "1.8 CPU on 1 node, not enough CPU"),
        ([{"GPU": 9.0}], "PACK", "0 CPU on 1 node, not enough CPU"),
    ],
)
def test_why_no_gang_was_placed(nodes: list[dict[str, float]], strategy: Strategy, why: str) -> None:
    needs = f"m needs 2 ranks with 0.9 CPU each, 1.9 CPU in all ({strategy}); the cluster has "
    said = misfit_reason(MODEL, nodes, strategy)
    assert said == needs + why
    assert wait_reason(MODEL, [], {}, strategy, placed=False, trouble="") == misfit_reason(
        MODEL, [], strategy
    )
    assert misfit_reason(split(ulysses=1), [], strategy).endswith("nothing on 0 nodes, not enough CPU")


def test_all_that_is_missing_is_named() -> None:
    eight = split(ulysses=8, device="cuda")
    begin = "m needs 8 ranks with 1 GPU and 0.9 CPU each, 8 GPU and 7.3 CPU in all (PACK); the cluster has "
    for node, why in (
        ({"CPU": 4.0, "GPU": 8.0}, "8 GPU and 4 CPU on 1 node, not enough CPU"),
        ({"CPU": 4.0, "GPU": 7.0}, "7 GPU and 4 CPU on 1 node, not enough GPU and CPU"),
    ):
        assert misfit_reason(eight, [node], "PACK") == begin + why
    held = wait_reason(split(device="cuda"), [{"CPU": 4.0, "GPU": 2.0}], {}, "PACK", placed=False, trouble="")
    assert held == "other work on the cluster holds the GPU and CPU that it needs"


def test_why_tasks_have_no_gang_yet_is_told_in_words() -> None:
    two = [{"CPU": 2.0}]

    def why(nodes: list[dict[str, float]], free: float, placed: bool = False, trouble: str = "") -> str:
        return wait_reason(MODEL, nodes, {"CPU": free}, "PACK", placed=placed, trouble=trouble)

    assert why(two, 0.5) == "other work on the cluster holds the CPU that it needs"
    assert why(two, 2.0) == "Ray looks for a place for it"
    assert why(two, 0.1, placed=True) == "Ray starts it"
    assert "not enough CPU" in why([{"CPU": 1.0}], 1.0)
    lost = "rank 1 was killed by SIGKILL: its node ran low on memory"
    assert why(two, 2.0, placed=True, trouble=lost) == f"its last gang broke because {lost}"


def test_a_queue_s_state_is_read_from_names_and_reports() -> None:
    a, b, c = (GangId(f"{gang_prefix('m', slot)}x{slot}") for slot in (0, 1, 2))
    there = (RankReport(0, "n", "a", 7),)
    reports = {
        a: GangReport(a, "m", 0, 0, 0, 1, there),
        b: GangReport(b, "m", 1, 0, 0, 1, there),
        c: GangReport(c, "m", 2, 0, 0, 1, (RankReport(0),)),
    }
    queue = queue_state(MODEL, 3, 1, 4.0, {a: 1, b: 0, GangId("worker-m-77"): 1}, reports)
    assert queue == QueueState(2, 4.0, frozenset({0}), frozenset({1}))
    assert slot_of("ray-m-x-1", "m") is None


def test_ranks_of_a_node_are_neighbours_and_the_leaders_node_comes_first() -> None:
    assert seating({0: "b", 1: "a", 2: "b", 3: "a", 4: "b"}) == [0, 2, 4, 1, 3]


def test_what_fits_depends_on_the_nodes_and_the_strategy() -> None:
    bundles = gang_bundles(split(ulysses=4))
    two = [{"CPU": 2.0}, {"CPU": 2.0}]
    assert could_hold(two, bundles, "PACK")
    assert could_hold(two, bundles, "SPREAD")
    assert not could_hold(two, bundles, "STRICT_PACK")
    assert not could_hold(two, bundles, "STRICT_SPREAD")
    assert could_hold([{"CPU": 4.0}], bundles, "STRICT_PACK")
    pair = gang_bundles(MODEL)
    assert could_hold([{"CPU": 1.9}], pair, "PACK"), "the leader is beside the first rank alone"
    assert not could_hold([{"CPU": 8.0}], pair, "STRICT_SPREAD")
    assert not could_hold(two, gang_bundles(split(ulysses=8)), "PACK")
    on_gpus = gang_bundles(split(device="cuda"))
    assert not could_hold(two, on_gpus, "PACK")
    assert could_hold([{"CPU": 8.0, "GPU": 2.0}], on_gpus, "PACK")


def test_a_gang_of_n_ranks_needs_n_nodes_and_no_more_when_each_must_have_its_own() -> None:
    four = gang_bundles(split(ulysses=4))
    assert could_hold([{"CPU": 1.0}] * 4, four, "STRICT_SPREAD")
    assert not could_hold([{"CPU": 1.0}] * 3, four, "STRICT_SPREAD")
    assert could_hold([{"CPU": 0.9}] * 3 + [{"CPU": 1.0}], four, "STRICT_SPREAD")  # the leader's is last
    assert not could_hold([{"CPU": 0.9}] * 4, four, "STRICT_SPREAD")


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(1, 5))
def test_what_fits_is_found_wherever_the_leader_must_be(cpus: list[int], ranks: int) -> None:
    """By trying all places for all bundles."""
    nodes = [{"CPU": cpu / 2} for cpu in cpus]
    bundles = gang_bundles(split(ulysses=ranks))
    places = product(range(len(nodes)), repeat=len(bundles))
    fits = any(
        all(
            sum(b["CPU"] for b, at in zip(bundles, place, strict=True) if at == n) <= node["CPU"] + 1e-6
            for n, node in enumerate(nodes)
        )
        for place in places
    )
    assert could_hold(nodes, bundles, "PACK") == fits


def test_ranks_that_must_each_have_a_node_do_not_share_one() -> None:
    bundles = [{"GPU": 1.0, "CPU": 1.0}] * 3
    small, large = {"GPU": 1.0, "CPU": 9.0}, {"GPU": 3.0, "CPU": 9.0}
    assert not could_hold([small, large], bundles, "STRICT_SPREAD") and could_hold(
        [small, large], bundles, "SPREAD"
    )
    assert could_hold([small, small, large], bundles, "STRICT_SPREAD")


def test_gangs_on_ray_tell_how_their_models_stand() -> None:
    ranks = (RankReport(0, "n", "10.0.0.3", 7), RankReport(1))
    coming = GangReport(GangId("ray-a-0-x"), "a", 0, since=1.0, at=4.0, ranks=ranks)
    loading = replace(coming, model="b", ranks=ranks[:1])
    ready = replace(loading, gang=GangId("ray-b-1-x"), ready_at=3.0)
    nowhere = gang_statuses([replace(coming, ranks=())])["a"]
    assert why_tasks_wait(nowhere) == "waking: its ranks come up on Ray" and nowhere.for_s == 3.0
    assert why_tasks_wait(gang_statuses([coming])["a"]) == "waking: its ranks come up on 10.0.0.3"
    assert why_tasks_wait(gang_statuses([loading])["b"]) == "waking: loading on 10.0.0.3"
    assert (
        gang_statuses([loading, ready])["b"].state
        is gang_statuses([ready, loading])["b"].state
        is ModelState.READY
    )
    broken = gang_statuses([replace(ready, trouble="rank 1 died")])["b"]
    assert why_tasks_wait(broken) == "waking: once more (rank 1 died) on 10.0.0.3"
