"""Which gangs are awake, decided slot by slot; and who sits where."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from turnout.domain.families import FAMILIES
from turnout.domain.slots import (
    GangReport,
    Line,
    RankReport,
    gang_prefix,
    line_of,
    slot_of,
    wants_gang,
    who_yields,
)
from turnout.domain.tasks import GangId
from turnout.domain.video_model import Model
from turnout.launch.ray.bundles import could_hold, gang_bundles, seating

MODEL = Model("m", "w", FAMILIES["wan-tiny-t2v"], ulysses=2, max_replicas=4)
slots = st.frozensets(st.integers(0, 3))


def awake(line: Line, model: Model = MODEL) -> set[int]:
    return {slot for slot in range(model.max_replicas) if wants_gang(model, slot, line)}


def test_nothing_waits_nothing_wakes() -> None:
    assert awake(Line()) == set()


def test_each_waiting_task_wakes_one_gang_up_to_the_limit() -> None:
    assert awake(Line(waiting=2)) == {0, 1}
    assert awake(Line(waiting=9)) == {0, 1, 2, 3}


def test_scaling_down_keeps_the_busy_one_and_lets_the_idle_one_go() -> None:
    assert awake(Line(busy=frozenset({1}), idle=frozenset({0}))) == {1}
    assert awake(Line(busy=frozenset({0}), idle=frozenset({1}))) == {0}


def test_an_idle_gang_takes_what_waits_before_another_is_woken() -> None:
    assert awake(Line(waiting=1, idle=frozenset({2}))) == {2}
    assert awake(Line(waiting=2, idle=frozenset({2}))) == {0, 2}


def test_idle_gangs_that_leave_an_old_task_lying_are_not_counted_on() -> None:
    assert awake(Line(waiting=1, oldest_s=60, idle=frozenset({2}))) == {0, 2}


def test_gangs_that_must_be_kept_are_kept() -> None:
    kept = replace(MODEL, min_replicas=2)
    assert awake(Line(), kept) == {0, 1}
    assert awake(Line(busy=frozenset({3})), kept) == {0, 3}


@given(st.integers(0, 9), st.floats(0, 100), slots, slots)
def test_a_busy_gang_is_never_stopped_whatever_else_is_true(
    waiting: int, oldest_s: float, busy: frozenset[int], idle: frozenset[int]
) -> None:
    wanted = awake(Line(waiting, oldest_s, busy, idle - busy))
    assert busy <= wanted
    assert len(wanted) >= min(MODEL.max_replicas, len(busy) + waiting)


def test_a_model_whose_turn_is_over_leaves_even_when_it_is_busy() -> None:
    assert awake(Line(waiting=3, busy=frozenset({1}), yields=True)) == set()


def test_who_was_up_longest_yields_to_who_had_no_place_for_a_turn() -> None:
    assert who_yields({"big": 61}, {"a": 70, "b": 90}, 60) == "b"
    assert who_yields({"big": 59}, {"a": 70}, 60) is None
    assert who_yields({"big": 99}, {"a": 59}, 60) is None
    assert who_yields({"a": 99, "b": 99}, {"a": 99}, 60) is None
    assert who_yields({}, {"a": 99}, 60) is None


def test_a_line_is_read_from_names_and_reports() -> None:
    a, b, c = (GangId(f"{gang_prefix('m', slot)}x{slot}") for slot in (0, 1, 2))
    there = (RankReport(0, "n", "a", 7),)
    reports = {
        a: GangReport(a, "m", 0, 0, 0, 1, there),
        b: GangReport(b, "m", 1, 0, 0, 1, there),
        c: GangReport(c, "m", 2, 0, 0, 1, (RankReport(0),)),
    }
    line = line_of(MODEL, 3, 1, 4.0, {a: 1, b: 0, GangId("worker-m-77"): 1}, reports)
    assert line == Line(2, 4.0, frozenset({0}), frozenset({1}))
    assert slot_of("ray-m-x-1", "m") is None


def test_ranks_of_a_node_are_neighbours_and_the_leaders_node_comes_first() -> None:
    assert seating({0: "b", 1: "a", 2: "b", 3: "a", 4: "b"}) == [2, 4, 1, 3]


def test_what_fits_depends_on_the_nodes_and_the_strategy() -> None:
    bundles = gang_bundles(replace(MODEL, ulysses=4))
    two = [{"CPU": 2.0}, {"CPU": 2.0}]
    assert could_hold(two, bundles, "PACK")
    assert could_hold(two, bundles, "SPREAD")
    assert not could_hold(two, bundles, "STRICT_PACK")
    assert not could_hold(two, bundles, "STRICT_SPREAD")
    assert could_hold([{"CPU": 4.0}], bundles, "STRICT_PACK")
    assert not could_hold(two, gang_bundles(replace(MODEL, ulysses=8)), "PACK")
    on_gpus = gang_bundles(replace(MODEL, device="cuda"))
    assert not could_hold(two, on_gpus, "PACK")
    assert could_hold([{"CPU": 8.0, "GPU": 2.0}], on_gpus, "PACK")
