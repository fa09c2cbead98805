"""What the registry's news means for a fleet, and what of a changed fleet must be published."""

from dataclasses import replace

from tests.fleet.core_world import Box, World, model

from turnout.fleet.change_rules import demand_event, model_events, publication, with_elsewhere, worker_events
from turnout.fleet.events_and_commands import (
    ModelRemoved,
    ModelSet,
    WorkerDraining,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.publication import Publication, SavedFleet
from turnout.fleet.replica_rules import Phase
from turnout.fleet.route_rules import Demand, DemandReport, ModelRoutes
from turnout.fleet.view_rules import orders_of
from turnout.fleet.worker_rules import DrainedBy, Enrolment, OrderSheet, StoredHeartbeat

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
