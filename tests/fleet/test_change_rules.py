"""What the registry's news means for a fleet, and what of a changed fleet must be published."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fleet.core_world import Box, World, model

from turnout.fleet.change_rules import demand_event, model_events, publication, with_elsewhere, worker_events
from turnout.fleet.events_and_commands import (
    ModelRemoved,
    ModelSet,
    WorkerDraining,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import Version
from turnout.fleet.publication import Publication, SavedFleet
from turnout.fleet.replica_rules import Closing, Phase, Want
from turnout.fleet.route_rules import Demand, DemandReport, ModelRoutes
from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.fleet.view_rules import orders_of
from turnout.fleet.worker_rules import DrainedBy, Enrolment, OrderSheet, Standing, StoredHeartbeat

W1, W2 = WorkerId("w1"), WorkerId("w2")
A, B = model("a"), model("b")


def serving() -> World:
    world = World(Box(W1), models=[A, B])
    world.ask("a", waiting=1)
    world.ticks(6)
    assert world.ready("a")
    return world


def test_models_that_changed_came_or_went_are_told() -> None:
    fleet = Fleet(models={"a": A, "b": B})
    changed = replace(A, concurrency=1)
    assert model_events(fleet, {"a": changed, "b": B}) == [ModelSet(changed)]
    assert model_events(fleet, {"a": A}) == [ModelRemoved("b")]
    assert model_events(fleet, {"a": A, "b": B}) == []


def test_news_of_workers_are_told_once() -> None:
    fleet = serving().fleet
    known = fleet.workers[W1]
    enrolled = Enrolment(W1, "box", "http://w1", "d")
    beat = StoredHeartbeat(Machine((), 1, 1), (), seen=3, seq=known.seq + 1)
    assert worker_events(fleet, [W1], {W1: enrolled}, {W1: replace(beat, seq=known.seq)}) == []
    heard = WorkerHeard(W1, "http://w1", beat.machine, (), beat.seq, 3, "box")
    assert worker_events(fleet, [W1], {W1: enrolled}, {W1: beat}) == [heard]
    assert worker_events(fleet, [W1, W2], {}, {}) == [WorkerRemoved(W1)]
    drained = {W1: replace(enrolled, draining=True)}
    assert worker_events(fleet, [W1], drained, {}) == [WorkerDraining(W1, True)]
    away = replace(fleet, workers={W1: known.drained(DrainedBy.ADMIN, True)})
    assert worker_events(away, [W1], {W1: enrolled}, {}) == [WorkerDraining(W1, False)]
    ending = replace(beat, leaving=True)
    assert worker_events(fleet, [W1], {W1: enrolled}, {W1: ending}) == [replace(heard, leaving=True)]
    itself = replace(fleet, workers={W1: known.drained(DrainedBy.ITSELF, True)})
    assert worker_events(itself, [W1], {W1: enrolled}, {}) == [], "no admin drained it"
    newcomer = {W2: Enrolment(W2, "far", "http://w2", "d", draining=True)}
    assert worker_events(fleet, [W2], newcomer, {W2: replace(beat, seq=0)}) == [
        WorkerHeard(W2, "http://w2", beat.machine, (), 0, 3, "far"),
        WorkerDraining(W2, True),
    ]


def test_what_gateways_and_queues_want_adds_up() -> None:
    fleet = Fleet(demand={"old": Demand(3, 2, 40.0)})
    asked = [
        (90.0, {"a": DemandReport(1, 2, 5.0), "b": DemandReport(0, 0, 5.0)}),
        (80.0, {"a": DemandReport(4, 0, 5.0), "b": DemandReport(0, 0, 1.0)}),
    ]
    seen = demand_event(fleet, asked, {"b": Demand(7, 0, 10.0)}, (), 100.0)
    assert seen.demand == {
        "a": Demand(5, 2, 90.0),
        "b": Demand(7, 0, 85.0),
        "old": Demand(0, 0, 40.0),
    }


def test_nothing_is_published_where_nothing_changed() -> None:
    fleet = serving().fleet
    assert publication(fleet, fleet, None, with_history=False) is None
    said = publication(fleet, fleet, None, with_history=True)
    assert said is not None and not (said.replicas or said.orders or said.routes)
    assert said.history is not None and said.statuses is not None and {*said.statuses} == {"a", "b"}
    history = said.history
    assert (history.at, history.pace, history.failures) == (fleet.at, fleet.pace, fleet.failures)
    assert (history.given_up, history.wake_s) == (fleet.given_up, fleet.wake_s)


def test_a_replica_that_moved_is_published_with_its_model_s_routes() -> None:
    world = serving()
    [before] = world.of("a")
    closed = replace(before, phase=Phase.FAILED)
    after = replace(world.fleet, replicas={before.id: closed})
    said = publication(world.fleet, after, None, with_history=False)
    assert said is not None and said.replicas == {before.id: closed} and {*said.routes} == {"a"}
    assert said.orders == {} and said.history is None and said.statuses is None
    busier = replace(world.fleet, replicas={before.id: replace(before, busy=9)})
    assert publication(world.fleet, busier, None, with_history=False) is None, "heartbeats tell that"
    whole = publication(world.fleet, after, None, with_history=True)
    assert whole is not None and whole.history is not None and whole.statuses is not None
    assert (whole.replicas, whole.orders, whole.routes) == (said.replicas, said.orders, said.routes)
    emptied = replace(world.fleet, replicas={})
    said = publication(world.fleet, emptied, None, with_history=False)
    assert said is not None and said.replicas == {before.id: None} and {*said.routes} == {"a"}


def test_what_is_no_more_is_taken_back() -> None:
    world = serving()
    gone = replace(world.fleet, workers={}, models={"a": A})
    said = publication(world.fleet, gone, None, with_history=False)
    assert said is not None and said.orders == {W1: None} and said.routes == {"b": None}
    worker = world.fleet.workers[W1]
    told = replace(world.fleet, workers={W1: replace(worker, version=worker.version + 1)})
    said = publication(world.fleet, told, None, with_history=False)
    orders = orders_of(world.fleet, [W1])[W1]
    assert orders and said is not None
    assert said.orders == {W1: OrderSheet(worker.version + 1, orders)}


def test_a_new_manager_says_everything_anew_and_takes_back_what_the_last_one_left() -> None:
    fleet = serving().fleet
    left = SavedFleet({}, {W1: 1, W2: 5}, frozenset({"a", "removed"}), None)
    said = publication(fleet, fleet, left, with_history=False)
    assert said is not None
    assert said.orders.keys() == {W1, W2} and said.orders[W2] is None and said.orders[W1] is not None
    assert said.routes.keys() == {"a", "b", "removed"} and said.routes["removed"] is None


def test_models_that_others_look_after_have_routes_too() -> None:
    plain = Publication(routes={"a": ModelRoutes()})
    assert with_elsewhere(None, {"b": B}, {"b": B}, {}) is None
    assert with_elsewhere(plain, {}, {}, {}) == plain
    said = with_elsewhere(plain, {"b": B}, {"c": model("c")}, {})
    assert said is not None and said.routes == {"a": ModelRoutes(), "b": None, "c": ModelRoutes()}
    asleep, stopped = ModelStatus(ModelState.ASLEEP), ModelStatus(ModelState.STOPPED)
    told = with_elsewhere(replace(plain, statuses={"a": asleep}), {}, {}, {"c": stopped})
    assert told is not None and told.statuses == {"a": asleep, "c": stopped}
    assert with_elsewhere(plain, {}, {}, {"c": stopped}) == plain, "they are told with the history alone"


SHUT = Closing(1.0, Want.GONE, "idle")


@pytest.mark.parametrize(
    ("changed", "kept", "routed"),
    [
        ({"want": Want.ASLEEP}, True, True),
        ({"phase": Phase.STOPPING}, True, True),
        ({"closing": SHUT}, True, True),
        ({"address": "elsewhere:1"}, False, True),
        ({"phase_since": 1.0}, True, False),
        ({"ready_at": 1.0}, True, False),
        ({"ordered": 99}, True, False),
        ({"heard": False}, True, False),
        ({"used_at": 31.0}, True, False),
        ({"used_at": 29.0}, False, False),
        ({"busy": 9}, False, False),
        ({"detail": "40 %"}, False, False),
    ],
)
def test_what_others_see_or_must_outlive_the_manager_is_published(
    changed: dict[str, Any], kept: bool, routed: bool
) -> None:
    world = serving()
    [now] = world.of("a")
    before = replace(now, used_at=0.0)
    after = replace(before, **changed)
    old, new = (replace(world.fleet, replicas={before.id: one}) for one in (before, after))
    said = publication(old, new, None, with_history=False)
    told = said or Publication()
    assert told.replicas == ({before.id: after} if kept else {})
    assert {*told.routes} == ({"a"} if routed else set()) and told.orders == {}
    assert (said is None) == (not kept and not routed)


def test_since_when_a_replica_is_closed_moves_no_route() -> None:
    world = serving()
    [now] = world.of("a")
    old, new = (
        replace(world.fleet, replicas={now.id: replace(now, closing=replace(SHUT, since=at))})
        for at in (1.0, 2.0)
    )
    said = publication(old, new, None, with_history=False)
    assert said is not None and {*said.replicas} == {now.id} and not said.routes


@pytest.mark.parametrize(
    ("changed", "routed"),
    [
        ({"url": "http://b"}, True),
        ({"standing": Standing.SUSPECT}, True),
        ({"heard_at": 1.0}, False),
        ({"name": "other"}, False),
    ],
)
def test_where_a_worker_is_reached_moves_the_routes_of_what_it_has(
    changed: dict[str, Any], routed: bool
) -> None:
    fleet = serving().fleet
    moved = replace(fleet, workers={W1: replace(fleet.workers[W1], **changed)})
    said = publication(fleet, moved, None, with_history=False)
    assert (None if said is None else {*said.routes}) == ({"a"} if routed else None)


def test_a_model_s_own_news_are_published_with_those_of_the_name_that_it_answers_for() -> None:
    fleet = serving().fleet
    other = replace(B, concurrency=1)
    said = publication(fleet, replace(fleet, models={"a": A, "b": other}), None, with_history=False)
    assert said is not None and {*said.routes} == {"b"} and said.history is None
    version = replace(B, version=Version("a", 0.5))
    for models in ((B, version), (version, B)):
        old, new = (replace(fleet, models={"a": A, "b": one}) for one in models)
        said = publication(old, new, None, with_history=False)
        assert said is not None and {*said.routes} == {"a", "b"}
    for news, routed in (
        ({"given_up": {"b": GivenUp("x")}}, {"b"}),
        ({"failures": {"b": Failures(1, "x", 9.0)}}, set()),
    ):
        said = publication(fleet, replace(fleet, **news), None, with_history=False)
        assert said is not None and {*said.routes} == routed and said.history is not None


def test_a_replica_that_came_is_published_with_its_route() -> None:
    fleet = serving().fleet
    said = publication(replace(fleet, replicas={}), fleet, None, with_history=False)
    assert said is not None and said.replicas == dict(fleet.replicas) and {*said.routes} == {"a"}
